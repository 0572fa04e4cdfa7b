"""What is really so: a function that knows the truth about a question judges the final ones and their cross-checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aske.pool import load_truth
from aske.run import Run, chunked
from aske.store import Row
from selfevolve.answers import Equivalence, compare

TRUTHS = "truths.jsonl"


@dataclass(frozen=True)
class Written:
    """A final question, with the cross-check's answer where there is one."""

    session: str
    question: str
    answer: str | None


def truths(run: Run) -> int:
    """Judge every final question; return how many rows there are."""
    if run.bench.truth is None:
        return 0
    call = load_truth(run.bench.truth)
    table = run.table(TRUTHS, lambda row: row["session"])
    written = [
        Written(row["id"], row["question"], row["answer"])
        for row in run.sessions().rows()
        if row["question"] is not None
    ]
    run.fill(table, chunked(written, run.bench.wave), lambda one: one.session, lambda part: judge(call, part))
    return len(table)


def judge(call: Callable[[str], Any], written: Sequence[Written]) -> Iterator[Row]:
    """Yield the truth about each question.

    ``cross_check_true`` is null where there is no cross-check's answer or it cannot be compared, and false where the
    question is invalid: an answer to a question without one is not true.
    """
    for one in written:
        found = call(one.question)
        valid, answer = bool(found.valid), found.answer
        verdict: bool | None = None
        if one.answer is not None:
            match Equivalence.DIFFERENT if not valid else compare(answer, one.answer):
                case Equivalence.SAME:
                    verdict = True
                case Equivalence.DIFFERENT:
                    verdict = False
        yield {
            "session": one.session,
            "question": one.question,
            "valid": valid,
            "answer": answer,
            "cross_check_true": verdict,
        }
