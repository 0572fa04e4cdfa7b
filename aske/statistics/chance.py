"""The chance line: what two copies of one solver would earn on the same questions; and two controls that are played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from aske.statistics.clusters import DRAWS, clustered_mean
from aske.statistics.rate import LEVEL, Estimate, Outcome, Rate, rate

Pair = TypeVar("Pair", bound=Hashable)


@dataclass(frozen=True)
class Resample:
    """Fresh solutions of one question by both boundary solvers; undecided ones are in neither count."""

    right_a: int  # of the first solver's solutions, those that agree with the cross-check
    counted_a: int  # decided solutions of the first solver
    right_b: int  # the same of the second solver
    counted_b: int

    def __post_init__(self) -> None:
        """Refuse impossible counts."""
        for right, counted in ((self.right_a, self.counted_a), (self.right_b, self.counted_b)):
            if not 0 <= right <= counted:
                raise ValueError(f"{right} right of {counted} counted; needs 0 <= right <= counted")

    @property
    def p_a(self) -> float | None:
        """Share right of the first solver; None where nothing was counted."""
        return self.right_a / self.counted_a if self.counted_a else None

    @property
    def p_b(self) -> float | None:
        """Share right of the second solver; None where nothing was counted."""
        return self.right_b / self.counted_b if self.counted_b else None


LOST = Resample(0, 2, 0, 2)
"""Stands for a session without a graded question (no_question, bad_cross_check) that is in the rate's denominator: no
pair whatever earns anything there, so it adds 0 to every line."""


def exactly_one(question: Resample) -> float | None:
    """Return the unbiased estimate of P(exactly one right) for the pair: ``p_a (1 - p_b) + p_b (1 - p_a)``.

    The solvers draw independently given the question, so ``E[p̂_a p̂_b] = p_a p_b`` and the plug-in has no bias. None
    where a solver has no counted solution.
    """
    if question.p_a is None or question.p_b is None:
        return None
    return question.p_a * (1 - question.p_b) + question.p_b * (1 - question.p_a)


def one_of_two_copies(right: int, counted: int) -> float | None:
    """Return the unbiased estimate of ``2 p (1 - p)`` for one solver: ``2 k (m - k) / (m (m - 1))``.

    It is the share of unordered pairs among the m solutions in which exactly one is right, a U-statistic (Hoeffding
    1948). The plug-in ``2 p̂ (1 - p̂)`` is too low by the factor ``(m - 1) / m``. None where m is below 2.
    """
    if not 0 <= right <= counted:
        raise ValueError(f"{right} right of {counted} counted; needs 0 <= right <= counted")
    return 2 * right * (counted - right) / (counted * (counted - 1)) if counted > 1 else None


def two_copies(question: Resample) -> float | None:
    """Return the chance line of one question: the mean of `one_of_two_copies` over both solvers; None if either is."""
    a = one_of_two_copies(question.right_a, question.counted_a)
    b = one_of_two_copies(question.right_b, question.counted_b)
    return None if a is None or b is None else (a + b) / 2


def squared_gap(question: Resample) -> float | None:
    """Return the unbiased estimate of ``(p_a - p_b)^2``, which can be below 0; None where `two_copies` is.

    ``p_a (1 - p_b) + p_b (1 - p_a) = [2 p_a (1 - p_a) + 2 p_b (1 - p_b)] / 2 + (p_a - p_b)^2`` holds for any two
    numbers, so this is `exactly_one` less `two_copies`.
    """
    pair, copies = exactly_one(question), two_copies(question)
    return None if pair is None or copies is None else pair - copies


@dataclass(frozen=True)
class ChanceLine:
    """Three means over the same questions; ``pair.value = copies.value + gap.value`` up to rounding."""

    pair: Estimate  # expected rate of "exactly one right" with the pair's own two solvers
    copies: Estimate  # the chance line: the same with two copies of one solver, averaged over both solvers
    gap: Estimate  # mean squared gap (p_a - p_b)^2: the part of `pair` that a difference between the solvers makes

    def to_json(self) -> dict[str, dict[str, float | int | None]]:
        """Return pair, copies and gap."""
        return {"pair": self.pair.to_json(), "copies": self.copies.to_json(), "gap": self.gap.to_json()}


def chance_line(
    questions: Sequence[Resample],
    pairs: Sequence[Hashable] | None = None,
    slots: Sequence[Hashable] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> ChanceLine:
    """Return the chance line of the questions, with cluster-bootstrap intervals over ``pairs`` and ``slots``.

    Why this line: two copies of one solver have no gap to find, yet on a question with success probability p they
    give "exactly one right" with probability ``2 p (1 - p)``, 0.5 at p = 0.5. By the identity of `squared_gap` the
    expected calibrated rate of a pair is this line, averaged over its two solvers, plus the mean of
    ``(p_a - p_b)^2``, on every question and therefore on average. So the rate above the line is a mean squared gap:
    0 exactly where both solvers are equally able on every question asked.

    The solutions must be fresh: a session's own replies chose its label, so counting them again in a selection by
    label is biased. A question is counted where both solvers have at least two decided solutions. Enter a session
    that was lost and is in the rate's denominator as `LOST`.
    """
    gaps = [squared_gap(q) for q in questions]
    usable = [g is not None for g in gaps]

    def mean(values: Sequence[float | None]) -> Estimate:
        # one set of questions for all three, so that the identity holds
        kept = [v if use else None for v, use in zip(values, usable, strict=True)]
        return clustered_mean(kept, pairs, slots, draws=draws, seed=seed, level=level)

    return ChanceLine(mean([exactly_one(q) for q in questions]), mean([two_copies(q) for q in questions]), mean(gaps))


def exactly_one_rate(first: Sequence[Outcome], second: Sequence[Outcome], level: float = LEVEL) -> Rate:
    """Return how often exactly one of two solutions is right, over questions; a question with an undecided one drops.

    Raises:
        ValueError: The two differ in length.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} outcomes are given; give both for every question")
    return rate((None if a is None or b is None else a != b for a, b in zip(first, second, strict=True)), level)


def same_model_control(first: Sequence[Outcome], second: Sequence[Outcome], level: float = LEVEL) -> Rate:
    """Return the "calibrated" rate of a pair that is one solver twice: two independent solutions a question.

    Its expectation on a question is ``2 p (1 - p)``; the chance line played out instead of computed.
    """
    return exactly_one_rate(first, second, level)


def shuffled_pair_control(first: Sequence[Outcome], second: Sequence[Outcome], level: float = LEVEL) -> Rate:
    """Return the "calibrated" rate of questions that were asked for one pair and solved by another (`shuffled_pairs`).

    The rate with the own pair, less this, is what aiming at that pair earns over asking good questions in general.
    """
    return exactly_one_rate(first, second, level)


def shuffled_pairs(pairs: Sequence[Pair], seed: int = 0) -> list[Pair]:
    """Return for each session another pair than its own; each pair gets as many questions as it had asked.

    A random permutation of the sessions' pairs, in which a session that would keep its pair swaps with a random one
    that allows it. The new pair may share one solver with the old.

    Raises:
        ValueError: One pair holds more than half of the sessions, so that no such assignment exists.
    """
    if not pairs:
        return []
    most, times = Counter(pairs).most_common(1)[0]
    if 2 * times > len(pairs):
        raise ValueError(
            f"pair {most!r} has {times} of {len(pairs)} sessions; a shuffle needs at most half, so add other pairs"
        )
    random = np.random.default_rng(seed)
    given = [pairs[int(i)] for i in random.permutation(len(pairs))]
    for i, own in enumerate(pairs):
        if given[i] == own:
            # at most 2 * times - 1 sessions are refused here, so one remains
            partners = [j for j, other in enumerate(given) if other != own and pairs[j] != own]
            j = partners[int(random.integers(len(partners)))]
            given[i], given[j] = given[j], given[i]
    return given
