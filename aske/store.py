"""The benchmark's folder: append-only JSON Lines that survive a kill, one live process, and what it was made with."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aske.errors import AskeError

Row = dict[str, Any]
DONE = "DONE.json"
REMEDY = "Remove the line by hand; what it held is made again."
PACKAGES = ("selfevolve", "torch", "transformers", "vllm", "httpx", "numpy", "math-verify", "mathruler", "pydantic")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON value, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> Row:
    """Read a JSON object.

    Raises:
        AskeError: it is missing or not whole.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AskeError(f"{path} is missing") from None
    except ValueError as error:
        raise AskeError(f"{path} is no whole JSON: {error}", "Restore the file.") from None
    if not isinstance(value, dict):
        raise AskeError(f"{path} holds {type(value).__name__}; an object is expected", "Restore the file.")
    return value


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSONL file, one at a time; a torn last line is left out, nothing is written.

    Raises:
        AskeError: another line is no JSON object.
    """
    return (row for row, _ in placed_rows(path))


def rows_at(path: Path, places: Iterable[int]) -> Iterator[Row]:
    """Yield the rows that begin at these bytes of the file."""
    with path.open("rb") as file:
        for place in places:
            file.seek(place)
            row: Row = json.loads(file.readline())
            yield row


def placed_rows(path: Path) -> Iterator[tuple[Row, int]]:
    """Yield each row as `read_rows` does, with the byte at which it begins."""
    if not path.is_file():
        return
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            row = _parsed(line)
            if row is not None:
                yield row, place
            elif line.endswith(b"\n"):
                raise AskeError(
                    f"{path}:{number}: not a whole JSON object: {line[:60]!r}",
                    REMEDY,
                )
            place += len(line)


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


class Table:
    """An append-only JSONL file whose rows have a key each; one row a key."""

    def __init__(self, path: Path, key: Callable[[Row], Hashable]) -> None:
        """Read the keys that are there, and mend a torn last line."""
        self.path, self.key = path, key
        self._mend()
        self.keys: set[Hashable] = set()
        for number, row in enumerate(read_rows(path), start=1):
            try:
                self.keys.add(key(row))
            except (KeyError, TypeError) as error:
                raise AskeError(f"{path}: row {number} is not whole: {error!r}", REMEDY) from None

    def __contains__(self, key: Hashable) -> bool:
        """Return True where a row of that key is there."""
        return key in self.keys

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.keys)

    def rows(self) -> Iterator[Row]:
        """Yield the rows, in the order in which they were written."""
        return read_rows(self.path)

    def append(self, rows: Iterable[Row]) -> int:
        """Append the rows whose key is not there yet, bring them to the disk, and return how many they were."""
        lines = []
        for row in rows:
            key = self.key(row)
            if key not in self.keys:
                self.keys.add(key)
                # ASCII: a lone surrogate in a model's reply could not be written otherwise
                lines.append(json.dumps(row, allow_nan=False))
        with self.path.open("ab") as file:
            file.write("".join(line + "\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
        return len(lines)

    def _mend(self) -> None:
        """Cut off a last line that a kill has torn; give a whole one its line feed."""
        if not self.path.is_file() or self.path.stat().st_size == 0:
            return
        with self.path.open("rb+") as file:
            content_end = file.seek(0, os.SEEK_END)
            start = _last_line(file, content_end)
            file.seek(start)
            last = file.read()
            if last.endswith(b"\n"):
                return
            if _parsed(last) is None:
                file.truncate(start)
            else:
                file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())


def _last_line(file: Any, end: int) -> int:
    """Return where the last line begins."""
    block = 1 << 16
    at = end - 1  # a line feed at the very end closes the last line
    while at > 0:
        start = max(0, at - block)
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            return start + int(found) + 1
        at = start
    return 0


class Lock:
    """One live process a folder; the system drops the lock when its holder dies."""

    def __init__(self, folder: Path) -> None:
        """Take the lock.

        Raises:
            AskeError: a live process holds it.
        """
        self._file = (folder / "bench.lock").open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise AskeError(
                f"{folder} is in use by process {holder}", "Wait until it ends, or stop it, then start again."
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def __enter__(self) -> Self:
        """Return the lock, already held."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        """Let go of the lock."""
        self._file.truncate(0)
        self._file.close()


def environment() -> Row:
    """Return versions, machine, and the code's commit with its uncommitted changes (null outside a checkout)."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _git("rev-parse", "HEAD"),
        "code_diff": _git("diff", "HEAD", "--no-color", "--no-ext-diff"),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    folder = Path(__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()


def complete(folder: Path) -> Mapping[str, Any] | None:
    """Return what ``DONE.json`` says (rows a file, seconds a part), or None where the benchmark is not complete."""
    path = folder / DONE
    return read_json(path) if path.is_file() else None
