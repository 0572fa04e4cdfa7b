"""Training with TRL on a real tiny model, each trap of the stack with a test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from selfevolve.sampling import FinishReason, Sampling, user
from selfevolve.train import LogRow, LoraSpec, RolloutBatch, Savepoints, TrainingError, TrainRow, TrainSpec, train
from tests.tiny_model import save_tiny

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

SPEC = TrainSpec(
    steps=2,
    prompts=4,
    responses=4,
    global_batch=2,
    micro_batch=8,
    learning_rate=3e-3,
    kl=0.01,
    max_prompt_tokens=20,
    max_new_tokens=8,
    device="cpu",
)
ROWS = [TrainRow(user(f"w{i} w{i + 1} w{2 * i}"), {"number": i}) for i in range(6)]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("policy") / "base", words=60, hidden=32, layers=2, spread=8.0)


def diverse(batch: RolloutBatch) -> list[float | None]:
    """Reward words with an even number."""
    return [float(sum(int(w[1:]) % 2 == 0 for w in r.text.split() if w[1:].isdigit())) for r in batch.rollouts]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_stage(policy: Path, tmp_path: Path) -> None:
    batches: list[RolloutBatch] = []
    seen: list[LogRow] = []

    def reward(batch: RolloutBatch) -> list[float | None]:
        batches.append(batch)
        return diverse(batch)

    result = train(policy, ROWS, reward, SPEC, tmp_path / "out", progress=seen.append)

    assert [batch.step for batch in batches] == [1, 2] and [len(batch.rollouts) for batch in batches] == [16, 16]
    for batch in batches:
        rows = [rollout.row for rollout in batch.rollouts]
        assert all(len(set(rows[i : i + 4])) == 1 for i in range(0, 16, 4))  # groups lie together
        for rollout in batch.rollouts:
            assert rollout.prompt == ROWS[rollout.row].prompt and rollout.payload == {"number": rollout.row}
            assert (rollout.finish_reason is FinishReason.LENGTH) <= (rollout.completion_tokens == 8)
    assert set(rollout.row for batch in batches for rollout in batch.rollouts) == set(range(6))
    assert tuple(seen) == result.log and [row.step for row in seen] == [1, 2]
    first = result.log[0]
    rewards = diverse(batches[0])
    assert first.reward_mean == pytest.approx(sum(r for r in rewards if r is not None) / 16)
    assert first.completions == 16 and first.groups == 4 and first.updates == 2
    assert first.completion_tokens == sum(r.completion_tokens for r in batches[0].rollouts)
    assert first.prompt_tokens == 3 * 16
    assert first.clipped == sum(r.finish_reason is FinishReason.LENGTH for r in batches[0].rollouts)
    assert first.kl is not None and first.kl < result.log[1].kl and first.grad_norm > 0 and first.entropy > 0
    assert 0 < result.seconds_in_model < result.seconds
    assert result.tokens == sum(row.completion_tokens for row in result.log)
    changed = [
        name for name, tensor in weights(policy).items() if not torch.equal(tensor, weights(result.checkpoint)[name])
    ]
    assert len(changed) > 10

    from selfevolve.sampling.transformers_sampler import TransformersSampler

    reply = TransformersSampler(result.checkpoint, device="cpu").sample([ROWS[0].prompt], Sampling(max_tokens=4))[0][0]
    assert reply.completion_tokens > 0


def test_same_seed_same_weights(policy: Path, tmp_path: Path) -> None:
    digests = []
    for i, spec in enumerate((SPEC, SPEC, replace(SPEC, seed=1))):
        torch.manual_seed(i)  # the caller's random state plays no part
        digests.append(digest(train(policy, ROWS, diverse, spec, tmp_path / str(i)).checkpoint))
    assert digests[0] == digests[1] != digests[2]


class Killed(BaseException):
    """Stands for the end of the process."""


def figures(rows: Sequence[LogRow]) -> list[dict[str, Any]]:
    """Return the log without what a clock says."""
    return [{k: v for k, v in asdict(row).items() if not k.startswith("seconds")} for row in rows]


@pytest.mark.parametrize(("lora", "loss"), [(None, "dapo"), (LoraSpec(rank=4, alpha=8.0), "cispo")])
def test_a_killed_stage_goes_on_from_its_savepoint_to_the_same_weights(
    policy: Path, tmp_path: Path, lora: LoraSpec | None, loss: Any
) -> None:
    spec = replace(SPEC, steps=5, lora=lora, loss_type=loss)
    whole = train(policy, ROWS, diverse, spec, tmp_path / "whole")
    asked: list[int] = []

    def reward(batch: RolloutBatch) -> list[float | None]:
        if batch.step == 4 and 4 not in asked:
            asked.append(4)
            raise Killed
        asked.append(batch.step)
        return diverse(batch)

    def save(folder: Path) -> None:
        (folder / "asked.txt").write_text(str(asked))

    points = Savepoints(tmp_path / "points", 0.0, save)
    with pytest.raises(Killed):
        train(policy, ROWS, reward, spec, tmp_path / "again", savepoints=points)
    saved = points.latest()
    assert saved is not None and saved.step == 3
    assert [p.name for p in points.folder.iterdir()] == ["checkpoint-6"]  # two updates a step
    assert (saved.caller / "asked.txt").read_text() == "[1, 2, 3]"

    told: list[int] = []
    result = train(
        policy, ROWS, reward, spec, tmp_path / "again", savepoints=points, progress=lambda row: told.append(row.step)
    )
    assert asked == [1, 2, 3, 4, 4, 5] and told == [4, 5]
    assert digest(result.checkpoint) == digest(whole.checkpoint)
    assert figures(result.log) == figures(whole.log)
    assert result.tokens == whole.tokens and result.seconds > saved.seconds > sum(row.seconds for row in saved.log)


def test_a_stage_goes_on_in_smaller_passes_and_not_under_other_sharding(policy: Path, tmp_path: Path) -> None:
    def reward(batch: RolloutBatch) -> list[float | None]:
        if batch.step == 2:
            raise Killed
        return diverse(batch)

    points = Savepoints(tmp_path / "points", 0.0)
    with pytest.raises(Killed):
        train(policy, ROWS, reward, SPEC, tmp_path / "a", savepoints=points)
    whole = train(policy, ROWS, diverse, SPEC, tmp_path / "whole")
    result = train(policy, ROWS, diverse, replace(SPEC, micro_batch=2), tmp_path / "a", savepoints=points)
    assert result.log[1].loss == pytest.approx(whole.log[1].loss, abs=1e-5)
    one, two = weights(whole.checkpoint), weights(result.checkpoint)
    assert all(float((one[name] - two[name]).abs().max()) < 1e-3 for name in one)
    marker = next(points.folder.glob("*/step.json"))
    marker.write_text(marker.read_text().replace('"sharding": "none"', '"sharding": "fsdp2"'))
    with pytest.raises(TrainingError, match="saved with sharding 'fsdp2', and this stage has 'none'"):
        train(policy, ROWS, diverse, SPEC, tmp_path / "b", savepoints=points)


def test_a_savepoint_that_is_not_whole_counts_for_nothing(policy: Path, tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        if folder.parent.name == "checkpoint-4":
            raise Killed

    spec = replace(SPEC, steps=3)
    points = Savepoints(tmp_path / "points", 0.0, full)
    with pytest.raises(Killed):
        train(policy, ROWS, diverse, spec, tmp_path / "a", savepoints=points)
    assert sorted(p.name for p in points.folder.iterdir()) == ["checkpoint-2", "checkpoint-4"]
    saved = points.latest()
    assert saved is not None and saved.step == 1
    rest = Savepoints(tmp_path / "points", 0.0)
    result = train(policy, ROWS, diverse, spec, tmp_path / "a", savepoints=rest)
    assert digest(result.checkpoint) == digest(train(policy, ROWS, diverse, spec, tmp_path / "b").checkpoint)
    assert [p.name for p in points.folder.iterdir()] == ["checkpoint-4"]
    rest.remove()
    assert rest.latest() is None and not points.folder.exists()


def test_savepoints_wait_their_minutes(policy: Path, tmp_path: Path) -> None:
    points = Savepoints(tmp_path / "points", 60.0)
    train(policy, ROWS, diverse, SPEC, tmp_path / "out", savepoints=points)
    assert points.latest() is None


def test_micro_batches_do_not_change_the_update(policy: Path, tmp_path: Path) -> None:
    # 16 completions in one pass, and in passes of 2: the same loss, up to float rounding
    spec = replace(SPEC, steps=1, global_batch=4, loss_type="dapo")
    whole = train(policy, ROWS, diverse, replace(spec, micro_batch=16), tmp_path / "a")
    parts = train(policy, ROWS, diverse, replace(spec, micro_batch=2), tmp_path / "b")
    assert whole.log[0].grad_norm == pytest.approx(parts.log[0].grad_norm, rel=1e-3)
    assert whole.log[0].loss == pytest.approx(parts.log[0].loss, abs=1e-5)


def test_reward_goes_up(policy: Path, tmp_path: Path) -> None:
    spec = replace(SPEC, steps=12, learning_rate=1e-2, kl=0.0, prompts=8, global_batch=8)
    log = train(policy, ROWS, diverse, spec, tmp_path / "out").log
    first, last = (sum(row.reward_mean or 0 for row in part) for part in (log[:3], log[-3:]))
    assert last > first * 1.2
    assert log[0].kl is None


def test_one_prompt_for_all_inputs(policy: Path, tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = []

    def watched(model: Any, tokenizer: Any) -> Any:
        from selfevolve.sampling.transformers_sampler import TransformersSampler

        made = TransformersSampler(model, tokenizer)
        decode = made.decoder._prefill
        made.decoder._prefill = lambda prompts, keep_cache: (
            shapes.append((len(prompts),)),
            decode(prompts, keep_cache),
        )[1]
        return made

    spec = replace(SPEC, steps=1)
    result = train(policy, ROWS[:1], diverse, spec, tmp_path / "out", sampler=watched)
    assert shapes == [(1,)]
    assert any("repeated" in note for note in result.notes)


def test_first_update_is_the_textbook_gradient(policy: Path, tmp_path: Path) -> None:
    # one update on policy, KL off: the gradient of -sum(A * log p) / tokens, clipped to norm 1 and given to AdamW
    from transformers import AutoModelForCausalLM

    from selfevolve.sampling.transformers_sampler import TransformersSampler
    from selfevolve.train.advantages import group_advantages

    drawn: list[tuple[list[int], list[int]]] = []

    class Watched(TransformersSampler):
        def sample_ids(self, prompts: Any, *rest: Any, **options: Any) -> Any:
            groups = super().sample_ids(prompts, *rest, **options)
            drawn.extend((list(prompt), list(group[0].ids)) for prompt, group in zip(prompts, groups, strict=True))
            return groups

    values = [0.5, None, 1.0, 0.0, 1.0, 1.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0, None, None, None, 1.0]
    spec = replace(SPEC, steps=1, global_batch=4, kl=0.0, temperature=0.8)
    result = train(policy, ROWS, lambda _: values, spec, tmp_path / "out", sampler=Watched)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    total, tokens = torch.zeros(()), 0
    for (prompt, ids), value, advantage in zip(drawn, values, group_advantages(values, 4), strict=True):
        if value is None:  # no part of the loss, nor of the tokens that it is divided by
            continue
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / 0.8
        total = total - advantage * logits.log_softmax(-1)[range(len(ids)), ids].sum()
        tokens += len(ids)
    (total / tokens).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert result.log[0].grad_norm == pytest.approx(float(norm), rel=1e-4)
    torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=0.0).step()
    trained = weights(result.checkpoint)
    for name, parameter in model.named_parameters():
        moved = (trained[name] - parameter.detach()).abs()
        assert float(moved.quantile(0.98) if moved.numel() < 10**6 else moved.mean()) < 3e-4, name


def test_masked_completions_are_counted(policy: Path, tmp_path: Path) -> None:
    def only_first(batch: RolloutBatch) -> list[float | None]:
        return [value if i < 4 else None for i, value in enumerate(diverse(batch))]

    result = train(policy, ROWS, only_first, replace(SPEC, kl=0.5), tmp_path / "out")
    assert [row.masked for row in result.log] == [12, 12] and [row.scored for row in result.log] == [4, 4]
    assert all(row.zero_spread >= 3 for row in result.log)


def test_nothing_to_learn_is_an_error(policy: Path, tmp_path: Path) -> None:
    for value in (1.0, None):
        with pytest.raises(TrainingError, match=r"no weight changed.*8 of 8 groups"):
            train(policy, ROWS, lambda batch, v=value: [v] * len(batch.rollouts), SPEC, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()


def test_lora_is_merged_and_starts_from_the_policy(policy: Path, tmp_path: Path) -> None:
    spec = replace(SPEC, steps=1, prompts=4, global_batch=4, lora=LoraSpec(rank=4, alpha=8.0), learning_rate=1e-2)
    first = train(policy, ROWS, diverse, spec, tmp_path / "a")
    assert set(weights(first.checkpoint)) == set(weights(policy))
    before, after = weights(policy), weights(first.checkpoint)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("proj" in name for name in changed)
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])
    second = train(first.checkpoint, ROWS, diverse, spec, tmp_path / "b")
    assert second.log[0].kl == pytest.approx(0.0, abs=1e-6)  # the reference is the policy of the first stage
    assert digest(second.checkpoint) != digest(first.checkpoint)


def test_rollouts_come_from_the_current_weights(policy: Path, tmp_path: Path) -> None:
    texts: list[list[str]] = []

    def reward(batch: RolloutBatch) -> list[float | None]:
        texts.append([rollout.text for rollout in batch.rollouts])
        return diverse(batch)

    for name, rate in (("slow", 1e-9), ("fast", 0.05)):
        spec = replace(SPEC, learning_rate=rate, lora=LoraSpec(rank=4), seed=3)
        train(policy, ROWS, reward, spec, tmp_path / name)
    assert texts[0] == texts[2]  # the first step has seen no update
    assert texts[1] != texts[3]


def test_a_thinking_block_that_the_template_opens_is_part_of_what_is_rewarded(tmp_path: Path) -> None:
    from tests.tiny_model import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer(60)
    tokenizer.add_tokens(["<think>"])
    tokenizer.chat_template = "{{ messages[0]['content'] }}{% if add_generation_prompt %} <think>{% endif %}"
    tiny_model(words=61, hidden=32, layers=1, spread=8.0).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    seen: list[str] = []

    def watching(batch: RolloutBatch) -> list[float | None]:
        seen.extend(rollout.text for rollout in batch.rollouts)
        return [float(len(rollout.text)) for rollout in batch.rollouts]

    train(tmp_path / "base", ROWS, watching, replace(SPEC, steps=1), tmp_path / "out")
    assert len(seen) == 16 and all(text.startswith("<think>") for text in seen)


def test_long_prompts_are_left_out_and_counted(policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [*ROWS, TrainRow(user("w1 " * 21)), TrainRow(user(""))]
    used: set[int] = set()

    def reward(batch: RolloutBatch) -> list[float | None]:
        used.update(rollout.row for rollout in batch.rollouts)
        assert "(rows 6, 7, from 0)" in caplog.text  # told before training starts
        return diverse(batch)

    result = train(policy, rows, reward, replace(SPEC, steps=4), tmp_path / "out")
    assert result.left_out == (6, 7) and used == set(range(6))
    assert "2 of 8 rows left out" in result.notes[0]


def test_refusals(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(TrainingError, match="exists already"):
        train(policy, ROWS, diverse, SPEC, tmp_path / "taken")
    with pytest.raises(TrainingError, match="no rows"):
        train(policy, [], diverse, SPEC, tmp_path / "out")
    with pytest.raises(TrainingError, match="2 values for 16"):
        train(policy, ROWS, lambda _: [1.0, 2.0], SPEC, tmp_path / "out")


def test_frozen_policy_is_an_error_before_the_first_step(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selfevolve.train import trl_backend

    load = trl_backend.load_policy
    monkeypatch.setattr(trl_backend, "load_policy", lambda *args: load(*args).requires_grad_(False))
    with pytest.raises(TrainingError, match="no trainable weight"):
        train(policy, ROWS, lambda _: pytest.fail("a step ran"), SPEC, tmp_path / "out")


def test_a_loss_that_is_not_finite_stops_the_stage(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"(loss|grad_norm) is (nan|inf) at update 2"):
        train(policy, ROWS, diverse, replace(SPEC, learning_rate=1e30), tmp_path / "out")


def test_cut_off_without_a_spread_names_the_limit(
    policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def reward(batch: RolloutBatch) -> list[float | None]:
        return diverse(batch) if batch.step == 2 else [0.0] * len(batch.rollouts)

    result = train(policy, ROWS, reward, replace(SPEC, max_new_tokens=2), tmp_path / "out")
    assert any("max_new_tokens is probably too small" in note for note in result.notes)
    assert "max_new_tokens is probably too small" in caplog.text


def test_defaults_that_do_not_fit_are_overridden() -> None:
    from selfevolve.train.trl_backend import _config

    config = _config(SPEC, 1, "unused")
    assert not config.bf16 and not config.gradient_checkpointing and config.logging_nan_inf_filter is False
    assert config.generation_batch_size == 16 and config.max_steps == 4
    assert config.gradient_accumulation_steps == 1 and config.per_device_train_batch_size == 8
    assert config.steps_per_generation == 2
