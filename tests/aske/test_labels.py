import itertools

import pytest
from aske_helpers import cut, failed, late, solved, stop

from aske.labels import Grade, Label, Mark, Reason, failure, grade
from selfevolve.answers import Equivalence
from selfevolve.sampling import FinishReason, Reply

RIGHT, WRONG, NONE, CUT = stop(solved("4")), stop(solved("5")), stop("I give up."), cut("half of \\boxed{4}")
FULL = Reply("", FinishReason.ERROR, error="context_exhausted")

# a boundary reply -> its mark and why it is undecided
ONE = {
    "right": (RIGHT, Mark.RIGHT, None),
    "wrong": (WRONG, Mark.WRONG, None),
    "no answer": (NONE, Mark.WRONG, None),
    "box in the thinking only": (stop("<think>\\boxed{4}</think> done"), Mark.WRONG, None),
    "cut": (CUT, Mark.UNDECIDED, Reason.TRUNCATED),
    "failed": (failed(), Mark.UNDECIDED, Reason.HTTP),
    "late": (late(), Mark.UNDECIDED, Reason.TIMEOUT),
    "no room": (FULL, Mark.UNDECIDED, Reason.CONTEXT_EXHAUSTED),
    "not comparable": (stop("\\boxed{??}"), Mark.UNDECIDED, Reason.GRADER),
}
BY_RIGHT = {0: Label.TOO_HARD, 1: Label.CALIBRATED, 2: Label.TOO_EASY}


def equal(one: str, other: str) -> Equivalence:
    """Compare letter by letter, with an answer that cannot be compared and one that is the same as all numbers."""
    if "??" in (one, other):
        return Equivalence.UNDECIDED
    return Equivalence.SAME if one == other else Equivalence.DIFFERENT


@pytest.mark.parametrize(("a", "b"), list(itertools.product(ONE, ONE)))
def test_every_pair_of_boundary_replies(a, b):
    result = grade((ONE[a][0], ONE[b][0]), (RIGHT,), equal)
    assert result.marks == (ONE[a][1], ONE[b][1]) and result.answer == "4"
    if Mark.UNDECIDED in result.marks:
        assert result.label is Label.UNGRADABLE
        assert result.reason is (ONE[a][2] or ONE[b][2])
        assert result.detail.startswith("boundary solver 1" if ONE[a][2] else "boundary solver 2")
    else:
        assert (result.label, result.reason) == (BY_RIGHT[result.marks.count(Mark.RIGHT)], None)


@pytest.mark.parametrize(
    ("a", "b", "excluded", "wrong", "right"),
    [
        ("cut", "right", "ungradable", "calibrated", "too_easy"),
        ("cut", "wrong", "ungradable", "too_hard", "calibrated"),
        ("cut", "no answer", "ungradable", "too_hard", "calibrated"),
        ("cut", "cut", "ungradable", "too_hard", "too_easy"),
        ("cut", "failed", "ungradable", "ungradable", "ungradable"),
        ("right", "late", "ungradable", "ungradable", "ungradable"),
        ("right", "wrong", "calibrated", "calibrated", "calibrated"),
    ],
)
def test_how_a_cut_off_reply_counts(a, b, excluded, wrong, right):
    for mode, label in (("excluded", excluded), ("wrong", wrong), ("right", right)):
        for pair in ((a, b), (b, a)):
            assert grade((ONE[pair[0]][0], ONE[pair[1]][0]), (RIGHT,), equal, mode).label == label


@pytest.mark.parametrize(
    ("checks", "label", "reason"),
    [
        ([RIGHT] * 3, Label.CALIBRATED, None),
        ([RIGHT, RIGHT, WRONG], Label.BAD_CROSS_CHECK, None),
        ([WRONG, RIGHT, RIGHT], Label.BAD_CROSS_CHECK, None),
        ([NONE], Label.BAD_CROSS_CHECK, None),
        ([RIGHT, NONE, RIGHT], Label.BAD_CROSS_CHECK, None),
        ([RIGHT, CUT, RIGHT], Label.UNGRADABLE, Reason.TRUNCATED),
        ([late(), RIGHT, RIGHT], Label.UNGRADABLE, Reason.TIMEOUT),
        ([RIGHT, RIGHT, failed()], Label.UNGRADABLE, Reason.HTTP),
        ([CUT], Label.UNGRADABLE, Reason.TRUNCATED),
        # what ended by itself settles it, whatever became of the rest
        ([RIGHT, WRONG, CUT], Label.BAD_CROSS_CHECK, None),
        ([failed(), NONE, RIGHT], Label.BAD_CROSS_CHECK, None),
        # undecided against the first, different between the others
        ([stop("\\boxed{??}"), RIGHT, RIGHT], Label.UNGRADABLE, Reason.GRADER),
        ([stop("\\boxed{??}"), RIGHT, WRONG], Label.BAD_CROSS_CHECK, None),
    ],
)
def test_cross_checks(checks, label, reason):
    for order in itertools.permutations(checks):
        result = grade((RIGHT, WRONG), order, equal)
        assert (result.label, result.reason) == (label, reason)
        assert result.answers == ("4", "5")
        if label is not Label.CALIBRATED:
            assert result.answer is None and result.marks == ()


def test_a_cut_off_cross_check_is_never_counted():
    for mode in ("excluded", "wrong", "right"):
        assert grade((RIGHT, WRONG), (CUT,), equal, mode).label is Label.UNGRADABLE


@pytest.mark.parametrize(
    ("gold", "answer", "label"),
    [
        ("1/2", "0.5", Label.TOO_EASY),
        ("\\frac{1}{2}", "\\dfrac12", Label.TOO_EASY),
        ("1024", "2^{10}", Label.TOO_EASY),
        ("x = 3", "3", Label.TOO_EASY),
        ("12", "13", Label.CALIBRATED),
    ],
)
def test_values_are_compared_not_strings(gold, answer, label):
    assert grade((stop(solved(gold)), stop(solved(answer))), (stop(solved(gold)),) * 3).label is label


@pytest.mark.parametrize(
    ("boundary", "checks"), [((), (RIGHT,)), ((RIGHT,), (RIGHT,)), ((RIGHT,) * 3, (RIGHT,)), ((RIGHT,) * 2, ())]
)
def test_wrong_counts_are_refused(boundary, checks):
    with pytest.raises(ValueError, match="2 and 1 or more are needed"):
        grade(boundary, checks)


def test_labels_outside_the_rate():
    assert [label for label in Label if not label.counted] == [Label.UNGRADABLE]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(RIGHT, None), (NONE, None), (CUT, Reason.TRUNCATED), (late(), Reason.TIMEOUT), (failed(), Reason.HTTP),
     (Reply("", FinishReason.ERROR), Reason.HTTP), (FULL, Reason.CONTEXT_EXHAUSTED)],
)  # fmt: skip
def test_why_a_reply_is_no_evidence(reply, reason):
    assert failure(reply) is reason


def test_the_detail_says_what_failed():
    assert grade((RIGHT, failed("503 busy")), (RIGHT,)).detail == "boundary solver 2: 503 busy"
    assert grade((RIGHT, CUT), (RIGHT,)).detail == "boundary solver 2: length"
    assert grade((RIGHT, WRONG), (RIGHT, WRONG)).detail == "cross-checks disagree: 4 / 5"
    assert grade((RIGHT, WRONG), (RIGHT, NONE)).detail == "1 of 2 cross-checks hold no answer"
    assert grade((RIGHT, WRONG), (RIGHT,)) == Grade(
        Label.CALIBRATED,
        None,
        "1 of 2 boundary solvers agree with the cross-check",
        "4",
        (Mark.RIGHT, Mark.WRONG),
        ("4", "5"),
    )
