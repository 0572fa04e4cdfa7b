"""Intervals for proportions, here so that `validity` is useful alone; `selfevolve.rates` uses them too."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)  # 1.959964: two-sided 95%


def wilson(k: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's score interval ``(low, high)`` of the proportion ``k / n`` (Wilson, 1927, JASA 22:209-212).

    The end is exactly 0 where ``k`` is 0, and exactly 1 where ``k`` is ``n``.

    Raises:
        ValueError: ``n`` is below 1, or ``k`` lies outside ``[0, n]``.
    """
    if n < 1:
        raise ValueError(f"n is {n}; an interval needs at least 1 observation")
    if not 0 <= k <= n:
        raise ValueError(f"k is {k}; it must lie in [0, {n}]")
    p = k / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return (0.0 if k == 0 else centre - half), (1.0 if k == n else centre + half)


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95% interval; all three are None where nothing was counted."""

    value: float | None
    low: float | None
    high: float | None
    k: int  # cases that count for it
    n: int  # cases counted

    def to_json(self) -> dict[str, float | int | None]:
        """Return the rate form of the run records: value, k, n, low, high."""
        return {"value": self.value, "k": self.k, "n": self.n, "low": self.low, "high": self.high}


def proportion(k: int, n: int) -> Estimate:
    """Return ``k / n`` with Wilson's 95% interval."""
    if n == 0:
        return Estimate(None, None, None, k, n)
    low, high = wilson(k, n)
    return Estimate(k / n, low, high, k, n)


def mean_of_two(first: Estimate, second: Estimate) -> Estimate:
    """Return the mean of two independent proportions with a 95% interval.

    The interval adds the squared distances of each estimate to its own Wilson limits (square-and-add: Newcombe, 1998,
    Statistics in Medicine 17:873-890, method 10; for sums Zou and Donner, 2008, Statistics in Medicine 27:1693-1702).
    ``k`` and ``n`` are the sums of both, so ``value`` is not ``k / n`` unless the two have the same ``n``.
    """
    k, n = first.k + second.k, first.n + second.n
    if first.value is None or second.value is None:
        return Estimate(None, None, None, k, n)
    assert first.low is not None and first.high is not None and second.low is not None and second.high is not None
    below = sqrt((first.value - first.low) ** 2 + (second.value - second.low) ** 2)
    above = sqrt((first.high - first.value) ** 2 + (second.high - second.value) ** 2)
    value = (first.value + second.value) / 2
    return Estimate(value, value - below / 2, value + above / 2, k, n)
