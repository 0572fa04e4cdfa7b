"""Whole runs of the testbed, small: records, metrics, report, resume after an interruption, refusals."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from selfevolve import evolve, stages
from selfevolve.config import Recipe, load_recipe
from selfevolve.errors import CollapseError, RunFolderError
from selfevolve.rundir import RunDir, read_jsonl

SMALL = [
    "rounds=1", "initialisation.steps=1", "initialisation.prompts=8", "initialisation.global_batch=8",
    "questioner.steps=1", "questioner.prompts=8", "questioner.global_batch=4", "candidates=48",
    "assessment.validity.votes=3", "assessment.solutions=4", "novelty.k=3",
    "solver.steps=1", "solver.prompts=8", "solver.global_batch=8", "solver.responses=3",
    "diagnostics.heldout=12", "diagnostics.solver_samples=1", "monitor.min_kept=1", "generation.batch=256",
]  # fmt: skip
REQUIRED = [
    "round", "valid_rate", "valid_rate_kept", "top5_share", "top5_share_kept", "pseudo_label_accuracy",
    "balanced_accuracy", "invalid_recall", "solver_accuracy", "questions", "parsed", "kept", "undecided_rate",
    "reward_mean", "seconds",
]  # fmt: skip


def small(name: str = "testbed/r_quest", *overrides: str) -> Recipe:
    return load_recipe(name, [*SMALL, *overrides])


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not k.startswith("seconds")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def records(run: Path) -> dict[str, Any]:
    """All records of a run but clock times, by file; weights by their bytes."""
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.suffix == ".jsonl":
            found[name] = without_times(read_jsonl(path))
        elif path.name in ("metrics.json", "start.json"):
            found[name] = without_times(json.loads(path.read_text()))
        elif path.suffix == ".safetensors":
            found[name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evolve.run(small(), tmp_path_factory.mktemp("whole") / "run")


def test_a_run_leaves_metrics_records_and_a_report(whole: Path) -> None:
    [metrics] = read_jsonl(whole / "metrics.jsonl")
    assert [key for key in REQUIRED if key not in metrics] == []
    for key, value in metrics.items():
        if isinstance(value, dict) and "low" in value and value["n"]:
            assert 0 <= value["low"] <= value["value"] <= value["high"] <= 1, key
    assert metrics["questions"] == 48 and metrics["referee"] == "oracle"
    assessed = read_jsonl(whole / "rounds/01/questioner/assessed.jsonl")
    assert len(assessed) == 8 * 4 and {row["step"] for row in assessed} == {1}
    pool = read_jsonl(whole / "rounds/01/assessment/assessed.jsonl")
    assert sum(row["decision"] == "kept" for row in pool) == metrics["kept"]
    examples = read_jsonl(whole / "rounds/01/data/examples.jsonl")
    assert sum(e["kind"] == "pseudo" for e in examples) == metrics["kept"]
    assert any(e["kind"] == "replay" for e in examples)
    assert "report.html" in os.listdir(whole) and "report.md" in os.listdir(whole)
    assert json.loads((whole / "initialisation/start.json").read_text())["round"] == 0


def test_each_model_moved_and_is_a_plain_folder(whole: Path) -> None:
    from transformers import AutoModelForCausalLM

    run = RunDir.open(whole)
    folders = [run.checkpoint(0, "initialisation"), run.checkpoint(1, "questioner"), run.checkpoint(1, "solver")]
    weights = [AutoModelForCausalLM.from_pretrained(f).get_input_embeddings().weight for f in folders]
    assert not any(weights[i].equal(weights[j]) for i in range(3) for j in range(i))


@pytest.mark.parametrize("at", ["assessment", "solver"])
def test_an_interrupted_run_resumes_to_the_same_records(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with monkeypatch.context() as patch:

        def fail(ctx: object, folder: Path) -> dict[str, Any]:
            (folder / "half.jsonl").write_text('{"torn":')
            raise KeyboardInterrupt

        if at == "solver":
            patch.setitem(evolve_training(), "solver", fail)
        else:
            patch.setattr(stages, at, fail)
        with pytest.raises(KeyboardInterrupt):
            evolve.run(small(), tmp_path / "run")
    resumed = evolve.resume(tmp_path / "run")
    assert records(resumed) == records(whole)


def evolve_training() -> dict[str, Any]:
    from selfevolve.round import TRAINING

    return TRAINING


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("name", ["testbed/r_quest", pytest.param("testbed/ask_e", marks=pytest.mark.slow)])
def test_stages_killed_between_their_steps_go_on_from_their_savepoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from selfevolve.stages import training

    recipe = small(name, "initialisation.steps=2", "questioner.steps=2", "solver.steps=2", "save_minutes=0.00001")
    whole = evolve.run(recipe, tmp_path / "whole")
    done: dict[str, list[int]] = {"questioner": [], "solver": []}
    if recipe.initialisation.enabled:
        done["initialisation"] = []
    original = training._logged

    def logged(ctx: Any, stage: str, *args: Any) -> dict[str, Any]:
        say = ctx.report

        def told(what: str, step: int, of: int) -> None:
            say(what, step, of)
            if what == stage:
                done[stage].append(step)
                if done[stage] == [0, 1, 2]:  # before the stage ends
                    raise Killed

        ctx.report = told
        try:
            return original(ctx, stage, *args)
        finally:
            ctx.report = say

    monkeypatch.setattr(training, "_logged", logged)
    out = tmp_path / "run"
    with pytest.raises(Killed):
        evolve.run(recipe, out)
    for _ in range(len(done) - 1):
        assert list(out.rglob("checkpoint-*/step.json"))
        with pytest.raises(Killed):
            evolve.resume(out)
    evolve.resume(out)
    assert set(map(tuple, done.values())) == {(0, 1, 2, 1, 2)}  # step 1 of each is not made again
    assert records(out) == records(whole)
    spent = [json.loads((run / "rounds/01/questioner/DONE.json").read_text())["counts"] for run in (whole, out)]
    assert without_times(spent[0]) == without_times(spent[1])
    assert not list(out.rglob("*.savepoint")) and not list(whole.rglob("*.savepoint"))


def test_a_finished_run_is_not_started_again(whole: Path) -> None:
    with pytest.raises(RunFolderError, match="already holds this run"):
        evolve.run(small(), whole)
    before = records(whole)
    evolve.resume(whole)
    assert records(whole) == before


def test_the_monitor_stops_a_collapsed_run(tmp_path: Path) -> None:
    recipe = small("testbed/r_zero_code", "monitor.stop=true", "monitor.min_valid_rate=1.0")
    with pytest.raises(CollapseError, match="round 1 is below the bounds"):
        evolve.run(recipe, tmp_path / "run")
    assert (tmp_path / "run" / "report.html").is_file()


def _state(folder: Path) -> dict[str, int]:
    """Return when each file and folder of the stages was last written."""
    found = {}
    for path in (p for top in ("rounds", "initialisation*") for p in folder.glob(f"{top}/**/*")):
        with contextlib.suppress(FileNotFoundError):  # renamed in between
            found[str(path)] = path.stat().st_mtime_ns
    return found


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [30, 0.00001])
def test_kill_at_ten_random_moments(whole: Path, tmp_path: Path, minutes: float) -> None:
    """SIGKILL at ten random moments, each soon after the run wrote something; the records are an undisturbed run's."""
    out = tmp_path / "run"
    rng = random.Random(4)
    words = [sys.executable, "-m", "selfevolve", "run", "testbed/r_quest", *SMALL, "--out", str(out)]
    words.insert(5, f"save_minutes={minutes}")
    kills, status = 0, None
    for _ in range(60):
        before = _state(out)
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if kills < 10:
            while child.poll() is None and _state(out) == before:
                time.sleep(0.02)
            time.sleep(rng.choice((0.0, rng.uniform(0, 1), rng.uniform(0, 4))))
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                kills += 1
        status = child.wait()
        if (out / "config.yaml").is_file():
            words = [sys.executable, "-m", "selfevolve", "resume", str(out)]
        if status == 0:
            break
    assert (kills, status) == (10, 0)
    assert records(out) == records(whole)


@pytest.mark.slow
def test_two_processes_leave_the_records_of_one(tmp_path: Path) -> None:
    """The same candidates get the same assessment, whoever gathers them."""
    inline = evolve.run(small(), tmp_path / "one")
    shared = evolve.run(small("testbed/r_quest", "launcher=accelerate", "processes=2"), tmp_path / "two")
    name = "rounds/01/questioner/assessed.jsonl"
    first, second = (without_times(read_jsonl(run / name)) for run in (inline, shared))
    assert [r["reply"] for r in first] == [r["reply"] for r in second]
    assert first == second
