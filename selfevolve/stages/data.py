"""Stage 4: the solver's training data: kept questions with pseudo-labels, and a share of replay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from selfevolve.diagnostics import check_training_set
from selfevolve.jsonl import write_jsonl
from selfevolve.records import Decision, ExampleKind, SolverExample
from selfevolve.stages.context import Context
from selfevolve.stages.initialisation import read_initialisation_data
from validity import Split


def data(ctx: Context, folder: Path) -> dict[str, Any]:
    """Write ``examples.jsonl``: every kept question, and replay examples to the recipe's share of the whole.

    Raises:
        NothingToLearn: No question was kept; the message tells why they were dropped.
    """
    rows = ctx.run.read(ctx.round, "assessment", "assessed.jsonl")
    kept = [row for row in rows if row["decision"] == Decision.KEPT]
    check_training_set(kept, decisions=Counter(row["decision"] for row in rows))
    rng = Random(ctx.seed("data"))
    examples = [
        SolverExample(ExampleKind.PSEUDO, row["question"], row["solutions"]["answer"], row["id"]) for row in kept
    ]
    share = ctx.recipe.solver.replay
    if share > 0:
        labelled = [e for e in read_initialisation_data(ctx.recipe.initialisation.data) if e.split is Split.TRAIN]
        wanted = min(len(labelled), round(len(kept) * share / (1 - share)))
        examples += [
            SolverExample(ExampleKind.REPLAY, e.question, e.answer, "initialisation")
            for e in rng.sample(labelled, wanted)
        ]
    rng.shuffle(examples)
    write_jsonl(folder / "examples.jsonl", [e.to_json() for e in examples])
    return {"examples": len(examples), "kept": len(kept), "replay": len(examples) - len(kept)}
