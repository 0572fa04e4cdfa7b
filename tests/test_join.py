"""Machines that follow a run: files, signs of life, attempts, refusals. Launches are stood in for; no torch starts."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from selfevolve import join as join_module
from selfevolve import machines
from selfevolve.config import load_recipe
from selfevolve.errors import ConfigError, UserError
from selfevolve.join import check_versions, join
from selfevolve.jsonl import write_json
from selfevolve.machines import Beat, Watch, leading, meeting, seconds_to_wait
from selfevolve.rundir import RunDir
from selfevolve.train.launch import LaunchError, Meeting, launch
from tests.test_run import SMALL

TWO = [*SMALL, "launcher=accelerate", "processes=2", "machines=2", "main_address=10.1.2.3"]
SOON = 10.0  # seconds in which everything here must have happened


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (machines, join_module):
        monkeypatch.setattr(module, "POLL", 0.01)
        monkeypatch.setattr(module, "stays_off_gpus", lambda: True)
    monkeypatch.setattr(machines, "BEAT", 0.02)
    monkeypatch.setenv("SELFEVOLVE_JOIN_SECONDS", str(SOON))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", TWO))


def until(what: Callable[[], Any]) -> None:
    begin = time.monotonic()
    while not what():
        assert time.monotonic() - begin < SOON
        time.sleep(0.005)


def complete(run: RunDir) -> None:
    """Make the run look complete to whoever follows it."""
    last = run.folder(run.recipe.rounds, "diagnostics")
    last.mkdir(parents=True)
    write_json(last / "DONE.json", {})


class Follower:
    """A machine 1 in a thread; its launches are noted, last until their meeting is over, then do what they are told."""

    def __init__(self, run: RunDir, monkeypatch: pytest.MonkeyPatch, outcome: Callable[[], None] = lambda: None):
        self.meetings: list[Meeting] = []
        self.words: list[list[str]] = []
        self.reasons: list[str | None] = []
        self.said: list[str] = []
        self.error: BaseException | None = None
        self.outcome, self.hold = outcome, threading.Event()

        def fake(words: list[str], processes: int, config: Path | None, *, cpu: bool, meeting: Meeting) -> None:
            assert (processes, config, cpu) == (2, None, True)
            self.words.append(words)
            self.meetings.append(meeting)
            while not self.hold.is_set() and meeting.stop() is None:
                time.sleep(0.005)
            self.reasons.append(meeting.stop())
            self.outcome()

        monkeypatch.setattr(join_module, "launch", fake)
        self.thread = threading.Thread(target=self._join, args=(run.path,), daemon=True)
        self.thread.start()

    def _join(self, path: Path) -> None:
        try:
            join(path, 1, say=self.said.append)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.thread.join(SOON)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error


def test_a_follower_takes_part_in_each_stage_once_and_ends_with_the_run(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(run, monkeypatch)
    follower.hold.set()
    with leading(run):
        for number, name in ((0, "initialisation"), (1, "questioner")):
            folder = run.folder(number, name).with_suffix(".partial")
            with meeting(run, number, name, folder) as (met, cpu):
                assert met is not None and cpu is True and met.stop() is None
                assert (met.machines, met.rank, met.address) == (2, 0, "10.1.2.3")
                until(lambda: len(follower.meetings) == number + 1)  # noqa: B023
                theirs = follower.meetings[-1]
                assert (theirs.machines, theirs.rank, theirs.address, theirs.port) == (2, 1, "10.1.2.3", met.port)
                assert follower.words[-1] == [
                    "selfevolve.stage_main", str(run.path), str(number), name, str(folder)
                ]  # fmt: skip
            assert not (run.path / "machines/stage.json").exists()
        time.sleep(0.1)
        assert len(follower.meetings) == 2
        complete(run)
        follower.end()
    assert follower.said[-1] == "the run is complete: machine 1 is done"
    assert json.loads((run.path / "machines/1.json").read_text())["left"] == "its part is done"


def test_one_machine_announces_nothing(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", SMALL))
    with leading(run), meeting(run, 1, "solver", run.path) as met:
        assert met == (None, None)
    assert not (run.path / "machines").exists()


def test_what_fails_on_a_follower_ends_the_stage_on_machine_0(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise LaunchError("CUDA out of memory")

    follower = Follower(run, monkeypatch, fail)
    follower.hold.set()
    with leading(run):
        with meeting(run, 1, "solver", run.path / "x") as (met, _):
            assert met is not None
            until(met.stop)
            assert "machine 1 (" in str(met.stop()) and str(met.stop()).endswith("failed:\nCUDA out of memory")
        with meeting(run, 1, "solver", run.path / "x") as (met, _):  # the next attempt is another one
            assert met is not None
            until(lambda: len(follower.meetings) == 2)
        complete(run)
        follower.end()


def test_a_killed_machine_0_is_waited_for_and_its_last_announcement_is_not_followed_twice(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Beat(run.path, 0, session="old", versions=machines.versions())
    told = machines.Announcement("old", "a1", 1, "solver", "rounds/01/solver.partial", "10.1.2.3", 5, True)
    first.__enter__()
    write_json(run.path / "machines/stage.json", told.__dict__)
    follower = Follower(run, monkeypatch)
    until(lambda: follower.meetings)
    assert follower.meetings[0].stop() is None
    first._done.set()  # a kill: the signs stop, the announcement stays
    first._thread.join()
    with monkeypatch.context() as patch:
        patch.setattr(machines, "SILENCE", 0.1)
        until(lambda: follower.reasons)
    assert "machine 0 gave no sign of life" in str(follower.reasons[0])
    with leading(run), meeting(run, 1, "solver", run.path / "x") as (met, _):
        assert met is not None
        until(lambda: len(follower.meetings) == 2)
        follower.hold.set()
        complete(run)
        follower.end()
    assert [m.port for m in follower.meetings] == [5, met.port]


def test_a_follower_ends_its_part_when_the_stage_has_ended(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "GRACE", 0.1)
    follower = Follower(run, monkeypatch)
    with leading(run):
        with meeting(run, 1, "solver", run.path / "x"):
            until(lambda: follower.meetings)
            assert follower.meetings[0].stop() is None
        until(lambda: follower.reasons)
        assert "ended on machine 0" in str(follower.reasons[0])
        complete(run)
        follower.end()


def test_machine_0_says_whom_it_waits_for(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SELFEVOLVE_JOIN_SECONDS", "0.2")
    with leading(run), pytest.raises(LaunchError) as caught, meeting(run, 1, "solver", run.path / "x"):
        pass
    assert "1 of 2 machines gave no sign of life" in str(caught.value)
    assert f"selfevolve join {run.path} --machine-rank 1" in str(caught.value)
    assert f"selfevolve join {run.path} --machine-rank 1" in capsys.readouterr().out


def test_a_sign_that_was_there_before_is_none(run: RunDir) -> None:
    with Beat(run.path, 1):
        pass
    watch = Watch(run.path, 1)
    assert watch.look() is None and not watch.present
    with Beat(run.path, 1):
        assert watch.look() is not None and watch.present
    assert not watch.present  # it has left, and said so


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_the_run_does_not_have(run: RunDir, rank: int) -> None:
    with pytest.raises(UserError, match=r"the other machines of .* are 1 to 1"):
        join(run.path, rank)


def test_a_rank_is_given_once(run: RunDir) -> None:
    """The lock belongs to a process, so the other holder is one."""
    (run.path / "machines").mkdir()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        from selfevolve.runlock import RunLock

        RunLock(run.path / "machines/1.lock")
        os.write(write, b".")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(read, 1)
        with pytest.raises(UserError, match=rf"machine 1 has joined .* already .*process {child}"):
            join(run.path, 1)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_follower_gives_up_without_a_run_or_a_sign_of_machine_0(run: RunDir, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run after 0 seconds"):
        join(tmp_path / "none", 1, wait=0.05)
    with pytest.raises(UserError, match="machine 0 gave no sign of life"):
        join(run.path, 1, wait=0.05)


def test_versions_must_be_equal(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = machines.versions()
    assert ours["torch"] and ours["python"] == ".".join(map(str, __import__("sys").version_info[:2]))
    check_versions(ours, dict(ours), "host")
    with pytest.raises(UserError, match=r"machine 0 \(host\) has other versions.*\n  trl: 0.1 there, .* here"):
        check_versions({**ours, "trl": "0.1"}, ours, "host")
    monkeypatch.setattr(join_module, "versions", lambda: {**ours, "torch": "1.0"})
    follower = Follower(run, monkeypatch)
    with leading(run):
        until(lambda: follower.error)
        assert "torch" in str(follower.error)
        assert not Watch(run.path, 1).present


def test_another_kind_of_device_is_refused(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(run, monkeypatch)
    monkeypatch.setattr(join_module, "stays_off_gpus", lambda: False)
    with leading(run):
        with meeting(run, 1, "solver", run.path / "x") as (met, _):
            assert met is not None
            until(met.stop)
            assert "machine 0 trains on its CPU, but this machine would on GPUs" in str(met.stop())
        complete(run)
        follower.end()
    assert follower.meetings == []


def test_the_wait_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFEVOLVE_JOIN_SECONDS", "2.5")
    assert seconds_to_wait() == 2.5
    for bad in ("soon", "0", "nan"):
        monkeypatch.setenv("SELFEVOLVE_JOIN_SECONDS", bad)
        with pytest.raises(ConfigError, match="must be a number of seconds above 0"):
            seconds_to_wait()


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand in for accelerate: a child that sleeps."""
    import sys

    from selfevolve.train import launch as launch_module

    monkeypatch.setattr(launch_module, "_POLL", 0.01)
    line = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    monkeypatch.setattr(launch_module, "command", lambda *_: line)
    yield tmp_path


def test_a_launch_ends_when_its_meeting_says_so(child: Path) -> None:
    said: list[str] = []

    def stop() -> str | None:
        return "machine 1 is gone" if said else None

    begin = time.monotonic()
    with pytest.raises(LaunchError, match=r"^machine 1 is gone$"):
        launch(["m"], 2, cpu=True, echo=said.append, meeting=Meeting(2, 0, "127.0.0.1", 5, stop))
    assert said == ["up"] and time.monotonic() - begin < SOON
