"""A small pool of child processes for symbolic comparison, with a wall limit that nothing can outlast."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

WORKERS = 2  # processes at the most, started when first needed
LIMIT_S = 5.0  # wall seconds one comparison may take
START_LIMIT_S = 120.0  # wall seconds a process may take to import its libraries
_SCRIPT = Path(__file__).with_name("_symbolic_worker.py")


class WorkerFailed(RuntimeError):
    """A comparison gave no verdict; the message says why."""


class WorkerUnavailable(WorkerFailed):
    """No worker could be started: nothing is known about the pair, and the next try may succeed."""


class _Worker:
    """One child process; used by one thread at a time."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        self.buffer = b""
        try:
            self.receive(START_LIMIT_S, "starting")
        except WorkerFailed as error:
            self.close()
            raise WorkerUnavailable(f"{error}; are mathruler and math-verify installed?") from error

    def receive(self, limit_s: float, doing: str) -> Any:
        assert self.process.stdout is not None
        deadline = time.monotonic() + limit_s
        descriptor = self.process.stdout.fileno()
        poller = select.poll()
        poller.register(descriptor, select.POLLIN | select.POLLHUP)
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WorkerFailed(f"no verdict within {limit_s:g} s ({doing})")
            if poller.poll(left * 1000):
                part = os.read(descriptor, 65536)
                if not part:
                    raise WorkerFailed(f"the symbolic worker died ({doing}): out of time or memory")
                self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def ask(self, a: str, b: str, limit_s: float) -> tuple[bool | None, str]:
        assert self.process.stdin is not None
        job = json.dumps({"a": a, "b": b, "limit": limit_s}) + "\n"
        try:
            self.process.stdin.write(job.encode())
            self.process.stdin.flush()
        except OSError as error:
            raise WorkerFailed("the symbolic worker is gone") from error
        found = self.receive(limit_s + 1.0, "comparing")
        return found["verdict"], found["by"]

    def close(self) -> None:
        """End the process at once and collect it."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.process.wait()


class _Pool:
    """Hands out workers; None in the queue stands for one that is not started yet."""

    def __init__(self) -> None:
        self.slots: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self.workers: set[_Worker] = set()
        self.lock = threading.Lock()
        self.closed = False
        for _ in range(WORKERS):
            self.slots.put(None)

    def ask(self, a: str, b: str, limit_s: float) -> tuple[bool | None, str]:
        worker = self.slots.get()
        try:
            if worker is None:
                worker = self.start()
            return worker.ask(a, b, limit_s)
        except (WorkerFailed, ValueError, OSError) as error:
            if worker is not None:
                self.drop(worker)
                worker = None
            if isinstance(error, WorkerFailed):
                raise
            raise WorkerFailed(str(error)) from error
        finally:
            self.slots.put(worker)

    def start(self) -> _Worker:
        if self.closed:
            raise WorkerUnavailable("the interpreter is ending")
        worker = _Worker()
        with self.lock:
            self.workers.add(worker)
        return worker

    def drop(self, worker: _Worker) -> None:
        with self.lock:
            self.workers.discard(worker)
        worker.close()

    def close(self) -> None:
        self.closed = True
        with self.lock:
            workers, self.workers = self.workers, set()
        for worker in workers:
            worker.close()


_pool = _Pool()


def _after_fork() -> None:
    """Give a forked child a pool of its own; the parent's processes stay the parent's."""
    global _pool
    for worker in _pool.workers:
        for pipe in (worker.process.stdin, worker.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    os.close(pipe.fileno())
        worker.process.returncode = 0  # not this process's child: never wait for it, never kill it
    _pool = _Pool()


os.register_at_fork(after_in_child=_after_fork)


def shutdown() -> None:
    """End all workers; the next comparison that needs one starts anew."""
    global _pool
    old, _pool = _pool, _Pool()
    old.close()


def _at_exit() -> None:
    _pool.close()


atexit.register(_at_exit)


def ask(a: str, b: str, limit_s: float = LIMIT_S) -> tuple[bool | None, str]:
    """Return a symbolic verdict on two formulas and who gave it.

    The caller has made sure that both are formulas and hold nothing that could run. Raises `WorkerFailed` with the
    reason when there is no verdict in ``limit_s`` seconds; the process is then killed and replaced.
    """
    return _pool.ask(a, b, limit_s)
