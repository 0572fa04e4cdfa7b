"""Labels of a session, and how the final question is graded.

Axis legend: ``[solver]`` has length 2, in the order of the boundary pair; ``[check]`` runs over cross-checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Literal

from selfevolve.answers import Equivalence, compare, extract
from selfevolve.sampling import FinishReason, Reply

Equal = Callable[[str, str], Equivalence]


class Label(StrEnum):
    """How a session ended."""

    CALIBRATED = "calibrated"  # exactly one boundary solver agrees with the cross-check
    TOO_EASY = "too_easy"  # both agree
    TOO_HARD = "too_hard"  # neither agrees
    NO_QUESTION = "no_question"  # the asker's final turn holds no question
    BAD_CROSS_CHECK = (
        "bad_cross_check"  # of the cross-checks that ended by themselves, two disagree or one holds no answer
    )
    UNGRADABLE = "ungradable"  # something outside the game failed: out of every rate and baseline

    @property
    def counted(self) -> bool:
        """True where the session stands in the denominator of rates."""
        return self is not Label.UNGRADABLE


class Reason(StrEnum):
    """Why a session is ungradable."""

    HTTP = "http"  # a call failed after its retries
    TIMEOUT = "timeout"  # a call passed its deadline
    TRUNCATED = "truncated"  # a solver's or cross-check's reply was cut off
    CONTEXT_EXHAUSTED = "context_exhausted"  # no room is left for the asker's next turn
    GRADER = "grader"  # two answers could not be compared


class Mark(StrEnum):
    """A boundary solver's answer to the final question, against the cross-check's."""

    RIGHT = "right"
    WRONG = "wrong"  # another answer, or a reply that ended by itself without one
    UNDECIDED = "undecided"  # cut off, failed, or not comparable


Truncated = Literal["excluded", "wrong", "right"]  # how a cut-off boundary reply counts


@dataclass(frozen=True)
class Grade:
    """The label with what it rests on."""

    label: Label
    reason: Reason | None = None  # set where the label is UNGRADABLE
    detail: str = ""  # the reason in words
    answer: str | None = None  # the cross-check's answer; None where there is none
    marks: tuple[Mark, ...] = ()  # [solver]; empty where no solver was graded
    answers: tuple[str | None, ...] = ()  # [solver] final answers, None where there is none


def failure(reply: Reply) -> Reason | None:
    """Return why a reply is no evidence, or None where it ended by itself."""
    match reply.finish_reason:
        case FinishReason.STOP:
            return None
        case FinishReason.LENGTH:
            return Reason.TRUNCATED
        case FinishReason.TIMEOUT:
            return Reason.TIMEOUT
        case FinishReason.ERROR:
            return Reason.CONTEXT_EXHAUSTED if reply.error == Reason.CONTEXT_EXHAUSTED else Reason.HTTP


def grade(
    boundary: Sequence[Reply], checks: Sequence[Reply], equal: Equal = compare, truncated: Truncated = "excluded"
) -> Grade:
    """Return the label of a final question (method, Ask-E; decision 7).

    The cross-checks come first. Those that ended by themselves settle the question as bad where one holds no answer or
    two differ, whatever became of the others; else all must have ended, and all must be comparable. Then each boundary
    reply is compared with the first cross-check's answer.

    Args:
        boundary: one reply a solver.
        checks: the cross-check's replies; 3 in the benchmark, 1 in training.
        equal: compares two answers.
        truncated: how a cut-off boundary reply counts; "wrong" and "right" are for sensitivity analysis.
    """
    if len(boundary) != 2 or not checks:
        raise ValueError(
            f"{len(boundary)} boundary replies and {len(checks)} cross-checks are given; 2 and 1 or more are needed"
        )
    answers = tuple(extract(r.text, r.finish_reason) for r in boundary)
    first, bad = _agreed(checks, equal)
    if bad is not None:
        return Grade(bad.label, bad.reason, bad.detail, None, (), answers)
    marked = [mark(first, r, a, equal, truncated) for r, a in zip(boundary, answers, strict=True)]
    marks = tuple(mark for mark, _ in marked)
    reasons = [(i, reason) for i, (_, reason) in enumerate(marked) if reason is not None]
    if reasons:
        i, reason = reasons[0]
        detail = f"boundary solver {i + 1}: {boundary[i].error or boundary[i].finish_reason.value}"
        return Grade(Label.UNGRADABLE, reason, detail, first, marks, answers)
    right = marks.count(Mark.RIGHT)
    label = (Label.TOO_HARD, Label.CALIBRATED, Label.TOO_EASY)[right]
    return Grade(label, None, f"{right} of 2 boundary solvers agree with the cross-check", first, marks, answers)


def mark(gold: str, reply: Reply, answer: str | None, equal: Equal, truncated: Truncated) -> tuple[Mark, Reason | None]:
    """Return a boundary reply's mark against the cross-check's answer, and why it is undecided where it is."""
    reason = failure(reply)
    if reason is Reason.TRUNCATED and truncated != "excluded":
        return (Mark.WRONG if truncated == "wrong" else Mark.RIGHT), None
    if reason is not None:
        return Mark.UNDECIDED, reason
    if answer is None:
        return Mark.WRONG, None
    match equal(gold, answer):
        case Equivalence.SAME:
            return Mark.RIGHT, None
        case Equivalence.DIFFERENT:
            return Mark.WRONG, None
        case Equivalence.UNDECIDED:
            return Mark.UNDECIDED, Reason.GRADER


def _agreed(checks: Sequence[Reply], equal: Equal) -> tuple[str, Grade | None]:
    """Return the answer that all cross-checks agree on, or why there is none."""
    given = [extract(c.text, c.finish_reason) for c in checks if failure(c) is None]
    found = [answer for answer in given if answer is not None]
    if len(found) < len(given):
        detail = f"{len(given) - len(found)} of {len(checks)} cross-checks hold no answer"
        return "", Grade(Label.BAD_CROSS_CHECK, detail=detail)
    # all pairs: a comparison that knows units or choices need not carry over from one answer to the next
    verdicts = {equal(one, other) for one, other in combinations(found, 2)}
    if Equivalence.DIFFERENT in verdicts:
        return "", Grade(Label.BAD_CROSS_CHECK, detail="cross-checks disagree: " + " / ".join(found))
    for i, check in enumerate(checks):
        reason = failure(check)
        if reason is not None:
            detail = f"cross-check {i + 1}: {check.error or check.finish_reason.value}"
            return "", Grade(Label.UNGRADABLE, reason, detail)
    if Equivalence.UNDECIDED in verdicts:
        return "", Grade(Label.UNGRADABLE, Reason.GRADER, "cross-checks could not be compared")
    return found[0], None
