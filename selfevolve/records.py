"""Records that pass between the stages of a round. docs/design/architecture.md shows them on disk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from novelty import NoveltyResult
from selfevolve.answers import Vote
from selfevolve.rewards import Reward
from validity import ValidityVote


class ParseFailure(StrEnum):
    """Why a questioner's reply holds no question."""

    CUT_OFF = "cut_off"  # the reply did not end by itself
    NO_QUESTION = "no_question"  # no complete <question> block after the thinking block
    EMPTY_QUESTION = "empty_question"  # the block is blank
    NO_ANSWER = "no_answer"  # no complete box after the question


class Decision(StrEnum):
    """What the assessment decides about a candidate as solver data."""

    KEPT = "kept"  # the majority share lies in the window
    MALFORMED = "malformed"  # no question in the required format
    INVALID = "invalid"  # rejected by the validity vote
    UNDECIDED = "undecided"  # too few replies could be read
    TOO_EASY = "too_easy"  # share above the window
    TOO_HARD = "too_hard"  # share below the window
    NO_ANSWER = "no_answer"  # nothing was answered at all, so there is no majority


@dataclass(frozen=True)
class Candidate:
    """One reply of the questioner, read."""

    id: str  # r01-questioner-s02-000017: round, stage, step, index
    round: int  # from 1
    stage: str  # "questioner" or "candidates"
    step: int  # GRPO step from 1; 0 outside the questioner's update
    index: int  # place in the whole batch, from 0
    reply: str  # verbatim
    finish_reason: str  # a FinishReason's value
    question: str | None  # None where parse_failure is set
    own_answer: str | None  # the questioner's own answer, never used as a label
    parse_failure: ParseFailure | None

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as plain values."""
        return {
            "id": self.id,
            "round": self.round,
            "stage": self.stage,
            "step": self.step,
            "index": self.index,
            "reply": self.reply,
            "finish_reason": self.finish_reason,
            "question": self.question,
            "parse_failure": self.parse_failure.value if self.parse_failure else None,
            "own_answer": self.own_answer,
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Candidate:
        """Return the candidate that `to_json` wrote."""
        failure = row["parse_failure"]
        return cls(
            id=row["id"], round=row["round"], stage=row["stage"], step=row["step"], index=row["index"],
            reply=row["reply"], finish_reason=row["finish_reason"], question=row["question"],
            own_answer=row["own_answer"], parse_failure=ParseFailure(failure) if failure else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Solutions:
    """The fresh solutions of one question."""

    vote: Vote  # over the replies' final answers
    replies: tuple[str, ...]  # verbatim, in sample order; empty where they are not kept

    def to_json(self) -> dict[str, Any]:
        """Return the vote and the replies as plain values."""
        vote = self.vote
        return {
            "answer": vote.answer,
            "share": round(vote.share, 6),
            "counted": vote.counted,
            "asked": vote.asked,
            "tie": vote.tie,
            "clusters": [list(cluster) for cluster in vote.clusters],
            "replies": list(self.replies),
        }


@dataclass(frozen=True)
class Assessed:
    """A candidate with everything that was asked about it; a step that was not reached is None."""

    candidate: Candidate
    validity: ValidityVote | None
    solutions: Solutions | None
    novelty: NoveltyResult | None
    reward: Reward | None  # None: no reward was asked for
    decision: Decision
    reason: str  # the decision in words, with the numbers it rests on

    def to_json(self, truth: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return one line of ``assessed.jsonl``."""
        return {
            **self.candidate.to_json(),
            "validity": self.validity.to_json() if self.validity else None,
            "solutions": self.solutions.to_json() if self.solutions else None,
            "novelty": self.novelty.to_json() if self.novelty else None,
            "reward": self.reward.to_json() if self.reward else None,
            "decision": self.decision.value,
            "reason": self.reason,
            "truth": truth,
        }


class ExampleKind(StrEnum):
    """Which task and reward a solver's training example has."""

    PSEUDO = "pseudo"  # plain solving, rewarded for agreement with the pseudo-label
    REPLAY = "replay"  # validity-aware solving, rewarded as in the initialisation


@dataclass(frozen=True)
class SolverExample:
    """One training input of the solver."""

    kind: ExampleKind
    question: str
    answer: str  # pseudo-label, or the reference answer or INVALID of a replay example
    source: str  # the candidate's id, or "initialisation"

    def to_json(self) -> dict[str, str]:
        """Return the example as plain values."""
        return {"kind": self.kind.value, "question": self.question, "answer": self.answer, "source": self.source}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> SolverExample:
        """Return the example that `to_json` wrote."""
        return cls(ExampleKind(row["kind"]), row["question"], row["answer"], row["source"])
