"""How much of a session's label is luck: label flips, the gap between the solvers, stable calibration."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import ceil, comb, sqrt

from aske.labels import Label
from aske.statistics.chance import Resample, exactly_one, one_of_two_copies
from aske.statistics.clusters import DRAWS, clustered_mean
from aske.statistics.rate import LEVEL, Estimate, Rate, rate, wilson

LABELS = (Label.CALIBRATED, Label.TOO_EASY, Label.TOO_HARD)  # the labels of a graded question
THRESHOLD = 0.8  # a solver "reliably" solves a question from here on


def label_probabilities(question: Resample) -> Mapping[str, float] | None:
    """Return the unbiased estimates of P(calibrated), P(too_easy), P(too_hard); None where a solver has no solution.

    ``p_a (1 - p_b) + p_b (1 - p_a)``, ``p_a p_b``, ``(1 - p_a)(1 - p_b)``: products over independent solvers, so the
    plug-ins are unbiased. They sum to 1.
    """
    one, p_a, p_b = exactly_one(question), question.p_a, question.p_b
    if one is None or p_a is None or p_b is None:
        return None
    return {Label.CALIBRATED: one, Label.TOO_EASY: p_a * p_b, Label.TOO_HARD: (1 - p_a) * (1 - p_b)}


def flip_from(label: str, question: Resample) -> float | None:
    """Return the unbiased estimate of P(a redrawn label differs from ``label``): 1 less the label's probability.

    Raises:
        ValueError: ``label`` is none of calibrated, too_easy, too_hard.
    """
    if label not in LABELS:
        raise ValueError(f"label is {label!r}; flips are defined over {', '.join(LABELS)}: leave other sessions out")
    chances = label_probabilities(question)
    return None if chances is None else 1 - chances[label]


def redraws_differ(question: Resample) -> float | None:
    """Return the unbiased estimate of P(two redrawn labels differ); None where a solver has fewer than 2 solutions.

    A label is the number of right solvers, so two redraws agree when the change of one solver undoes that of the
    other. With ``u = 2 p (1 - p)`` a solver changes with probability u, half of it in each direction; agreement has
    probability ``(1 - u_a)(1 - u_b) + u_a u_b / 2``, difference ``u_a + u_b - 3/2 u_a u_b``. The U-statistics of u
    are unbiased and independent, so their product is unbiased too.
    """
    a = one_of_two_copies(question.right_a, question.counted_a)
    b = one_of_two_copies(question.right_b, question.counted_b)
    return None if a is None or b is None else a + b - 1.5 * a * b


def flip_rate(
    labels: Sequence[str],
    questions: Sequence[Resample],
    pairs: Sequence[Hashable] | None = None,
    slots: Sequence[Hashable] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> Estimate:
    """Return the mean over sessions of `flip_from`: how often a redrawn label would differ from the one observed.

    Give the sessions of one label to see how often that label would not come again.

    Raises:
        ValueError: Lengths differ, or a label is none of the three.
    """
    if len(labels) != len(questions):
        raise ValueError(f"{len(labels)} labels and {len(questions)} questions are given; give one for each")
    values = [flip_from(label, question) for label, question in zip(labels, questions, strict=True)]
    return clustered_mean(values, pairs, slots, draws=draws, seed=seed, level=level)


def redraw_flip_rate(
    questions: Sequence[Resample],
    pairs: Sequence[Hashable] | None = None,
    slots: Sequence[Hashable] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> Estimate:
    """Return the mean over questions of `redraws_differ`.

    Over all sessions it has the expectation of `flip_rate`, since an observed label is one draw. A clear difference
    between the two says that the resampling is not what was played (other sampling, a cache, another cross-check).
    """
    values = [redraws_differ(question) for question in questions]
    return clustered_mean(values, pairs, slots, draws=draws, seed=seed, level=level)


def gap(question: Resample, level: float = LEVEL) -> Estimate:
    """Return ``p_a - p_b`` with Newcombe's score interval; all None where a solver has no solution.

    With Wilson's ends l, u of each solver: from ``d - sqrt((p_a - l_a)^2 + (u_b - p_b)^2)`` to
    ``d + sqrt((u_a - p_a)^2 + (p_b - l_b)^2)`` (Newcombe 1998, Statistics in Medicine 17, method 10).
    """
    p_a, p_b = question.p_a, question.p_b
    n = question.counted_a + question.counted_b
    if p_a is None or p_b is None:
        return Estimate(None, None, None, 0, n)
    low_a, high_a = wilson(question.right_a, question.counted_a, level)
    low_b, high_b = wilson(question.right_b, question.counted_b, level)
    low = p_a - p_b - sqrt((p_a - low_a) ** 2 + (high_b - p_b) ** 2)
    high = p_a - p_b + sqrt((high_a - p_a) ** 2 + (p_b - low_b) ** 2)
    return Estimate(p_a - p_b, max(-1.0, low), min(1.0, high), n, n)


def mean_gap(
    questions: Sequence[Resample],
    pairs: Sequence[Hashable] | None = None,
    slots: Sequence[Hashable] | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = LEVEL,
) -> Estimate:
    """Return the mean of ``p_a - p_b`` over questions with a cluster-bootstrap interval.

    The sign is that of the order a, b: over several pairs give the stronger solver first, or gaps of opposite sign
    cancel. `chance_line` has the mean squared gap, which needs no order. (The mean of ``|p_a - p_b|`` is left out: it
    is biased upwards by the noise of few solutions.)
    """
    values = [None if q.p_a is None or q.p_b is None else q.p_a - q.p_b for q in questions]
    return clustered_mean(values, pairs, slots, draws=draws, seed=seed, level=level)


def stably_calibrated(question: Resample, threshold: float = THRESHOLD) -> bool | None:
    """Return whether one solver is right in a share of at least t and the other of at most ``1 - t``.

    A plug-in on the shares of the m solutions, without a prior: k of m counts as "at least t" from
    ``ceil(t m)`` on. What m does to it: see `stable_chance`. None where a solver has no solution.

    Raises:
        ValueError: ``threshold`` is not in (0.5, 1].
    """
    if not question.counted_a or not question.counted_b:
        _enough(threshold, 1)
        return None
    need_a, need_b = _enough(threshold, question.counted_a), _enough(threshold, question.counted_b)
    high_a, low_a = question.right_a >= need_a, question.right_a <= question.counted_a - need_a
    high_b, low_b = question.right_b >= need_b, question.right_b <= question.counted_b - need_b
    return (high_a and low_b) or (high_b and low_a)


def stable_rate(questions: Sequence[Resample], threshold: float = THRESHOLD, level: float = LEVEL) -> Rate:
    """Return the rate of stably calibrated questions with Wilson's interval.

    Raises:
        ValueError: ``threshold`` is not in (0.5, 1].
    """
    return rate((stably_calibrated(question, threshold) for question in questions), level)


def stable_chance(p_a: float, p_b: float, solutions: int, threshold: float = THRESHOLD) -> float:
    """Return the probability that ``solutions`` a solver make a question count as stably calibrated.

    With ``h(p) = P(Binomial(m, p) >= ceil(t m))`` it is ``h(p_a) h(1 - p_b) + h(p_b) h(1 - p_a)``. At t = 0.8 two
    coin-flip solvers (p = 0.5) pass with probability 0.070 for m = 5, 0.0060 for m = 10, 0.00007 for m = 20; a true
    case at the threshold itself (0.8 and 0.2) with 0.54, 0.46, 0.40, one at 0.95 and 0.05 with 0.96, 0.98, 0.99.

    Raises:
        ValueError: A probability is outside 0 to 1, ``solutions`` below 1, or ``threshold`` not in (0.5, 1].
    """
    for p in (p_a, p_b):
        if not 0 <= p <= 1:
            raise ValueError(f"a probability is {p}; it must lie in 0 to 1")
    if solutions < 1:
        raise ValueError(f"solutions is {solutions}; at least 1 is needed")
    need = _enough(threshold, solutions)

    def reaches(p: float) -> float:
        return sum(comb(solutions, k) * p**k * (1 - p) ** (solutions - k) for k in range(need, solutions + 1))

    return reaches(p_a) * reaches(1 - p_b) + reaches(p_b) * reaches(1 - p_a)


def _enough(threshold: float, counted: int) -> int:
    """Return the smallest k with ``k / counted >= threshold``."""
    if not 0.5 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; it must lie above 0.5 and be at most 1, for example 0.8")
    return ceil(threshold * counted - 1e-9)  # 0.7 * 10 is 7.000000000000001
