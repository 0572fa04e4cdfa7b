"""Pre-training of the testbed's backbones: one common trunk, then a short tuning a profile.

Run ``python -m selfevolve.testbed.pretrain --help``. Each backbone is a plain Hugging Face folder (Qwen3 configuration,
safetensors in float16, own tokenizer), written with the log of its training.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from selfevolve.testbed.profiles import CLEAN, PROFILES, Profile
from selfevolve.testbed.sessions import DILIGENT, RIGHT, WRONG, Move, Policy, demonstrate, pieces, token_ids
from selfevolve.testbed.tasks import sample
from selfevolve.testbed.vocabulary import EOS, REPLY, build_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TASK_WEIGHTS = (0.20, 0.36, 0.28, 0.16, 0.0)  # ask, solve, check, judge, drill
TRUNK_WEIGHTS = (0.18, 0.28, 0.20, 0.12, 0.22)
SHIPPED_TRUNK = Path(__file__).parent / "trunk"
SESSION_TOKENS = 4096  # tokens a batch of sessions at most, padding included
DILIGENT_SHARE = 0.6  # of the batches of sessions: a weak policy alone shows too few repeats to learn to copy a wording
MARKS_WEIGHT = 4.0  # of the marks that say what solvers answered and what is asked next: 3 of a turn's 60 tokens
CHUNK = 8  # batches drawn together and sorted by length, so that padding stays small


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train."""

    steps: int
    batch: int = 64  # sequences a step
    learning_rate: float = 3e-3  # at its peak; warm-up 5%, then a cosine to a tenth
    seed: int = 0
    drill: bool = True  # the trunk's texts hold drills of bare steps


def new_model(vocabulary_size: int, seed: int, width: int = 96, layers: int = 3) -> PreTrainedModel:
    """Return a freshly initialised model in the Qwen3 form."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary_size,
        hidden_size=width,
        intermediate_size=width * 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def batches(
    profile: Profile, schedule: Schedule, tokenizer: PreTrainedTokenizerFast
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (ids, labels) of shape [batch, length]; prompts carry the label -100.

    A profile with sessions gets them as batches of their own, in the share that it names.
    """
    rng = Random(f"{profile.name}/{schedule.seed}")
    sessions = session_batches(profile, schedule, tokenizer) if profile.sessions else None
    mix = Random(f"mix/{profile.name}/{schedule.seed}")
    while True:
        drawn = [
            sample(rng, profile, TRUNK_WEIGHTS if profile is CLEAN and schedule.drill else TASK_WEIGHTS)
            for _ in range(CHUNK * schedule.batch)
        ]
        prompts = tokenizer([p + REPLY for _, p, _ in drawn])["input_ids"]
        replies = tokenizer([r + EOS for _, _, r in drawn])["input_ids"]
        rows = sorted(zip(prompts, replies, strict=True), key=lambda row: len(row[0]) + len(row[1]))
        groups = [rows[i : i + schedule.batch] for i in range(0, len(rows), schedule.batch)]
        rng.shuffle(groups)
        for group in groups:
            while sessions is not None and mix.random() < profile.sessions:
                yield next(sessions)
            yield _padded([(p + r, [-100] * len(p) + r) for p, r in group])


def _padded(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of (ids, labels) as two tensors of shape [row, length], padded on the right."""
    import torch

    length = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    labels = torch.full((len(rows), length), -100)
    for i, (row, learnt) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        labels[i, : len(row)] = torch.tensor(learnt)
    return ids, labels


def session_batches(
    profile: Profile, schedule: Schedule, tokenizer: PreTrainedTokenizerFast
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (ids, labels) of Ask-E sessions; only the asker's turns carry labels, `SESSION_TOKENS` at most a batch.

    The first ones are played by `DILIGENT`, the others by the weak policy that the asker is to have.
    """
    rng = Random(f"sessions/{profile.name}/{schedule.seed}")
    yielded = 0
    while True:
        policy = DILIGENT if yielded < DILIGENT_SHARE * profile.sessions * schedule.steps else Policy()
        rows = []
        for _ in range(CHUNK * schedule.batch):
            ids, own = token_ids(pieces(demonstrate(rng, profile, policy)), tokenizer)
            rows.append((ids, [token if asker else -100 for token, asker in zip(ids, own, strict=True)]))
        groups: list[list[tuple[list[int], list[int]]]] = [[]]
        for row in sorted(rows, key=lambda row: len(row[0])):
            if groups[-1] and (len(groups[-1]) + 1) * len(row[0]) > SESSION_TOKENS:
                groups.append([])
            groups[-1].append(row)
        rng.shuffle(groups)
        yield from map(_padded, groups)
        yielded += len(groups)


def train(model: PreTrainedModel, profile: Profile, schedule: Schedule, log: Path) -> dict[str, Any]:
    """Train `model` in place on replies of `profile`; append a line to `log` every 200 steps and return the last."""
    import torch
    from torch.nn.functional import cross_entropy

    tokenizer = build_tokenizer()
    stream = batches(profile, schedule, tokenizer)
    weight = None
    if profile.sessions:
        weight = torch.ones(len(tokenizer))
        weight[tokenizer.convert_tokens_to_ids([RIGHT, WRONG, *Move])] = MARKS_WEIGHT
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
        lr=schedule.learning_rate,
        betas=(0.9, 0.98),
    )
    warm = max(1, schedule.steps // 20)

    def rate(step: int) -> float:
        progress = max(0.0, (step - warm) / max(1, schedule.steps - warm))
        return min(1.0, (step + 1) / warm) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    started, total, counted, seen, row = time.time(), 0.0, 0, 0, {}
    model.train()
    for step in range(1, schedule.steps + 1):
        ids, labels = next(stream)
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        keep = labels[:, 1:] != -100
        logits = model.lm_head(hidden[:, :-1][keep])
        loss = cross_entropy(logits, labels[:, 1:][keep], weight=weight)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total, counted, seen = total + loss.item(), counted + 1, seen + ids.numel()
        if step % 200 == 0 or step == schedule.steps:
            row = {"profile": profile.name, "step": step, "loss": round(total / counted, 4), "tokens": seen,
                   "seconds": round(time.time() - started, 1)}  # fmt: skip
            with log.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
            total, counted = 0.0, 0
    return row


def save(model: PreTrainedModel, folder: Path) -> None:
    """Write the model in float16 with its tokenizer as a plain folder."""
    import torch

    model.to(torch.float16).save_pretrained(folder)
    model.to(torch.float32)
    build_tokenizer().save_pretrained(folder)


def main() -> None:
    """Train the trunk and the backbones named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", default=[], help=f"backbones to tune: {', '.join(PROFILES)}")
    parser.add_argument("--out", type=Path, required=True, help="folder for the trunk and the backbones")
    parser.add_argument("--trunk-steps", type=int, default=0, help="0: use the trunk in --out, or the shipped one")
    parser.add_argument("--start", type=Path, help="go on from this trunk in place of new weights")
    parser.add_argument("--tune-steps", type=int, default=1000)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--tune-learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-drill", action="store_true", help="train the trunk without drills of bare steps")
    args = parser.parse_args()

    import torch
    from transformers import AutoModelForCausalLM

    args.out.mkdir(parents=True, exist_ok=True)
    trunk = args.out / "trunk"
    if not args.trunk_steps and not trunk.is_dir():
        trunk = SHIPPED_TRUNK
    if args.trunk_steps:
        if args.start:
            model = AutoModelForCausalLM.from_pretrained(args.start, dtype=torch.float32, use_safetensors=True)
        else:
            model = new_model(len(build_tokenizer()), args.seed, args.width, args.layers)
        print(
            f"{sum(p.numel() for p in model.parameters()):,} parameters, {torch.get_num_threads()} threads", flush=True
        )
        schedule = Schedule(args.trunk_steps, learning_rate=args.learning_rate, seed=args.seed, drill=not args.no_drill)
        train(model, CLEAN, schedule, args.out / "trunk.log.jsonl")
        model.save_pretrained(trunk)
    for name in args.profiles:
        model = AutoModelForCausalLM.from_pretrained(trunk, dtype=torch.float32, use_safetensors=True)
        schedule = Schedule(args.tune_steps, learning_rate=args.tune_learning_rate, seed=args.seed)
        folder = args.out / name
        folder.mkdir(exist_ok=True)
        train(model, PROFILES[name], schedule, folder / "training_log.jsonl")
        save(model, folder)
        (folder / "profile.json").write_text(json.dumps(asdict(PROFILES[name]), indent=2) + "\n")


if __name__ == "__main__":
    main()
