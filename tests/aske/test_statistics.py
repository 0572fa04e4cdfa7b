"""Rates, chance line and stability: against hand-worked and published values, full enumeration and simulation."""

import json
from itertools import product
from math import comb, sqrt

import numpy as np
import pytest

from aske import statistics as s
from aske.labels import Label
from aske.statistics import Rate, Resample, Solved

P = [0.0, 0.3, 0.5, 0.8, 1.0]


def binomial(k, m, p):
    return comb(m, k) * p**k * (1 - p) ** (m - k)


def expectation(f, p_a, p_b, m_a, m_b):
    """The exact mean of f(Resample) over all counts that two solvers can produce."""
    return sum(
        binomial(i, m_a, p_a) * binomial(j, m_b, p_b) * f(Resample(i, m_a, j, m_b))
        for i, j in product(range(m_a + 1), range(m_b + 1))
    )


def true_labels(a, b):
    return {"calibrated": a * (1 - b) + b * (1 - a), "too_easy": a * b, "too_hard": (1 - a) * (1 - b)}


# ---- rates


@pytest.mark.parametrize(("k", "n"), [(0, 10), (5, 10), (10, 10), (1, 3), (337, 750)])
def test_wilson_is_the_score_interval(k, n):
    z2 = 1.959963984540054**2
    middle, half = (k + z2 / 2) / (n + z2), sqrt(z2) / (n + z2) * sqrt(k * (n - k) / n + z2 / 4)
    assert s.wilson(k, n) == pytest.approx((middle - half, middle + half), abs=1e-12)


def test_rate_keeps_what_was_asked_apart():
    r = s.rate([True, None, False, True, None])
    assert (r.k, r.n, r.asked, r.value, r.ungradable, r.ungradable_share) == (2, 3, 5, 2 / 3, 2, 0.4)
    assert (r.low, r.high) == s.wilson(2, 3)
    assert s.rate([True, False], level=0.5).low > s.rate([True, False]).low


@pytest.mark.parametrize("counts", [(3, 2, 5), (1, 3, 2), (-1, 2, 2)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="0 <= k <= n <= asked"):
        Rate(*counts)


def test_wilson_covers():
    """Over all outcomes of 40 sessions, the exact coverage lies near 95%."""
    for p in (0.1, 0.27, 0.5):
        covered = sum(binomial(k, 40, p) for k in range(41) if s.wilson(k, 40)[0] <= p <= s.wilson(k, 40)[1])
        assert 0.92 < covered < 0.98


# ---- the chance line


def test_one_question_by_hand():
    q = Resample(3, 4, 1, 4)
    assert s.exactly_one(q) == pytest.approx(0.75 * 0.75 + 0.25 * 0.25)
    assert s.one_of_two_copies(3, 4) == pytest.approx(3 / 6)  # 3 of the 6 pairs of solutions hold one right one
    assert s.two_copies(q) == pytest.approx(0.5)
    assert s.squared_gap(q) == pytest.approx(0.125)


@pytest.mark.parametrize(("p_a", "p_b"), list(product(P, P)))
@pytest.mark.parametrize(("m_a", "m_b"), [(2, 2), (3, 5)])
def test_estimators_are_unbiased(p_a, p_b, m_a, m_b):
    truth = true_labels(p_a, p_b)
    wanted = {
        s.exactly_one: truth["calibrated"],
        s.two_copies: p_a * (1 - p_a) + p_b * (1 - p_b),
        s.squared_gap: (p_a - p_b) ** 2,
        s.redraws_differ: 1 - sum(p * p for p in truth.values()),
    }
    for estimator, value in wanted.items():
        assert expectation(estimator, p_a, p_b, m_a, m_b) == pytest.approx(value, abs=1e-12), estimator.__name__
    for label, value in truth.items():
        assert expectation(lambda q, x=label: s.flip_from(x, q), p_a, p_b, m_a, m_b) == pytest.approx(1 - value)


def test_a_pair_earns_the_chance_line_and_the_squared_gap():
    random = np.random.default_rng(0)
    questions = [Resample(int(random.integers(6)), 5, int(random.integers(9)), 8) for _ in range(60)]
    line = s.chance_line(questions, slots=range(60), draws=50)
    assert line.pair.value == pytest.approx(line.copies.value + line.gap.value)
    assert line.copies.value == pytest.approx(np.mean([s.two_copies(q) for q in questions]))


def test_two_equal_coin_flippers_earn_half_and_show_no_gap():
    random = np.random.default_rng(1)
    counts = random.binomial(8, 0.5, size=(2000, 2))
    line = s.chance_line([Resample(int(a), 8, int(b), 8) for a, b in counts], draws=400)
    assert line.copies.value == pytest.approx(0.5, abs=0.01)
    assert line.gap.low < 0 < line.gap.high
    assert line.copies.low < 0.5 < line.copies.high


def test_chance_line_counts_one_set_of_questions_for_all_three():
    # the second has one solution of a, so no unbiased line: it must drop out of `pair` too
    line = s.chance_line([Resample(3, 4, 1, 4), Resample(1, 1, 0, 4), Resample(0, 4, 4, 4)], draws=50)
    assert [(e.n, e.asked) for e in (line.pair, line.copies, line.gap)] == [(2, 3)] * 3
    assert line.pair.value == pytest.approx((0.625 + 1) / 2)
    assert line.copies.value == pytest.approx((0.5 + 0) / 2)


def test_a_lost_session_adds_nothing_to_any_line():
    line = s.chance_line([Resample(3, 4, 1, 4), s.LOST], draws=50)
    assert (line.pair.value, line.copies.value, line.gap.value) == pytest.approx((0.625 / 2, 0.25, 0.125 / 2))


@pytest.mark.parametrize("control", [s.same_model_control, s.shuffled_pair_control])
def test_controls_count_exactly_one_right(control):
    r = control([True, True, False, None, False, True], [False, True, False, True, None, False])
    assert (r.k, r.n, r.asked) == (2, 4, 6)
    with pytest.raises(ValueError, match="give both"):
        control([True], [])


@pytest.mark.parametrize(
    "pairs", [["x"] * 10 + ["y"] * 10, [i // 10 for i in range(150)], ["a", "b", "c", "b"], [1, 2]]
)
def test_shuffled_pairs_give_every_session_another_pair(pairs):
    for seed in range(30):
        given = s.shuffled_pairs(pairs, seed)
        assert sorted(given) == sorted(pairs)
        assert all(new != own for new, own in zip(given, pairs, strict=True))
    assert s.shuffled_pairs(pairs, 3) == s.shuffled_pairs(pairs, 3)


def test_shuffled_pairs_mix_and_refuse():
    pairs = [i // 10 for i in range(150)]
    went = {new for new, own in zip(s.shuffled_pairs(pairs), pairs, strict=True) if own == 0}
    assert len(went) > 4  # the ten questions of a pair go to several others
    with pytest.raises(ValueError, match="'x' has 3 of 5"):
        s.shuffled_pairs(["x", "x", "x", "y", "z"])


# ---- stability


def test_flip_rate_by_hand_and_from_enum_labels():
    q = Resample(3, 4, 1, 4)  # calibrated 10/16, too easy 3/16, too hard 3/16
    assert s.label_probabilities(q) == {"calibrated": 0.625, "too_easy": 0.1875, "too_hard": 0.1875}
    assert s.flip_rate([Label.CALIBRATED, "too_easy"], [q, q], draws=50).value == pytest.approx((0.375 + 0.8125) / 2)
    assert s.redraws_differ(q) == pytest.approx(0.5 + 0.5 - 1.5 * 0.25)
    with pytest.raises(ValueError, match="no_question"):
        s.flip_from("no_question", q)


def test_both_flip_rates_have_one_expectation():
    random = np.random.default_rng(2)
    p = random.random((3000, 2))
    played = (random.random((3000, 2)) < p).sum(axis=1)
    labels = [("too_hard", "calibrated", "too_easy")[k] for k in played]
    questions = [Resample(int(a), 6, int(b), 6) for a, b in random.binomial(6, p)]
    one, two = s.flip_rate(labels, questions, draws=100), s.redraw_flip_rate(questions, draws=100)
    assert one.value == pytest.approx(two.value, abs=0.02)
    truth = np.mean([1 - sum(x * x for x in true_labels(a, b).values()) for a, b in p])
    assert two.value == pytest.approx(truth, abs=0.02)


@pytest.mark.parametrize(
    ("a", "m", "b", "n", "low", "high"),
    [  # Newcombe 1998, table II, method 10
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (6, 7, 2, 7, 0.0582, 0.8062),
        (5, 56, 0, 29, -0.0381, 0.1926),
        (0, 10, 0, 20, -0.1611, 0.2775),
        (10, 10, 0, 20, 0.6791, 1.0000),
        (10, 10, 0, 10, 0.6075, 1.0000),
    ],
)
def test_gap_has_newcombes_interval(a, m, b, n, low, high):
    got = s.gap(Resample(a, m, b, n))
    assert (got.value, got.low, got.high) == pytest.approx((a / m - b / n, low, high), abs=6e-5)


def test_mean_gap_skips_what_is_unknown():
    got = s.mean_gap([Resample(3, 4, 1, 4), Resample(0, 0, 1, 4), Resample(1, 2, 2, 2)], draws=50)
    assert (got.value, got.n, got.asked) == (pytest.approx((0.5 - 0.5) / 2), 2, 3)


@pytest.mark.parametrize(
    ("question", "threshold", "wanted"),
    [
        (Resample(4, 5, 1, 5), 0.8, True),
        (Resample(1, 5, 4, 5), 0.8, True),  # which of the two is right does not matter
        (Resample(4, 5, 2, 5), 0.8, False),
        (Resample(3, 5, 0, 5), 0.8, False),
        (Resample(5, 5, 5, 5), 0.8, False),
        (Resample(7, 10, 3, 10), 0.7, True),  # 0.7 * 10 is 7.000000000000001
        (Resample(4, 5, 2, 10), 0.8, True),  # other numbers of solutions
        (Resample(4, 5, 1, 4), 0.8, False),  # 1 of 4 is above 0.2
        (Resample(5, 5, 0, 5), 1.0, True),
        (Resample(0, 0, 0, 5), 0.8, None),
    ],
)
def test_stably_calibrated(question, threshold, wanted):
    assert s.stably_calibrated(question, threshold) is wanted


@pytest.mark.parametrize("threshold", [0.5, 1.01])
def test_a_threshold_outside_its_range_is_refused(threshold):
    for question in (Resample(1, 2, 1, 2), Resample(0, 0, 0, 0)):
        with pytest.raises(ValueError, match="threshold"):
            s.stably_calibrated(question, threshold)


@pytest.mark.parametrize(("p_a", "p_b"), [(0.5, 0.5), (0.8, 0.2), (0.3, 0.9), (1.0, 0.0)])
@pytest.mark.parametrize("m", [1, 5, 10])
def test_stable_chance_is_the_mean_of_the_plug_in(p_a, p_b, m):
    enumerated = expectation(lambda q: s.stably_calibrated(q, 0.8), p_a, p_b, m, m)
    assert s.stable_chance(p_a, p_b, m) == pytest.approx(enumerated, abs=1e-12)


def test_stable_chance_as_documented():
    assert [round(s.stable_chance(0.5, 0.5, m), 5) for m in (5, 10, 20)] == [0.07031, 0.00598, 0.00007]
    assert [round(s.stable_chance(0.8, 0.2, m), 2) for m in (5, 10, 20)] == [0.54, 0.46, 0.40]
    assert [round(s.stable_chance(0.95, 0.05, m), 2) for m in (5, 10, 20)] == [0.96, 0.98, 0.99]


def test_stable_rate_counts_undecided_apart():
    r = s.stable_rate([Resample(5, 5, 0, 5), Resample(3, 5, 3, 5), Resample(0, 0, 1, 5)])
    assert (r.k, r.n, r.asked) == (1, 2, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: s.sessions_unpaired(0.3, 0.3),
        lambda: s.sessions_unpaired(0.3, 1.2),
        lambda: s.sessions_unpaired(0.3, 0.2, power=1),
        lambda: s.sessions_paired(0.2, 0.2),
        lambda: s.sessions_paired(0.7, 0.4),
        lambda: s.sessions_for_half_width(0.5, 0.6),
        lambda: s.sessions_to_ask(10, ungradable_share=1),
        lambda: s.design_effect(0, 0.1),
        lambda: s.wilson(0, 0),
        lambda: s.rate([True], level=1),
        lambda: s.clustered_mean([1], draws=0),
        lambda: s.sign_flip_test([1.0], samples=0),
        lambda: s.flip_rate(["calibrated"], []),
        lambda: s.stable_chance(0.5, 1.5, 5),
        lambda: s.mcnemar_exact(-1, 2),
        lambda: s.by_ability({}, margin=-1),
        lambda: Resample(2, 1, 0, 0),
    ],
)
def test_mistakes_are_value_errors(call):
    with pytest.raises(ValueError, match=r"\d"):  # the value met stands in the message
        call()


# ---- nothing is not a number


def test_nothing_gives_none_with_n_0():
    no = Resample(0, 0, 0, 0)
    one = Resample(1, 1, 0, 1)
    for estimate in (
        s.clustered_mean([]),
        s.clustered_mean([None], ["A"], [1]),
        s.multiway_mean([], [], []),
        s.mean_gap([]),
        s.mean_gap([no]),
        s.flip_rate([], []),
        s.redraw_flip_rate([one]),
        s.chance_line([]).pair,
        s.chance_line([one]).copies,
        s.gap(no),
        s.gap(Resample(0, 0, 3, 4)),
    ):
        assert (estimate.value, estimate.low, estimate.high, estimate.n) == (None, None, None, 0)
    for r in (s.rate([]), s.rate([None]), s.same_model_control([], []), s.stable_rate([no])):
        assert (r.value, r.low, r.high, r.n) == (None, None, None, 0)
    assert s.rate([]).ungradable_share is None
    assert [f(no) for f in (s.exactly_one, s.two_copies, s.squared_gap, s.redraws_differ)] == [None] * 4
    assert (s.sign_flip_test([]), s.holm([]), s.compare_askers({}), s.shuffled_pairs([])) == (None, [], [], [])
    assert s.direction([], lambda a, b: a).p is None
    (row,) = s.compare_askers({"x": {("A", 1): None}, "y": {("A", 1): True}})
    assert (row.difference, row.p, row.p_holm, row.n, row.ungradable) == (None, None, None, 0, 1)


def test_records_are_plain_json():
    q = [Resample(3, 4, 1, 4), Resample(2, 4, 2, 4)]
    scores = {"x": {("A", 1): True, ("B", 1): False}, "y": {("A", 1): False}, "z": {}}
    records = [
        s.rate([True, None]).to_json(),
        s.rate([]).to_json(),
        s.chance_line(q, draws=20).to_json(),
        s.chance_line([]).to_json(),
        s.direction([Solved("a", "b", True, False)], lambda a, b: a).to_json(),
        *(c.to_json() for c in s.compare_askers(scores)),
    ]
    assert "NaN" not in json.dumps(records, allow_nan=False)
