"""What the command shows while a benchmark runs: bars on a terminal, elsewhere a line a wave and a minute."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from aske.run import Watch

_PAUSE = 60.0  # seconds between two lines within a wave
_ORDER = ("calibrated", "too_easy", "too_hard", "no_question", "bad_cross_check", "ungradable")


class Display(Watch):
    """Draws on stderr, so that stdout stays free for results."""

    def __init__(self) -> None:
        """Find out whether bars can be drawn."""
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        self.task: TaskID | None = None
        self.name, self.total, self.tokens = "", 0, 0
        self.labels: Counter[str] = Counter()
        self.began = self.told = time.perf_counter()

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self.live:
            self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        """Stop drawing."""
        if self.live:
            self.progress.stop()

    def part(self, name: str, done: int, total: int, labels: Counter[str]) -> None:
        """Begin a part: a bar of its own."""
        self.name, self.total, self.labels = name, total, Counter(labels)
        if self.live:
            self.task = self.progress.add_task(name, total=total, completed=done, note=self._labels())
        elif done:
            self._tell(f"{name}: {done} of {total} are there")

    def wave(self, done: int, labels: Counter[str], tokens: int) -> None:
        """Count a wave."""
        self.tokens += tokens
        self.labels += labels
        if self.live and self.task is not None:
            self.progress.update(self.task, completed=done, note=self._note())
        else:
            seconds = time.perf_counter() - self.began
            text = f"{self.name}: {done} of {self.total}, {self._note()}, {seconds:.0f} s"
            self._tell(text)

    def doing(self, what: str, over: int, of: int) -> None:
        """Tell what a wave is at."""
        if self.live and self.task is not None:
            self.progress.update(self.task, note=f"{what}, {over} of {of} over; {self._labels()}")
        elif time.perf_counter() - self.told >= _PAUSE:
            self._tell(f"{self.name}: {what}, {over} of {of} of this wave over")

    def _tell(self, text: str) -> None:
        self.told = time.perf_counter()
        print(text, file=sys.stderr, flush=True)

    def _note(self) -> str:
        labels = self._labels()
        return f"{self.tokens:,} tokens" + (f"; {labels}" if labels else "")

    def _labels(self) -> str:
        return ", ".join(f"{self.labels[name]} {name.replace('_', ' ')}" for name in _ORDER if self.labels[name])
