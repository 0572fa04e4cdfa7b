"""Adapters into weights, with a look at what rounding leaves of them.

Weights in bfloat16 keep 8 bits: a change of less than 1/512 of a weight is rounded away when the adapter is added.
With small learning rates that is most of an update, and the written checkpoint is not the policy that was trained.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from selfevolve.train.spec import TrainingError

logger = logging.getLogger(__name__)

FEW = 0.5  # share of the adapters' update that must survive, else a warning
_ADAPTER = "default"  # PEFT's name of the only adapter
_REMEDY = "Set dtype: float32, or raise the learning rate or the number of steps."


def surviving_share(policy: Any) -> float | None:
    """Return the share of the adapters' update that is left when it is added to the weights in their number type.

    The projection of the rounded change on the change, over all adapted weights together: 1 where nothing is rounded
    away. None where there is no change at all, or where the weights are float32.

    Args:
        policy: a PEFT model whose adapters are not merged.
    """
    kept, whole = 0.0, 0.0
    with torch.no_grad():
        for module in policy.modules():
            weight = getattr(getattr(module, "base_layer", None), "weight", None)
            if weight is None or weight.dtype == torch.float32 or _ADAPTER not in getattr(module, "lora_A", ()):
                continue
            change = module.get_delta_weight(_ADAPTER).float()
            moved = (weight + change.to(weight.dtype)).float() - weight.float()
            kept += float((moved * change).sum())
            whole += float(change.square().sum())
    return kept / whole if whole else None


def merged(policy: Any) -> Any:
    """Return the policy with its adapters in its weights.

    Raises:
        TrainingError: rounding leaves the weights as they were.
    """
    share = surviving_share(policy)
    if share is not None and share <= 0:
        raise TrainingError(
            "the adapters changed, but added to bfloat16 weights nothing of it is left: the checkpoint would be the "
            "policy that the stage began with",
            _REMEDY,
        )
    if share is not None and share < FEW:
        logger.warning(
            "rounding to bfloat16 leaves %.0f%% of what the adapters learned in the merged weights. %s",
            100 * share,
            _REMEDY,
        )
    return policy.merge_and_unload()
