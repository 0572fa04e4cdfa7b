"""One round, read aloud."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfevolve import serving, stages
from selfevolve.config import accelerate_config_path
from selfevolve.errors import UserError
from selfevolve.machines import meeting
from selfevolve.rundir import INITIALISATION
from selfevolve.stages import Context
from selfevolve.stages.memory import out_of_memory_is_clear

COUNTS = "counts.json"  # what a child's main process leaves beside its records
FAILURES = "failure-*.json"  # what a child process that fails says of it, by its rank

StageFunction = Callable[[Context, Path], dict[str, Any]]
TRAINING: dict[str, StageFunction] = {
    "initialisation": stages.initialisation,
    "questioner": stages.questioner,
    "solver": stages.solver,
}


def play_round(ctx: Context) -> dict[str, Any]:
    """Play round ``ctx.round`` from wherever the run folder left it; return its metrics."""
    try:
        train_stage(ctx, "questioner")
        ctx.release(keep="solver")  # the assessment asks it again
        stage(ctx, "candidates", stages.candidates)
        ctx.release(keep="solver")
        stage(ctx, "assessment", stages.assessment)
        ctx.release()
        stage(ctx, "data", stages.data)
        train_stage(ctx, "solver")
        stage(ctx, "diagnostics", stages.diagnostics)
    finally:
        ctx.release()
    metrics: dict[str, Any] = ctx.run.read(ctx.round, "diagnostics", "metrics.json")
    return metrics


def initialise(ctx: Context) -> None:
    """Make the solver of round 1, and measure it."""
    opened = ctx.run.stage(0, INITIALISATION)
    if opened is None:
        return
    try:
        with opened:
            ctx.check()
            _run(ctx, "initialisation", opened.path, opened.counts)
            stages.start_metrics(ctx, opened.path)
    finally:
        ctx.release()


def stage(ctx: Context, name: str, function: StageFunction) -> None:
    """Run one stage into a folder of its own, unless it is complete."""
    opened = ctx.run.stage(ctx.round, name)
    if opened is None:
        return
    with opened, out_of_memory_is_clear(name, ctx.recipe):
        ctx.check()
        opened.counts.update(function(ctx, opened.path))


def train_stage(ctx: Context, name: str) -> None:
    """Run a training stage inline, or in child processes under accelerate."""
    opened = ctx.run.stage(ctx.round, name)
    if opened is None:
        return
    with opened:
        ctx.check()
        _run(ctx, name, opened.path, opened.counts)


def _run(ctx: Context, name: str, folder: Path, counts: dict[str, Any]) -> None:
    if ctx.recipe.launcher == "inline":
        with out_of_memory_is_clear(name, ctx.recipe, training=True):
            counts.update(TRAINING[name](ctx, folder))
        serving.close([])  # a trainer holds itself in cycles: its weights would stay beside the next stage's models
        return
    from selfevolve.train.launch import LaunchError, launch

    ctx.release()
    words = ["selfevolve.stage_main", str(ctx.run.path), str(ctx.round), name, str(folder)]
    config = accelerate_config_path(ctx.recipe)
    try:
        with meeting(ctx.run, ctx.round, name, folder) as (met, cpu):
            launch(words, ctx.recipe.processes, config, cpu=cpu, meeting=met)
    except LaunchError:
        if (cause := first_failure(folder)) is not None:
            raise cause from None
        raise
    written = folder / COUNTS
    counts.update(json.loads(written.read_text(encoding="utf-8")))
    written.unlink()


def first_failure(folder: Path) -> UserError | None:
    """Return what the first of a stage's child processes to fail said of it; None when none said anything."""
    files = sorted(folder.glob(FAILURES), key=lambda path: path.stat().st_mtime_ns)
    return UserError(**json.loads(files[0].read_text(encoding="utf-8"))) if files else None
