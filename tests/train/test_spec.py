"""Specifications, plans and advantages: no model."""

from __future__ import annotations

import subprocess
import sys

import pytest

from selfevolve.sampling import user
from selfevolve.train import TrainingError, TrainRow, TrainSpec
from selfevolve.train.advantages import checked_rewards, group_advantages


def spec(**changes: object) -> TrainSpec:
    settings = {"steps": 3, "prompts": 4, "responses": 3, "global_batch": 2, "device": "cpu", "max_prompt_tokens": 10}
    return TrainSpec(**(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rewards", "group", "expected"),
    [
        ([1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0], 4, [0, 0, 0, 0, 0, 0, 0, 0, 1.5, -0.5, -0.5, -0.5]),
        ([None, None, None, 1.0], 4, [0, 0, 0, 0]),
        ([None, 1.0, 0.0, 1.0], 4, [0, 0.57735, -1.1547, 0.57735]),
        ([None, None], 2, [0, 0]),
        ([0.1] * 3, 3, [0, 0, 0]),  # the float mean of three times 0.1 is not 0.1
        ([0.9] * 5, 5, [0, 0, 0, 0, 0]),
    ],
)
def test_advantages(rewards: list[float | None], group: int, expected: list[float]) -> None:
    assert group_advantages(rewards, group) == pytest.approx(expected, abs=1e-5)
    for advantage, reward in zip(group_advantages(rewards, group), rewards, strict=True):
        assert reward is not None or advantage == 0.0


def test_rewards_are_checked() -> None:
    assert checked_rewards([1, None, 0.5], 3) == [1.0, None, 0.5]
    with pytest.raises(TrainingError, match="2 values for 3"):
        checked_rewards([1.0, 2.0], 3)
    with pytest.raises(TrainingError, match="completion 1 is nan"):
        checked_rewards([1.0, float("nan")], 2)


def test_spec_refuses_what_cannot_be_split() -> None:
    spec().check()
    with pytest.raises(TrainingError, match="at least 2"):
        spec(responses=1).check()
    with pytest.raises(TrainingError, match=r"\[1, 2, 4\]"):
        spec(global_batch=3).check()
    with pytest.raises(TrainingError, match="temperature"):
        spec(temperature=0.0).check()
    with pytest.raises(TrainingError, match="seed is -1"):
        spec(seed=-1).check()
    with pytest.raises(TrainingError, match="steps is 0"):
        spec(steps=0).check()
    with pytest.raises(TrainingError, match=r"no 4 equal shares\n.*\[4\]"):
        spec().check(processes=4)


@pytest.mark.parametrize(("micro", "processes", "expected"), [(1, 1, 1), (4, 1, 3), (100, 1, 6), (8, 2, 3), (2, 3, 2)])
def test_micro_batch_is_the_largest_divisor(micro: int, processes: int, expected: int) -> None:
    assert spec(micro_batch=micro).micro(processes) == expected


def test_plan() -> None:
    from selfevolve.train.rollouts import make_plan

    rows = [TrainRow(user(str(i))) for i in range(6)]
    ids = [[1] * n for n in (3, 11, 4, 0, 10, 2)]
    plan = make_plan(rows, ids, spec(prompts=2, steps=4))
    assert plan.left_out == (1, 3)
    assert sorted(plan.row[:4]) == sorted(plan.row[4:]) == [0, 2, 4, 5]
    assert len({make_plan(rows, ids, spec(prompts=2, steps=4, seed=seed)).row for seed in range(5)}) > 1
    assert plan == make_plan(rows, ids, spec(prompts=2, steps=4))
    assert "2 of 6 rows left out" in plan.notes[0] and len(plan.notes) == 1
    repeated = make_plan(rows[:1], ids[:1], spec())
    assert repeated.row == (0,) * 12 and "repeated" in repeated.notes[0]
    assert make_plan(rows, ids, spec(max_new_tokens=5), context=9).left_out == (1, 3, 4)  # 9 - 5 = 4 tokens are left
    with pytest.raises(TrainingError, match="none of the 2 rows"):
        make_plan(rows[:2], [[], [1] * 11], spec())


def test_import_loads_no_torch() -> None:
    code = "import sys, selfevolve.train.launch; print({'torch', 'trl', 'transformers'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
