"""Records that pass between the stages of a round. docs/design/architecture.md shows them on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aske.labels import Grade
from novelty import NoveltyResult
from selfevolve.answers import Vote
from selfevolve.rewards import Reward
from selfevolve.sampling import Reply
from validity import ValidityVote, why_unread


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
    REPEATED = "repeated"  # of the questioner's own candidates: rejected by the novelty gate, so it was not solved
    # of the questioner's own candidates under Ask-E's reward, beside malformed, invalid, undecided, too easy, too hard
    CALIBRATED = "calibrated"  # exactly one boundary solver agrees with the cross-check
    BAD_CROSS_CHECK = "bad_cross_check"  # the cross-check gives no single answer
    UNGRADABLE = "ungradable"  # a reply was cut off or failed, or answers could not be compared: masked


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
class Votes:
    """The validity votes of one question."""

    vote: ValidityVote
    replies: tuple[str, ...]  # verbatim, in sample order
    unread: dict[str, int]  # how many of them cast no vote, by why: no_box, or how they ended

    @classmethod
    def of(cls, vote: ValidityVote, replies: Sequence[Reply]) -> Votes:
        """Return the record of a vote and the replies that it counts."""
        why = (why_unread(r) for r in replies if vote.undecided)  # each is read once more only where one cast no vote
        return cls(vote, tuple(r.text for r in replies), dict(Counter(w for w in why if w is not None)))

    def to_json(self) -> dict[str, Any]:
        """Return the vote and the replies as plain values."""
        return {**self.vote.to_json(), "unread": self.unread, "replies": list(self.replies)}


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
class AskEResult:
    """What Ask-E's game says of one candidate."""

    pair: tuple[str, str]  # the boundary solvers by their names in the recipe
    same_weights: bool  # both are one checkpoint at the moment, so "exactly one right" is chance alone
    grade: Grade
    boundary: tuple[Reply, ...] = ()  # one a solver; empty where there was no question
    checks: tuple[Reply, ...] = ()  # the cross-check's replies
    malformed: int = 0  # malformed turns of a session
    session: dict[str, Any] | None = None  # the whole session's record, where there were probes

    def to_json(self) -> dict[str, Any]:
        """Return the ``ask_e`` object of an assessed question's record."""
        g = self.grade
        row: dict[str, Any] = {
            "pair": list(self.pair),
            "same_weights": self.same_weights,
            "label": g.label.value,
            "reason": g.reason.value if g.reason else None,
            "detail": g.detail,
            "answer": g.answer,
            "marks": [m.value for m in g.marks],
            "answers": list(g.answers),
            "boundary": [_reply(r) for r in self.boundary],
            "checks": [_reply(r) for r in self.checks],
        }
        return row if self.session is None else {**row, "malformed": self.malformed, "session": self.session}


def _reply(reply: Reply) -> dict[str, Any]:
    row = {"text": reply.text, "finish_reason": reply.finish_reason.value, "tokens": reply.completion_tokens}
    return row if reply.error is None else {**row, "error": reply.error}


@dataclass(frozen=True)
class Assessed:
    """A candidate with everything that was asked about it; a step that was not reached is None."""

    candidate: Candidate
    validity: Votes | None
    solutions: Solutions | None
    novelty: NoveltyResult | None
    reward: Reward | None  # None: no reward was asked for, or it is masked
    decision: Decision
    reason: str  # the decision in words, with the numbers it rests on
    ask_e: AskEResult | None = None  # None: not asked
    by_ask_e: bool = False  # the reward is Ask-E's, so that the record has an ``ask_e`` object or null

    def to_json(self, truth: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return one line of ``assessed.jsonl``."""
        row = {
            **self.candidate.to_json(),
            "validity": self.validity.to_json() if self.validity else None,
            "solutions": self.solutions.to_json() if self.solutions else None,
            "novelty": self.novelty.to_json() if self.novelty else None,
            "reward": self.reward.to_json() if self.reward else None,
            "decision": self.decision.value,
            "reason": self.reason,
            "truth": truth,
        }
        return {**row, "ask_e": self.ask_e.to_json() if self.ask_e else None} if self.by_ask_e else row


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
