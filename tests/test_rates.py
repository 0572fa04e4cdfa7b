"""Rates, paired tests, means over seeds: against hand values and scipy."""

import numpy as np
import pytest
from scipy import stats

from selfevolve.rates import Rate, mcnemar_exact, mean_interval, paired_permutation, student_quantile


def test_rate_record() -> None:
    record = Rate(130, 200).to_json()
    assert list(record) == ["value", "k", "n", "low", "high"]
    assert (record["value"], record["k"], record["n"]) == (0.65, 130, 200)
    assert record["low"] == pytest.approx(0.5816346, abs=1e-6)
    assert record["high"] == pytest.approx(0.7127118, abs=1e-6)


def test_rate_of_nothing_has_no_value() -> None:
    assert Rate(0, 0).to_json() == {"value": None, "k": 0, "n": 0, "low": None, "high": None}


def test_rate_keeps_both_denominators() -> None:
    rate = Rate(3, 4, asked=6)
    assert rate.value == 0.75
    assert rate.to_json()["asked"] == 6


@pytest.mark.parametrize(("k", "n", "asked"), [(2, 1, None), (-1, 1, None), (1, 2, 1)])
def test_impossible_rates_are_refused(k: int, n: int, asked: int | None) -> None:
    with pytest.raises(ValueError, match="is"):
        Rate(k, n, asked)


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [(0, 0, 1.0), (3, 3, 1.0), (1, 6, 0.125), (0, 5, 0.0625), (6, 1, 0.125), (1, 0, 1.0), (0, 10, 2 / 1024)],
)
def test_mcnemar_by_hand(b: int, c: int, p: float) -> None:
    assert mcnemar_exact(b, c) == p


@pytest.mark.parametrize(("b", "c"), [(2, 9), (40, 61), (700, 801)])
def test_mcnemar_equals_scipy(b: int, c: int) -> None:
    assert mcnemar_exact(b, c) == pytest.approx(stats.binomtest(b, b + c, 0.5).pvalue, rel=1e-9)


def test_mcnemar_refuses_negative_counts() -> None:
    with pytest.raises(ValueError, match="-1"):
        mcnemar_exact(-1, 3)


def test_sign_flips_by_hand() -> None:
    assert paired_permutation([1, 2, 3], [0, 0, 0]) == 2 / 8
    assert paired_permutation([3, 1, -1], [0, 0, 0]) == 6 / 8  # |sums|: 3, 5, 1, 3, each twice
    assert paired_permutation([0.7, 0.8, 0.9, 1.0, 1.1], [0.1, 0.2, 0.3, 0.4, 0.5]) == 2 / 32
    assert paired_permutation([1, 1], [1, 1]) == 1.0
    assert paired_permutation([0.1, 0.2, 0.3], [0.2, 0.4, 0.6]) == 2 / 8  # rounding does not break the tie


def test_sign_flips_equal_scipy() -> None:
    draws = np.random.default_rng(0)
    for n in (4, 8, 12):
        x, y = draws.normal(0.4, 1, n), draws.normal(0, 1, n)
        expected = stats.permutation_test(
            (x, y), lambda a, b: float(np.mean(a - b)), permutation_type="samples", n_resamples=np.inf
        ).pvalue
        assert paired_permutation(list(x), list(y)) == pytest.approx(expected, abs=1e-12)


def test_many_pairs_are_sampled() -> None:
    x = [float(i % 3) for i in range(13)]
    y = [0.5] * 13
    by_draws = paired_permutation(x, y, samples=20_000, seed=1)
    assert by_draws == paired_permutation(x, y, samples=20_000, seed=1)
    exact = stats.permutation_test(
        (np.array(x), np.array(y)), lambda a, b: float(np.mean(a - b)), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert by_draws == pytest.approx(exact, abs=0.015)  # four standard errors of 20,000 draws
    assert paired_permutation([1.0] * 20, [0.0] * 20, samples=99) == pytest.approx(0.01)


def test_unpaired_values_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        paired_permutation([1, 2], [1])
    with pytest.raises(ValueError, match="0 and 0"):
        paired_permutation([], [])


def test_mean_interval_by_hand() -> None:
    found = mean_interval([2, 4, 6])  # deviation 2, t = 4.302653 with two degrees of freedom
    assert (found.value, found.n) == (4.0, 3)
    assert found.low == pytest.approx(4 - 4.302653 * 2 / 3**0.5, abs=1e-5)
    assert found.high == pytest.approx(4 + 4.302653 * 2 / 3**0.5, abs=1e-5)
    assert mean_interval([0.5]).to_json() == {"value": 0.5, "low": None, "high": None, "n": 1}
    assert mean_interval([]).value is None


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 31, 100])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_student_quantile_equals_scipy(level: float, freedom: int) -> None:
    assert student_quantile(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-9)
