"""Rates with intervals, paired tests, and means over seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import atan, comb, cos, pi, sin, sqrt

from validity.intervals import Z95, wilson

__all__ = ["Z95", "Mean", "Rate", "mcnemar_exact", "mean_interval", "paired_permutation", "student_quantile", "wilson"]

EXACT_PAIRS = 12  # up to here the sign-flip test enumerates all 2^n sign patterns


@dataclass(frozen=True)
class Rate:
    """``k`` of ``n`` with Wilson's 95% interval."""

    k: int  # cases that count
    n: int  # cases counted: the denominator of `value`
    asked: int | None = None  # all cases, the undecided ones too; None where none can be undecided

    def __post_init__(self) -> None:
        """Refuse impossible counts."""
        if not 0 <= self.k <= self.n:
            raise ValueError(f"k is {self.k} and n {self.n}; a rate needs 0 <= k <= n")
        if self.asked is not None and self.asked < self.n:
            raise ValueError(f"asked is {self.asked} and n {self.n}; what is counted cannot exceed what was asked")

    @property
    def value(self) -> float | None:
        """``k / n``; None where ``n`` is 0."""
        return self.k / self.n if self.n else None

    @property
    def low(self) -> float | None:
        """Lower end of the 95% interval; None where ``n`` is 0."""
        return wilson(self.k, self.n)[0] if self.n else None

    @property
    def high(self) -> float | None:
        """Upper end of the 95% interval; None where ``n`` is 0."""
        return wilson(self.k, self.n)[1] if self.n else None

    def to_json(self) -> dict[str, float | int | None]:
        """Return value, k, n, low, high; and ``asked`` where it is given."""
        record: dict[str, float | int | None] = {
            "value": self.value,
            "k": self.k,
            "n": self.n,
            "low": self.low,
            "high": self.high,
        }
        return record if self.asked is None else {**record, "asked": self.asked}


@dataclass(frozen=True)
class Mean:
    """A mean with an interval; ends are None where fewer than two values are given, all None where none is."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    def to_json(self) -> dict[str, float | int | None]:
        """Return value, low, high, n."""
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}


def mcnemar_exact(b: int, c: int) -> float:
    """Return the two-sided exact p-value for ``b`` against ``c`` discordant pairs (binomial, 1/2).

    Pairs on which both agree carry no information. 0 against 0 gives 1.
    """
    if b < 0 or c < 0:
        raise ValueError(f"b is {b} and c {c}; counts of discordant pairs must be 0 or more")
    n = b + c
    tail = sum(comb(n, i) for i in range(min(b, c) + 1))
    return min(1.0, 2 * tail / (1 << n))


def paired_permutation(x: Sequence[float], y: Sequence[float], samples: int = 20_000, seed: int = 0) -> float:
    """Return the two-sided p-value of the sign-flip test for paired values (Fisher's randomisation test).

    The statistic is the absolute mean of ``x - y``. Up to 12 pairs all ``2^n`` sign patterns are enumerated, so with
    3 seeds no p-value lies below 0.25, with 5 none below 0.0625. Above, ``samples`` seeded draws are made, and the
    estimate is ``(1 + hits) / (1 + samples)`` (never 0).

    Raises:
        ValueError: The two differ in length or are empty.
    """
    if len(x) != len(y) or not x:
        raise ValueError(f"{len(x)} and {len(y)} values are given; pairs need equally many, at least one")
    differences = [a - b for a, b in zip(x, y, strict=True)]
    bound = abs(sum(differences)) - 1e-12 * sum(map(abs, differences))  # rounding must not turn a tie into a miss
    if len(differences) <= EXACT_PAIRS:
        patterns = list(product((1, -1), repeat=len(differences)))
        hits = sum(abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= bound for signs in patterns)
        return hits / len(patterns)
    draws = random.Random(seed)
    hits = 0
    for _ in range(samples):
        bits = draws.getrandbits(len(differences))
        hits += abs(sum(d if bits >> i & 1 else -d for i, d in enumerate(differences))) >= bound
    return (1 + hits) / (1 + samples)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Mean:
    """Return the mean with Student's t interval (deviation with ``n - 1``)."""
    n = len(values)
    if n == 0:
        return Mean(None, None, None, 0)
    mean = sum(values) / n
    if n == 1:
        return Mean(mean, None, None, 1)
    deviation = sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    half = student_quantile(level, n - 1) * deviation / sqrt(n)
    return Mean(mean, mean - half, mean + half, n)


def student_quantile(level: float, freedom: int) -> float:
    """Return t with ``P(|T| <= t) = level`` for Student's distribution with a whole number of degrees of freedom."""
    if not 0 < level < 1 or freedom < 1:
        raise ValueError(f"level is {level}, freedom {freedom}; level must lie in (0, 1), freedom be at least 1")
    low, high = 0.0, 1.0
    while _student_within(high, freedom) < level:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _student_within(middle, freedom) < level else (low, middle)
    return high


def _student_within(t: float, freedom: int) -> float:
    """Return ``P(|T| <= t)`` by the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    theta = atan(t / sqrt(freedom))
    odd = freedom % 2 == 1
    if freedom == 1:
        return 2 * theta / pi
    term = cos(theta) if odd else 1.0
    total = term
    for j in range(3 if odd else 2, freedom - 1, 2):
        term *= cos(theta) ** 2 * (j - 1) / j
        total += term
    return 2 / pi * (theta + sin(theta) * total) if odd else sin(theta) * total
