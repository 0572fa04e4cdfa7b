"""Training with GRPO or CISPO: specifications without torch, one backend (TRL), and stages in child processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from selfevolve.train.savepoints import Saved, Savepoints
from selfevolve.train.spec import (
    CONTEXT_EXHAUSTED,
    BatchReward,
    Conversations,
    LogRow,
    LoraSpec,
    Rollout,
    RolloutBatch,
    SessionReward,
    TrainingError,
    TrainResult,
    TrainRow,
    TrainSpec,
)

__all__ = [
    "CONTEXT_EXHAUSTED",
    "BatchReward",
    "Conversations",
    "LogRow",
    "LoraSpec",
    "Rollout",
    "RolloutBatch",
    "Saved",
    "Savepoints",
    "SessionReward",
    "TrainResult",
    "TrainRow",
    "TrainSpec",
    "TrainingError",
    "train",
    "train_conversations",
]


def train(
    policy_path: Path,
    rows: Sequence[TrainRow],
    reward: BatchReward,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[LogRow], None] | None = None,
    sampler: Callable[[Any, Any], Any] | None = None,
    savepoints: Savepoints | None = None,
) -> TrainResult:
    """Train the policy in ``policy_path`` for ``spec.steps`` rollout batches; see `selfevolve.train.trl_backend.train`.

    TRL is imported here, when training starts: it costs seconds.
    """
    from selfevolve.train import trl_backend

    return trl_backend.train(policy_path, rows, reward, spec, out, progress, sampler, savepoints)


def train_conversations(
    policy_path: Path,
    rows: Sequence[TrainRow],
    conversations: Conversations,
    reward: SessionReward,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[LogRow], None] | None = None,
    sampler: Callable[[Any, Any], Any] | None = None,
    savepoints: Savepoints | None = None,
) -> TrainResult:
    """Train the policy on conversations with a world; see `selfevolve.train.trl_backend.train_conversations`."""
    from selfevolve.train import trl_backend

    return trl_backend.train_conversations(
        policy_path, rows, conversations, reward, spec, out, progress, sampler, savepoints
    )
