"""Whole testbed runs with training stages in two child processes, on one machine and on two: kills, and equal records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from selfevolve.config import Recipe, load_recipe
from selfevolve.jsonl import read_jsonl
from selfevolve.round import TRAINING
from selfevolve.rundir import RunDir
from selfevolve.stages import Context
from selfevolve.train.launch import launch
from tests.test_run import SMALL, records, without_times

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
TWO = [*SMALL, "launcher=accelerate", "processes=2", "accelerate_config=cpu_2.yaml"]
PATIENCE = 1800.0  # seconds; for a busy machine


# as the command, but a machine counts as gone after 30 seconds of silence rather than 180
COMMAND = "import sys; from selfevolve import cli, machines; machines.SILENCE = 30.0; sys.exit(cli.main(sys.argv[1:]))"


def start(*words: str | Path) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", COMMAND, *map(str, words)]
    with_threads = {**os.environ, "OMP_NUM_THREADS": "1"}  # the last bit of a sum depends on their number
    child = subprocess.Popen(
        line, cwd=ROOT, env=with_threads, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    _started.append(child)
    return child


_started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """End what a failed test leaves."""
    yield
    while _started:
        child = _started.pop()
        if child.poll() is None:
            child.kill()
            child.wait()


def ended_well(child: subprocess.Popen[str]) -> str:
    said, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, said
    return said


def until(what: Callable[[], bool], *children: subprocess.Popen[str]) -> None:
    begin = time.monotonic()
    while not what():
        assert time.monotonic() - begin < PATIENCE
        for child in children:
            assert child.poll() is None, child.stdout.read() if child.stdout else ""
        time.sleep(0.05)


def at_work(out: Path, round: int, stage: str) -> bool:
    """Whether the child processes of a stage train: their main process has said so."""
    try:
        said = json.loads((out / "progress.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(said["round"] == round and said["stage"] == stage)


def killed(child: subprocess.Popen[str]) -> list[psutil.Process]:
    """Kill a command's own process only, and return what of its descendants outlives it by half a minute."""
    family = psutil.Process(child.pid).children(recursive=True)
    assert sum("selfevolve.stage_main" in " ".join(p.cmdline()) for p in family) >= 2  # the launcher and a worker
    child.send_signal(signal.SIGKILL)
    child.wait()
    if child.stdout:
        child.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=30)
    return alive


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    ended_well(start("run", "testbed/r_quest", *TWO, "rounds=3", "--out", out))
    return out


def test_a_run_killed_in_training_leaves_no_worker_and_resumes_to_the_same_records(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = start("run", "testbed/r_quest", *TWO, "rounds=3", "--out", out)
    until(lambda: at_work(out, 2, "solver"), child)
    assert killed(child) == []
    assert RunDir.open(out).rounds_done() == 1 and (out / "rounds/02/solver.partial").is_dir()
    ended_well(start("resume", out))
    assert records(out) == records(whole)
    final = [without_times(read_jsonl(run / "metrics.jsonl"))[-1] for run in (out, whole)]
    assert final[0] == final[1] and final[0]["round"] == 3


def test_two_machines_leave_the_records_of_one_though_machine_0_is_killed(whole: Path, tmp_path: Path) -> None:
    """Each "machine" is a process tree of its own with one training process; they meet on the loopback."""
    out = tmp_path / "run"
    second = start("join", out, "--machine-rank", "1")  # before the run is there
    first = start("run", "testbed/r_quest", *TWO, "machines=2", "main_address=127.0.0.1", "--out", out)
    until(lambda: at_work(out, 1, "questioner"), first, second)
    workers = [p for p in psutil.Process(second.pid).children(recursive=True) if "stage_main" in " ".join(p.cmdline())]
    assert len(workers) >= 2  # a launcher and a worker of the second machine
    assert killed(first) == []
    assert psutil.wait_procs(workers, timeout=90)[1] == []  # they end with machine 0; the second machine itself waits
    assert second.poll() is None
    ended_well(start("resume", out))
    said = ended_well(second)
    assert said.count("questioner: joining machine 0 at 127.0.0.1:") == 2
    for done in ("initialisation: done", "round 1 solver: done", "the run is complete: machine 1 is done"):
        assert done in said
    for part in ("initialisation", "rounds/01"):
        assert records(out / part) == records(whole / part)
    assert not (out / "machines/stage.json").exists()


# -- the reward of a whole batch, by one process and by two


SAME = {
    "bleu": ("testbed/r_zero_code", ["questioner.steps=1"]),
    # a rate that moves no draw: so step 2 has the same candidates, and its memory holds those of step 1
    "ask_e": ("testbed/ask_e", ["questioner.steps=2", "questioner.learning_rate=1e-7"]),
    "ask_e_fixed_check": ("testbed/ask_e", ["questioner.steps=1", "ask_e.cross_check=testbed:rung-2"]),
}


@pytest.mark.parametrize("case", SAME)
def test_two_processes_assess_a_batch_as_one_does(case: str, tmp_path: Path) -> None:
    name, overrides = SAME[case]
    small = [s for s in SMALL if not s.startswith("initialisation.")]
    recipe = load_recipe(
        name, [*small, "initialisation.enabled=false", "solver.replay=0", *overrides, "launcher=accelerate"]
    )
    found = {}
    for processes in (1, 2):
        run = RunDir.create(tmp_path / str(processes), with_processes(recipe, processes))
        folder = run.path / "stage"
        folder.mkdir()
        if processes == 1:
            TRAINING["questioner"](Context(run, 1), folder)
        else:
            words = ["selfevolve.stage_main", str(run.path), "1", "questioner", str(folder)]
            launch(words, processes, cpu=True, echo=lambda _: None)
        found[processes] = folder
    rows = {n: without_times(read_jsonl(folder / "assessed.jsonl")) for n, folder in found.items()}
    assert [r["reply"] for r in rows[1]] == [r["reply"] for r in rows[2]]
    assert rows[1] == rows[2]
    rewards = [r["reward"] for r in rows[1] if r["reward"] is not None]
    if case == "bleu":
        assert any(r["terms"]["repetition"] < 0 for r in rewards)
    else:
        memories = [json.loads((folder / "memory.json").read_text()) for folder in found.values()]
        assert memories[0] == memories[1] and memories[0]["questions"]
    if case == "ask_e":
        second = [r["reward"] for r in rows[1] if r["step"] == 2 and r["reward"] is not None]
        assert any(r["terms"]["diversity"] for r in second)


def with_processes(recipe: Recipe, processes: int) -> Recipe:
    data: dict[str, Any] = recipe.model_dump() | {"processes": processes}
    return Recipe.model_validate(data)
