"""What the three training stages share: the trainer's call, its log, and the check of the first step's spread."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from selfevolve.diagnostics import check_reward_spread
from selfevolve.sampling import FinishReason
from selfevolve.stages.context import Context
from selfevolve.train import BatchReward, LogRow, RolloutBatch, TrainRow, TrainSpec, train


def run_training(
    ctx: Context, stage: str, policy: str, rows: Sequence[TrainRow], reward: BatchReward, spec: TrainSpec, folder: Path
) -> dict[str, Any]:
    """Train ``policy`` on ``rows`` into ``folder/checkpoint``, write ``train_log.jsonl``, and return counts.

    The stage stops before its first update where that step's rewards have no spread at all: there is nothing to learn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train_log.jsonl").open("w", encoding="utf-8") as log:

        def scored(batch: RolloutBatch) -> Sequence[float | None]:
            scores = reward(batch)
            if batch.step == 1:
                groups = [scores[i : i + spec.responses] for i in range(0, len(scores), spec.responses)]
                cut = sum(r.finish_reason is FinishReason.LENGTH for r in batch.rollouts)
                check_reward_spread(groups, cut_off=cut, max_tokens=spec.max_new_tokens)
            return scores

        def step_done(row: LogRow) -> None:
            log.write(json.dumps(asdict(row)) + "\n")
            log.flush()
            ctx.report(stage, row.step, spec.steps)

        ctx.report(stage, 0, spec.steps)
        result = train(Path(policy), rows, scored, spec, folder / "checkpoint", step_done)
    return {
        "rows": len(rows),
        "left_out": len(result.left_out),
        "tokens": result.tokens,
        "seconds_train": round(result.seconds, 2),
        "seconds_in_model": round(result.seconds_in_model, 2),
        "seconds_in_reward": round(result.seconds_in_reward, 2),
        "notes": list(result.notes),
    }
