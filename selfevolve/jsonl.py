"""Files that are written whole or not at all, and JSON Lines that survive a kill.

A kill can leave a torn last line; `read_jsonl` removes it and says so. A torn line in the middle is refused.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from selfevolve.errors import DamagedFileError, DiskFullError

Row = dict[str, Any]

log = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException) -> bool:
    """Return True when ``error`` says that no space is left, also in the words of libraries that write weights."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return "No space left on device" in str(error)


@contextmanager
def disk_full_is_clear(path: Path) -> Iterator[None]:
    """Turn "no space left" within the block into a `DiskFullError` that names ``path``."""
    try:
        yield
    except Exception as error:
        if isinstance(error, DiskFullError) or not is_disk_full(error):
            raise
        raise DiskFullError(
            f"the disk is full: {path} could not be written",
            "free some space, then resume the run; every stage that was completed before is intact",
        ) from error


def sync_folder(folder: Path) -> None:
    """Make renames and new files in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Bring every file and folder below ``folder`` to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(parent))


class JsonlWriter:
    """Writes rows to a temporary file and renames it at the end: after an error or a kill the file is not there.

    Raises:
        DiskFullError: the disk is full; a file that stood under the name before is untouched.
        ValueError: a row holds NaN or infinity, which JSON does not know.
    """

    def __init__(self, path: Path) -> None:
        """Open a temporary file beside ``path``."""
        self.path = path
        self.rows = 0  # rows written so far
        self._temporary = path.with_name(path.name + ".tmp")
        with disk_full_is_clear(path):
            self._file = self._temporary.open("w", encoding="utf-8", newline="\n")

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        with disk_full_is_clear(self.path):
            self._file.write(_line(row))
        self.rows += 1

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Rename the file into place, or remove it if the block failed."""
        try:
            if kind is None:
                with disk_full_is_clear(self.path):
                    self._file.flush()
                    os.fsync(self._file.fileno())
                    self._temporary.replace(self.path)
        finally:
            with suppress(OSError):  # what is still in the buffer of a failed file is not wanted
                self._file.close()
            self._temporary.unlink(missing_ok=True)


def _line(row: Mapping[str, Any]) -> str:
    """Return one line; lone surrogates, which UTF-8 cannot hold, stay escaped."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(row, allow_nan=False)
    return text + "\n"


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write ``rows`` to ``path``, whole or not at all; return how many."""
    with JsonlWriter(path) as writer:
        for row in rows:
            writer.write(row)
    return writer.rows


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with disk_full_is_clear(path):
            with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON to ``path``, whole or not at all; NaN and infinity are a ValueError."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_jsonl(path: Path) -> list[Row]:
    """Read the rows of ``path``; a torn last line is removed from the file, with a warning.

    A line is torn when it does not end in a line feed and is not a whole object. A whole last object without a line
    feed gets one, so that a later append starts on a line of its own.

    Raises:
        DamagedFileError: the file is missing, or a line other than a torn last one is no JSON object (``FILE:LINE``).
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        remedy = "delete its stage folder and resume: the stage is made anew"
        raise DamagedFileError(f"{path} is missing", remedy) from None
    rows: list[Row] = []
    start = 0
    for number, line in enumerate(content.split(b"\n"), start=1):
        last = start + len(line) == len(content)
        if line.strip():
            row = _parsed(line)
            if row is not None:
                rows.append(row)
                if last:
                    _rewrite(path, content + b"\n")
            elif last:
                log.warning("%s:%d: torn last line (%d bytes) removed; %d stand", path, number, len(line), len(rows))
                _rewrite(path, content[:start])
            else:
                raise DamagedFileError(
                    f"{path}:{number}: not a whole JSON object: {line[:60]!r}",
                    "mend or remove the line by hand, or delete the stage folder and resume: the stage is made anew",
                )
        start += len(line) + 1
    return rows


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _rewrite(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        with disk_full_is_clear(path):
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def last_rows(rows: Iterable[Row], key: str) -> list[Row]:
    """Return one row a value of ``key``, the last one written, in the order in which the values first came."""
    found: dict[Any, Row] = {}
    for row in rows:
        found[row[key]] = row
    return list(found.values())
