"""What is measured beside the sessions, so that a calibrated rate can be read: each control fills one file.

All of it hangs on the sessions' final questions and the cross-check's answers to them; none of it changes a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from aske.game import Seat
from aske.labels import Mark, failure
from aske.labels import mark as mark_of
from aske.play import Slot, ask, derive
from aske.pool import seat_sampling
from aske.records import Call, SessionRecord
from aske.run import Final, Run, chunked, finals, make_slots, play_wave, refuse_failed_wave, to_row
from aske.settings import Entry
from aske.store import Row
from selfevolve.answers import compare, extract
from selfevolve.sampling import Reply

RESAMPLES, SHUFFLED, DIFFICULTY = "resamples.jsonl", "shuffled.jsonl", "difficulty.jsonl"
SAME_MODEL, NO_PROBING = "same_model.jsonl", "no_probing.jsonl"


@dataclass(frozen=True)
class Job:
    """A final question that is put to a solver of the pool."""

    final: Final
    solver: str
    shown_pair: tuple[str, str] | None = None  # the other pair whose solver this is

    @property
    def key(self) -> tuple[str, str]:
        """The row's key."""
        return self.final.session, self.solver


def row_key(row: Row) -> tuple[str, str]:
    """Return the key of a row on a session and a solver."""
    return row["session"], row["solver"]


# ------------------------------------------------------------ m replies to each final question


def resamples(run: Run) -> int:
    """Draw m further replies of both boundary solvers to each final question; return how many rows there are."""
    m = run.bench.controls.resamples
    if not m:
        return 0
    jobs = [[Job(final, solver) for solver in final.pair] for final in finals(run.sessions())]
    return _fill(run, RESAMPLES, jobs, m)


def shuffled(run: Run) -> int:
    """Draw m replies of the solvers of another pair to each final question; return how many rows there are.

    A pair that did not answer the probes tells what the question alone does. Within a slot every pair's question goes
    to another pair, each to one, by a seeded cycle through all pairs; a pool of two solvers has no other pair.
    """
    m = run.bench.controls.resamples
    if not m or not run.bench.controls.shuffled or len(run.bench.pairs) < 2:
        return 0
    other = [cycle(run.bench.pairs, derive(run.bench.seed, "shuffled", s)) for s in range(run.bench.sessions)]
    jobs = []
    for final in finals(run.sessions()):
        pair = other[final.slot][final.pair]
        jobs.append([Job(final, solver, pair) for solver in pair])
    return _fill(run, SHUFFLED, jobs, m)


def difficulty(run: Run) -> int:
    """Tell how every solver of the pool does on each final question; return how many rows there are.

    Solvers that the two controls above have asked are not asked again: their counts are taken over.
    """
    if not run.bench.controls.difficulty:
        return 0
    known = {}
    for file in (SHUFFLED, RESAMPLES):  # resamples go before, where a solver stands in both
        known.update({row_key(row): row for row in run.table(file, row_key).rows()})
    jobs = [[Job(final, solver) for solver in run.bench.solvers] for final in finals(run.sessions())]
    return _fill(run, DIFFICULTY, jobs, run.bench.controls.difficulty, known)


def cycle(pairs: Sequence[tuple[str, str]], seed: int) -> dict[tuple[str, str], tuple[str, str]]:
    """Return another pair for each, by one random cycle through all (Sattolo's algorithm): none keeps its own."""
    order = list(pairs)
    rng = Random(seed)
    for i in range(len(order) - 1, 0, -1):
        j = rng.randrange(i)
        order[i], order[j] = order[j], order[i]
    return dict(zip(pairs, order, strict=True))


def _fill(run: Run, file: str, jobs: list[list[Job]], m: int, known: dict[tuple[str, str], Row] | None = None) -> int:
    table = run.table(file, row_key)
    chunks = [[job for group in part for job in group] for part in chunked(jobs, run.bench.wave)]
    run.fill(table, chunks, lambda job: job.key, lambda chunk: _rows(run, file, chunk, m, known or {}))
    return len(table)


def _rows(run: Run, file: str, jobs: Sequence[Job], m: int, known: dict[tuple[str, str], Row]) -> Iterator[Row]:
    """Yield one row a job, in order; jobs whose counts are known are not asked."""
    open_jobs = [job for job in jobs if job.key not in known]
    calls = put(run, file, [(job.solver, job.final.session, job.final.question) for job in open_jobs], m)
    for job in jobs:
        row = {**job.final.about, "solver": job.solver}
        if job.shown_pair is not None:
            row["shown_pair"] = list(job.shown_pair)
        if job.key in known:
            old = known[job.key]
            yield {**row, **{k: old[k] for k in ("right", "wrong", "undecided", "m")}, "taken_over": True}
            continue
        replies = calls[job.solver, job.final.session].replies
        marks = [mark(job.final.answer, reply) for reply in replies]
        yield {
            **row,
            "question": job.final.question,
            "answer": job.final.answer,
            "right": marks.count(Mark.RIGHT),
            "wrong": marks.count(Mark.WRONG),
            "undecided": marks.count(Mark.UNDECIDED),
            "m": len(marks),
            "answers": [None if failure(r) else extract(r.text, r.finish_reason) for r in replies],
            "marks": [str(one) for one in marks],
            "tokens": sum(reply.completion_tokens for reply in replies),
        }


def put(run: Run, what: str, questions: Sequence[tuple[str, str, str]], m: int) -> dict[tuple[str, str], Call]:
    """Put questions to solvers, each solver's in one batch; return the calls by (solver, id).

    Args:
        run: the benchmark.
        what: keeps the draws apart from those of other parts.
        questions: (solver, id of the question, question).
        m: replies to each.
    """
    calls: dict[tuple[str, str], Call] = {}
    wanted: dict[str, list[tuple[str, str]]] = {}
    for solver, name, question in questions:
        wanted.setdefault(solver, []).append((name, question))
    for done, (solver, asked) in enumerate(wanted.items()):
        run.watch.doing(f"asking {solver}", done, len(wanted))
        entry = run.bench.solvers[solver]
        sampling = replace(seat_sampling(run.bench, "boundary", entry), n=m, seed=derive(run.bench.seed, what, solver))
        ids = [name for name, _ in asked]
        prompts = [run.pack.solver(question) for _, question in asked]
        made = ask(Seat.BOUNDARY_A, 1, run.sampler_of(entry), ids, prompts, sampling)
        calls.update({(solver, name): call for name, call in zip(ids, made, strict=True)})
    refuse_failed_wave(run, (r for call in calls.values() for r in call.replies), what)
    return calls


def mark(answer: str, reply: Reply) -> Mark:
    """Return how a boundary solver's reply stands against the cross-check's answer, as in a session."""
    return mark_of(answer, reply, extract(reply.text, reply.finish_reason), compare, "excluded")[0]


# ------------------------------------------------------------ sessions of another kind


def same_model(run: Run) -> int:
    """Play sessions with two copies of each solver as the pair; return how many there are.

    Two copies differ by nothing but luck, so their calibrated rate is what chance alone gives this asker.
    """
    number = run.bench.controls.same_model
    if not number:
        return 0
    table = run.table(SAME_MODEL, lambda row: row["id"])
    pairs = [(name, name) for name in run.bench.solvers]
    for asker in run.bench.askers:

        def make(wave: Sequence[Slot], asker: Entry = asker) -> Iterator[Row]:
            records = play_wave(run, asker, wave, run.bench.rules.rules())
            return (to_row(record, control="same_model") for record in records)

        slots = make_slots(run, asker.name, pairs, number)
        name = f"same-model pairs of {asker.name}"
        run.fill(table, chunked(slots, run.bench.wave), lambda slot: slot.id, make, name=name)
    return len(table)


def no_probing(run: Run) -> int:
    """Let each asker write questions without a probe, and put each to the whole pool; return how many there are.

    A question's session is played with one pair, which changes from question to question; then the other solvers answer
    it too, once each. So a question has one mark a solver, from which the label of every pair follows.
    """
    number = run.bench.controls.no_probing
    if not number:
        return 0
    rules = replace(run.bench.rules.rules(), probes=0)
    table = run.table(NO_PROBING, lambda row: (row["asker"], row["index"]))
    pairs = run.bench.pairs
    for asker in run.bench.askers:
        slots = [Slot(f"{asker.name}/no-probing/{i}", pairs[i % len(pairs)], i, False) for i in range(number)]

        def make(wave: Sequence[Slot], asker: Entry = asker) -> Iterable[Row]:
            return _unprobed(run, play_wave(run, asker, wave, rules))

        def key(slot: Slot, asker: Entry = asker) -> tuple[str, int]:
            return asker.name, slot.slot

        run.fill(table, chunked(slots, run.bench.wave), key, make, name=f"questions of {asker.name} without probes")
    return len(table)


def _unprobed(run: Run, records: Sequence[SessionRecord]) -> Iterator[Row]:
    """Yield the row of each question, once the solvers outside its pair have answered it."""
    open_questions = [r for r in records if r.grade.answer is not None and r.question is not None]
    others = [
        (name, r.id, r.question or "") for r in open_questions for name in run.bench.solvers if name not in r.pair
    ]
    calls = put(run, NO_PROBING, others, 1)
    for record in records:
        grade = record.grade
        marks: dict[str, str] = {}
        asked = [calls[name, record.id] for name in run.bench.solvers if (name, record.id) in calls]
        if grade.answer is not None:
            marks = {name: str(one) for name, one in zip(record.pair, grade.marks, strict=True)}
            for name in run.bench.solvers:
                if (name, record.id) in calls:
                    marks[name] = str(mark(grade.answer, calls[name, record.id].replies[0]))
        yield {
            "asker": record.asker,
            "index": record.slot,
            "question": record.question,
            "label_without_pair": None if grade.answer is not None else str(record.label),
            "answer": grade.answer,
            "marks": marks,
            "session": to_row(record),
            "others": [call.to_json() for call in asked],
        }
