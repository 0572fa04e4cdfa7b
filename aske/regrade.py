"""A finished benchmark under another cross-check, and all its labels once more from its records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aske.errors import AskeError
from aske.game import Seat
from aske.labels import Grade, Label, Truncated
from aske.play import ask, derive
from aske.pool import SamplerOf, Samplers, seat_sampling
from aske.prompts import AskePack
from aske.records import SessionRecord, replay
from aske.run import SESSIONS, Run, Watch, chunked, read_config, refuse_failed_wave
from aske.settings import Bench, Entry, differences, load_entry, parse_entry
from aske.store import REMEDY, Lock, Row, placed_rows, read_json, read_rows, rows_at, write_json
from selfevolve.sampling import Reply

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find_entry(bench: Bench, text: str) -> Entry:
    """Return the solver or asker of that name, or the entry in a YAML file.

    Raises:
        AskeError: neither.
    """
    known = {a.name: a for a in bench.askers} | bench.solvers
    if text in known:
        return known[text]
    if Path(text).is_file():
        return load_entry(Path(text))
    raise AskeError(f"cross-check is {text!r}: no such file, and it is none of {', '.join(known)}")


def regrade(
    folder: Path, cross_check: str, name: str, sampler_of: SamplerOf | None = None, watch: Watch | None = None
) -> Counter[tuple[str, str]]:
    """Ask another cross-check about every final question and write ``regrade-NAME.jsonl``.

    The boundary solvers' replies are those that were recorded. Sessions without a final question keep their label.

    Args:
        folder: a benchmark's folder, complete or under way.
        cross_check: a name in the pool or of an asker, or a YAML file of an entry.
        name: of the file.
        sampler_of: who answers for an entry; None: the models themselves.
        watch: told what happens.

    Returns:
        How often each (label as played, label now) came.

    Raises:
        AskeError: the name is in use for another cross-check.
    """
    if not _NAME.fullmatch(name):
        raise AskeError(f"--name is {name!r}; letters, digits, '.', '_' and '-' are allowed")
    bench, pack = read_config(folder)
    entry = find_entry(bench, cross_check)
    meta, path = {"cross_check": entry.model_dump(mode="json")}, folder / f"regrade-{name}.json"
    with Lock(folder):
        if path.is_file() and (changed := differences(_made(path), meta)):
            raise AskeError(f"regrade {name} was made with another cross-check: {changed[0]}", "Choose another --name.")
        write_json(path, meta)
        run = Run(bench, folder, pack, sampler_of or Samplers(bench.cache), watch or Watch())
        table = run.table(f"regrade-{name}.jsonl", lambda row: row["session"])
        places = [_Place(row["id"], row["label"], at) for row, at in placed_rows(folder / SESSIONS)]
        run.fill(
            table,
            chunked(places, bench.wave),
            lambda place: place.session,
            lambda wave: _regraded(run, entry, name, wave),
            name=f"regrade {name}",
        )
        played = {place.session: place.label for place in places}
        return Counter((played[row["session"]], row["label"]) for row in table.rows() if row["session"] in played)


def _made(path: Path) -> dict[str, Any]:
    """Return the settings that a regrade was made with; a key that is newer than the file has its default."""
    data = read_json(path)
    return {"cross_check": parse_entry(data.get("cross_check", {}), str(path)).model_dump(mode="json")}


@dataclass(frozen=True)
class _Place:
    """Where a session stands in its file."""

    session: str
    label: str
    at: int  # byte at which its line begins


def _regraded(run: Run, entry: Entry, name: str, places: Sequence[_Place]) -> Iterator[Row]:
    records = [SessionRecord.from_json(row) for row in rows_at(run.folder / SESSIONS, [p.at for p in places])]
    reached = [r for r in records if any(call.seat is Seat.CROSS_CHECK for call in r.calls)]
    checks = run.bench.rules.checks
    sampling = replace(
        seat_sampling(run.bench, "cross_check", entry), n=checks, seed=derive(run.bench.seed, "regrade", name)
    )
    run.watch.doing(f"asking {entry.name}", 0, len(reached))
    calls = ask(
        Seat.CROSS_CHECK,
        1,
        run.sampler_of(entry),
        [r.id for r in reached],
        [run.pack.solver(r.question or "") for r in reached],
        sampling,
    )
    refuse_failed_wave(run, (reply for call in calls for reply in call.replies), f"regrade {name}")
    given: dict[str, tuple[Reply, ...]] = {r.id: call.replies for r, call in zip(reached, calls, strict=True)}
    for record in records:
        replies = given.get(record.id)
        now = record if replies is None else replay(record, run.pack, cross_checks=replies)
        tokens = sum(reply.completion_tokens for reply in replies or ())
        yield {"session": record.id, **_graded(now.grade), "tokens": tokens}


def _graded(grade: Grade) -> Row:
    return {
        "label": str(grade.label),
        "reason": str(grade.reason) if grade.reason else None,
        "answer": grade.answer,
        "marks": [str(mark) for mark in grade.marks],
    }


# ------------------------------------------------------------ offline


@dataclass(frozen=True)
class Rescored:
    """All sessions of a folder, scored again from their records."""

    labels: Counter[tuple[Label, Label]]  # (as recorded, now)
    differing: tuple[str, ...]  # sessions whose grade, transcript or turns are not as recorded

    @property
    def total(self) -> int:
        """Sessions."""
        return sum(self.labels.values())

    @property
    def moved(self) -> int:
        """Sessions with another label."""
        return sum(count for (before, now), count in self.labels.items() if before is not now)


def rescore(folder: Path, truncated: Truncated = "excluded", checks: int | None = None) -> Rescored:
    """Play all sessions of a folder again from their records, without a call.

    Args:
        folder: a benchmark's folder.
        truncated: how a cut-off boundary reply counts.
        checks: use only so many of the cross-checks; None: all.

    Raises:
        AskeError: a record does not fit the game.
    """
    _, pack = read_config(folder)
    labels: Counter[tuple[Label, Label]] = Counter()
    differing = []
    for record in all_sessions(folder):
        now = _replayed(record, pack, truncated, checks)
        labels[record.label, now.label] += 1
        if (now.grade, now.transcript, now.turns) != (record.grade, record.transcript, record.turns):
            differing.append(record.id)
    return Rescored(labels, tuple(differing))


def all_sessions(folder: Path) -> Iterator[SessionRecord]:
    """Yield the sessions of a folder, those of same-model pairs and without probes included."""
    for file in (SESSIONS, "same_model.jsonl", "no_probing.jsonl"):
        for number, row in enumerate(read_rows(folder / file), start=1):
            try:
                yield SessionRecord.from_json(row["session"] if file == "no_probing.jsonl" else row)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise AskeError(f"{folder / file}: row {number} is not whole: {error!r}", REMEDY) from None


def _replayed(record: SessionRecord, pack: AskePack, truncated: Truncated, checks: int | None) -> SessionRecord:
    try:
        return replay(record, pack, truncated=truncated, checks=checks)
    except ValueError as error:
        raise AskeError(f"a record is not whole: {error}", "The line was changed by hand; restore it.") from None
