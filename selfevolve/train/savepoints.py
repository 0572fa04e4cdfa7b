"""Savepoints of a training stage: a kill costs minutes, where a stage takes hours.

One folder stands beside the stage's own::

    checkpoint-N/    after N updates, as the trainer writes it: weights, optimiser, random states
        caller/      what the caller wrote: its records so far, its memories
        step.json    steps done, their log, the clock; written last, so a folder without it is none

Only the newest that is whole stays. A stage that goes on from it leaves the records and weights of one that was never
stopped: what is drawn hangs on seed, step and place, not on how often a process was started.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfevolve.jsonl import sync_tree, write_text
from selfevolve.train.spec import LogRow, TrainingError

MARKER, CALLER = "step.json", "caller"


@dataclass(frozen=True)
class Saved:
    """A savepoint that is whole."""

    folder: Path
    log: tuple[LogRow, ...]  # one row a step that is done
    clock: dict[str, float]  # seconds by part so far
    seconds: float  # of the stage so far
    before: list[tuple[float, float]]  # sums over each trained tensor, as the stage began
    sharding: str  # how the processes held the weights

    @property
    def step(self) -> int:
        """Steps that are done."""
        return len(self.log)

    @property
    def caller(self) -> Path:
        """Where the caller's files lie."""
        return self.folder / CALLER

    def refuse_other(self, sharding: str) -> None:
        """Raise `TrainingError` for processes that hold the weights in another way than those that saved them."""
        if sharding != self.sharding:
            raise TrainingError(
                f"{self.folder} was saved with sharding {self.sharding!r}, and this stage has {sharding!r}",
                f"Put accelerate_config back, or remove {self.folder.parent} and lose its steps.",
            )


@dataclass(frozen=True)
class Savepoints:
    """Where a stage is saved in between, and how often."""

    folder: Path  # every process sees it under this path
    minutes: float  # saved after the first step that ends as many minutes after the last savepoint
    save: Callable[[Path], None] = lambda folder: None  # writes the caller's files; called on the main process

    def latest(self) -> Saved | None:
        """Return the newest savepoint that is whole, None where there is none."""
        whole = [path.parent for path in self.folder.glob(f"checkpoint-*/{MARKER}")]
        if not whole:
            return None
        folder = max(whole, key=lambda path: int(path.name.removeprefix("checkpoint-")))
        row = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return Saved(
            folder,
            tuple(LogRow(**line) for line in row["log"]),
            row["clock"],
            row["seconds"],
            [(first, second) for first, second in row["before"]],
            row["sharding"],
        )

    def complete(self, folder: Path, log: list[LogRow], **facts: Any) -> None:
        """Add the caller's files and the marker to what the trainer wrote, then remove the older savepoints."""
        shutil.rmtree(folder / CALLER, ignore_errors=True)
        (folder / CALLER).mkdir()
        self.save(folder / CALLER)
        sync_tree(folder)
        write_text(folder / MARKER, json.dumps({"log": [asdict(row) for row in log], **facts}) + "\n")
        for other in self.folder.glob("checkpoint-*"):
            if other != folder:
                shutil.rmtree(other)

    def remove(self) -> None:
        """Remove them all: the stage is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)
