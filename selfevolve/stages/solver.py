"""Stage 5: update the solver on its own pseudo-labels, with replay of the initialisation's task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selfevolve.records import ExampleKind, SolverExample
from selfevolve.rewards import solver_terms
from selfevolve.stages.context import Context
from selfevolve.stages.initialisation import validity_reward
from selfevolve.stages.training import run_training
from selfevolve.train import Rollout, RolloutBatch, TrainRow


def solver(ctx: Context, folder: Path) -> dict[str, Any]:
    """Train the solver; each kind of example has its own prompt and its own reward (R-Quest, appendix C.2)."""
    settings = ctx.recipe.solver
    examples = [SolverExample.from_json(row) for row in ctx.run.read(ctx.round, "data", "examples.jsonl")]
    rows = [TrainRow(_prompt(ctx, e), {"kind": e.kind, "answer": e.answer}) for e in examples]

    def score(rollout: Rollout) -> float | None:
        if rollout.payload["kind"] is ExampleKind.REPLAY:
            return validity_reward(rollout)
        terms = solver_terms(
            rollout.text,
            rollout.finish_reason.value,
            rollout.payload["answer"],
            agreement=settings.pseudo_label_weight,
            form=settings.format_weight,
        )
        return None if terms is None else sum(terms.values())

    def reward(batch: RolloutBatch) -> list[float | None]:
        return [score(rollout) for rollout in batch.rollouts]

    spec = ctx.train_spec(settings, "solver", ctx.recipe.generation.max_new_tokens.solution)
    return run_training(ctx, "solver", ctx.solver(ctx.round - 1), rows, reward, spec, folder)


def _prompt(ctx: Context, example: SolverExample) -> Any:
    ask = ctx.pack.check if example.kind is ExampleKind.REPLAY else ctx.pack.solve
    return ask(example.question)
