"""Stages 2 and 3: write candidate questions, and assess them as solver data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selfevolve.jsonl import write_jsonl
from selfevolve.questions import read_candidate
from selfevolve.records import Candidate
from selfevolve.sampling import Sampling
from selfevolve.stages.context import Context


def candidates(ctx: Context, folder: Path) -> dict[str, Any]:
    """Let the updated questioner write the round's candidates into ``candidates.jsonl``."""
    recipe = ctx.recipe
    ctx.report("candidates", 0, recipe.candidates)
    a = recipe.assessment
    sampling = Sampling(
        recipe.candidates,
        a.temperature,
        a.top_p,
        a.top_k,
        recipe.generation.max_new_tokens.question,
        ctx.seed("candidates"),
    )
    replies = ctx.sampler(ctx.questioner(ctx.round), "questioner", "questioner").sample([ctx.pack.ask()], sampling)[0]
    rows = [
        read_candidate(ctx.round, "candidates", 0, i, reply.text, reply.finish_reason.value).to_json()
        for i, reply in enumerate(replies)
    ]
    write_jsonl(folder / "candidates.jsonl", rows)
    parsed = sum(row["question"] is not None for row in rows)
    return {"candidates": len(rows), "parsed": parsed, "tokens": sum(r.completion_tokens for r in replies)}


def assessment(ctx: Context, folder: Path) -> dict[str, Any]:
    """Assess the candidates with the last round's solver; the novelty gate is the questioner's and stays out."""
    written = [Candidate.from_json(row) for row in ctx.run.read(ctx.round, "candidates", "candidates.jsonl")]
    assessor = ctx.assessor(rewarded=False)
    assessed = assessor.assess(written, seed=ctx.seed("assessment"), rewarded=False, progress=ctx.report)
    write_jsonl(folder / "assessed.jsonl", [a.to_json() for a in assessed])
    return {"assessed": len(assessed), "usage": vars(assessor.usage)}
