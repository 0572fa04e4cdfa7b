"""Which solver was right: strong-only against weak-only among the calibrated sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aske.statistics.rate import LEVEL, Outcome, Rate

Stronger = Callable[[str, str], str | None]
"""A rule: the name of the stronger of two solvers; None where neither is."""


def by_ability(ability: Mapping[str, float], margin: float = 0.0) -> Stronger:
    """Return the rule "the solver of higher measured ability"; a difference of at most ``margin`` is a tie.

    Measure ability on other questions than those analysed (probes, the no-probing baseline): measured on the same
    ones, luck makes a solver both strong and right.

    Raises:
        ValueError: ``margin`` is below 0; from the rule: a solver has no ability.
    """
    if margin < 0:
        raise ValueError(f"margin is {margin}; it must be 0 or more")

    def stronger(a: str, b: str) -> str | None:
        for name in (a, b):
            if name not in ability:
                raise ValueError(f"solver {name!r} has no ability; given are {', '.join(sorted(ability)) or 'none'}")
        if abs(ability[a] - ability[b]) <= margin:
            return None
        return a if ability[a] > ability[b] else b

    return stronger


@dataclass(frozen=True)
class Solved:
    """How the two boundary solvers of one session did on the final question."""

    a: str  # name of the one solver
    b: str  # name of the other
    right_a: Outcome  # agrees with the cross-check; None: undecided
    right_b: Outcome


@dataclass(frozen=True)
class Direction:
    """Sessions by who was right."""

    strong_only: int
    weak_only: int
    tied: int  # exactly one right, in a pair without a stronger solver: in neither of the two above
    both: int
    neither: int
    ungradable: int  # either outcome is undecided
    p: float | None  # McNemar's exact test, two-sided; None where strong_only + weak_only is 0
    level: float = LEVEL  # confidence of `weak_share`

    @property
    def weak_share(self) -> Rate:
        """Share of weak-only among strong-only and weak-only; ``asked`` counts the tied ones too."""
        n = self.strong_only + self.weak_only
        return Rate(self.weak_only, n, n + self.tied, self.level)

    def to_json(self) -> dict[str, object]:
        """Return the counts, p and weak_share."""
        counts = {name: value for name, value in vars(self).items() if name != "level"}
        return {**counts, "weak_share": self.weak_share.to_json()}


def mcnemar_exact(first_only: int, second_only: int) -> float | None:
    """Return the two-sided exact p-value for two counts of discordant pairs: ``first_only ~ Binomial(n, 1/2)``.

    McNemar 1947 with the binomial in place of the chi square. None where both are 0: there is nothing to test.

    Raises:
        ValueError: A count is below 0.
    """
    from scipy.stats import binomtest  # here, so that importing the package stays light

    if first_only < 0 or second_only < 0:
        raise ValueError(f"counts are {first_only} and {second_only}; counts of discordant pairs must be 0 or more")
    n = first_only + second_only
    return float(binomtest(first_only, n, 0.5).pvalue) if n else None


def direction(sessions: Iterable[Solved], stronger: Stronger, level: float = LEVEL) -> Direction:
    """Return who was right in the sessions, and McNemar's exact test of strong-only against weak-only.

    Args:
        sessions: Sessions with a graded final question.
        stronger: Which of two solvers is the stronger, such as `by_ability`.
        level: Confidence of the weak share's interval.

    Raises:
        ValueError: The rule names a solver that is not in the pair.
    """
    counts = {"strong_only": 0, "weak_only": 0, "tied": 0, "both": 0, "neither": 0, "ungradable": 0}
    for session in sessions:
        counts[_kind(session, stronger)] += 1
    return Direction(**counts, p=mcnemar_exact(counts["strong_only"], counts["weak_only"]), level=level)


def _kind(session: Solved, stronger: Stronger) -> str:
    """Return the name of the count that a session belongs to."""
    if session.right_a is None or session.right_b is None:
        return "ungradable"
    if session.right_a == session.right_b:
        return "both" if session.right_a else "neither"
    strong = stronger(session.a, session.b)
    if strong is None:
        return "tied"
    if strong not in (session.a, session.b):
        raise ValueError(f"the rule calls {strong!r} the stronger of {session.a!r} and {session.b!r}; name one of them")
    return "strong_only" if strong == (session.a if session.right_a else session.b) else "weak_only"
