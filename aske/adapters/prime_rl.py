"""CISPO as a loss of prime-rl's custom slot, as Ask-E's training uses it.

Per token of the policy, with the ratio r of the trainer's probability to the sampler's:

    loss = - stop_gradient(min(r, ratio_max)) * advantage * log p        (CISPO, MiniMax-M1, section 3)

``ratio_max`` is an absolute cap: at ratio 1 the weight is 1, and there is no lower bound. Tokens outside the mask carry
neither loss nor gradient, whatever they hold. prime-rl sums over sequences and divides by its own count of tokens.

Written against prime-rl 0.5.0. Set it in the trainer's configuration; prime-rl hands over its own inputs:

    [trainer.loss]
    type = "custom"
    import_path = "aske.adapters.prime_rl.cispo_loss"
    kwargs = { ratio_max = 5.0 }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

RATIO_MAX = 5.0


class Inputs(Protocol):
    """What is read of prime-rl's ``LossInputs``: one sequence."""

    trainer_logprobs: Tensor  # [token] of the policy under training, with gradient
    inference_logprobs: Tensor  # [token] of the policy that sampled
    advantages: Tensor  # [token]
    loss_mask: Tensor  # [token] bool: True for the policy's own tokens


@dataclass(frozen=True)
class Outputs:
    """What prime-rl reads of its ``LossOutputs``."""

    loss: Tensor  # [] summed over the sequence's tokens
    metrics: dict[str, Tensor]  # each [], averaged over sequences by prime-rl


def cispo_loss(inputs: Inputs, ratio_max: float = RATIO_MAX) -> Outputs:
    """Return the loss of one sequence.

    Args:
        inputs: log probabilities, advantages and mask. Weights a token (``loss_weights``), where a version of prime-rl
            has them, multiply the loss.
        ratio_max: the cap on the ratio; below 1, on-policy tokens would be scaled down.

    Raises:
        ValueError: the cap is below 1.
    """
    if ratio_max < 1:
        raise ValueError(
            f"ratio_max is {ratio_max}; it caps the ratio itself, so it must be 1 or more (5.0 is the default; for a "
            f"cap that is given as 1 + epsilon, pass 1 + epsilon)"
        )
    mask = inputs.loss_mask.bool()
    # masked before any product: 0 times an infinite or undefined log probability would be undefined
    logprobs = inputs.trainer_logprobs.masked_fill(~mask, 0.0)
    sampled = inputs.inference_logprobs.masked_fill(~mask, 0.0)
    advantages = inputs.advantages.masked_fill(~mask, 0.0)
    ratio = torch.exp(logprobs.detach() - sampled)
    per_token = -ratio.clamp(max=ratio_max) * advantages * logprobs
    weights = getattr(inputs, "loss_weights", None)
    if weights is not None:
        per_token = per_token * weights.masked_fill(~mask, 0.0)
    count = mask.sum().clamp(min=1)
    return Outputs(
        per_token.sum(),
        {
            "ratio": (ratio * mask).sum() / count,
            "ratio_capped": ((ratio > ratio_max) & mask).sum() / count,
        },
    )
