"""A whole run: initialise, play the rounds, watch for collapse, report."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfevolve.config import Recipe
from selfevolve.diagnostics import Bounds, CollapseMonitor
from selfevolve.errors import CollapseError
from selfevolve.machines import leading
from selfevolve.progress import Bars
from selfevolve.round import initialise, play_round
from selfevolve.rundir import RunDir
from selfevolve.stages import Context


def run(recipe: Recipe, out: str | Path) -> Path:
    """Start a run in a new folder and return the folder.

    Raises:
        UserError: The folder is taken or busy, a file is missing, or the run collapsed and was told to stop.
    """
    return _evolve(RunDir.create(out, recipe))


def resume(path: str | Path, overrides: Sequence[str] = ()) -> Path:
    """Go on with a run from its last complete stage.

    Args:
        path: the run folder.
        overrides: settings of the machinery to change from here on, see `selfevolve.config.MACHINERY`.

    Raises:
        UserError: as `run`; also an override of another setting.
    """
    run = RunDir.open(path)
    if overrides:
        with run.lock():
            run.change(overrides)
    return _evolve(run)


def _evolve(run: RunDir) -> Path:
    from selfevolve.report import round_table, write_report

    recipe = run.recipe
    monitor = CollapseMonitor(_bounds(recipe), stop=recipe.monitor.stop)
    with run.lock(), leading(run), _bars(run) as bars, _told(bars):
        bars.say(f"{recipe.name}: {recipe.rounds} rounds on {recipe.backbone}, seed {recipe.seed}, in {run.path}")
        initialise(Context(run, 0, bars.report_for(0)))
        for number in range(1, recipe.rounds + 1):
            done = run.is_done(number, "diagnostics")
            metrics = play_round(Context(run, number, bars.report_for(number)))
            run.remove_old_checkpoints()
            bars.round_done(number)
            if not done:
                bars.say(round_table([metrics]))
                _watch(monitor, run, metrics, bars)
        html, markdown = write_report(run.path)
        bars.say(round_table(run.metrics()))
        bars.say(f"report: {html}\n        {markdown}")
    return run.path


def _watch(monitor: CollapseMonitor, run: RunDir, metrics: dict[str, Any], bars: Bars) -> None:
    found = monitor.check(metrics)
    if not found.below:
        return
    bars.say(f"collapse monitor, round {found.round}:\n{found.table()}", error=True)
    if found.stop:
        from selfevolve.report import write_report

        raise CollapseError(
            f"round {found.round} is below the bounds of the collapse monitor",
            f"read the table above and {write_report(run.path)[0]}; `selfevolve resume {run.path} monitor.stop=false` "
            "goes on regardless",
        )


def _bounds(recipe: Recipe) -> Bounds:
    m = recipe.monitor
    return Bounds(
        valid_rate=m.min_valid_rate,
        distinct_patterns=m.min_distinct_patterns or None,
        kept=m.min_kept,
        answered_rate=m.min_answered_share,
        reward_std=m.min_reward_std or None,
    )


class _Teller(logging.Handler):
    """Says what the parts log, each line once: rounds repeat how prompts are formatted."""

    def __init__(self, bars: Bars) -> None:
        super().__init__(logging.INFO)
        self.bars = bars
        self.told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self.told:
            self.told.add(text)
            self.bars.say(text, error=True)


@contextmanager
def _told(bars: Bars) -> Iterator[None]:
    """Show what the parts log from INFO on."""
    ours, teller = logging.getLogger("selfevolve"), _Teller(bars)
    level = ours.level
    ours.addHandler(teller)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(level)
        ours.removeHandler(teller)


@contextmanager
def _bars(run: RunDir) -> Iterator[Bars]:
    bars = Bars(run)
    try:
        yield bars
    finally:
        bars.close()
