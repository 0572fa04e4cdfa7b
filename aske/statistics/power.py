"""How many sessions are needed: for a difference between two askers, and for an interval of a given width.

All numbers are of sessions that count. `sessions_to_ask` adds the ungradable ones and the clustering.
"""

from __future__ import annotations

from math import ceil, sqrt

from aske.statistics.rate import LEVEL, check_level

ALPHA = 0.05  # two-sided error of the first kind
POWER = 0.8


def sessions_unpaired(
    first: float, second: float, *, power: float = POWER, alpha: float = ALPHA, corrected: bool = False
) -> int:
    """Return the sessions an asker for two independent rates to be told apart.

    ``n = (z_a sqrt(2 p q) + z_b sqrt(p1 q1 + p2 q2))^2 / (p1 - p2)^2`` with the mean rate p and ``q = 1 - p`` (Fleiss,
    Levin and Paik 2003, equation 4.14), for the two-sided pooled z test. ``corrected`` adds the continuity correction
    ``n/4 (1 + sqrt(1 + 4 / (n |p1 - p2|)))^2`` (equation 4.19), which suits exact tests.

    Raises:
        ValueError: A rate lies outside 0 to 1, both are equal, or power or alpha lies outside (0, 1).
    """
    _check_rates(first, second)
    z_a, z_b = _quantile(1 - alpha / 2, "alpha", alpha), _quantile(power, "power", power)
    mean = (first + second) / 2
    d = abs(first - second)
    spread = sqrt(first * (1 - first) + second * (1 - second))
    n = (z_a * sqrt(2 * mean * (1 - mean)) + z_b * spread) ** 2 / d**2
    return _whole(n / 4 * (1 + sqrt(1 + 4 / (n * d))) ** 2 if corrected else n)


def sessions_paired(
    first_only: float, second_only: float, *, power: float = POWER, alpha: float = ALPHA, corrected: bool = False
) -> int:
    """Return the cells (sessions of each asker) for a paired difference to be seen by McNemar's test.

    With the probabilities of a cell in which only the first, or only the second asker is calibrated, their sum s and
    difference d: ``n = (z_a sqrt(s) + z_b sqrt(s - d^2))^2 / d^2`` (Connor 1987, Biometrics 43, 207-211), for the
    two-sided uncorrected test. ``corrected`` adds ``1 / |d|``, which suits the exact test and the permutation test.
    `discordant` gives the two probabilities from the rates.

    Raises:
        ValueError: The probabilities are equal, below 0 or sum to more than 1, or power or alpha is outside (0, 1).
    """
    s, d = first_only + second_only, abs(first_only - second_only)
    if first_only < 0 or second_only < 0 or s > 1:
        raise ValueError(f"the probabilities are {first_only} and {second_only}; both must be 0 or more, the sum <= 1")
    if d == 0:
        raise ValueError(f"both probabilities are {first_only}; no number of sessions shows a difference of 0")
    z_a, z_b = _quantile(1 - alpha / 2, "alpha", alpha), _quantile(power, "power", power)
    n = (z_a * sqrt(s) + z_b * sqrt(s - d * d)) ** 2 / d**2
    return _whole(n + 1 / d if corrected else n)


def discordant(first: float, second: float, correlation: float = 0.0) -> tuple[float, float]:
    """Return P(only the first) and P(only the second) of a cell from both rates and their correlation over cells.

    ``P(both) = p1 p2 + r sqrt(p1 q1 p2 q2)``. Two askers that meet the same pairs correlate; 0 is the cautious choice
    where nothing is known.

    Raises:
        ValueError: A rate lies outside 0 to 1, or no joint distribution has that correlation.
    """
    for p in (first, second):
        if not 0 <= p <= 1:
            raise ValueError(f"a rate is {p}; it must lie in 0 to 1")
    both = first * second + correlation * sqrt(first * (1 - first) * second * (1 - second))
    lowest, highest = max(0.0, first + second - 1), min(first, second)
    if not lowest - 1e-12 <= both <= highest + 1e-12:
        raise ValueError(f"correlation is {correlation}; rates {first} and {second} cannot correlate that much")
    both = min(max(both, lowest), highest)
    return first - both, second - both


def sessions_for_half_width(rate: float, half_width: float, *, level: float = LEVEL) -> int:
    """Return the sessions for Wilson's interval to have at most ``half_width`` on either side of its middle.

    Wilson's half width is ``h = z sqrt(n p q + z^2 / 4) / (n + z^2)``; solved for n:
    ``n = z^2 / (2 h^2) * (p q - 2 h^2 + sqrt((p q)^2 - 4 h^2 p q + h^2))`` (Piegorsch 2004, Computational Statistics
    and Data Analysis 46). ``rate`` is the expected one; 0.5 is the cautious choice.

    Raises:
        ValueError: ``rate`` lies outside 0 to 1, ``half_width`` outside (0, 0.5), or ``level`` outside (0, 1).
    """
    check_level(level)
    if not 0 <= rate <= 1:
        raise ValueError(f"rate is {rate}; it must lie in 0 to 1")
    if not 0 < half_width < 0.5:
        raise ValueError(f"half_width is {half_width}; it must lie between 0 and 0.5")
    z = _quantile((1 + level) / 2, "level", level)
    pq, h2 = rate * (1 - rate), half_width**2
    return _whole(z * z / (2 * h2) * (pq - 2 * h2 + sqrt(pq * pq - 4 * h2 * pq + h2)))


def design_effect(per_cluster: float, intraclass: float) -> float:
    """Return ``1 + (m - 1) r``, by which m sessions a pair of intraclass correlation r inflate a variance (Kish 1965).

    Raises:
        ValueError: ``per_cluster`` is below 1 or ``intraclass`` lies outside 0 to 1.
    """
    if per_cluster < 1 or not 0 <= intraclass <= 1:
        raise ValueError(f"{per_cluster} a cluster, correlation {intraclass}; needs at least 1, and 0 to 1")
    return 1 + (per_cluster - 1) * intraclass


def sessions_to_ask(counted: int, *, ungradable_share: float = 0.0, effect: float = 1.0) -> int:
    """Return the sessions to ask so that ``counted`` independent ones' worth remain: ``n * effect / (1 - share)``.

    Raises:
        ValueError: ``counted`` is below 0, the share lies outside [0, 1), or ``effect`` (`design_effect`) is below 1.
    """
    if counted < 0 or not 0 <= ungradable_share < 1 or effect < 1:
        raise ValueError(
            f"counted {counted}, ungradable_share {ungradable_share}, effect {effect}; "
            "needs at least 0, a share in [0, 1), and at least 1"
        )
    return ceil(counted * effect / (1 - ungradable_share) - 1e-9)


def _whole(n: float) -> int:
    """Return the next whole number of sessions, at least 1."""
    return max(1, ceil(n - 1e-9))


def _check_rates(first: float, second: float) -> None:
    """Refuse rates outside 0 to 1, and equal ones."""
    for p in (first, second):
        if not 0 <= p <= 1:
            raise ValueError(f"a rate is {p}; it must lie in 0 to 1")
    if first == second:
        raise ValueError(f"both rates are {first}; no number of sessions shows a difference of 0")


def _quantile(probability: float, name: str, value: float) -> float:
    """Return the standard normal quantile."""
    from scipy.stats import norm  # here, so that importing the package stays light

    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}; it must lie between 0 and 1")
    return float(norm.ppf(probability))
