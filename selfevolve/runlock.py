"""One live process a run folder, by a lock that the system drops when its holder dies.

The lock belongs to a process and is not inherited by its children, so workers that outlive a killed run do not hold it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from selfevolve.errors import RunBusyError

# The system's lock does not tell two holders within one process apart.
_held: set[Path] = set()
_guard = threading.Lock()


class RunLock:
    """Holds ``run.lock`` from its making until `release`, or the end of a ``with`` block, or the process's death."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            RunBusyError: a live process holds it; the message gives its number.
        """
        self.path = path.resolve()
        with _guard:
            if self.path in _held:
                raise _busy(self.path, os.getpid())
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(descriptor, 32).decode(errors="replace").strip()
                os.close(descriptor)
                raise _busy(self.path, holder or "unknown") from None
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            self._descriptor: int | None = descriptor
            _held.add(self.path)

    def release(self) -> None:
        """Let go of the lock; a second call does nothing."""
        with _guard:
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, 0)
                os.close(self._descriptor)
                self._descriptor = None
                _held.discard(self.path)

    def __enter__(self) -> Self:
        """Return the lock, already held."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the lock."""
        self.release()


def holds_lock(path: Path) -> bool:
    """Return True when this process holds the lock at ``path``."""
    return path.resolve() in _held


def _busy(path: Path, holder: int | str) -> RunBusyError:
    return RunBusyError(
        f"the run folder {path.parent} is in use by process {holder}",
        "wait until it ends, or stop that process, then resume; a dead process's lock is taken over by itself",
    )
