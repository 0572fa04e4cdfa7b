"""``selfevolve join``: one machine's part in the training stages of a run that machine 0 drives."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from selfevolve.config import accelerate_config_path
from selfevolve.errors import RunBusyError, RunFolderError, UserError
from selfevolve.machines import (
    FOLDER,
    POLL,
    WAIT,
    Announcement,
    Beat,
    Watch,
    announced,
    seconds_to_wait,
    stays_off_gpus,
    versions,
)
from selfevolve.rundir import STAGES, RunDir
from selfevolve.runlock import RunLock
from selfevolve.train.launch import LaunchError, Meeting, launch

GRACE = 60.0  # seconds that this machine's part may go on after the stage has ended on machine 0
TAIL = 2000  # characters of an error that machine 0 is told

Say = Callable[[str], None]
_print: Say = partial(print, flush=True)


def join(path: Path, rank: int, wait: float | None = None, say: Say = _print) -> None:
    """Take part in every training stage of a run, until the run is complete.

    Machine 0 may be killed and resumed meanwhile: this machine ends its part of the stage and waits for the next one.

    Args:
        path: the run folder, on a file system that all machines share; it may be made later.
        rank: of this machine, from 1.
        wait: seconds without a sign of life from machine 0 after which to give up; None: `seconds_to_wait`.
        say: gets a line at each thing that happens.

    Raises:
        UserError: a rank that the run does not have or that another machine holds, versions that differ from machine
            0's, or no sign of life from machine 0 in time.
    """
    limit = seconds_to_wait() if wait is None else wait
    run = _open(path, limit, say)
    machines = run.recipe.machines
    if not 1 <= rank < machines:
        known = f"1 to {machines - 1}" if machines > 1 else "none, since its recipe has machines = 1"
        raise UserError(f"--machine-rank is {rank}; the other machines of {path} are {known}")
    (run.path / FOLDER).mkdir(exist_ok=True)
    try:
        lock = RunLock(run.path / FOLDER / f"{rank}.lock")
    except RunBusyError as error:
        raise UserError(f"machine {rank} has joined {path} already ({error.message})", "give another rank") from None
    with lock, Beat(run.path, rank, failed=None, error=None) as beat:
        say(f"machine {rank} of {machines} joins {path}: waiting for machine 0")
        _Part(run, rank, beat, limit, say).play()


def _open(path: Path, limit: float, say: Say) -> RunDir:
    """Open the run folder as soon as machine 0 has made it."""
    start, said = time.monotonic(), False
    while not (path / "config.yaml").is_file():
        if time.monotonic() - start > limit:
            raise RunFolderError(
                f"{path} holds no run after {limit:.0f} seconds",
                "start it on machine 0 with `selfevolve run`; the folder must lie on a file system that all machines "
                "share",
            )
        if not said:
            say(f"waiting for machine 0 to start the run {path}")
            said = True
        time.sleep(POLL)
    return RunDir.open(path)


class _Part:
    """This machine's part in one run."""

    def __init__(self, run: RunDir, rank: int, beat: Beat, limit: float, say: Say) -> None:
        self.run, self.rank, self.beat, self.limit, self.say = run, rank, beat, limit, say
        self.first = Watch(run.path, 0)
        self.tried: set[str] = set()  # attempts that this machine took part in
        self.sessions: set[str] = set()  # of machine 0, whose versions were compared
        self.ended: Any = None  # what machine 0 last said of its end

    def play(self) -> None:
        """Take part until the run is complete."""
        while not self.run.is_done(self.run.recipe.rounds, STAGES[-1]):
            sign = self.first.look()
            told = announced(self.run.path)
            if sign is not None:
                self._greet(sign)
                if told is not None and told.session == sign["session"] and told.attempt not in self.tried:
                    self.tried.add(told.attempt)
                    self._take_part(told)
                    continue
            if self.first.silent > self.limit:
                raise UserError(
                    f"machine 0 gave no sign of life in {self.run.path} for {self.limit:.0f} seconds",
                    f"`selfevolve resume {self.run.path}` there, then join again; --wait or {WAIT} in the environment "
                    "is how long to wait",
                )
            time.sleep(POLL)
        self.say(f"the run is complete: machine {self.rank} is done")

    def _greet(self, sign: dict[str, Any]) -> None:
        """Compare versions with a machine 0 that is new, and pass on why one ended."""
        if sign["session"] not in self.sessions:
            self.sessions.add(sign["session"])
            check_versions(sign["versions"], versions(), str(sign["host"]))
            self.ended = None
        if sign["left"] and sign["left"] != self.ended:
            self.ended = sign["left"]
            self.say(f"machine 0 ended: {self.ended}\nwaiting {self.limit:.0f} seconds for it to be resumed")

    def _take_part(self, told: Announcement) -> None:
        name = f"round {told.round} {told.stage}" if told.round else told.stage
        cpu = stays_off_gpus()
        if cpu != told.cpu:
            kinds = ("GPUs", "its CPU")
            self._failed(told, f"machine 0 trains on {kinds[told.cpu]}, but this machine would on {kinds[cpu]}")
            return
        self.say(f"{name}: joining machine 0 at {told.address}:{told.port}")
        folder = self.run.path / told.folder
        words = ["selfevolve.stage_main", str(self.run.path), str(told.round), told.stage, str(folder)]
        over = _Over(self.run, told, self.first)
        recipe = RunDir.open(self.run.path).recipe  # anew: a resume may have changed the machinery
        met = Meeting(recipe.machines, self.rank, told.address, told.port, over)
        try:
            launch(words, recipe.processes, accelerate_config_path(recipe), cpu=cpu, meeting=met)
        except LaunchError as error:
            self._failed(told, error.message)
        else:
            self.say(f"{name}: done")

    def _failed(self, told: Announcement, reason: str) -> None:
        self.say(f"this machine's part failed: {reason}\nwaiting for machine 0 to try again")
        self.beat.say(failed=told.attempt, error=reason[-TAIL:])


class _Over:
    """Says when this machine's part of a stage shall end before its own end."""

    def __init__(self, run: RunDir, told: Announcement, first: Watch) -> None:
        self.run, self.told, self.first = run, told, first
        self.gone: float | None = None  # since when the announcement is not there

    def __call__(self) -> str | None:
        now = announced(self.run.path)
        if now is not None and now.attempt != self.told.attempt:
            return "machine 0 has begun the stage anew"
        if self.first.look() is None:
            return f"machine 0 gave no sign of life for {self.first.silent:.0f} seconds"
        if now is not None:
            self.gone = None
            return None
        self.gone = self.gone or time.monotonic()
        if time.monotonic() - self.gone > GRACE:
            return f"the stage ended on machine 0 more than {GRACE:.0f} seconds ago"
        return None


def check_versions(theirs: dict[str, Any], ours: dict[str, Any], host: str) -> None:
    """Refuse to train with a machine 0 that has other versions.

    Raises:
        UserError: with a line for each that differs.
    """
    rows = [(k, theirs.get(k), ours.get(k)) for k in dict.fromkeys((*theirs, *ours)) if theirs.get(k) != ours.get(k)]
    if rows:
        table = "".join(f"\n  {name}: {there or 'none'} there, {here or 'none'} here" for name, there, here in rows)
        raise UserError(
            f"machine 0 ({host}) has other versions than this machine:{table}",
            "install the same versions on all machines, from one checkout, and join again",
        )
