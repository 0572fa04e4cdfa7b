"""The log of a stage: figures of the updates, collected to one row a rollout step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from selfevolve.train.rollouts import Clock
from selfevolve.train.spec import LogRow, TrainingError

IN_MODEL = ("generate", "forward", "backward", "optimiser")  # parts of the clock


class StepLog:
    """Rows of finished steps, and the figures of the updates of the step that runs."""

    def __init__(self, clock: Clock, updates: int, progress: Callable[[LogRow], None] | None) -> None:
        """Start empty.

        Args:
            clock: times the parts of a step.
            updates: optimiser updates in a step.
            progress: gets each finished row, or None.
        """
        self.clock, self.per_step, self.progress = clock, updates, progress
        self.rows: list[LogRow] = []
        self.updates: list[dict[str, float]] = []
        self.began, self.before = 0.0, Clock()  # when the step began, and the clock as it stood

    def begin(self) -> int:
        """Note that a step begins, and return its number, 1 for the first."""
        self.began, self.before = self.clock.now(), Clock(dict(self.clock.seconds))
        return len(self.rows) + 1

    def add(self, figures: dict[str, float], update: int, facts: dict[str, Any]) -> None:
        """Take TRL's figures of one update, and close the step's row after its last one.

        Args:
            figures: by TRL's names.
            update: number of the update, for the message of an error.
            facts: the fields of `LogRow` that are known before the updates.

        Raises:
            TrainingError: loss or gradient are not finite.
        """
        for name in ("loss", "grad_norm"):
            if not math.isfinite(figures.get(name, math.nan)):
                raise TrainingError(
                    f"{name} is {figures.get(name)} at update {update}",
                    "Lower the learning rate, or look at the weights that the stage started from.",
                )
        self.updates.append(figures)
        if len(self.updates) == self.per_step:
            self._close(facts)

    def _close(self, facts: dict[str, Any]) -> None:
        figures = {name: mean([update.get(name, math.nan) for update in self.updates]) for name in self.updates[0]}
        clipped = figures.get("clip_ratio/region_mean")
        row = LogRow(
            **facts,
            loss=figures["loss"],
            kl=figures.get("kl"),
            entropy=figures["entropy"],
            ratio_clipped=figures["cispo_clip_ratio"] if clipped is None else clipped,
            grad_norm=figures["grad_norm"],
            updates=len(self.updates),
            seconds=self.clock.now() - self.began,
            seconds_model=self.clock.of(*IN_MODEL) - self.before.of(*IN_MODEL),
            seconds_reward=self.clock.of("reward") - self.before.of("reward"),
            seconds_world=self.clock.of("world") - self.before.of("world"),
        )
        self.updates = []
        self.rows.append(row)
        if self.progress is not None:
            self.progress(row)


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are numbers; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
