"""Rates and estimates: numbers that never travel without their interval and their denominators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

Outcome = bool | None  # None: undecided (ungradable), never counted as False
LEVEL = 0.95  # confidence of every interval unless told otherwise


@lru_cache(maxsize=65_536)
def wilson(k: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return Wilson's score interval for ``k`` of ``n``.

    The ends are the two solutions p of ``|k/n - p| = z sqrt(p (1 - p) / n)`` (Wilson 1927), as scipy computes them.

    Raises:
        ValueError: ``n`` is 0, ``k`` lies outside 0 to ``n``, or ``level`` outside (0, 1).
    """
    from scipy.stats import binomtest  # here, so that importing the package stays light

    check_level(level)
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"k is {k} and n {n}; an interval needs n of at least 1 and 0 <= k <= n")
    ends = binomtest(k, n).proportion_ci(confidence_level=level, method="wilson")
    return float(ends.low), float(ends.high)


def check_level(level: float) -> None:
    """Refuse a confidence outside (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; a confidence lies between 0 and 1, for example 0.95")


@dataclass(frozen=True)
class Rate:
    """``k`` of ``n`` with Wilson's interval, and how many were asked."""

    k: int  # sessions that count
    n: int  # sessions counted: the denominator of `value`
    asked: int  # all sessions, the ungradable ones too
    level: float = LEVEL  # confidence of `low` and `high`

    def __post_init__(self) -> None:
        """Refuse impossible counts."""
        check_level(self.level)
        if not 0 <= self.k <= self.n <= self.asked:
            raise ValueError(f"k is {self.k}, n {self.n}, asked {self.asked}; a rate needs 0 <= k <= n <= asked")

    @property
    def value(self) -> float | None:
        """``k / n``; None where ``n`` is 0."""
        return self.k / self.n if self.n else None

    @property
    def low(self) -> float | None:
        """Lower end of the interval; None where ``n`` is 0."""
        return wilson(self.k, self.n, self.level)[0] if self.n else None

    @property
    def high(self) -> float | None:
        """Upper end of the interval; None where ``n`` is 0."""
        return wilson(self.k, self.n, self.level)[1] if self.n else None

    @property
    def ungradable(self) -> int:
        """Sessions asked and not counted."""
        return self.asked - self.n

    @property
    def ungradable_share(self) -> float | None:
        """Share of the sessions asked that are not counted; None where none was asked."""
        return self.ungradable / self.asked if self.asked else None

    def to_json(self) -> dict[str, float | int | None]:
        """Return value, k, n, low, high, asked, ungradable_share."""
        return {
            "value": self.value,
            "k": self.k,
            "n": self.n,
            "low": self.low,
            "high": self.high,
            "asked": self.asked,
            "ungradable_share": self.ungradable_share,
        }


def rate(outcomes: Iterable[Outcome], level: float = LEVEL) -> Rate:
    """Return the rate of True; None is asked and not counted."""
    k = n = asked = 0
    for outcome in outcomes:
        asked += 1
        n += outcome is not None
        k += bool(outcome)
    return Rate(k, n, asked, level)


@dataclass(frozen=True)
class Estimate:
    """A number with an interval that is not a plain rate: a mean, a difference, an unbiased estimate."""

    value: float | None  # None where nothing was counted
    low: float | None  # None where the data allow no interval: see the function that made it
    high: float | None
    n: int  # items counted
    asked: int  # items given, the undecided ones too

    def to_json(self) -> dict[str, float | int | None]:
        """Return value, low, high, n, asked."""
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n, "asked": self.asked}
