"""Live progress of a run: one bar for the rounds and one for the stage at work, and ``progress.json`` for onlookers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from selfevolve.rundir import RunDir

SECONDS_BETWEEN_NOTES = 0.5


class Bars:
    """Two progress bars on a terminal; a plain line a stage elsewhere."""

    def __init__(self, run: RunDir) -> None:
        """Start at the rounds that are done already."""
        self.run = run
        self.live = sys.stderr.isatty()
        console = Console(stderr=True)
        columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bars = Progress(*columns, console=console, disable=not self.live, transient=True)
        self.rounds = self.bars.add_task("rounds", total=run.recipe.rounds)
        self.stage = self.bars.add_task("", total=1)
        self.bars.start()
        self._noted = 0.0
        self._last = ""

    def report_for(self, round: int) -> Callable[[str, int, int], None]:
        """Return what a stage of this round calls with (what, done, of)."""

        def report(what: str, done: int, of: int) -> None:
            name = f"round {round} {what}" if round else what
            new = name != self._last
            if self.live:
                if new:
                    self.bars.reset(self.stage)
                self.bars.update(self.stage, description=name, completed=done, total=of)
            elif new:
                print(name, file=sys.stderr, flush=True)
            now = time.monotonic()
            if new or done == of or now - self._noted > SECONDS_BETWEEN_NOTES:
                self.run.note_progress(round, what, done, of)
                self._noted = now
            self._last = name

        return report

    def round_done(self, number: int) -> None:
        """Move the outer bar."""
        self.bars.update(self.rounds, completed=number)

    def say(self, text: str, error: bool = False) -> None:
        """Print lines above the bars."""
        if self.live:
            self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr if error else sys.stdout, flush=True)

    def close(self) -> None:
        """Remove the bars."""
        self.bars.stop()
