"""What a round's solver is measured on: validity verdicts on held-out questions, answers to fixed questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from selfevolve.rates import Rate
from validity import Verdict


class Outcome(StrEnum):
    """How one answer to a question with a known answer ended."""

    RIGHT = "right"  # equivalent to the known answer
    WRONG = "wrong"  # the reply ended by itself, with another answer or with none
    UNDECIDED = "undecided"  # cut off, failed, or not comparable


class Decoding(StrEnum):
    """How an answer was drawn."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


@dataclass(frozen=True)
class Evaluation:
    """Results of one round's evaluation.

    Its rows in ``evaluation.jsonl`` (any further keys are free)::

        {"kind": "validity", "truth_valid": true, "verdict": "invalid"}
        {"kind": "solver", "decoding": "greedy", "outcome": "right"}
    """

    verdicts: tuple[tuple[bool, Verdict], ...] = ()  # (is the question valid?, verdict of one reply)
    sampled: tuple[Outcome, ...] = ()  # one an answer, drawn at the training temperature
    greedy: tuple[Outcome, ...] = ()  # one a question, temperature 0

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Evaluation:
        """Return the evaluation that rows of ``evaluation.jsonl`` hold.

        Raises:
            ValueError: A row is of no known kind, or a value is not one of its enum.
        """
        verdicts: list[tuple[bool, Verdict]] = []
        outcomes: dict[Decoding, list[Outcome]] = {decoding: [] for decoding in Decoding}
        for i, row in enumerate(rows):
            match row.get("kind"):
                case "validity":
                    verdicts.append((bool(row["truth_valid"]), Verdict(row["verdict"])))
                case "solver":
                    outcomes[Decoding(row["decoding"])].append(Outcome(row["outcome"]))
                case other:
                    raise ValueError(f"row {i} is of kind {other!r}; it must be 'validity' or 'solver'")
        return cls(tuple(verdicts), tuple(outcomes[Decoding.SAMPLED]), tuple(outcomes[Decoding.GREEDY]))


def accuracy(outcomes: Sequence[Outcome]) -> Rate:
    """Return right answers over decided ones; ``asked`` is all."""
    right = sum(outcome is Outcome.RIGHT for outcome in outcomes)
    undecided = sum(outcome is Outcome.UNDECIDED for outcome in outcomes)
    return Rate(right, len(outcomes) - undecided, asked=len(outcomes))
