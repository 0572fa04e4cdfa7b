"""Stage 1: update the questioner against the last round's solver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selfevolve.questions import read_candidate
from selfevolve.stages.context import Context
from selfevolve.stages.training import run_training
from selfevolve.train import RolloutBatch, TrainRow


def questioner(ctx: Context, folder: Path) -> dict[str, Any]:
    """Train the questioner; every candidate of every step stands in ``assessed.jsonl`` with its reward and terms."""
    settings = ctx.recipe.questioner
    assessor = ctx.assessor(rewarded=True)
    rows = [TrainRow(ctx.pack.ask())] * settings.prompts
    with (folder / "assessed.jsonl").open("w", encoding="utf-8") as records:

        def reward(batch: RolloutBatch) -> list[float | None]:
            candidates = [
                read_candidate(ctx.round, "questioner", batch.step, i, r.text, r.finish_reason.value)
                for i, r in enumerate(batch.rollouts)
            ]
            assessed = assessor.assess(candidates, seed=ctx.seed("questioner", batch.step), rewarded=True)
            truths = _exact_truths(ctx, [c.question for c in candidates])
            for a, truth in zip(assessed, truths, strict=True):
                records.write(json.dumps(a.to_json(truth), ensure_ascii=False) + "\n")
            records.flush()
            return [a.reward.total if a.reward else None for a in assessed]

        spec = ctx.train_spec(settings, "questioner", ctx.recipe.generation.max_new_tokens.question)
        counts = run_training(ctx, "questioner", ctx.questioner(ctx.round - 1), rows, reward, spec, folder)
    return {**counts, "assessed": settings.steps * settings.prompts * settings.responses, "usage": vars(assessor.usage)}


def _exact_truths(ctx: Context, questions: list[str | None]) -> list[dict[str, Any] | None]:
    """Return the oracle's truths, which cost nothing; a model referee judges the round's pool only."""
    if ctx.referee is None or ctx.referee.source != "oracle":
        return [None] * len(questions)
    return ctx.referee.truths(questions)
