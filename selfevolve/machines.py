"""Several machines over one run folder: who is alive, which stage trains, and where its processes meet.

Machine 0 drives the run; the others follow (`selfevolve.join`). They speak through small files in ``RUN/machines``, so
nothing is needed beyond the shared file system that holds the run folder:

    0.json, 1.json, ...   each machine's sign of life, written anew every `BEAT` seconds
    stage.json            the training stage that all shall take part in; it is there as long as the stage trains

No machine's clock is compared with another's: a sign of life counts from when its reader saw it change.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from selfevolve.environment import environment
from selfevolve.errors import ConfigError, UserError
from selfevolve.jsonl import write_json
from selfevolve.rundir import RunDir
from selfevolve.train.launch import LaunchError, Meeting

FOLDER = "machines"  # in the run folder
STAGE = "stage.json"
BEAT = 2.0  # seconds between two signs of life
SILENCE = 180.0  # seconds without a sign of life after which a machine counts as gone; above a file system's caching
WAIT = "SELFEVOLVE_JOIN_SECONDS"  # environment: how long a machine waits for another
POLL = 0.5  # seconds between two looks
COMPARED = ("accelerate", "deepspeed", "numpy", "peft", "torch", "transformers", "trl")  # packages of a training stage


@dataclass(frozen=True)
class Announcement:
    """A training stage that all machines shall take part in."""

    session: str  # of machine 0, new at each start: what a killed one left is told from what the present one says
    attempt: str  # new at each launch
    round: int
    stage: str
    folder: str  # of the stage, relative to the run folder
    address: str  # of machine 0
    port: int  # on machine 0, where the processes meet
    cpu: bool  # whether the stage stays off GPUs


def seconds_to_wait() -> float:
    """Return how long a machine waits for another: ``SELFEVOLVE_JOIN_SECONDS``, or 600 seconds."""
    given = os.environ.get(WAIT, "600")
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(f"the environment variable {WAIT} is {given!r}; it must be a number of seconds above 0")
    return seconds


def versions() -> dict[str, str | None]:
    """Return what must be equal on machines that train together."""
    facts = environment()
    packages = {name: facts["packages"].get(name) for name in COMPARED}
    python = ".".join(facts["python"].split(".")[:2])
    return {"python": python, "selfevolve": facts["selfevolve"], "commit": facts["commit"], **packages}


def announced(run: Path) -> Announcement | None:
    """Return the stage that machine 0 announces; None when there is none."""
    row = _read(run / FOLDER / STAGE)
    return Announcement(**row) if row else None


def _read(path: Path) -> dict[str, Any] | None:
    """Return a file that another machine writes; None while it is not there."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a shared file system may show a file that was just replaced as gone or empty
        return None
    return value if isinstance(value, dict) else None


class Beat:
    """This machine's sign of life, from a thread of its own, for a ``with`` block."""

    def __init__(self, run: Path, rank: int, **facts: Any) -> None:
        """Keep the facts that go with each sign."""
        self._path = run / FOLDER / f"{rank}.json"
        self._facts = {"host": socket.gethostname(), "process": os.getpid(), "left": None, **facts}
        self._count = 0
        self._guard = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def say(self, **facts: Any) -> None:
        """Change some facts, and show them at once."""
        with self._guard:
            self._facts.update(facts)
            self._count += 1
            with suppress(OSError, UserError):  # a full disk stops the records first, and with a message
                write_json(self._path, {**self._facts, "beat": self._count})

    def _go_on(self) -> None:
        while not self._done.wait(BEAT):
            self.say()

    def __enter__(self) -> Beat:
        """Begin."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.say()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; the last sign stays in the folder and says why."""
        self._done.set()
        self._thread.join()
        self.say(left="its part is done" if error is None else getattr(error, "message", "") or type(error).__name__)


class Watch:
    """Another machine's sign of life, as this one sees it."""

    def __init__(self, run: Path, rank: int) -> None:
        """Begin to watch; what lies in the folder already is no sign of life."""
        self.rank = rank
        self._path = run / FOLDER / f"{rank}.json"
        self.last = _read(self._path)  # the newest sign
        self._seen: float | None = None  # when it last changed
        self._since = time.monotonic()

    def look(self) -> dict[str, Any] | None:
        """Return the newest sign if the machine is alive, else None."""
        now = _read(self._path)
        if now is not None and now != self.last:
            self.last, self._seen = now, time.monotonic()
        return self.last if self._seen is not None and self.silent < SILENCE else None

    @property
    def present(self) -> bool:
        """True when the machine is alive and has not left."""
        sign = self.look()
        return sign is not None and not sign["left"]

    @property
    def silent(self) -> float:
        """Seconds since the last sign of life; without one, since the watch began."""
        return time.monotonic() - (self._since if self._seen is None else self._seen)


class Leader:
    """Machine 0's part: it waits for the others before a training stage and tells them where to meet."""

    def __init__(self, run: RunDir, session: str) -> None:
        """Take the parts as they are; `leading` makes one."""
        self.run, self._session = run, session
        self._file = run.path / FOLDER / STAGE
        self._others = [Watch(run.path, rank) for rank in range(1, run.recipe.machines)]

    @contextmanager
    def stage(self, round: int, name: str, folder: Path, cpu: bool) -> Iterator[Meeting]:
        """Announce a training stage for the time of the block, once all machines are there.

        Raises:
            LaunchError: a machine did not join in time.
        """
        self._await_all()
        address = self.run.recipe.main_address
        if address in (None, "auto"):
            address = socket.gethostname()
        attempt = uuid.uuid4().hex
        where = folder.relative_to(self.run.path).as_posix()
        told = Announcement(self._session, attempt, round, name, where, str(address), _free_port(), cpu)
        write_json(self._file, asdict(told))
        try:
            yield Meeting(self.run.recipe.machines, 0, told.address, told.port, lambda: self._stop(attempt))
        finally:
            self._file.unlink(missing_ok=True)

    def _await_all(self) -> None:
        limit, start, said = seconds_to_wait(), time.monotonic(), False
        while missing := [w.rank for w in self._others if not w.present]:
            hints = "\n".join(f"  selfevolve join {self.run.path} --machine-rank {rank}" for rank in missing)
            if time.monotonic() - start > limit:
                raise LaunchError(
                    f"{len(missing)} of {self.run.recipe.machines} machines gave no sign of life in {self.run.path} "
                    f"within {limit:.0f} seconds",
                    f"start on each of them, with the run folder on a file system that all machines share:\n{hints}\n"
                    f"then resume here; {WAIT} in the environment is how long to wait",
                )
            if not said and time.monotonic() - start > 2 * BEAT:
                print(f"waiting for {len(missing)} of {self.run.recipe.machines} machines; start there:\n{hints}")
                sys.stdout.flush()
                said = True
            time.sleep(POLL)

    def _stop(self, attempt: str) -> str | None:
        for other in self._others:
            sign = other.look()
            if sign is None:
                return f"machine {other.rank} gave no sign of life for {SILENCE:.0f} seconds; look there, then resume"
            if sign["left"]:
                return f"machine {other.rank} ({sign['host']}) has left: {sign['left']}"
            if sign.get("failed") == attempt:
                return f"machine {other.rank} ({sign['host']}) failed:\n{sign['error']}"
        return None


_leaders: dict[Path, Leader] = {}  # of this process, by run folder; at most one, since the run's lock is held


@contextmanager
def leading(run: RunDir) -> Iterator[None]:
    """Be machine 0 of a run for the time of the block; on one machine do nothing. The run's lock must be held."""
    if run.recipe.machines == 1:
        yield
        return
    session = uuid.uuid4().hex
    (run.path / FOLDER / STAGE).unlink(missing_ok=True)  # of a killed machine 0
    with Beat(run.path, 0, session=session, versions=versions()):
        _leaders[run.path] = Leader(run, session)
        try:
            yield
        finally:
            del _leaders[run.path]


@contextmanager
def meeting(run: RunDir, round: int, stage: str, folder: Path) -> Iterator[tuple[Meeting | None, bool | None]]:
    """Give what `launch` needs for a training stage: the meeting, and whether to stay off GPUs; None on one machine."""
    leader = _leaders.get(run.path)
    if leader is None:
        yield None, None
        return
    cpu = stays_off_gpus()
    with leader.stage(round, stage, folder, cpu) as met:
        yield met, cpu


def stays_off_gpus() -> bool:
    """Return True when torch sees no GPU on this machine."""
    import torch

    return not torch.cuda.is_available()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
