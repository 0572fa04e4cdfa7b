"""Recalls, balanced accuracy, and their intervals, against published and recomputed values."""

import pytest
from scipy.stats import binomtest

from validity import ValidityDecision, Verdict, calibrate
from validity.intervals import mean_of_two, proportion, wilson

V, X, U = Verdict.VALID, Verdict.INVALID, Verdict.UNDECIDED


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (7, 10), (130, 200), (48, 80), (9999, 10000)])
def test_wilson_equals_scipy(k: int, n: int) -> None:
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    low, high = wilson(k, n)
    assert low == pytest.approx(expected.low, abs=1e-12)
    assert high == pytest.approx(expected.high, abs=1e-12)


def test_wilson_ends_are_exact() -> None:
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0


@pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ValueError, match=r"\b(n|k) is"):
        wilson(k, n)


def test_square_and_add_against_newcombes_table() -> None:
    # Newcombe (1998), table II, contrast (a): 56/70 - 48/80 has the method 10 interval 0.0524 to 0.3339.
    # p1 - p2 = p1 + (1 - p2) - 1, so the mean of 56/70 and 32/80 has (1 + limit) / 2.
    mean = mean_of_two(proportion(56, 70), proportion(32, 80))
    assert mean.value == pytest.approx(0.6)
    assert mean.low == pytest.approx((1 + 0.0524) / 2, abs=5e-5)
    assert mean.high == pytest.approx((1 + 0.3339) / 2, abs=5e-5)
    assert (mean.k, mean.n) == (88, 150)


def test_figures_over_answered_and_over_asked() -> None:
    pairs = [(True, V)] * 9 + [(True, X)] + [(True, U)] * 10 + [(False, X)] * 6 + [(False, V)] * 2 + [(False, U)] * 2
    found = calibrate(pairs)
    assert (found.valid_recall.k, found.valid_recall.n, found.valid_recall.value) == (9, 10, 0.9)
    assert (found.invalid_recall.k, found.invalid_recall.n, found.invalid_recall.value) == (6, 8, 0.75)
    assert found.balanced_accuracy.value == pytest.approx(0.825)
    assert found.valid_recall_strict.value == pytest.approx(9 / 20)
    assert found.invalid_recall_strict.value == pytest.approx(0.6)
    assert found.balanced_accuracy_strict.value == pytest.approx(0.525)
    assert (found.undecided, found.asked) == (12, 30)
    record = found.to_json()
    assert record["valid_undecided"] == 10
    assert record["invalid_undecided"] == 2
    assert set(record["balanced_accuracy"]) == {"value", "k", "n", "low", "high"}  # type: ignore[call-overload]


def test_a_class_without_cases_leaves_its_figures_open() -> None:
    found = calibrate([(True, V), (True, X), (False, U)])
    assert found.valid_recall.value == 0.5
    assert found.invalid_recall.to_json() == {"value": None, "k": 0, "n": 0, "low": None, "high": None}
    assert found.balanced_accuracy.value is None
    assert found.invalid_recall_strict.value == 0.0
    assert calibrate([]).asked == 0


def test_decisions_of_votes_are_taken_too() -> None:
    pairs = [(True, ValidityDecision.VALID), (False, ValidityDecision.INVALID), (False, ValidityDecision.UNDECIDED)]
    found = calibrate(pairs)
    assert (found.valid_accepted, found.invalid_rejected, found.invalid_undecided) == (1, 1, 1)


def test_always_accepting_is_worth_a_half() -> None:
    found = calibrate([(True, V)] * 90 + [(False, V)] * 10)
    assert found.balanced_accuracy.value == 0.5
    assert found.balanced_accuracy.low is not None and found.balanced_accuracy.high is not None
    assert found.balanced_accuracy.low < 0.5 < found.balanced_accuracy.high
