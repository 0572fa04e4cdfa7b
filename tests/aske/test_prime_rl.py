"""CISPO's numbers, by hand and against prime-rl's way of calling a loss."""

import math
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from aske.adapters.prime_rl import RATIO_MAX, cispo_loss  # noqa: E402


def inputs(trainer, inference, advantages, mask, **more):
    return SimpleNamespace(
        trainer_logprobs=torch.tensor(trainer, dtype=torch.float64, requires_grad=True),
        inference_logprobs=torch.tensor(inference, dtype=torch.float64),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        loss_mask=torch.tensor(mask),
        **more,
    )


def gradient(given, **more) -> list[float]:
    (found,) = torch.autograd.grad(cispo_loss(given, **more).loss, given.trainer_logprobs)
    return found.tolist()


def test_ratio_1_has_weight_1():
    given = inputs([-1.0, -2.0], [-1.0, -2.0], [0.5, -0.25], [True, True])
    assert gradient(given) == [-0.5, 0.25]
    assert cispo_loss(given).loss.item() == pytest.approx(0.5 * 1.0 - 0.25 * 2.0)


@pytest.mark.parametrize(
    ("ratio", "ratio_max", "weight"),
    [(1.0, 5.0, 1.0), (2.0, 5.0, 2.0), (4.999, 5.0, 4.999), (5.001, 5.0, 5.0), (100.0, 5.0, 5.0), (0.01, 5.0, 0.01),
     (2.0, 1.28, 1.28), (1.0, 1.28, 1.0), (1.0, 1.0, 1.0)],
)  # fmt: skip
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.3])
def test_the_cap_is_absolute_and_one_sided(ratio, ratio_max, weight, advantage):
    given = inputs([-1.5], [-1.5 - math.log(ratio)], [advantage], [True])
    assert gradient(given, ratio_max=ratio_max) == pytest.approx([-weight * advantage])
    found = cispo_loss(given, ratio_max=ratio_max)
    assert found.loss.item() == pytest.approx(weight * advantage * 1.5)
    assert found.metrics["ratio"].item() == pytest.approx(ratio)
    assert found.metrics["ratio_capped"].item() == float(ratio > ratio_max)


def test_the_default_cap():
    assert RATIO_MAX == 5.0
    assert gradient(inputs([0.0], [-10.0], [1.0], [True])) == [-5.0]


def test_masked_tokens_carry_no_gradient():
    bad = [math.inf, -math.inf, math.nan]
    given = inputs([-1.0, *bad, -2.0], [-1.0, *bad, -2.0], [1.0, *bad, 1.0], [True, False, False, False, True])
    found = cispo_loss(given)
    assert found.loss.item() == pytest.approx(3.0) and gradient(given) == [-1.0, 0.0, 0.0, 0.0, -1.0]
    assert {name: value.item() for name, value in found.metrics.items()} == {"ratio": 1.0, "ratio_capped": 0.0}
    alone = inputs([-1.0, -2.0], [-1.0, -2.0], [1.0, 1.0], [True, True])
    assert cispo_loss(alone).loss.item() == found.loss.item()


def test_a_sequence_that_is_masked_whole():
    given = inputs([-1.0, -2.0], [-3.0, -2.0], [1.0, 1.0], [False, False])
    assert cispo_loss(given).loss.item() == 0.0 and gradient(given) == [0.0, 0.0]
    assert cispo_loss(given).metrics["ratio"].item() == 0.0


def test_through_a_model():
    """The gradient on logits is weight x advantage x (softmax - one-hot), and 0 at masked positions."""
    logits = torch.tensor(
        [[0.3, -0.2, 0.1], [0.0, 0.5, -1.0], [1.0, 0.2, 0.2]], dtype=torch.float64, requires_grad=True
    )
    tokens, ratios, advantages = (
        torch.tensor([0, 1, 2]),
        torch.tensor([1.0, 9.0, 2.0], dtype=torch.float64),
        [0.7, -0.4, 0.9],
    )
    picked = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    given = SimpleNamespace(
        trainer_logprobs=picked, inference_logprobs=(picked - ratios.log()).detach(),
        advantages=torch.tensor(advantages, dtype=torch.float64), loss_mask=torch.tensor([True, True, False]),
    )  # fmt: skip
    (found,) = torch.autograd.grad(cispo_loss(given).loss, logits)
    expected = torch.zeros_like(logits)
    for i, weight in ((0, 1.0), (1, 5.0)):
        onehot = torch.nn.functional.one_hot(tokens[i], 3)
        expected[i] = weight * advantages[i] * (logits[i].softmax(-1) - onehot)
    assert torch.allclose(found, expected.detach())


def test_weights_a_token():
    given = inputs(
        [-1.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [True, True], loss_weights=torch.tensor([0.5, 2.0], dtype=torch.float64)
    )
    assert gradient(given) == [-0.5, -2.0]
    given.loss_weights = None
    assert gradient(given) == [-1.0, -1.0]


def test_the_way_prime_rl_calls_it():
    """Sequences of one packed row: losses are summed and divided by the trainer's own count, metrics are stacked."""
    rows = [inputs([-1.0, -2.0], [-1.0, -2.0], [1.0, 1.0], [True, True]), inputs([-4.0], [-4.0], [0.5], [True])]
    found = [cispo_loss(row, **{"ratio_max": 5.0}) for row in rows]
    assert (sum(r.loss for r in found) / 3).item() == pytest.approx((1 + 2 + 2) / 3)
    assert torch.stack([r.metrics["ratio"] for r in found]).tolist() == [1.0, 1.0]
    assert all(value.dim() == 0 for r in found for value in r.metrics.values())


def test_half_precision_and_gradient_are_kept_apart():
    given = inputs([-1.0], [-2.0], [1.0], [True])
    found = cispo_loss(given)
    assert found.loss.requires_grad and not any(value.requires_grad for value in found.metrics.values())


@pytest.mark.parametrize("ratio_max", [0.99, 0.2, 0.0, -1.0])
def test_a_cap_that_would_scale_on_policy_tokens_is_refused(ratio_max):
    with pytest.raises(ValueError, match=f"ratio_max is {ratio_max}; it caps the ratio itself"):
        cispo_loss(inputs([0.0], [0.0], [1.0], [True]), ratio_max=ratio_max)
