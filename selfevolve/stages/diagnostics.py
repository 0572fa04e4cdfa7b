"""Stage 6: what the round was like: truths of its questions, and its solver on fixed questions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from selfevolve.answers import Equivalence, compare, extract
from selfevolve.diagnostics import Evaluation, Outcome, round_metrics
from selfevolve.jsonl import write_json, write_jsonl
from selfevolve.rundir import STAGES
from selfevolve.sampling import Reply, Sampling
from selfevolve.seeds import derive
from selfevolve.stages.context import Context
from selfevolve.stages.initialisation import read_initialisation_data
from validity import Split, read_verdict


@dataclass(frozen=True)
class Item:
    """A question with a known answer."""

    question: str
    answer: str


def diagnostics(ctx: Context, folder: Path) -> dict[str, Any]:
    """Write ``evaluation.jsonl``, ``truths.jsonl`` and ``metrics.json``."""
    started = time.monotonic()
    rows = ctx.run.read(ctx.round, "assessment", "assessed.jsonl")
    _judge(ctx, rows)
    write_jsonl(folder / "truths.jsonl", [{"id": row["id"], "truth": row["truth"]} for row in rows])
    evaluated = evaluate(ctx, ctx.solver(ctx.round))
    write_jsonl(folder / "evaluation.jsonl", evaluated)
    seconds = {stage: ctx.run.done(ctx.round, stage)["seconds"] for stage in STAGES[:-1]}
    seconds[STAGES[-1]] = round(time.monotonic() - started, 3)
    metrics = round_metrics(
        rows,
        Evaluation.from_rows(evaluated),
        round=ctx.round,
        seconds_by_stage=seconds,
        questioner_rows=ctx.run.read(ctx.round, "questioner", "assessed.jsonl"),
        referee=ctx.referee.source if ctx.referee else None,
        top5_shares=ctx.referee.top5_shares if ctx.referee else (),
    )
    write_json(folder / "metrics.json", metrics)
    return {"evaluation": len(evaluated)}


def start_metrics(ctx: Context, folder: Path) -> None:
    """Evaluate the solver before round 1 into ``evaluation.jsonl`` and ``start.json`` (keys as in metrics.jsonl)."""
    evaluated = evaluate(ctx, ctx.base if not ctx.recipe.initialisation.enabled else str(folder / "checkpoint"))
    write_jsonl(folder / "evaluation.jsonl", evaluated)
    metrics = round_metrics([], Evaluation.from_rows(evaluated), round=0, seconds_by_stage={})
    keys = ("round", "balanced_accuracy", "valid_recall", "invalid_recall", "solver_accuracy", "solver_accuracy_greedy")
    write_json(folder / "start.json", {key: metrics[key] for key in keys})


def _judge(ctx: Context, rows: list[dict[str, Any]]) -> None:
    """Set each row's truth: of all rows, or of as many as the recipe samples, drawn evenly."""
    for row in rows:
        row["truth"] = None
    if ctx.referee is None:
        return
    parsed = [i for i, row in enumerate(rows) if row["question"] is not None]
    wanted = ctx.recipe.diagnostics.sample
    if 0 < wanted < len(parsed):
        parsed = sorted(Random(ctx.seed("referee")).sample(parsed, wanted))
    ctx.report("referee", 0, len(parsed))
    for i, truth in zip(parsed, ctx.referee.truths([rows[i]["question"] for i in parsed]), strict=True):
        rows[i]["truth"] = truth


def evaluate(ctx: Context, weights: str) -> list[dict[str, Any]]:
    """Return the rows of ``evaluation.jsonl`` for a solver: greedy verdicts, sampled and greedy answers.

    The same questions and seeds serve every round and every recipe with the same seed, so that runs can be paired.
    """
    solver = ctx.sampler(weights, "solver", "solver")
    limit = ctx.recipe.generation.max_new_tokens.solution
    greedy = Sampling(temperature=0.0, max_tokens=limit)
    settings = ctx.recipe.diagnostics
    seed = derive(ctx.recipe.seed, "evaluation")
    rows: list[dict[str, Any]] = []
    heldout = _heldout(ctx, settings.heldout)
    ctx.report("evaluation", 0, len(heldout))
    replies = solver.sample([ctx.pack.check(question) for question, _ in heldout], greedy)
    for (question, valid), group in zip(heldout, replies, strict=True):
        verdict = read_verdict(group[0]).value
        rows.append({"kind": "validity", "question": question, "truth_valid": valid, "verdict": verdict})
    items = _exam(ctx)
    prompts = [ctx.pack.solve(item.question) for item in items]
    drawn = Sampling(settings.solver_samples, max_tokens=limit, seed=seed)
    for decoding, sampling in (("sampled", drawn), ("greedy", greedy)):
        for item, group in zip(items, solver.sample(prompts, sampling), strict=True):
            rows += [
                {
                    "kind": "solver",
                    "decoding": decoding,
                    "question": item.question,
                    "answer": item.answer,
                    "outcome": grade(item.answer, reply).value,
                }
                for reply in group
            ]
    return rows


def grade(answer: str, reply: Reply) -> Outcome:
    """Return how a reply fares against a known answer; a reply that did not end by itself is undecided."""
    if not reply.complete:
        return Outcome.UNDECIDED
    given = extract(reply.text, reply.finish_reason)
    if given is None:
        return Outcome.WRONG
    verdict = compare(answer, given)
    if verdict is Equivalence.UNDECIDED:
        return Outcome.UNDECIDED
    return Outcome.RIGHT if verdict is Equivalence.SAME else Outcome.WRONG


def _heldout(ctx: Context, wanted: int) -> Sequence[tuple[str, bool]]:
    """Return held-out labelled questions; none where the recipe names no initialisation set."""
    if not ctx.recipe.initialisation.enabled and ctx.recipe.initialisation.data != "testbed":
        return []
    examples = [e for e in read_initialisation_data(ctx.recipe.initialisation.data) if e.split is Split.HELD_OUT]
    if len(examples) > wanted:
        examples = Random(derive(0, "held out")).sample(examples, wanted)
    return [(e.question, e.valid) for e in examples]


def _exam(ctx: Context) -> list[Item]:
    """Return the testbed's fixed exam of valid questions; none for other backbones, whose benchmarks lie elsewhere."""
    if ctx.recipe.referee != "oracle":
        return []
    from selfevolve.testbed.exam import exam

    return [Item(question, answer) for question, answer in exam()]
