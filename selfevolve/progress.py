"""Live progress of a run: one bar for the rounds and one for the stage at work, and ``progress.json`` for onlookers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from tqdm import tqdm

from selfevolve.rundir import RunDir

SECONDS_BETWEEN_NOTES = 0.5


class Bars:
    """Two progress bars on a terminal; plain lines elsewhere."""

    def __init__(self, run: RunDir, stream: TextIO) -> None:
        """Start at the rounds that are done already."""
        self.run, self.stream = run, stream
        self.live = stream.isatty()
        self.rounds = tqdm(
            total=run.recipe.rounds, desc="rounds", file=stream, disable=not self.live, position=0, leave=False
        )
        self.stage = tqdm(total=1, desc="", file=stream, disable=not self.live, position=1, leave=False)
        self._noted = 0.0
        self._last = ""

    def report_for(self, round: int) -> Callable[[str, int, int], None]:
        """Return what a stage of this round calls with (what, done, of)."""

        def report(what: str, done: int, of: int) -> None:
            name = f"round {round} {what}" if round else what
            if self.live:
                self.stage.set_description_str(name, refresh=False)
                self.stage.total, self.stage.n = of, done
                self.stage.refresh()
            elif name != self._last:
                print(name, file=self.stream, flush=True)
            now = time.monotonic()
            if name != self._last or now - self._noted > SECONDS_BETWEEN_NOTES or done == of:
                self.run.note_progress(round, what, done, of)
                self._noted = now
            self._last = name

        return report

    def round_done(self, number: int) -> None:
        """Move the outer bar."""
        self.rounds.n = number
        self.rounds.refresh()

    def say(self, text: str, error: bool = False) -> None:
        """Print lines above the bars."""
        tqdm.write(text, file=sys.stderr if error else sys.stdout)

    def close(self) -> None:
        """Remove the bars."""
        self.stage.close()
        self.rounds.close()
