"""The novelty gate: a candidate is rejected as soon as one reference is judged to be the same exercise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from novelty.judge import NoveltyJudge
from novelty.verdict import SameType


class NoveltyDecision(StrEnum):
    """What the gate says of a candidate."""

    NOVEL = "novel"  # compared, and no reference is the same exercise; also where there is nothing to compare with
    REPEATED = "repeated"  # one reference is the same exercise
    UNDECIDED = "undecided"  # compared, but no verdict could be read


@dataclass(frozen=True)
class NoveltyResult:
    """The gate's decision on one candidate, with its evidence."""

    decision: NoveltyDecision
    compared: int  # references judged: all of them, or as many as it took to find a match
    match: str | None  # id of the reference that is the same exercise
    unreadable: int  # verdicts that could not be read, of those compared; they count as no match
    references: tuple[str, ...]  # ids drawn, in the order of judgement; empty where all others are references

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a record."""
        return {
            "decision": self.decision.value,
            "compared": self.compared,
            "match": self.match,
            "unreadable": self.unreadable,
            "references": list(self.references),
        }


class NoveltyGate(Protocol):
    """Anything that decides on the novelty of a batch of candidates."""

    def decide(
        self,
        questions: Sequence[str],
        judge: NoveltyJudge,
        *,
        seed: int,
        eligible: Sequence[bool] | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[NoveltyResult | None]:
        """Return a result for each eligible question, None for the others; see `KSampledGate.decide`."""
        ...


@dataclass(frozen=True)
class KSampledGate:
    """Compare each candidate with K others of the whole batch (R-Quest, section 3.2 and appendix B.2)."""

    k: int = 8  # references a candidate, drawn uniformly without replacement; all others where there are fewer

    def __post_init__(self) -> None:
        """Refuse a K below 1."""
        if self.k < 1:
            raise ValueError(f"k is {self.k}; compare with at least 1 other question, or leave the gate out")

    def decide(
        self,
        questions: Sequence[str],
        judge: NoveltyJudge,
        *,
        seed: int,
        eligible: Sequence[bool] | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[NoveltyResult | None]:
        """Return a result for each eligible question, None for the others.

        Judgement goes in waves: the first reference of all candidates, then the second of those still without a match,
        and so on. The decisions are those of judging all K; only the comparisons after a match are saved.

        Args:
            questions: All parsed questions of the batch, from all processes: every one can be a reference.
            judge: Judges pairs ``(candidate, reference)``.
            seed: With a question's index it fixes that question's draw, whatever is eligible.
            eligible: Which questions are candidates; all by default. The others cost no judgement.
            ids: Names of the questions in the results; their indices by default.

        Raises:
            ValueError: `eligible` or `ids` has another length than `questions`, or the judge answers too few or many.
        """
        names, wanted = _checked(questions, eligible, ids)
        drawn = {index: self.draw(len(questions), index, seed) for index in wanted}
        results = _judge_in_waves(questions, names, drawn, judge, width=1, keep_references=True)
        return [results.get(index) for index in range(len(questions))]

    def draw(self, batch: int, index: int, seed: int) -> list[int]:
        """Return the indices of the references of question `index` of `batch`, in the order of judgement."""
        stream = random.Random(f"novelty references {seed} {index}")
        others = stream.sample(range(batch - 1), min(self.k, batch - 1))
        return [other + (other >= index) for other in others]


@dataclass(frozen=True)
class ExhaustiveGate:
    """Compare each candidate with every other question of the batch (R-Quest, section 3.2): B - 1 judgements each.

    It draws nothing; the order is that of the batch, from the candidate's successor round to its predecessor.
    """

    wave: int = 16  # references a candidate that are judged in one call; all of a wave are judged, then matches leave

    def __post_init__(self) -> None:
        """Refuse a wave below 1."""
        if self.wave < 1:
            raise ValueError(f"wave is {self.wave}; judge at least 1 reference a candidate in a call")

    def decide(
        self,
        questions: Sequence[str],
        judge: NoveltyJudge,
        *,
        seed: int = 0,
        eligible: Sequence[bool] | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[NoveltyResult | None]:
        """Return a result for each eligible question, None for the others; `seed` is not used.

        See `KSampledGate.decide`. The list of references stays empty in the results: it is the whole batch.
        """
        names, wanted = _checked(questions, eligible, ids)
        size = len(questions)
        others = {index: [(index + step) % size for step in range(1, size)] for index in wanted}
        results = _judge_in_waves(questions, names, others, judge, width=self.wave, keep_references=False)
        return [results.get(index) for index in range(size)]


def _checked(
    questions: Sequence[str], eligible: Sequence[bool] | None, ids: Sequence[str] | None
) -> tuple[list[str], list[int]]:
    """Return every question's name and the indices of the candidates."""
    for name, values in (("eligible", eligible), ("ids", ids)):
        if values is not None and len(values) != len(questions):
            raise ValueError(f"{name} has {len(values)} entries for {len(questions)} questions; give one for each")
    names = list(ids) if ids is not None else [str(index) for index in range(len(questions))]
    wanted = [index for index in range(len(questions)) if eligible is None or eligible[index]]
    return names, wanted


def _judge_in_waves(
    questions: Sequence[str],
    names: Sequence[str],
    references: dict[int, list[int]],
    judge: NoveltyJudge,
    *,
    width: int,
    keep_references: bool,
) -> dict[int, NoveltyResult]:
    """Judge `width` references of every open candidate at a time, until each has a match or no reference left."""
    compared = dict.fromkeys(references, 0)
    unreadable = dict.fromkeys(references, 0)
    match: dict[int, int] = {}
    still_open = [index for index, others in references.items() if others]
    while still_open:
        asked = [(index, other) for index in still_open for other in references[index][compared[index] :][:width]]
        verdicts = judge.same_type([(questions[index], questions[other]) for index, other in asked])
        if len(verdicts) != len(asked):
            raise ValueError(f"the judge gave {len(verdicts)} verdicts for {len(asked)} pairs; it must give one each")
        for (index, other), verdict in zip(asked, verdicts, strict=True):
            compared[index] += 1
            unreadable[index] += verdict is SameType.UNDECIDED
            if verdict is SameType.SAME:
                match.setdefault(index, other)
        still_open = [i for i in still_open if i not in match and compared[i] < len(references[i])]
    return {
        index: NoveltyResult(
            decision=_decision(compared[index], unreadable[index], index in match),
            compared=compared[index],
            match=names[match[index]] if index in match else None,
            unreadable=unreadable[index],
            references=tuple(names[other] for other in others) if keep_references else (),
        )
        for index, others in references.items()
    }


def _decision(compared: int, unreadable: int, matched: bool) -> NoveltyDecision:
    """Return what the verdicts amount to."""
    if matched:
        return NoveltyDecision.REPEATED
    return NoveltyDecision.UNDECIDED if compared and unreadable == compared else NoveltyDecision.NOVEL
