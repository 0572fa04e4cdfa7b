"""Totals, comparisons and power: against full enumeration, published values, scipy and simulation."""

import time
from itertools import product
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from aske import statistics as s
from aske.statistics import Direction, Solved

# ---- clusters


def test_pair_bootstrap_by_hand():
    """Pairs A = (1, 1), B = (0): draws AA, AB, BA, BB have the means 1, 2/3, 2/3, 0."""
    values, pairs = [1, 1, 0], ["A", "A", "B"]
    wide, narrow = s.clustered_mean(values, pairs), s.clustered_mean(values, pairs, level=0.4)
    assert (wide.value, wide.low, wide.high) == (pytest.approx(2 / 3), 0, 1)
    assert (narrow.low, narrow.high) == pytest.approx((2 / 3, 2 / 3))


def test_pigeonhole_bootstrap_equals_full_enumeration():
    """All 3^3 * 3^3 draws of 3 pairs and 3 slots, with a cell of two sessions, an empty one and an excluded one."""
    cells = {(0, 0): [1, 0], (0, 1): [1], (1, 0): [0], (1, 1): [0], (1, 2): [1], (2, 0): [1], (2, 2): [0.5]}
    means = []
    for rows, columns in product(product(range(3), repeat=3), repeat=2):
        drawn = [v for r in rows for c in columns for v in cells.get((r, c), [])]
        if drawn:
            means.append(sum(drawn) / len(drawn))
    items = [(p, q, v) for (p, q), values in cells.items() for v in values] + [(2, 1, None)]
    pairs, slots, values = zip(*items, strict=True)
    for level in (0.5, 0.8, 0.95):
        got = s.clustered_mean(values, pairs, slots, draws=200_000, level=level)
        wanted = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        assert (got.low, got.high) == pytest.approx(tuple(wanted), abs=0.02)
    assert (got.value, got.n, got.asked) == (pytest.approx(4.5 / 8), 8, 9)


def test_without_clusters_it_is_scipys_percentile_bootstrap():
    values = np.random.default_rng(3).normal(size=80).tolist()
    wanted = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    got = s.clustered_mean(values)
    assert (got.low, got.high) == pytest.approx((wanted.low, wanted.high), abs=0.02)


def test_bootstrap_is_seeded_and_ignores_the_names_of_clusters():
    values = np.random.default_rng(4).random(60).tolist()
    pairs, slots = [i // 10 for i in range(60)], [i % 10 for i in range(60)]
    one = s.clustered_mean(values, pairs, slots, seed=1)
    assert one == s.clustered_mean(values, [f"p{p}" for p in pairs], slots, seed=1)
    assert one != s.clustered_mean(values, pairs, slots, seed=2)


def simulated(pair_effect, slot_effect, seed):
    """15 pairs x 10 slots of sessions with rate 0.4 + effects; uniform, so that the mean rate is 0.4 exactly."""
    random = np.random.default_rng(seed)
    a, b = random.uniform(-1, 1, (15, 1)) * pair_effect, random.uniform(-1, 1, (1, 10)) * slot_effect
    return (random.random((15, 10)) < 0.4 + a + b).astype(float).ravel().tolist()


PAIRS, SLOTS = [i // 10 for i in range(150)], [i % 10 for i in range(150)]


def coverage(interval, pair_effect, slot_effect, runs=250):
    got = [interval(simulated(pair_effect, slot_effect, seed)) for seed in range(runs)]
    return sum(e.low <= 0.4 <= e.high for e in got) / runs


def test_two_way_intervals_cover_where_single_sessions_do_not():
    assert coverage(lambda v: s.clustered_mean(v, PAIRS, SLOTS, draws=400), 0.2, 0.2) >= 0.94
    assert coverage(lambda v: s.multiway_mean(v, PAIRS, SLOTS), 0.2, 0.2) >= 0.92
    assert coverage(lambda v: s.clustered_mean(v, draws=200), 0.2, 0.2) < 0.88


def test_multiway_is_close_to_nominal_and_pigeonhole_wide_without_effects():
    assert 0.92 <= coverage(lambda v: s.clustered_mean(v, PAIRS, draws=400), 0, 0) <= 0.98
    values = simulated(0, 0, 0)
    both, plain = s.clustered_mean(values, PAIRS, SLOTS), s.clustered_mean(values)
    assert 1.4 < (both.high - both.low) / (plain.high - plain.low) < 2.0  # sqrt(3) in theory


def test_multiway_by_hand():
    """Residuals (.25, -.75), (.25, .25): all three variances are 1/16, so the error is 1/4, with 1 degree of freedom."""
    got = s.multiway_mean([1, 0, 1, 1], ["A", "A", "B", "B"], [1, 2, 1, 2])
    assert (got.value, got.high - got.value) == pytest.approx((0.75, 12.706204736 / 4))
    # residuals (2, 0), (0, -2): variances 1 by pair, 1 by slot, 2/3 by cell
    got = s.multiway_mean([4, 2, 2, 0], ["A", "A", "B", "B"], [1, 2, 1, 2])
    assert (got.value, got.high - got.value) == pytest.approx((2, 12.706204736 * sqrt(4 / 3)))


@pytest.mark.parametrize(
    ("values", "pairs", "slots"),
    [
        ([1, 0, 1], ["A"] * 3, [1, 2, 3]),  # one pair
        ([1, 1, 1], ["A", "B", "C"], [1, 2, 1]),  # no spread
        ([0.1, 0.1, 0.1], ["A", "B", "C"], [1, 2, 1]),
        ([1, 0, 0, 1], ["A", "A", "B", "B"], [1, 2, 1, 2]),  # spread in the cells alone
    ],
)
def test_no_interval_is_claimed_where_there_is_none(values, pairs, slots):
    got = s.multiway_mean(values, pairs, slots)
    assert (got.value, got.low, got.high) == (pytest.approx(sum(values) / len(values)), None, None)
    got = s.clustered_mean(values, pairs)
    assert (got.value, got.low, got.high) == (pytest.approx(sum(values) / len(values)), None, None)


@pytest.mark.parametrize("f", [s.clustered_mean, s.multiway_mean])
def test_bad_input_to_a_mean_is_refused(f):
    with pytest.raises(ValueError, match="a value is nan"):
        f([1.0, float("nan")], [1, 2], [1, 2])
    with pytest.raises(ValueError, match="2 values and 1 pairs"):
        f([1.0, 0.0], [1], [1, 2])


def test_bootstrap_is_fast():
    values = (np.random.default_rng(5).random(750) < 0.4).tolist()
    start = time.perf_counter()
    s.clustered_mean(values, [i // 50 for i in range(750)], [i % 50 for i in range(750)], draws=10_000)
    assert time.perf_counter() - start < 2


# ---- askers


@pytest.mark.parametrize(
    ("differences", "p"),
    [([1, 1, 1], 0.25), ([1, 1, 1, 0, 0], 0.25), ([1, -1], 1.0), ([0, 0], 1.0), ([3, 1, -1], 0.75)],
)
def test_sign_flips_by_hand(differences, p):
    assert s.sign_flip_test(differences) == p


def test_sign_flips_equal_scipy_and_mcnemar():
    x = np.random.default_rng(6).normal(0.4, 1, 12).tolist()
    wanted = stats.permutation_test((x,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert s.sign_flip_test(x) == pytest.approx(wanted)
    assert s.sign_flip_test([1] * 8 + [-1] * 3 + [0] * 50) == pytest.approx(stats.binomtest(3, 11).pvalue)
    assert s.sign_flip_test([1] * 43 + [-1] * 16) == pytest.approx(stats.binomtest(16, 59).pvalue, rel=1e-9)
    assert s.sign_flip_test([0.2] * 8 + [-0.2] * 20 + [0]) == pytest.approx(stats.binomtest(8, 28).pvalue, rel=1e-9)
    two_sizes = [1] * 20 + [2] * 10 + [-1] * 11 + [-2] * 5  # so signs are drawn; all sums by convolution
    sums = np.ones(1)
    for d in two_sizes:
        sums = np.convolve(sums, [0.5] + [0] * (2 * abs(d) - 1) + [0.5])
    reach = np.abs(np.arange(len(sums)) - len(sums) // 2) >= sum(two_sizes)
    assert s.sign_flip_test(two_sizes) == pytest.approx(float(sums[reach].sum()), abs=0.005)
    assert s.sign_flip_test([1, 2] * 30, samples=999) == 1 / 1000  # never 0


def test_groups_flip_together():
    assert s.sign_flip_test([1, 1, 1, -1, 2], ["A", "A", "B", "B", "C"]) == s.sign_flip_test([2, 0, 2])
    with pytest.raises(ValueError, match="groups"):
        s.sign_flip_test([1, 2], ["A"])


def test_sign_flips_hold_their_size():
    random = np.random.default_rng(7)
    small = [s.sign_flip_test(random.integers(-1, 2, 40).tolist(), samples=299, seed=i) <= 0.05 for i in range(400)]
    assert 0.01 < np.mean(small) < 0.075


def test_holm_by_hand():
    assert s.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert s.holm([0.5, None, 0.4, 0.01]) == pytest.approx([0.8, None, 0.8, 0.03])
    assert s.holm([0.9, 0.8]) == [1.0, 1.0]
    with pytest.raises(ValueError, match="0 to 1"):
        s.holm([1.2])


def test_compare_askers_drops_and_counts():
    cells = [(p, q) for p in "ABCDEF" for q in range(4)]
    scores = {
        "good": dict.fromkeys(cells, True) | {("A", 0): None},
        "bad": {c: c[1] == 1 for c in cells} | {("A", 0): None, ("B", 0): None},
        "short": dict.fromkeys(cells[4:], False),
    }
    rows = {(c.first, c.second): c for c in s.compare_askers(scores, draws=200, samples=999)}
    assert list(rows) == [("good", "bad"), ("good", "short"), ("bad", "short")]
    row = rows["good", "bad"]
    assert (row.n, row.ungradable, row.unmatched, row.first_only, row.second_only) == (22, 2, 0, 16, 0)
    assert row.difference == pytest.approx(16 / 22)
    assert row.low < 16 / 22 < row.high
    assert row.p == 2 / 2**16
    row = rows["bad", "short"]
    assert (row.n, row.ungradable, row.unmatched, row.first_only) == (19, 1, 4, 5)
    assert row.p == pytest.approx(2 / 2**5)
    assert row.p_holm == row.p  # the largest of three keeps its value
    assert rows["good", "bad"].p_holm == pytest.approx(2 * 2 / 2**16)  # the second of three


def test_compare_askers_by_pair():
    scores = {
        "x": {(p, q): q < 3 for p in range(4) for q in range(4)},
        "y": {(p, q): False for p in range(4) for q in range(4)},
    }
    (cells,), (pairs,) = s.compare_askers(scores, draws=50), s.compare_askers(scores, draws=50, flip_pairs=True)
    assert (cells.p, pairs.p) == (2 / 2**12, 2 / 2**4)
    (nested,) = s.compare_askers(scores, draws=50, shared_slots=False)
    assert nested.low is None  # every pair has the same difference
    assert cells.low is not None


# ---- direction


def test_direction_counts():
    ability = {"big": 0.7, "mid": 0.5, "alt": 0.5}
    sessions = [
        Solved("big", "mid", True, False),
        Solved("mid", "big", False, True),
        Solved("mid", "big", True, False),  # weak only
        Solved("mid", "alt", True, False),  # no stronger one
        Solved("big", "alt", True, True),
        Solved("big", "alt", False, False),
        Solved("big", "alt", None, True),
    ]
    got = s.direction(sessions, s.by_ability(ability))
    assert got == Direction(strong_only=2, weak_only=1, tied=1, both=1, neither=1, ungradable=1, p=1.0)
    assert (got.weak_share.k, got.weak_share.n, got.weak_share.asked) == (1, 3, 4)
    assert s.direction(sessions, s.by_ability(ability, margin=0.2)).tied == 4


def test_direction_takes_any_rule_and_refuses_nonsense():
    session = Solved("a", "b", False, True)
    assert s.direction([session], lambda a, b: b).strong_only == 1
    with pytest.raises(ValueError, match="'c' the stronger"):
        s.direction([session], lambda a, b: "c")
    with pytest.raises(ValueError, match="'b' has no ability"):
        s.direction([session], s.by_ability({"a": 0.1}))


@pytest.mark.parametrize(
    ("b", "c", "p"), [(1, 9, 22 / 1024), (9, 1, 22 / 1024), (3, 3, 1.0), (5, 0, 2 / 32), (0, 0, None)]
)
def test_mcnemar_by_hand(b, c, p):
    assert s.mcnemar_exact(b, c) == (None if p is None else pytest.approx(p))


# ---- power


def test_unpaired_numbers():
    assert s.sessions_unpaired(0.5, 0.75, power=0.9) == 77  # R's help of power.prop.test: 76.7
    assert s.sessions_unpaired(0.75, 0.5, power=0.9) == 77
    assert s.sessions_unpaired(0.5, 0.75, power=0.9, corrected=True) == 85  # 76.65/4 (1 + sqrt(1 + 4/19.16))^2 = 84.5


@pytest.mark.parametrize(("p1", "p2", "power"), [(0.45, 0.25, 0.8), (0.45, 0.37, 0.9), (0.1, 0.05, 0.8)])
def test_unpaired_power_by_simulation(p1, p2, power):
    n = s.sessions_unpaired(p1, p2, power=power)
    random = np.random.default_rng(8)
    x, y = random.binomial(n, p1, 40_000), random.binomial(n, p2, 40_000)
    pooled = (x + y) / (2 * n)
    z = (x - y) / n / np.sqrt(2 * pooled * (1 - pooled) / n)
    assert np.mean(np.abs(z) > 1.959964) == pytest.approx(power, abs=0.02)


@pytest.mark.parametrize(("b", "c", "power"), [(0.3, 0.15, 0.8), (0.12, 0.05, 0.9)])
def test_paired_power_by_simulation(b, c, power):
    random = np.random.default_rng(9)

    def counts(n):
        return random.multinomial(n, [b, c, 1 - b - c], 40_000)[:, :2].T

    x, y = counts(s.sessions_paired(b, c, power=power))
    assert np.mean((x - y) ** 2 > 3.841459 * (x + y)) == pytest.approx(power, abs=0.02)
    x, y = counts(s.sessions_paired(b, c, power=power, corrected=True))
    exact = 2 * stats.binom.cdf(np.minimum(x, y), x + y, 0.5)  # McNemar's exact test
    assert np.mean(exact <= 0.05) == pytest.approx(power, abs=0.02)


def test_paired_by_hand_and_discordant():
    # (1.959964 sqrt(.45) + .841621 sqrt(.45 - .0225))^2 / .0225 = (1.314790 + .550282)^2 / .0225 = 154.60
    assert s.sessions_paired(0.3, 0.15) == 155
    assert s.discordant(0.5, 0.4) == pytest.approx((0.3, 0.2))
    assert s.discordant(0.5, 0.5, 1.0) == pytest.approx((0, 0))
    with pytest.raises(ValueError, match="cannot correlate"):
        s.discordant(0.9, 0.1, 0.5)


@pytest.mark.parametrize("p", [0.5, 0.3, 0.1])
@pytest.mark.parametrize("half", [0.02, 0.05, 0.1])
def test_half_width_is_reached_and_not_overshot(p, half):
    def wilson_half(n):
        z = 1.959963984540054
        return z * sqrt(n * p * (1 - p) + z * z / 4) / (n + z * z)

    n = s.sessions_for_half_width(p, half)
    assert wilson_half(n) <= half < wilson_half(n - 1)


def test_half_width_against_wilson_itself():
    n = s.sessions_for_half_width(0.5, 0.05)
    low, high = s.wilson(n // 2, n)
    assert (high - low) / 2 == pytest.approx(0.05, abs=2e-4)


def test_sessions_to_ask():
    assert s.design_effect(10, 0.1) == pytest.approx(1.9)
    assert s.sessions_to_ask(100, ungradable_share=0.2, effect=1.5) == 188  # 187.5
    assert s.sessions_to_ask(100) == 100
