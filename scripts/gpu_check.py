"""Check the toolkit on one CUDA GPU, in a few minutes, with what the repository carries and without a network.

    python scripts/gpu_check.py [--out gpu-check]            # a GPU is needed; `--device cpu` runs the same on a CPU

Two models: the testbed's base (0.4M parameters, real weights) and a random Qwen3 of Qwen3-0.6B's shape (`--layers`,
`--width`), which fills a GPU. For each, `selfevolve.train.train` runs in bfloat16 on the device and its rollouts are
kept; the same rollouts train the same weights in float32 on the device and, as the reference, in float32 on the CPU.
Losses, gradient norms, entropies and log-probabilities must agree within the bounds of `BOUNDS`. Then sampling and
training are timed against the bare model. docs/gpu-check.md explains every line.

Each job runs in a child process, so that peak memory is its own and the CPU's jobs see no GPU. Exit status: 0 all
checks hold, 1 one does not, 2 there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "flash-attn", "vllm", "numpy")
# Bounds in step 1: mean difference of a token's log-probability, relative difference of entropy and of gradient norm,
# difference of loss. Twice as much in step 2, which sees weights that two updates moved apart. bfloat16 keeps 8 bits:
# each product is off by up to 0.4%, a logit of size 10 by some 0.02, and a sum over layers by a few times that. float32
# on another device differs by the order of its sums only; AdamW's first steps enlarge it where a gradient is near 0.
BOUNDS = {"bfloat16": (0.02, 0.03, 0.15, 0.01), "float32": (0.001, 0.001, 0.02, 0.001)}
LEARNING_RATE = 1e-4
Json = dict[str, Any]


def make_model(folder: Path, layers: int, width: int, vocabulary: int | None) -> str:
    """Write a random Qwen3 with the testbed's tokenizer, and return its folder; heads of 128 as in Qwen3."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from selfevolve.backbones import resolve_backbone

    tokenizer = AutoTokenizer.from_pretrained(resolve_backbone("testbed:base"))
    size = 128 if width >= 256 else max(8, width // 4)
    heads = max(2, 2 * width // size)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary or len(tokenizer), hidden_size=width, intermediate_size=3 * width,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=size,
        max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def rows(count: int) -> list[Any]:
    """Return the testbed's questions as training rows."""
    from selfevolve.prompts import load_pack
    from selfevolve.stages.initialisation import read_initialisation_data
    from selfevolve.train import TrainRow

    pack = load_pack("testbed")
    return [TrainRow(pack.solve(example.question)) for example in read_initialisation_data("testbed")[:count]]


def reward(batch: Any) -> list[float | None]:
    """Score each completion by its length and text alone: the same tokens get the same reward everywhere."""
    return [(rollout.completion_tokens % 5 + len(rollout.text) % 3) / 6 for rollout in batch.rollouts]


def keeper(replay: list[Any] | None, kept: list[Any], sequences: list[list[int]]) -> Callable[[Any, Any], Any]:
    """Return what makes a stage's sampler: it keeps its completions, or gives those that were kept, step by step."""
    from selfevolve.sampling.decoding import Completion
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    class Keeping(TransformersSampler):
        def sample_ids(self, prompts: Any, sampling: Any, keys: Any = None) -> Any:
            if replay is None:
                groups = super().sample_ids(prompts, sampling, keys)
            else:
                groups = [[Completion(tuple(ids), stopped)] for ids, stopped in replay[len(kept)]]
            kept.append([(list(group[0].ids), group[0].stopped) for group in groups])
            sequences[:] = [list(prompt) + list(g[0].ids) for prompt, g in zip(prompts, groups, strict=True)]
            return groups

    return lambda model, tokenizer: Keeping(model, tokenizer, batch=512)


def train_job(job: Json) -> Json:
    """Train as a stage does; keep or replay rollouts, and return the log, the log-probabilities and what it took."""
    import torch

    from selfevolve.train import TrainSpec, train

    backend: Any = import_module("selfevolve.train.trl_backend")
    kept: list[list[Any]] = []  # of every step, (ids, ended) a completion
    sequences: list[list[int]] = []  # of the last step, prompt and completion
    logps: dict[int, list[float]] = {}
    scored = backend._Trainer._get_per_token_logps_and_entropies

    def scoring(self: Any, model: Any, ids: Any, mask: Any, keep: int, *rest: Any, **options: Any) -> Any:
        found = scored(self, model, ids, mask, keep, *rest, **options)
        step = self.maker.facts["step"]
        if len(ids) == spec.completions and step not in logps:  # before the updates, by the policy that is trained
            logps[step] = found[0].float()[mask[:, -keep:].bool()].tolist()
        return found

    same = {name: job[name] for name in ("steps", "prompts", "responses", "micro_batch", "device", "dtype")}
    own = {"global_batch": job["prompts"] // 2, "max_new_tokens": job["new_tokens"], "learning_rate": LEARNING_RATE}
    spec = TrainSpec(**same, **own)
    load = backend.load_policy

    def loading(path: Path, settings: TrainSpec) -> Any:
        model = load(path, settings)
        model.set_attn_implementation(job["attention"])
        return model

    backend.load_policy = loading
    backend._Trainer._get_per_token_logps_and_entropies = scoring
    try:
        with tempfile.TemporaryDirectory() as folder:
            make, out = keeper(job["replay"], kept, sequences), Path(folder) / "out"
            result = train(Path(job["model"]), rows(spec.steps * spec.prompts), reward, spec, out, sampler=make)
    finally:
        backend.load_policy = load
        backend._Trainer._get_per_token_logps_and_entropies = scored
    last = result.log[-1]
    return {
        "log": [{k: getattr(row, k) for k in ("loss", "kl", "entropy", "grad_norm", "seconds")} for row in result.log],
        "logps": [logps[step] for step in sorted(logps)],
        "rollouts": kept,
        "sequences": sequences,
        "tokens_a_second": (last.prompt_tokens + last.completion_tokens) / (last.seconds - last.seconds_reward),
        "peak_mib": peak_mib(torch, job["device"]),
    }


def sampling_job(job: Json) -> Json:
    """Time our sampler and ``model.generate`` in turn on the same prompts; every reply has all its tokens."""
    import torch

    from selfevolve.sampling import Sampling

    sampler = loaded_sampler(job, getattr(torch, job["dtype"]))
    sampler.decoder.end_ids = ()
    prompts = sorted(sampler.prompt_ids([row.prompt for row in rows(job["prompts"])]), key=len)
    sampling = Sampling(n=job["responses"], max_tokens=job["new_tokens"])
    width = len(prompts[-1])
    device = sampler.model.device
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)

    def bare() -> None:
        sampler.model.generate(
            ids, attention_mask=mask, max_new_tokens=sampling.max_tokens, eos_token_id=None, do_sample=True, top_k=0,
            num_return_sequences=sampling.n,
        )  # fmt: skip

    seconds = in_turn(torch, device, job["repeats"], lambda: sampler.sample_ids(prompts, sampling), bare)
    made = len(prompts) * sampling.n * sampling.max_tokens
    speeds = {"ours_tokens_a_second": made / seconds[0], "bare_tokens_a_second": made / seconds[1]}
    return speeds | {"ratio": seconds[1] / seconds[0], "peak_mib": peak_mib(torch, job["device"])}


def bare_training_job(job: Json) -> Json:
    """Time forward, backward and AdamW on the sequences of a training job, with no trainer, reference or old policy."""
    import torch

    sampler = loaded_sampler(job, torch.float32)
    model, device = sampler.model, sampler.model.device
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    whole, size = sorted(job["sequences"], key=len), job["micro_batch"]

    def step() -> None:
        for start in range(0, len(whole), size):
            part = whole[start : start + size]
            width = len(part[-1])
            ids = torch.tensor([[0] * (width - len(row)) + row for row in part], device=device)
            mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in part], device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=job["dtype"] == "bfloat16"):
                loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
            loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    seconds = in_turn(torch, device, job["repeats"], step)
    tokens = sum(map(len, whole))
    return {"tokens_a_second": tokens / seconds[0], "tokens": tokens, "peak_mib": peak_mib(torch, job["device"])}


JOBS = {"train": train_job, "sampling": sampling_job, "bare_training": bare_training_job}


def loaded_sampler(job: Json, dtype: Any) -> Any:
    """Return a sampler of the job's model."""
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    sampler = TransformersSampler(job["model"], batch=512, device=job["device"], dtype=dtype)
    sampler.model.set_attn_implementation(job["attention"])
    return sampler


def in_turn(torch: Any, device: Any, repeats: int, *works: Any) -> list[float]:
    """Return the median seconds of each work, measured in turn after one call of each."""
    taken: list[list[float]] = [[] for _ in works]
    for repeat in range(repeats + 1):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if repeat:
                taken[place].append(time.perf_counter() - start)
    return [median(times) for times in taken]


def peak_mib(torch: Any, device: str) -> float:
    """Return the process's peak memory in MiB: on the GPU as torch counts it, else resident."""
    if device == "cuda":
        return float(torch.cuda.max_memory_allocated()) / 2**20
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run_job(kind: str, job: Json, in_process: bool) -> Json:
    """Run one job, as a rule in a child process; a job on the CPU sees no GPU."""
    if in_process:
        return JOBS[kind](job)
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "job.json", Path(folder) / "found.json"
        asked.write_text(json.dumps(job), encoding="utf-8")
        hidden = {} if job["device"] == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
        words = [sys.executable, str(Path(__file__).resolve()), "--job", kind, str(asked), str(answered)]
        done = subprocess.run(words, env=os.environ | {"HF_HUB_OFFLINE": "1"} | hidden, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the job {kind} failed on {job['device']}; its last lines:\n{done.stderr[-3000:]}")
        found: Json = json.loads(answered.read_text(encoding="utf-8"))
        return found


def compare(name: str, dtype: str, found: Json, reference: Json) -> list[Json]:
    """Return a line for each figure: how far the device is from the CPU in float32, and the bound."""
    lines = []
    for step, (row, other) in enumerate(zip(found["log"], reference["log"], strict=True)):
        apart = [abs(a - b) for a, b in zip(found["logps"][step], reference["logps"][step], strict=True)]
        measured = {
            "log-probability, mean difference": sum(apart) / len(apart),
            "entropy, relative difference": abs(row["entropy"] / other["entropy"] - 1),
            "gradient norm, relative difference": abs(row["grad_norm"] / other["grad_norm"] - 1),
            "loss, difference": abs(row["loss"] - other["loss"]),
        }
        for (what, value), bound in zip(measured.items(), BOUNDS[dtype], strict=True):
            bound *= 1 + step
            line = {"model": name, "dtype": dtype, "step": step + 1, "figure": what}
            lines.append(line | {"measured": value, "bound": bound, "holds": value <= bound})
    return lines


def check_model(name: str, model: str, o: argparse.Namespace, sizes: Json, speed: Json) -> Json:
    """Run all jobs of one model."""
    common = {"model": model, "attention": o.attention, "replay": None}
    job = common | sizes
    fast = run_job("train", job | {"device": o.device, "dtype": "bfloat16"}, o.in_process)
    replay = {"replay": fast["rollouts"]}
    exact = run_job("train", job | replay | {"device": o.device, "dtype": "float32", "attention": "sdpa"}, o.in_process)
    reference = exact
    if o.device != "cpu":
        asked = {"device": "cpu", "dtype": "float32", "attention": "sdpa"}
        reference = run_job("train", job | replay | asked, o.in_process)
    lines = compare(name, "bfloat16", fast, reference) + compare(name, "float32", exact, reference)
    big = common | speed | {"device": o.device, "dtype": "bfloat16"}
    sampling = run_job("sampling", big, o.in_process)
    training = run_job("train", big, o.in_process)
    bare = run_job("bare_training", big | {"sequences": training["sequences"]}, o.in_process)
    replayed = run_job("train", big | {"replay": training["rollouts"]}, o.in_process)
    return {
        "checks": lines,
        "losses": {"bfloat16": fast["log"], "float32": exact["log"], "cpu float32": reference["log"]},
        "sampling": sampling,
        "training": {
            "ours_tokens_a_second": replayed["tokens_a_second"],
            "with_sampling_tokens_a_second": training["tokens_a_second"],
            "bare_tokens_a_second": bare["tokens_a_second"],
            "ratio": replayed["tokens_a_second"] / bare["tokens_a_second"],
        },
        "peak_mib": {"sampling": sampling["peak_mib"], "training": training["peak_mib"], "bare": bare["peak_mib"]},
    }


def machine(device: str) -> Json:
    """Return versions and the device."""
    import torch

    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    found: Json = {"python": platform.python_version(), "system": platform.platform(), "versions": versions}
    found |= {"cuda": torch.version.cuda, "device": device, "cores": os.cpu_count()}
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        found |= {"gpu": about.name, "gpu_memory_mib": about.total_memory / 2**20, "gpus": torch.cuda.device_count()}
        found["bfloat16"] = torch.cuda.is_bf16_supported()
    return found


def table(found: Json) -> str:
    """Return the report as text."""
    about = found["machine"]
    versions = ", ".join(f"{name} {value}" for name, value in about["versions"].items() if value)
    text = [f"device: {about.get('gpu', about['device'])}; {versions}; attention {found['attention']}"]
    for name, part in found["models"].items():
        text += ["", f"{name}", f"  {'figure':<52}{'measured':>12}{'bound':>10}"]
        for line in part["checks"]:
            what = f"{line['dtype']}, step {line['step']}: {line['figure']}"
            mark = "" if line["holds"] else "  NOT WITHIN ITS BOUND"
            text.append(f"  {what:<60}{line['measured']:>12.6f}{line['bound']:>10.4f}{mark}")
        for what in ("sampling", "training"):
            s = part[what]
            text.append(
                f"  {what}: {s['ours_tokens_a_second']:,.0f} tokens a second, the bare model "
                f"{s['bare_tokens_a_second']:,.0f} (ratio {s['ratio']:.2f})"
            )
        text.append("  peak memory, MiB: " + ", ".join(f"{k} {v:,.0f}" for k, v in part["peak_mib"].items()))
    verdict = "all checks hold" if found["ok"] else "NOT ALL CHECKS HOLD"
    return "\n".join([*text, "", f"{verdict}; {found['seconds']:.0f} seconds"])


def arguments(words: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="writes OUT.json and OUT.txt")
    parser.add_argument("--backbone", default="testbed:base", help="the model with real weights")
    parser.add_argument("--layers", type=int, default=28, help="of the random Qwen3; 0 leaves it out")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, help="of the random Qwen3; default: the tokenizer's")
    parser.add_argument(
        "--attention", help="default: flash_attention_2 where there are a GPU and flash-attn, else sdpa"
    )
    parser.add_argument("--prompts", type=int, default=64, help="of the timed batch")
    parser.add_argument("--responses", type=int, default=8, help="replies a prompt of the timed batch")
    parser.add_argument("--new-tokens", type=int, default=128, help="a reply, of the timed batch")
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--in-process", action="store_true", help="no child processes: for tests on a CPU")
    parser.add_argument("--job", nargs=3, metavar=("KIND", "ASKED", "ANSWERED"), help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run everything, and return the exit status."""
    o = arguments(words)
    if o.job:
        kind, asked, answered = o.job
        answer = JOBS[kind](json.loads(Path(asked).read_text(encoding="utf-8")))
        Path(answered).write_text(json.dumps(answer), encoding="utf-8")
        return 0
    import torch

    if o.device == "cuda" and not torch.cuda.is_available():
        told = f"torch {torch.__version__} sees no CUDA GPU. Run this on a machine with one and a CUDA build of torch "
        told += "(`nvidia-smi` shows the driver), or use --device cpu to run the same checks on a CPU."
        print(told, file=sys.stderr)
        return 2
    began = time.monotonic()
    found: Json = {"machine": machine(o.device), "models": {}}
    flash = o.device == "cuda" and found["machine"]["versions"]["flash-attn"] is not None
    o.attention = found["attention"] = o.attention or ("flash_attention_2" if flash else "sdpa")
    speed = {"prompts": o.prompts, "responses": o.responses, "new_tokens": o.new_tokens, "steps": 2}
    speed |= {"micro_batch": o.micro_batch, "repeats": o.repeats}
    with tempfile.TemporaryDirectory() as folder:
        from selfevolve.backbones import resolve_backbone

        models = {o.backbone: (resolve_backbone(o.backbone), 8)}
        if o.layers:
            name = f"random Qwen3, {o.layers} layers, width {o.width}"
            models[name] = (make_model(Path(folder) / "random", o.layers, o.width, o.vocabulary), 4)
        for name, (model, prompts) in models.items():
            sizes = {"prompts": prompts, "responses": 4, "new_tokens": 32, "steps": 2, "micro_batch": 8, "repeats": 1}
            print(f"{name}: checking and timing, {time.monotonic() - began:.0f} s so far", flush=True)
            found["models"][name] = check_model(name, model, o, sizes, speed)
    found["ok"] = all(line["holds"] for part in found["models"].values() for line in part["checks"])
    found["seconds"] = time.monotonic() - began
    o.out.parent.mkdir(parents=True, exist_ok=True)
    o.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    o.out.with_suffix(".txt").write_text(table(found) + "\n", encoding="utf-8")
    print(table(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
