"""What the three training stages share: the trainer's call, its log, and the check of the first step's spread."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from selfevolve.diagnostics import check_reward_spread
from selfevolve.sampling import FinishReason
from selfevolve.stages.context import Context
from selfevolve.train import (
    BatchReward,
    Conversations,
    LogRow,
    RolloutBatch,
    Savepoints,
    SessionReward,
    TrainResult,
    TrainRow,
    TrainSpec,
    train,
    train_conversations,
)

logger = logging.getLogger(__name__)

StepDone = Callable[[LogRow], None]
Call = Callable[[StepDone, Savepoints | None], TrainResult]


class Spanning(Protocol):
    """What a stage keeps from step to step beside the policy, for its savepoints: records, counts, memories."""

    def save(self, folder: Path) -> None:
        """Write it into an empty folder."""
        ...

    def load(self, folder: Path) -> None:
        """Read back what `save` wrote."""
        ...


def run_training(
    ctx: Context,
    stage: str,
    policy: str,
    rows: Sequence[TrainRow],
    reward: BatchReward,
    spec: TrainSpec,
    folder: Path,
    spanning: Spanning | None = None,
) -> dict[str, Any]:
    """Train ``policy`` on ``rows`` into ``folder/checkpoint``, write ``train_log.jsonl``, and return counts.

    The stage stops before its first update where that step's rewards have no spread at all: there is nothing to learn.
    """

    def scored(batch: RolloutBatch) -> Sequence[float | None]:
        cut = sum(r.finish_reason is FinishReason.LENGTH for r in batch.rollouts)
        return _checked(batch.step, reward(batch), cut, spec)

    def call(done: StepDone, points: Savepoints | None) -> TrainResult:
        return train(Path(policy), rows, scored, spec, folder / "checkpoint", done, savepoints=points)

    return _logged(ctx, stage, rows, spec, folder, spanning, call)


def run_conversations(
    ctx: Context,
    stage: str,
    policy: str,
    rows: Sequence[TrainRow],
    conversations: Conversations,
    reward: SessionReward,
    spec: TrainSpec,
    folder: Path,
    spanning: Spanning | None = None,
) -> dict[str, Any]:
    """Train ``policy`` on conversations; all else is as in `run_training`."""

    def scored(step: int, outcomes: Sequence[Any]) -> Sequence[float | None]:
        return _checked(step, reward(step, outcomes), None, spec)

    def call(done: StepDone, points: Savepoints | None) -> TrainResult:
        out = folder / "checkpoint"
        return train_conversations(Path(policy), rows, conversations, scored, spec, out, done, savepoints=points)

    return _logged(ctx, stage, rows, spec, folder, spanning, call)


def _checked(step: int, scores: Sequence[float | None], cut: int | None, spec: TrainSpec) -> Sequence[float | None]:
    if step == 1:
        groups = [scores[i : i + spec.responses] for i in range(0, len(scores), spec.responses)]
        for warning in check_reward_spread(groups, cut_off=cut, max_tokens=spec.max_new_tokens):
            logger.warning("step 1: %s", warning)
    return scores


def _logged(
    ctx: Context,
    stage: str,
    rows: Sequence[TrainRow],
    spec: TrainSpec,
    folder: Path,
    spanning: Spanning | None,
    call: Call,
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train_log.jsonl").open("w", encoding="utf-8") as log:

        def step_done(row: LogRow) -> None:
            log.write(json.dumps(asdict(row)) + "\n")
            log.flush()
            ctx.report(stage, row.step, spec.steps)

        points = ctx.savepoints(stage, spanning.save if spanning else lambda folder: None)
        saved = points.latest() if points else None
        if saved is not None:
            if spanning is not None:
                spanning.load(saved.caller)
            log.writelines(json.dumps(asdict(row)) + "\n" for row in saved.log)
        ctx.report(stage, saved.step if saved else 0, spec.steps)
        result = call(step_done, points)
    return {
        "rows": len(rows),
        "left_out": len(result.left_out),
        "tokens": result.tokens,
        "seconds_train": round(result.seconds, 2),
        "seconds_in_model": round(result.seconds_in_model, 2),
        "seconds_in_reward": round(result.seconds_in_reward, 2),
        "notes": list(result.notes),
    }
