"""How an asker fares on given pairs: its rates, and the chance line from fresh solutions of its own questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from aske.game import Rules
from aske.labels import Label
from aske.play import Samplings, Seats, Slot, play
from aske.prompts import AskePack
from aske.records import SessionRecord
from aske.statistics import LOST, Rate, Resample, chance_line, rate
from selfevolve.answers import Equivalence, compare, extract
from selfevolve.ask_e import Table
from selfevolve.jsonl import write_jsonl
from selfevolve.sampling import Prompt, Sampler, Sampling, sample_more
from selfevolve.seeds import derive

GRADED = (Label.CALIBRATED, Label.TOO_EASY, Label.TOO_HARD)  # labels of questions with an agreed answer


@dataclass(frozen=True)
class Exam:
    """What is played: the same slots, order and seeds at every evaluation, so that two of them can be paired."""

    table: Table  # all of its pairs are played
    pack: AskePack
    rules: Rules
    asker: Sampling
    cross_check: Sampler  # one that training does not change
    sessions: int  # a pair
    resamples: int  # fresh solutions a solver and question, for the chance line
    seed: int
    context: int | None = None  # positions of the asker's context; None: not checked
    count: Callable[[Prompt], int] | None = None  # tokens of the asker's conversation
    oracle: bool = False  # also say how many questions are valid and how many agreed answers true (testbed)


def evaluate(exam: Exam, asker: Sampler, step: int, folder: Path) -> dict[str, Any]:
    """Play the exam, write its sessions into ``folder``, and return one line of ``evaluation.jsonl``."""
    records = _play(exam, asker)
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / f"step-{step:04d}.jsonl", [r.to_json() for r in records])
    labels = Counter(r.label.value for r in records)
    pairs, slots = [r.pair for r in records], [r.slot for r in records]
    row: dict[str, Any] = {
        "step": step,
        "labels": {label.value: labels[label.value] for label in Label},
        **{label.value: _rate(records, label).to_json() for label in Label if label.counted},
        "chance": chance_line(_resampled(exam, records), pairs, slots, seed=exam.seed).to_json(),
        "by_pair": {
            "+".join(pair): _rate([r for r in records if r.pair == pair], Label.CALIBRATED).to_json()
            for pair in exam.table.pairs
        },
        "malformed_turns": sum(r.malformed for r in records),
        "turns": sum(len(r.turns) for r in records),
    }
    return row | _truths(records) if exam.oracle else row


def _play(exam: Exam, asker: Sampler) -> list[SessionRecord]:
    slots = [
        Slot(f"{a}+{b}/{i}", (a, b), i, Random(derive(exam.seed, a, b, i)).random() < 0.5)
        for a, b in exam.table.pairs
        for i in range(exam.sessions)
    ]
    seats = Seats(asker, exam.table.solvers, exam.cross_check, exam.context, exam.count)
    samplings = Samplings(exam.asker, exam.table.sampling, exam.table.sampling)
    return play(slots, "asker", seats, exam.pack, exam.rules, samplings, seed=exam.seed)


def _rate(records: Sequence[SessionRecord], label: Label) -> Rate:
    return rate(None if not r.label.counted else r.label is label for r in records)


def _resampled(exam: Exam, records: Sequence[SessionRecord]) -> list[Resample]:
    """Return fresh solutions of every graded question by its own pair; what was lost adds nothing to the line."""
    graded = {i: r for i, r in enumerate(records) if r.label in GRADED}
    counts: dict[tuple[int, str], tuple[int, int]] = {}
    for name, sampler in exam.table.solvers.items():
        asked = [i for i, r in graded.items() if name in r.pair]
        prompts = [exam.pack.solver(graded[i].question or "") for i in asked]
        sampling = replace(exam.table.sampling, n=exam.resamples, seed=derive(exam.seed, "chance", name))
        for i, group in zip(asked, sample_more(sampler, prompts, sampling, asked), strict=True):
            answer = graded[i].grade.answer or ""
            ended = [reply for reply in group if reply.complete]
            given = [extract(reply.text, reply.finish_reason) for reply in ended]
            verdicts = [Equivalence.DIFFERENT if g is None else compare(answer, g) for g in given]
            decided = [v for v in verdicts if v is not Equivalence.UNDECIDED]
            counts[i, name] = (decided.count(Equivalence.SAME), len(decided))
    unknown = Resample(0, 0, 0, 0)  # ungradable: outside of the rate, and so of the line
    found = []
    for i, r in enumerate(records):
        lost = LOST if r.label.counted else unknown
        found.append(Resample(*counts[i, r.pair[0]], *counts[i, r.pair[1]]) if i in graded else lost)
    return found


def _truths(records: Sequence[SessionRecord]) -> dict[str, Any]:
    from selfevolve.testbed import oracle

    asked = [(r, oracle(r.question)) for r in records if r.question is not None]
    agreed = [(r, truth) for r, truth in asked if r.grade.answer is not None]
    right = [truth.valid and agrees(str(truth.answer), r.grade.answer or "") for r, truth in agreed]
    return {
        "valid_rate": rate(truth.valid for _, truth in asked).to_json(),
        "cross_check_true": rate(right).to_json(),
        "calibrated_and_true": rate(
            ok for ok, (r, _) in zip(right, agreed, strict=True) if r.label is Label.CALIBRATED
        ).to_json(),
        "patterns": len({truth.pattern for _, truth in asked if truth.pattern is not None}),
    }


def agrees(true: str, given: str) -> bool | None:
    """Return whether an answer is the true one; None where the two cannot be compared."""
    verdict = compare(true, given)
    return None if verdict is Equivalence.UNDECIDED else verdict is Equivalence.SAME


def audit_figures(steps: Iterable[Sequence[Sequence[str]]]) -> dict[str, Any]:
    """Return what more cross-checks say of training's final questions.

    Args:
        steps: of each step, (label in training, label under the audit's cross-checks and the same boundary replies) of
            each question that was audited.

    Returns:
        ``bad_cross_check``: share of questions whose cross-checks disagree or lack an answer, which one cross-check
        cannot show; ``still_calibrated``: share of calibrated ones that the audit calls calibrated too; ``table``:
        counts by both labels.
    """
    rows = [(str(a), str(b)) for step in steps for a, b in step]
    table: Mapping[tuple[str, str], int] = Counter(rows)
    ungradable, calibrated = Label.UNGRADABLE.value, Label.CALIBRATED.value

    def outcome(label: str, wanted: Label) -> bool | None:
        return None if label == ungradable else label == wanted.value

    return {
        "bad_cross_check": rate(outcome(b, Label.BAD_CROSS_CHECK) for _, b in rows).to_json(),
        "still_calibrated": rate(outcome(b, Label.CALIBRATED) for a, b in rows if a == calibrated).to_json(),
        "table": {f"{a} -> {b}": n for (a, b), n in sorted(table.items())},
    }
