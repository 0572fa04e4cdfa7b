"""Comparing askers on the cells (pair, slot) that both have played."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import isfinite

import numpy as np

from aske.statistics.clusters import DRAWS, clustered_mean
from aske.statistics.direction import mcnemar_exact
from aske.statistics.rate import LEVEL

Cell = tuple[Hashable, Hashable]  # (pair, slot)

EXACT = 12  # up to here all 2^n sign patterns are enumerated
SAMPLES = 20_000  # sign patterns drawn above
SIGNS_AT_ONCE = 4_000_000  # signs held in memory at a time


def sign_flip_test(
    differences: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> float | None:
    """Return the two-sided p-value of the paired permutation test (Fisher's randomisation test by sign flips).

    Under the null the two askers are exchangeable in every cell, so each difference is as likely with either sign.
    The p-value is the share of sign patterns whose ``|sum|`` is at least the observed one. Differences of 0 change
    nothing and are left out; up to 12 others all ``2^n`` patterns are enumerated, above that ``samples`` are drawn
    and ``(1 + hits) / (1 + samples)`` is returned, never 0 (Phipson and Smyth 2010). Where all others are of one size,
    as with 0/1 outcomes, the test is McNemar's exact test and is computed as that, without draws.

    Args:
        differences: First less second asker, a number a cell.
        groups: Cells that flip together, such as the pair of each cell; None: every cell by itself.
        samples: Sign patterns to draw where there are too many to enumerate.
        seed: Seed of these.

    Returns:
        The p-value: 1 where all differences are 0, None where there is none.

    Raises:
        ValueError: A difference is not finite, lengths differ, or ``samples`` is below 1.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}; ask for at least 1, usefully for 10,000 or more")
    for d in differences:
        if not isfinite(d):
            raise ValueError(f"a difference is {d}; it must be a finite number: leave cells that are undecided out")
    if groups is not None and len(groups) != len(differences):
        raise ValueError(f"{len(differences)} differences and {len(groups)} groups are given; give one for each")
    if not differences:
        return None
    totals: dict[Hashable, float] = {}
    for key, d in zip(range(len(differences)) if groups is None else groups, differences, strict=True):
        totals[key] = totals.get(key, 0.0) + d
    moving = np.array([total for total in totals.values() if total != 0], dtype=np.float64)
    if not moving.size:
        return 1.0
    size = float(np.abs(moving).max())
    if np.all(np.abs(np.abs(moving) - size) <= 1e-12 * size):
        return mcnemar_exact(int((moving > 0).sum()), int((moving < 0).sum()))
    bound = abs(moving.sum()) - 1e-12 * np.abs(moving).sum()  # rounding must not turn a tie into a miss
    if len(moving) <= EXACT:
        signs = np.array(list(product((1.0, -1.0), repeat=len(moving))))
        return float((np.abs(signs @ moving) >= bound).mean())
    random = np.random.default_rng(seed)
    hits, portion = 0, max(1, SIGNS_AT_ONCE // len(moving))
    for start in range(0, samples, portion):
        signs = random.integers(0, 2, size=(min(portion, samples - start), len(moving)), dtype=np.int8) * 2.0 - 1.0
        hits += int((np.abs(signs @ moving) >= bound).sum())
    return (1 + hits) / (1 + samples)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down adjusted p-values, in the order given; None stays None and is not in the family.

    Sorted upwards, the i-th of m (from 0) becomes ``max over j <= i of min(1, (m - j) p_j)`` (Holm 1979). Holds the
    family-wise error under any dependence.

    Raises:
        ValueError: A p-value is outside 0 to 1.
    """
    family = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(family):
        if not 0 <= p <= 1:
            raise ValueError(f"a p-value is {p}; it must lie in 0 to 1")
        highest = max(highest, min(1.0, (len(family) - rank) * p))
        adjusted[i] = highest
    return adjusted


@dataclass(frozen=True)
class Comparison:
    """Two askers on the cells that both have played."""

    first: str  # name of the asker
    second: str
    difference: float | None  # mean of first - second over the cells; None where n is 0
    low: float | None  # cluster-bootstrap interval of the difference; None where the data allow none
    high: float | None
    p: float | None  # two-sided, paired permutation; None where n is 0
    p_holm: float | None  # adjusted over all comparisons of the table
    n: int  # cells compared
    first_only: int  # cells where the first scores higher
    second_only: int  # cells where the second scores higher
    ungradable: int  # cells that both played and where either is ungradable: dropped
    unmatched: int  # cells that only one of the two has: dropped

    def to_json(self) -> dict[str, str | float | int | None]:
        """Return all fields by name."""
        return dict(vars(self))


def _differences(x: Mapping[Cell, float | None], y: Mapping[Cell, float | None]) -> dict[Cell, float]:
    """Return first less second for the cells that both have and neither has undecided."""
    differences = {}
    for cell, a in x.items():
        b = y.get(cell)
        if a is not None and b is not None:
            differences[cell] = float(a) - float(b)
    return differences


def compare_askers(
    scores: Mapping[str, Mapping[Cell, float | None]],
    *,
    shared_slots: bool = True,
    flip_pairs: bool = False,
    draws: int = DRAWS,
    samples: int = SAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> list[Comparison]:
    """Return every two askers compared, in the order of ``scores``, with Holm's correction over all of them.

    Args:
        scores: By asker, by cell (pair, slot): 1 or True where the session is calibrated, 0 or False where not, None
            where it is ungradable; any other score works too.
        shared_slots: True: the interval resamples pairs and slots, safe whatever the slots share, and too wide by up
            to 1.7 where they share nothing. False: pairs alone; right where a slot is only a number in a pair. With one
            pair, or one slot, only the other is resampled; with neither, cells are.
        flip_pairs: True: the test flips whole pairs, which speaks about other pairs too and needs at least six of them
            to reach 0.05. False: single cells, which speaks about the pairs played.
        draws: Bootstrap draws of the intervals.
        samples: Sign patterns drawn for a p-value where the exact one is out of reach.
        seed: Seed of both.
        level: Confidence of the intervals.

    Raises:
        ValueError: A score is not finite.
    """
    rows = []
    for first, second in combinations(scores, 2):
        x, y = scores[first], scores[second]
        played = sum(cell in y for cell in x)
        cells = _differences(x, y)
        differences = list(cells.values())
        pairs = [pair for pair, _ in cells]
        slots = [slot for _, slot in cells] if shared_slots else []
        factors = [keys if len(set(keys)) > 1 else None for keys in (pairs, slots)]  # one cluster cannot be redrawn
        estimate = clustered_mean(differences, *factors, draws=draws, seed=seed, level=level)
        rows.append(
            Comparison(
                first=first,
                second=second,
                difference=estimate.value,
                low=estimate.low,
                high=estimate.high,
                p=sign_flip_test(differences, pairs if flip_pairs else None, samples=samples, seed=seed),
                p_holm=None,
                n=len(differences),
                first_only=sum(d > 0 for d in differences),
                second_only=sum(d < 0 for d in differences),
                ungradable=played - len(cells),
                unmatched=len(x) + len(y) - 2 * played,
            )
        )
    return [
        Comparison(**{**vars(row), "p_holm": adjusted})
        for row, adjusted in zip(rows, holm([row.p for row in rows]), strict=True)
    ]
