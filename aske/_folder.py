"""Read a bench folder: the sessions and whatever controls lie beside them.

A file that is missing is a control that was not run; a line that cannot be read is left out and told in `Bench.notes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aske.errors import AskeError
from aske.labels import Label
from aske.records import SessionRecord
from aske.statistics import Outcome, Resample

T = TypeVar("T")

SESSIONS = "sessions.jsonl"
_MARKS: dict[str, Outcome] = {"right": True, "wrong": False, "undecided": None}


@dataclass(frozen=True)
class Draws:
    """Fresh solutions of one final question by one solver."""

    solver: str
    right: int  # agree with the cross-check's answer
    wrong: int
    undecided: int  # cut off, failed or not comparable: in no share
    answers: tuple[str | None, ...] = ()  # [sample] final answers


@dataclass(frozen=True)
class Unprobed:
    """A question that the asker wrote without probing, and how every solver of the pool did on it."""

    asker: str
    index: int
    question: str | None  # None: the turn held no question
    answer: str | None  # the cross-check's answer; None where there is none
    marks: Mapping[str, Outcome]  # by solver
    counted: bool  # False: ungradable, so it is in no denominator


@dataclass(frozen=True)
class Truth:
    """What the oracle says of a final question."""

    valid: bool | None  # the question has one answer; None: not known
    answer: str | None
    cross_check_true: bool | None  # the cross-check gave that answer; None: not known


@dataclass(frozen=True)
class Regraded:
    """A session's label under another cross-check."""

    label: str
    reason: str | None
    answer: str | None


@dataclass(frozen=True)
class Bench:
    """Everything that lies in a bench folder; None stands for a file that is not there."""

    path: Path
    config: Mapping[str, Any]
    sessions: tuple[SessionRecord, ...]
    resamples: Mapping[str, tuple[Draws, ...]] | None  # by session id
    shuffled: Mapping[str, tuple[Draws, ...]] | None  # by session id: the question on another pair's solvers
    same_model: tuple[SessionRecord, ...] | None  # sessions of pairs (x, x)
    no_probing: tuple[Unprobed, ...] | None
    difficulty: Mapping[str, tuple[Draws, ...]] | None  # by session id: the question on the whole pool
    truths: Mapping[str, Truth] | None  # by session id
    regrades: Mapping[str, Mapping[str, Regraded]]  # by name, by session id
    notes: tuple[str, ...] = field(default=())  # what could not be read


def resample_of(draws: tuple[Draws, ...] | None, pair: tuple[str, str] | None = None) -> Resample | None:
    """Return both solvers' draws as one `Resample`, in the order of `pair`; None where a solver is missing."""
    found = list(draws or ())
    if pair is not None:
        named = {d.solver: d for d in found}
        found = [named[name] for name in pair if name in named]
    if len(found) != 2:
        return None
    a, b = found
    return Resample(a.right, a.right + a.wrong, b.right, b.right + b.wrong)


def read_bench(folder: str | Path) -> Bench:
    """Read a bench folder.

    Raises:
        AskeError: it is no folder, or holds neither a config nor sessions.
    """
    path = Path(folder)
    if not (path / "config.json").is_file() and not (path / SESSIONS).is_file():
        raise AskeError(
            f"{path} is no bench folder: it holds neither config.json nor {SESSIONS}",
            "Give the folder that `aske bench` wrote.",
        )
    notes: list[str] = []
    sessions = _sessions(path / SESSIONS, notes) or ()
    regrades = {
        file.stem.removeprefix("regrade-"): _by_session(file, _regraded, notes) or {}
        for file in sorted(path.glob("regrade-*.jsonl"))
    }
    return Bench(
        path=path,
        config=_config(path / "config.json", notes),
        sessions=sessions,
        resamples=_draws(path / "resamples.jsonl", notes),
        shuffled=_draws(path / "shuffled.jsonl", notes),
        same_model=_sessions(path / "same_model.jsonl", notes),
        no_probing=_list(path / "no_probing.jsonl", _unprobed, notes),
        difficulty=_draws(path / "difficulty.jsonl", notes),
        truths=_by_session(path / "truths.jsonl", _truth, notes),
        regrades=regrades,
        notes=tuple(notes),
    )


def _config(path: Path, notes: list[str]) -> Mapping[str, Any]:
    if not path.is_file():
        notes.append("config.json is missing")
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        notes.append(f"config.json cannot be read: {error}")
        return {}
    if not isinstance(found, dict):
        notes.append("config.json holds no settings")
        return {}
    return found


def _rows(path: Path, read: Callable[[dict[str, Any]], T], notes: list[str]) -> Iterator[T]:
    """Yield what `read` makes of each line; lines that it refuses are counted in one note."""
    refused: list[str] = []
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield read(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                refused.append(f"line {number} ({type(error).__name__}: {error})")
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        notes.append(f"{path.name}: left out {refused[0]}{more}")


def _list(path: Path, read: Callable[[dict[str, Any]], T], notes: list[str]) -> tuple[T, ...] | None:
    return tuple(_rows(path, read, notes)) if path.is_file() else None


def _by_session(path: Path, read: Callable[[dict[str, Any]], T], notes: list[str]) -> dict[str, T] | None:
    found = _list(path, lambda row: (str(row["session"]), read(row)), notes)
    return None if found is None else dict(found)


def _sessions(path: Path, notes: list[str]) -> tuple[SessionRecord, ...] | None:
    found = _list(path, SessionRecord.from_json, notes)
    if found is None:
        return None
    by_id = {row.id: row for row in found}
    if len(by_id) < len(found):
        notes.append(f"{path.name}: {len(found) - len(by_id)} sessions stand twice; the later line counts")
    return tuple(by_id.values())


def _draws(path: Path, notes: list[str]) -> dict[str, tuple[Draws, ...]] | None:
    found = _list(path, lambda row: (str(row["session"]), _draw(row)), notes)
    if found is None:
        return None
    by_session: dict[str, dict[str, Draws]] = {}
    for session, draws in found:
        by_session.setdefault(session, {})[draws.solver] = draws
    return {session: tuple(draws.values()) for session, draws in by_session.items()}


def _draw(row: dict[str, Any]) -> Draws:
    right = int(row["right"])
    undecided = int(row.get("undecided", 0))
    wrong = int(row["wrong"]) if "wrong" in row else int(row["m"]) - right - undecided
    if min(right, wrong, undecided) < 0:
        raise ValueError(f"{right} right, {wrong} wrong, {undecided} undecided; none can be below 0")
    return Draws(str(row["solver"]), right, wrong, undecided, tuple(row.get("answers") or ()))


def _unprobed(row: dict[str, Any]) -> Unprobed:
    marks = {str(name): _MARKS[mark] for name, mark in (row.get("marks") or {}).items()}
    counted = row.get("label_without_pair") != Label.UNGRADABLE
    return Unprobed(str(row["asker"]), int(row["index"]), row["question"], row["answer"], marks, counted)


def _truth(row: dict[str, Any]) -> Truth:
    return Truth(row.get("valid"), row.get("answer"), row.get("cross_check_true"))


def _regraded(row: dict[str, Any]) -> Regraded:
    return Regraded(str(row["label"]), row.get("reason"), row.get("answer"))
