"""Training with GRPO: specifications without torch, one backend (TRL), and stages in child processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from selfevolve.train.spec import (
    BatchReward,
    LogRow,
    LoraSpec,
    Rollout,
    RolloutBatch,
    TrainingError,
    TrainResult,
    TrainRow,
    TrainSpec,
)

__all__ = [
    "BatchReward",
    "LogRow",
    "LoraSpec",
    "Rollout",
    "RolloutBatch",
    "TrainResult",
    "TrainRow",
    "TrainSpec",
    "TrainingError",
    "train",
]


def train(
    policy_path: Path,
    rows: Sequence[TrainRow],
    reward: BatchReward,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[LogRow], None] | None = None,
    sampler: Callable[[Any, Any], Any] | None = None,
) -> TrainResult:
    """Train the policy in ``policy_path`` for ``spec.steps`` rollout batches; see `selfevolve.train.trl_backend.train`.

    TRL is imported here, when training starts: it costs seconds.
    """
    from selfevolve.train import trl_backend

    return trl_backend.train(policy_path, rows, reward, spec, out, progress, sampler)
