"""A benchmark at work: its folder, its samplers, and how a part of it is filled so that a kill loses one wave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aske.errors import AskeError
from aske.game import Rules
from aske.labels import Label, Reason
from aske.play import Samplings, Slot, derive, play
from aske.pool import SamplerOf, seat_sampling, seats
from aske.prompts import AskePack, load_pack
from aske.records import SessionRecord
from aske.settings import Bench, Entry, differences, parse_bench
from aske.store import Row, Table, environment, read_json, write_json
from selfevolve.sampling import FinishReason, Reply

T = TypeVar("T")
CONFIG = "config.json"
SESSIONS = "sessions.jsonl"


class Watch:
    """Told what happens; this one keeps silent, the command's draws bars."""

    def part(self, name: str, done: int, total: int, labels: Counter[str]) -> None:
        """A part begins, or goes on: rows that are there, rows that will be."""

    def wave(self, done: int, labels: Counter[str], tokens: int) -> None:
        """Rows were written: how many are there now, what the new ones are labelled, their new tokens."""

    def doing(self, what: str, over: int, of: int) -> None:
        """Within a wave: what is asked, how many of its sessions are over."""


@dataclass(frozen=True)
class Run:
    """One start of a benchmark."""

    bench: Bench
    folder: Path
    pack: AskePack
    sampler_of: SamplerOf
    watch: Watch = field(default_factory=Watch)
    written: Counter[str] = field(default_factory=Counter)  # rows that this start wrote, by file
    sampled: Counter[str] = field(default_factory=Counter)  # new tokens that this start sampled, by file

    def table(self, file: str, key: Callable[[Row], Hashable]) -> Table:
        """Open a file of the folder."""
        return Table(self.folder / file, key)

    def sessions(self) -> Table:
        """Open the sessions."""
        return self.table(SESSIONS, lambda row: row["id"])

    def fill(
        self,
        table: Table,
        chunks: Sequence[Sequence[T]],
        key: Callable[[T], Hashable],
        make: Callable[[Sequence[T]], Iterable[Row]],
        labels: Counter[str] | None = None,
        name: str | None = None,
    ) -> None:
        """Make the rows that are missing, chunk by chunk; a chunk that is not whole is made again whole.

        Args:
            table: where the rows go.
            chunks: what rows are made from.
            key: the row's key of an item.
            make: makes a chunk's rows.
            labels: of the rows that are there.
            name: shown while it runs; None: the file's.
        """
        total = sum(map(len, chunks))
        done = sum(key(item) in table for chunk in chunks for item in chunk)
        self.watch.part(name or table.path.stem.replace("_", " "), done, total, labels or Counter())
        for chunk in chunks:
            missing = {key(item) for item in chunk if key(item) not in table}
            if not missing:
                continue
            rows = [row for row in make(chunk) if table.key(row) in missing]
            done += table.append(rows)
            tokens = sum(map(row_tokens, rows))
            self.written[table.path.name] += len(rows)
            self.sampled[table.path.name] += tokens
            self.watch.wave(done, Counter(str(row["label"]) for row in rows if row.get("label")), tokens)


def row_tokens(row: Row) -> int:
    """Return the new tokens that a row of any file tells of."""
    calls = [*row.get("calls", ()), *row.get("others", ())]
    inner = row_tokens(row["session"]) if isinstance(row.get("session"), dict) else 0
    called: int = sum(r["completion_tokens"] for c in calls for r in c["replies"])
    return int(row.get("tokens", 0)) + inner + called


def chunked(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return consecutive parts of at most `size` items."""
    return [items[at : at + size] for at in range(0, len(items), size)]


# ------------------------------------------------------------ the folder's settings


def open_folder(bench: Bench, folder: Path) -> AskePack:
    """Write the resolved settings, or check them against those that are there; return the prompts.

    Raises:
        AskeError: the folder holds another benchmark; every difference is shown.
    """
    if folder.exists() and not folder.is_dir():
        raise AskeError(f"{folder} is a file; a benchmark needs a folder", "Choose another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    pack = load_pack(bench.prompts)
    config = {**bench.model_dump(mode="json"), "pack": asdict(pack)}
    path = folder / CONFIG
    if path.is_file():
        made, made_pack = read_config(folder)  # through the schema: a key that is newer than the folder has its default
        if changed := differences({**made.model_dump(mode="json"), "pack": asdict(made_pack)}, config):
            table = "".join(f"\n  {line}" for line in changed)
            raise AskeError(
                f"{folder} was made with other settings (as made -> as asked):{table}",
                "Put the values back to go on, or start anew with another --out.",
            )
        return pack
    strange = [p.name for p in folder.iterdir() if p.name not in ("bench.lock", "environment.json", f"{CONFIG}.tmp")]
    if strange:
        raise AskeError(f"{folder} is not empty ({strange[0]}) and holds no benchmark", "Choose another --out.")
    write_json(folder / "environment.json", environment())
    write_json(path, config)  # last: a folder with this file is a benchmark
    return pack


def read_config(folder: Path) -> tuple[Bench, AskePack]:
    """Return the settings and prompts that a folder was made with.

    Raises:
        AskeError: it is no benchmark's folder.
    """
    if not (folder / CONFIG).is_file():
        what = f"holds no {CONFIG}" if folder.is_dir() else "does not exist"
        raise AskeError(f"{folder} is no benchmark: it {what}", "Start one with `aske bench CONFIG --out DIR`.")
    data = read_json(folder / CONFIG)
    pack = data.pop("pack", None)
    bench = parse_bench(data, str(folder / CONFIG))
    return bench, AskePack(**pack) if isinstance(pack, dict) else load_pack(bench.prompts)


# ------------------------------------------------------------ what was played


@dataclass(frozen=True)
class Final:
    """A final question that was graded: it has a label and the cross-check's answer."""

    session: str
    asker: str
    pair: tuple[str, str]
    slot: int
    question: str
    answer: str  # the cross-check's

    @property
    def about(self) -> Row:
        """What every row on it begins with."""
        return {"session": self.session, "asker": self.asker, "pair": list(self.pair), "slot": self.slot}


def finals(table: Table) -> list[Final]:
    """Return the final questions of sessions that ended calibrated, too easy or too hard, in order of the file."""
    return [
        Final(row["id"], row["asker"], (row["pair"][0], row["pair"][1]), row["slot"], row["question"], row["answer"])
        for row in table.rows()
        if Label(row["label"]).counted and row["answer"] is not None and row["question"] is not None
    ]


def make_slots(run: Run, asker: str, pairs: Sequence[tuple[str, str]], sessions: int) -> list[Slot]:
    """Return the sessions of some pairs, slot by slot, so that each wave covers the pairs evenly."""
    return [
        Slot(f"{asker}/{a}+{b}/{slot}", (a, b), slot, derive(run.bench.seed, "flip", a, b, slot) % 2 == 1)
        for slot in range(sessions)
        for a, b in pairs
    ]


def play_wave(run: Run, asker: Entry, slots: Sequence[Slot], rules: Rules) -> list[SessionRecord]:
    """Play some sessions of an asker side by side."""
    bench = run.bench
    samplings = Samplings(
        seat_sampling(bench, "asker", asker),
        bench.samplings.boundary.sampling(),
        seat_sampling(bench, "cross_check", bench.cross_checker()),
    )
    who = seats(bench, asker, run.sampler_of)
    records = play(slots, asker.name, who, run.pack, rules, samplings, seed=bench.seed, progress=run.watch.doing)
    what = f"a wave of {asker.name}"
    refuse_failed_wave(run, replies_of(records), what)
    _refuse_lost_sessions(run, records, what)
    return records


# ------------------------------------------------------------ failures


def refuse_failed_wave(run: Run, replies: Iterable[Reply], what: str) -> None:
    """Stop before anything is written where a budget is spent, or too many calls of a wave failed.

    Raises:
        AskeError: with the most frequent failure.
    """
    total, failed = 0, []
    for reply in replies:
        total += 1
        if reply.finish_reason in (FinishReason.ERROR, FinishReason.TIMEOUT):
            failed.append(reply.error or reply.finish_reason.value)
    spent = next((text for text in failed if text.startswith("budget:")), None)
    if spent is not None:
        raise AskeError(f"{what}: {spent}", "The wave is not written. Raise limits.budget to go on.")
    if total and len(failed) / total >= run.bench.stop_at_failures:
        text, count = Counter(failed).most_common(1)[0]
        raise AskeError(
            f"{what}: {len(failed)} of {total} calls failed (stop_at_failures is {run.bench.stop_at_failures}); "
            f"{count} times: {text}",
            "The wave is not written. Mend the endpoint, then start again: what was written stands.",
        )


def _refuse_lost_sessions(run: Run, records: Sequence[SessionRecord], what: str) -> None:
    """Stop where failed calls ended all sessions: a server that dies midway fails few calls, the last of each.

    Raises:
        AskeError: with the most frequent failure.
    """
    lost = [r.grade.detail for r in records if r.grade.reason in (Reason.HTTP, Reason.TIMEOUT)]
    if len(lost) == len(records) > 1:
        text, count = Counter(lost).most_common(1)[0]
        raise AskeError(
            f"{what}: failed calls ended all {len(records)} sessions; {count} times: {text}",
            "The wave is not written. Mend the endpoint, then start again: what was written stands.",
        )


def replies_of(records: Iterable[SessionRecord]) -> Iterator[Reply]:
    """Yield every reply of some sessions."""
    for record in records:
        for call in record.calls:
            yield from call.replies


def to_row(record: SessionRecord, **more: Any) -> Row:
    """Return a session's line, with further keys."""
    return {**record.to_json(), **more}
