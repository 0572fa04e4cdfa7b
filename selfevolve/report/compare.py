"""Compare runs: which of them are seeds of one recipe, what differs, and how sure that is.

Nested lists carry no axes here: a group is a recipe, its runs are its seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from pathlib import Path
from typing import Any

from selfevolve.errors import UserError
from selfevolve.rates import mean_interval, paired_permutation
from selfevolve.report.figures import COMPARED, Figure, Measure, measure
from selfevolve.report.load import RunView, flatten, load_run

OWN_KEYS = ("seed", "name", "description")  # of a configuration, expected to differ between runs


class Pairing(StrEnum):
    """How a difference between two recipes was taken."""

    PAIRED = "paired"  # seed by seed
    UNPAIRED = "unpaired"  # from the two intervals


@dataclass(frozen=True)
class Group:
    """The runs of one recipe, one a seed."""

    label: str
    tone: int  # colour class
    runs: tuple[RunView, ...]


@dataclass(frozen=True)
class Difference:
    """A figure of one recipe less that of the reference recipe."""

    value: float | None  # None: not measured
    low: float | None
    high: float | None
    pairing: Pairing
    pairs: int = 0  # seeds in common
    p: float | None = None  # two-sided sign-flip test over the pairs; None where unpaired


@dataclass(frozen=True)
class Comparison:
    """What can be compared of several runs."""

    groups: tuple[Group, ...]  # the first one is the reference
    first: int  # first round that all runs have
    last: int  # last round that all runs have
    figures: tuple[Figure, ...]  # measured in every run
    notes: tuple[str, ...]  # what is not compared, and what to bear in mind


def measured_rounds(run: RunView) -> list[int]:
    """Return the numbers of a run's rounds, without the start."""
    return [item["round"] for item in run.rounds]


def at(run: RunView, place: int, figure: Figure) -> Measure:
    """Return a figure of one round of a run."""
    return next((measure(item, figure.key) for item in run.metrics if item["round"] == place), Measure(None))


def has(run: RunView, figure: Figure) -> bool:
    """True when the run measured the figure in at least one round."""
    return any(measure(item, figure.key).value is not None for item in run.rounds)


def group_runs(runs: Sequence[RunView]) -> tuple[Group, ...]:
    """Group runs by recipe and backbone; a second run of the same seed becomes a group of its own."""
    several = len({run.backbone for run in runs}) > 1
    found: dict[str, list[RunView]] = {}
    for run in runs:
        label = f"{run.recipe}, {run.backbone}" if several else run.recipe
        if any(other.seed == run.seed for other in found.get(label, [])):
            label = f"{label} ({run.name})"
            while label in found:
                label += "'"
        found.setdefault(label, []).append(run)
    return tuple(Group(label, 1 + place % 9, tuple(group)) for place, (label, group) in enumerate(found.items()))


def refuse(runs: Sequence[RunView]) -> None:
    """Refuse runs whose figures are different in kind.

    Raises:
        UserError: with what differs and what to do.
    """
    if len(runs) < 2:
        raise UserError(f"{len(runs)} run is given", "give at least two run folders to compare")
    paths = [run.path.resolve() for run in runs]
    twice = next((path for place, path in enumerate(paths) if path in paths[:place]), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice", "give each run folder once")
    empty = [run.name for run in runs if not run.rounds]
    if empty:
        raise UserError(
            f"no round is complete in {', '.join(empty)}", "compare again when each run has at least one round"
        )
    referees = {run.referee for run in runs if run.referee is not None}
    if len(referees) > 1:
        told = "; ".join(f"{run.name}: {run.referee or 'none'}" for run in runs)
        raise UserError(
            f"the runs have different referees ({told}), so their validity and accuracy are not the same quantity",
            "compare runs that one referee judged",
        )
    if not set.intersection(*(set(measured_rounds(run)) for run in runs)):
        raise UserError("the runs have no round in common", "compare runs whose rounds overlap")


def compare_runs(paths: Sequence[str | Path]) -> Comparison:
    """Read runs and find out what can be compared.

    Raises:
        UserError: if a folder is no run folder, or the runs are different in kind.
    """
    runs = [load_run(path) for path in paths]
    refuse(runs)
    common = set.intersection(*(set(measured_rounds(run)) for run in runs))
    notes = []
    figures = tuple(figure for figure in COMPARED if all(has(run, figure) for run in runs))
    if not figures:
        raise UserError("no figure is measured in every run", "compare runs with the same referee and evaluation")
    for figure in COMPARED:
        lacking = [run.name for run in runs if not has(run, figure)]
        if 0 < len(lacking) < len(runs):
            notes.append(f"{figure.label} is not compared: not measured in {', '.join(lacking)}.")
    if len({run.referee for run in runs}) > 1:
        notes.append("Some runs have no referee; only what was measured without one is compared.")
    if len({max(measured_rounds(run)) for run in runs}) > 1:
        told = ", ".join(f"{run.name}: {max(measured_rounds(run))}" for run in runs)
        notes.append(f"The runs are of different length ({told}); tables stop at round {max(common)}, which all have.")
    if len({run.backbone for run in runs}) > 1:
        notes.append("The runs start from different backbones.")
    groups = group_runs(runs)
    for group in groups:
        differing = sorted(config_differences([group]))
        if differing:
            notes.append(
                f"The runs of {group.label} differ in more than the seed ({', '.join(differing)}), so the spread "
                "between them is not of seeds alone."
            )
    return Comparison(groups, min(common), max(common), figures, tuple(notes))


def config_differences(groups: Sequence[Group]) -> dict[str, list[list[str]]]:
    """Return the settings that differ: key -> for each group its distinct values."""
    flats = [[flatten(run.config) for run in group.runs] for group in groups]
    keys = sorted({key for group in flats for flat in group for key in flat if key not in OWN_KEYS})
    out = {}
    for key in keys:
        values = [list(dict.fromkeys(write_setting(flat, key) for flat in group)) for group in flats]
        if len({value for group in values for value in group}) > 1:
            out[key] = values
    return out


def write_setting(flat: dict[str, Any], key: str) -> str:
    """Write a setting's value."""
    if key not in flat:
        return "absent"
    value = flat[key]
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if not isinstance(value, list)
        else str(value)
    )


def group_measure(group: Group, place: int, figure: Figure) -> Measure:
    """Return a group's figure: of one run its own interval, of several the mean over seeds with Student's interval."""
    found = join([at(run, place, figure) for run in group.runs])
    if not (figure.percent or figure.count) or found.low is None or found.high is None:
        return found
    # Student's interval knows no bounds; a share stays in [0, 1], and a count does not fall below 0
    high = min(1.0, found.high) if figure.percent else found.high
    return Measure(found.value, max(0.0, found.low), high, found.k, found.n)


def group_change(group: Group, first: int, last: int, figure: Figure) -> Measure:
    """Return how a figure changed between two rounds."""
    changes = [subtract(at(run, last, figure), at(run, first, figure)) for run in group.runs]
    return join(changes)


def join(measures: Sequence[Measure]) -> Measure:
    """Return one measure as it is, and several as their mean; `n` is then the number of runs."""
    if len(measures) == 1:
        return measures[0]
    mean = mean_interval([item.value for item in measures if item.value is not None])
    return Measure(mean.value, mean.low, mean.high, n=mean.n)


def subtract(a: Measure, b: Measure) -> Measure:
    """Return a - b of two independent measures.

    The interval is joined from the two intervals (MOVER; for Wilson's it is Newcombe's method 10 of 1998).
    """
    if a.value is None or b.value is None:
        return Measure(None)
    value = a.value - b.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Measure(value)
    low = value - sqrt((a.value - a.low) ** 2 + (b.high - b.value) ** 2)
    high = value + sqrt((a.high - a.value) ** 2 + (b.value - b.low) ** 2)
    return Measure(value, low, high)


def common_seeds(group: Group, reference: Group) -> list[tuple[RunView, RunView]]:
    """Return the pairs of runs with the same seed."""
    theirs = {run.seed: run for run in reference.runs}
    return [(run, theirs[run.seed]) for run in group.runs if run.seed in theirs and run.seed != "not recorded"]


def least_p(pairs: int) -> float:
    """Return the least p-value that the sign-flip test over so many pairs can give: 2 of its 2^n sign patterns."""
    return float(2.0 ** (1 - pairs))


def difference(group: Group, reference: Group, figure: Figure, last: int, first: int | None = None) -> Difference:
    """Return a group's figure less the reference's, at round ``last``, or of the change since round ``first``."""

    def value(run: RunView) -> Measure:
        end = at(run, last, figure)
        return end if first is None else subtract(end, at(run, first, figure))

    pairs = [(value(ours).value, value(theirs).value) for ours, theirs in common_seeds(group, reference)]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(known) >= 2:
        mean = mean_interval([a - b for a, b in known])
        p = paired_permutation([a for a, _ in known], [b for _, b in known])
        return Difference(mean.value, mean.low, mean.high, Pairing.PAIRED, len(known), p)
    apart = subtract(join([value(run) for run in group.runs]), join([value(run) for run in reference.runs]))
    return Difference(apart.value, apart.low, apart.high, Pairing.UNPAIRED, len(known))
