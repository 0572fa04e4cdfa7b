"""Intervals for means over sessions that share a pair of solvers or a question.

Array axes: ``[draw]`` bootstrap draw, ``[pair]``, ``[slot]``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from aske.statistics.rate import LEVEL, Estimate, check_level

Array = NDArray[np.float64]
DRAWS = 10_000  # bootstrap draws unless told otherwise
ROUNDING = 1e-12  # spread, relative to the largest value, that is no spread
WEIGHTS_AT_ONCE = 2_000_000  # cluster weights held in memory at a time (16 MB)


def clustered_mean(
    values: Sequence[float | None],
    pairs: Sequence[Hashable] | None = None,
    slots: Sequence[Hashable] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> Estimate:
    """Return the mean of ``values`` with a cluster-bootstrap percentile interval.

    With both factors this is the pigeonhole bootstrap (Owen 2007, Annals of Applied Statistics 1(2), 386-411): in
    each draw the pairs and, independently, the slots are drawn with replacement, and a value weighs
    ``W(pair) * W(slot)``, the product of the times its pair and its slot were drawn. The draw's mean is
    ``sum W v / sum W``, so unequal and empty cells need no special case. With one factor it is the ordinary cluster
    bootstrap; with none every value is its own cluster.

    Args:
        values: One number a session; None is excluded and counted in ``asked``.
        pairs: The pair of each session; None: pairs are not a factor.
        slots: The question, or the slot of the schedule, of each session; None: not a factor.
        draws: Bootstrap draws. Draws in which no value has weight are left out.
        seed: Seed of the draws.
        level: Confidence of the interval.

    Returns:
        The estimate. ``low`` and ``high`` are None where a factor has fewer than two clusters, or where all draws give
        the same mean: an interval of width 0 would claim certainty (for a rate of 0 or 1 read Wilson's interval).

    Raises:
        ValueError: Lengths differ, a value is not finite, or ``draws`` is below 1.
    """
    check_level(level)
    if draws < 1:
        raise ValueError(f"draws is {draws}; ask for at least 1, usefully for 1,000 or more")
    if pairs is None and slots is None:
        slots = range(len(values))
    kept, rows, columns = _kept(values, pairs, slots)
    if not kept.size:
        return Estimate(None, None, None, 0, len(values))
    mean = float(kept.mean())
    factors = [index for index, given in ((rows, pairs), (columns, slots)) if given is not None]
    if any(index.max() < 1 for index in factors) or np.ptp(kept) == 0:
        return Estimate(mean, None, None, len(kept), len(values))
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    sums = _cells(kept, rows, columns, shape)
    counts = _cells(np.ones_like(kept), rows, columns, shape)
    means = _bootstrap(sums, counts, pairs is not None, slots is not None, draws, seed)
    if not means.size or np.ptp(means) <= ROUNDING * np.abs(kept).max():
        return Estimate(mean, None, None, len(kept), len(values))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(mean, float(low), float(high), len(kept), len(values))


def multiway_mean(
    values: Sequence[float | None], pairs: Sequence[Hashable], slots: Sequence[Hashable], *, level: float = LEVEL
) -> Estimate:
    """Return the mean of ``values`` with the two-way cluster-robust t interval.

    The variance is ``V(pair) + V(slot) - V(cell)`` (Cameron, Gelbach and Miller 2011, Journal of Business and Economic
    Statistics 29(2), equation 2.11), where ``V(g) = G/(G-1) * sum over clusters (sum of v - mean)^2 / n^2``. Where it
    falls below the larger of the first two, that one is taken. Student's t has ``min(pairs, slots) - 1`` degrees of
    freedom. Sharper than `clustered_mean`, which counts the noise of single sessions up to three times.

    Returns:
        The estimate; no interval where a factor has fewer than two clusters or the variance is 0.

    Raises:
        ValueError: Lengths differ or a value is not finite.
    """
    from scipy.stats import t  # here, so that importing the package stays light

    check_level(level)
    kept, rows, columns = _kept(values, pairs, slots)
    if not kept.size:
        return Estimate(None, None, None, 0, len(values))
    mean = float(kept.mean())
    smallest = min(int(rows.max()), int(columns.max())) + 1
    if smallest < 2 or np.ptp(kept) == 0:
        return Estimate(mean, None, None, len(kept), len(values))
    cells = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)[1].reshape(-1)
    by_pair, by_slot, by_cell = (_cluster_variance(kept - mean, index) for index in (rows, columns, cells))
    variance = max(by_pair + by_slot - by_cell, by_pair, by_slot)
    if sqrt(variance) <= ROUNDING * np.abs(kept).max():
        return Estimate(mean, None, None, len(kept), len(values))
    half = float(t.ppf((1 + level) / 2, smallest - 1)) * sqrt(variance)
    return Estimate(mean, mean - half, mean + half, len(kept), len(values))


def _cluster_variance(residuals: Array, index: NDArray[np.intp]) -> float:
    """Return the cluster-robust variance of a mean, from residuals and cluster numbers."""
    totals = np.bincount(index, weights=residuals)
    groups = len(totals)
    return float(groups / (groups - 1) * (totals**2).sum() / len(residuals) ** 2)


def _kept(
    values: Sequence[float | None], pairs: Sequence[Hashable] | None, slots: Sequence[Hashable] | None
) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
    """Return the values that count, with the numbers of their pairs and slots (0 where that is not a factor)."""
    for name, keys in (("pairs", pairs), ("slots", slots)):
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(values)} values and {len(keys)} {name} are given; give one for each value")
    chosen = [i for i, value in enumerate(values) if value is not None]
    kept = np.array([values[i] for i in chosen], dtype=np.float64)
    for v in kept:
        if not isfinite(v):
            raise ValueError(f"a value is {v}; it must be a finite number: give None for what is undecided")
    return kept, _numbered(chosen, pairs), _numbered(chosen, slots)


def _numbered(chosen: Sequence[int], keys: Sequence[Hashable] | None) -> NDArray[np.intp]:
    """Return a number a cluster, in order of first appearance, for the chosen items."""
    if keys is None:
        return np.zeros(len(chosen), dtype=np.intp)
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(keys[i], len(numbers)) for i in chosen], dtype=np.intp)


def _cells(values: Array, rows: NDArray[np.intp], columns: NDArray[np.intp], shape: tuple[int, int]) -> Array:
    """Return the sums of ``values`` over the cells; shape [pair, slot]."""
    table = np.bincount(rows * shape[1] + columns, weights=values, minlength=shape[0] * shape[1])
    return table.astype(np.float64).reshape(shape)


def _bootstrap(sums: Array, counts: Array, by_pair: bool, by_slot: bool, draws: int, seed: int) -> Array:
    """Return the means of the draws that hold any value; shape [draw]."""
    random = np.random.default_rng(seed)
    means = []
    for size in _portions(draws, sum(sums.shape)):
        row = _weights(random, size, sums.shape[0]) if by_pair else np.ones((size, sums.shape[0]))
        column = _weights(random, size, sums.shape[1]) if by_slot else np.ones((size, sums.shape[1]))
        total = np.einsum("ds,ds->d", row @ sums, column)
        weight = np.einsum("ds,ds->d", row @ counts, column)
        means.append(total[weight > 0] / weight[weight > 0])
    return np.concatenate(means)


def _portions(draws: int, width: int) -> Iterator[int]:
    """Yield sizes that sum to ``draws``, each small enough for memory."""
    size = max(1, WEIGHTS_AT_ONCE // width)
    while draws > 0:
        yield min(size, draws)
        draws -= size


def _weights(random: np.random.Generator, draws: int, clusters: int) -> Array:
    """Return how often each cluster is drawn, ``clusters`` draws with replacement; shape [draw, cluster]."""
    picks = random.integers(clusters, size=(draws, clusters)) + clusters * np.arange(draws)[:, None]
    return np.bincount(picks.ravel(), minlength=draws * clusters).reshape(draws, clusters).astype(np.float64)
