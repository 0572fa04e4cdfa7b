"""The loss of TRL as we set it up: CISPO's weights in numbers, and no gradient outside the policy's own tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from selfevolve.sampling import user
from selfevolve.sampling.transformers_sampler import Formatter
from selfevolve.train import TrainingError, TrainRow, TrainSpec, trl_backend
from selfevolve.train.policy import load_policy
from selfevolve.train.rollouts import Clock, RolloutMaker, Stage, make_plan
from tests.tiny_model import save_tiny, tiny_tokenizer

SPEC = TrainSpec(steps=1, prompts=1, responses=3, global_batch=1, micro_batch=3, kl=0.0, max_new_tokens=5, device="cpu")
# three rows of five tokens after prompts of two, three and one: padding, and the world's turns inside
PROMPTS = torch.tensor([[0, 5, 6], [7, 8, 9], [0, 0, 10]])
PROMPT_MASK = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 1]])
IDS = torch.tensor([[11, 12, 13, 14, 1], [15, 16, 17, 0, 0], [18, 19, 20, 21, 0]])
PRESENT = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
WRITTEN = torch.tensor([[1, 1, 0, 0, 1], [1, 0, 1, 1, 1], [1, 1, 0, 1, 1]])  # TRL pads with 1
LIVE = (PRESENT * WRITTEN).bool()
ADVANTAGES = torch.tensor([1.5, -0.5, 0.25])
RATIOS = torch.tensor([[1.0, 4.9, 9.0, 0.1, 7.0], [0.01, 3.0, 5.0, 1.0, 1.0], [100.0, 0.5, 2.0, 1.2, 1.0]])
CAPPED = torch.tensor([[1.0, 4.9, 0.0, 0.0, 5.0], [0.01, 0.0, 5.0, 0.0, 0.0], [5.0, 0.5, 0.0, 1.2, 0.0]])
TOKENS = 8  # of the policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("policy") / "base", words=60, hidden=32, layers=2, spread=8.0)


def trainer_of(policy: Path, folder: Path, spec: TrainSpec) -> Any:
    """Return the trainer of a stage, as it stands before the first step."""
    tokenizer, rows = tiny_tokenizer(60), [TrainRow(user("w1"))]
    formatter = Formatter(tokenizer)
    plan = make_plan(rows, formatter.ids([rows[0].prompt]), spec)
    stage = Stage(rows, plan, spec, (0, 1), Clock(), formatter, (1,), None)
    maker = RolloutMaker(stage, lambda _: [0.0])
    config = trl_backend._config(spec, 1, str(folder))
    trainer = trl_backend._Trainer(load_policy(policy, spec), tokenizer, maker, None, None, config)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def batch(**changes: Any) -> dict[str, Any]:
    inputs = {
        "prompt_ids": PROMPTS,
        "prompt_mask": PROMPT_MASK,
        "completion_ids": IDS,
        "completion_mask": PRESENT,
        "tool_mask": WRITTEN,
        "advantages": ADVANTAGES,
        "num_items_in_batch": torch.tensor(TOKENS),
    } | changes
    inputs["num_items_in_batch"] = (inputs["completion_mask"] * inputs["tool_mask"]).sum()
    return inputs


def log_probabilities(model: Any) -> Any:
    """Return log p of the completions' tokens in plain torch, row by row without padding, shape (3, 5)."""
    table = []
    for prompt, kept, ids, present in zip(PROMPTS, PROMPT_MASK, IDS, PRESENT, strict=True):
        prompt, ids = prompt[kept.bool()], ids[present.bool()]
        logits = model(torch.cat([prompt, ids])[None]).logits[0, len(prompt) - 1 : -1]
        row = logits.log_softmax(-1)[range(len(ids)), ids]
        table.append(torch.nn.functional.pad(row, (0, 5 - len(ids))))
    return torch.stack(table)


def gradients(model: Any) -> dict[str, Any]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def on_given(trainer: Any, logps: Any, **changes: Any) -> tuple[Any, Any]:
    """Return TRL's loss on given log-probabilities, and its gradient with respect to them, shape (3, 5)."""
    leaf = logps.clone().requires_grad_()
    trainer._trimmed = lambda *_, **__: (leaf, torch.zeros_like(leaf), None)
    loss = trainer.compute_loss(trainer.model, batch(**changes))
    loss.backward()
    return loss.detach(), leaf.grad


def test_cispo_in_numbers(policy: Path, tmp_path: Path) -> None:
    # - min(ratio, 5) * A / tokens for every token of the policy: capped above, not below, and 1 at ratio 1
    trainer = trainer_of(policy, tmp_path, replace(SPEC, loss_type="cispo"))
    logps = torch.full((3, 5), -2.0)
    _, found = on_given(trainer, logps, old_per_token_logps=logps - RATIOS.log())
    torch.testing.assert_close(found, -CAPPED * ADVANTAGES[:, None] / TOKENS)
    _, at_one = on_given(trainer, logps, old_per_token_logps=logps)
    torch.testing.assert_close(at_one, -LIVE.float() * ADVANTAGES[:, None] / TOKENS)
    torch.testing.assert_close(on_given(trainer, logps)[1], at_one)  # no update in between: TRL leaves the old ones out
    lower = trainer_of(policy, tmp_path, replace(SPEC, loss_type="cispo", ratio_max=2.0))
    _, found = on_given(lower, logps, old_per_token_logps=logps - RATIOS.log())
    torch.testing.assert_close(found, -CAPPED.clamp(max=2.0) * ADVANTAGES[:, None] / TOKENS)


def test_cispo_is_the_formula_in_plain_torch(policy: Path, tmp_path: Path) -> None:
    trainer = trainer_of(policy, tmp_path, replace(SPEC, loss_type="cispo"))
    model = load_policy(policy, SPEC)
    logps = log_probabilities(model)
    old = logps.detach() - RATIOS.log()
    ratio = (logps - old).exp()
    loss = -(ratio.clamp(max=5.0).detach() * ADVANTAGES[:, None] * logps)[LIVE].sum() / TOKENS
    loss.backward()
    found = trainer.compute_loss(trainer.model, batch(old_per_token_logps=old))
    found.backward()
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    wanted = gradients(model)
    for name, gradient in gradients(trainer.model).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-6)


def test_a_cap_below_one_is_refused() -> None:
    for value in (0.2, 0.0, float("nan")):
        with pytest.raises(TrainingError, match=f"ratio_max is {value}; the cap is absolute"):
            replace(SPEC, ratio_max=value).check()
    replace(SPEC, ratio_max=1.0).check()
    assert trl_backend._config(replace(SPEC, loss_type="cispo"), 1, "unused").epsilon_high == 5.0
    assert trl_backend._config(replace(SPEC, loss_type="dapo"), 1, "unused").epsilon_high is None


@pytest.mark.parametrize("kl", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", ["cispo", "dapo", "grpo"])
def test_tokens_of_the_world_have_no_gradient_in_any_path(
    policy: Path, tmp_path: Path, loss_type: Any, kl: float
) -> None:
    trainer = trainer_of(policy, tmp_path, replace(SPEC, loss_type=loss_type, kl=kl))
    logps = -torch.rand(3, 5, generator=torch.Generator().manual_seed(0)) - 1
    other = {"old_per_token_logps": logps - 0.05, "ref_per_token_logps": logps + 0.3}
    loss, found = on_given(trainer, logps, **other)
    assert bool((found[LIVE] != 0).all()) and not bool(found[~LIVE].any())
    # whatever log-probabilities and advantages are at those tokens, overflow of a ratio or a KL estimate included
    for here, there in ((-400.0, 0.0), (0.0, -400.0), (-1.0, float("-inf")), (-30.0, -20.0)):
        wild = {name: tensor.masked_fill(~LIVE, there) for name, tensor in other.items()}
        for advantage in (1e6, -1e6):
            changed = torch.where(LIVE, ADVANTAGES[:, None], advantage)
            again = on_given(trainer, logps.masked_fill(~LIVE, here), advantages=changed, **wild)
            assert torch.equal(again[0], loss) and torch.equal(again[1], found)
    _, nothing = on_given(trainer, logps, tool_mask=torch.zeros_like(WRITTEN), **other)
    assert not bool(nothing.any())


@pytest.mark.parametrize("kl", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", ["cispo", "dapo", "grpo"])
def test_weights_feel_the_policys_tokens_only(policy: Path, tmp_path: Path, loss_type: Any, kl: float) -> None:
    trainer = trainer_of(policy, tmp_path, replace(SPEC, loss_type=loss_type, kl=kl))
    logps = log_probabilities(trainer.model).detach()
    other = {"old_per_token_logps": logps - 0.05, "ref_per_token_logps": logps + 0.3}
    trainer.compute_loss(trainer.model, batch(**other)).backward()
    first = gradients(trainer.model)
    assert all(bool(gradient.any()) for gradient in first.values())
    changed = {name: tensor + torch.where(LIVE, 0.0, 3.0) for name, tensor in other.items()}
    advantages = torch.where(LIVE, ADVANTAGES[:, None], -7.0)
    trainer.compute_loss(trainer.model, batch(advantages=advantages, **changed)).backward()
    second = gradients(trainer.model)
    assert all(torch.equal(first[name], second[name]) for name in first)
    trainer.compute_loss(trainer.model, batch(tool_mask=torch.zeros_like(WRITTEN), **other)).backward()
    third = gradients(trainer.model)
    assert len(third) == len(first) and not any(bool(gradient.any()) for gradient in third.values())


@pytest.mark.parametrize("size", [None, 1, 2])
def test_log_probabilities_do_not_depend_on_trimming(policy: Path, tmp_path: Path, size: int | None) -> None:
    # two more columns of padding on either side, and passes of one or two rows: the same numbers
    trainer = trainer_of(policy, tmp_path, SPEC)
    ids = torch.nn.functional.pad(torch.cat([PROMPTS, IDS], 1), (2, 2))
    mask = torch.nn.functional.pad(torch.cat([PROMPT_MASK, PRESENT], 1), (2, 2))
    with torch.no_grad():
        logps, entropies, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, 7, batch_size=size, compute_entropy=True
        )
        wanted = log_probabilities(trainer.model)
    assert logps.shape == (3, 7) and entropies.shape == (3, 7)
    torch.testing.assert_close(logps[:, :5][PRESENT.bool()], wanted[PRESENT.bool()], rtol=1e-4, atol=1e-5)


def test_a_figure_that_an_update_lacks_is_left_out_of_the_steps_mean() -> None:
    from selfevolve.train.step_log import StepLog

    facts = {
        "step": 1, "reward_mean": None, "reward_std": None, "scored": 0, "masked": 8, "groups": 2, "zero_spread": 2,
        "clipped": 0, "completion_tokens": 9, "prompt_tokens": 9,
    }  # fmt: skip
    log = StepLog(Clock(), 3, None)
    log.begin()
    nan = float("nan")
    for loss, entropy in ((0.4, nan), (0.2, 0.5), (0.6, 0.7)):
        figures = {"loss": loss, "grad_norm": 1.0, "entropy": entropy, "cispo_clip_ratio": 0.0, "kl": nan}
        log.add(figures, 1, facts)
    (row,) = log.rows
    assert (row.loss, row.entropy) == (pytest.approx(0.4), pytest.approx(0.6))
    assert row.kl is not None and row.kl != row.kl  # no update had one
