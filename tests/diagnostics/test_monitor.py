"""Bounds on a round, and the two checks that keep steps from training on nothing."""

import pytest

from selfevolve.diagnostics import (
    Bounds,
    CollapseMonitor,
    Evaluation,
    Finding,
    NothingToLearn,
    check_reward_spread,
    check_training_set,
    round_metrics,
)
from selfevolve.errors import UserError

METRICS = {
    "round": 4,
    "valid_rate": {"value": 0.39, "k": 78, "n": 200},
    "distinct_patterns": 6,
    "kept": 12,
    "answered_rate": {"value": None, "k": 0, "n": 0},
    "reward_std": 0.2,
}


def test_each_figure_against_its_bound() -> None:
    bounds = Bounds(valid_rate=0.4, distinct_patterns=6, kept=13, answered_rate=0.5, reward_std=0.01)
    report = CollapseMonitor(bounds).check(METRICS)
    assert {check.metric: check.finding for check in report.checks} == {
        "valid_rate": Finding.BELOW,
        "distinct_patterns": Finding.OK,  # at its bound
        "kept": Finding.BELOW,
        "answered_rate": Finding.UNKNOWN,
        "reward_std": Finding.OK,
    }
    assert [check.metric for check in report.below] == ["valid_rate", "kept"]
    assert not report.stop
    lines = report.table().splitlines()
    assert lines[0].split() == ["figure", "value", "bound", "finding"]
    assert lines[1].split() == ["valid_rate", "0.39", "0.4", "below"]
    assert "not measured" in lines[4]


def test_stop_is_an_option_and_needs_a_figure_below() -> None:
    assert CollapseMonitor(Bounds(kept=13), stop=True).check(METRICS).stop
    assert not CollapseMonitor(Bounds(kept=12), stop=True).check(METRICS).stop
    assert not CollapseMonitor(Bounds(answered_rate=0.9), stop=True).check(METRICS).stop  # unknown is not below


def test_no_bounds_no_checks() -> None:
    report = CollapseMonitor(Bounds(), stop=True).check(METRICS)
    assert (report.checks, report.stop, report.round) == ((), False, 4)


def test_every_bound_is_a_key_of_the_metrics() -> None:
    found = round_metrics([], Evaluation(), round=1, seconds_by_stage={})
    assert set(Bounds.__dataclass_fields__) <= set(found)


def test_an_empty_training_set_stops_with_the_reasons() -> None:
    with pytest.raises(NothingToLearn) as raised:
        check_training_set([], decisions={"invalid": 40, "too_easy": 60})
    assert "0 training examples" in str(raised.value)
    assert "too_easy  60" in str(raised.value)
    assert isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value, UserError)  # the command line prints it without a traceback


def test_training_set_bounds_and_warning() -> None:
    assert check_training_set([1]) == []
    assert check_training_set([1, 2], minimum=2) == []
    (warning,) = check_training_set([1], minimum=2, stop=False)
    assert "1 training examples, and at least 2" in warning


def test_no_spread_in_any_group_stops() -> None:
    with pytest.raises(NothingToLearn, match="no spread of rewards in any of 2 groups"):
        check_reward_spread([[1, 1, 1, 1], [0, 0, 0, 0]])
    assert check_reward_spread([[1, 1, 1, 1], [1, 0, 0, 0]]) == []


def test_rounding_is_no_spread() -> None:
    with pytest.raises(NothingToLearn, match="no spread"):
        check_reward_spread([[0.1 + 0.2, 0.3, 0.3], [1.0, 1.0 - 1e-9]])
    assert check_reward_spread([[0.3, 0.31]]) == []


def test_replies_that_were_not_counted_are_not_called_whole() -> None:
    with pytest.raises(NothingToLearn, match="cut off  not counted"):
        check_reward_spread([[0.0, 0.0]], cut_off=None)
    assert check_reward_spread([[0.0, 1.0]], cut_off=None) == []


def test_masked_rewards_make_no_spread() -> None:
    with pytest.raises(NothingToLearn, match="masked   3"):
        check_reward_spread([[None, None, None, 1.0]])
    assert check_reward_spread([[None, 1.0, 0.0, 1.0]]) == []
    with pytest.raises(NothingToLearn, match="none"):
        check_reward_spread([[None, None]])


def test_all_cut_off_names_the_limit() -> None:
    groups = [[0.0] * 8] * 4
    with pytest.raises(NothingToLearn) as raised:
        check_reward_spread(groups, cut_off=32, max_tokens=256)
    assert "32 of 32 replies were cut off at the limit of 256 tokens" in str(raised.value)
    assert "Raise the limit (generation.max_new_tokens)" in str(raised.value)
    (warning,) = check_reward_spread(groups, cut_off=32, max_tokens=256, stop=False)
    assert "256" in warning
    with pytest.raises(NothingToLearn) as few:
        check_reward_spread(groups, cut_off=16, max_tokens=256)
    assert "256" not in str(few.value)


def test_nearly_all_cut_off_with_a_spread_is_a_warning() -> None:
    groups = [[0.0] * 19 + [1.0]]
    (warning,) = check_reward_spread(groups, cut_off=19)
    assert "19 of 20 replies were cut off at the token limit" in warning
    assert check_reward_spread(groups, cut_off=18) == []


def test_no_rewards_at_all() -> None:
    with pytest.raises(NothingToLearn, match="no rewards"):
        check_reward_spread([])
    with pytest.raises(ValueError, match=r"cut_off is 3; it must lie in \[0, 2\]"):
        check_reward_spread([[0.0, 1.0]], cut_off=3)
