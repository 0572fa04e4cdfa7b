"""The record of a session: everything that was sent and received, so that it can be replayed without a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aske.game import Rules, Seat, Session, State
from aske.labels import Equal, Grade, Label, Mark, Reason, Truncated
from aske.parsing import Malformed, Turn
from aske.prompts import AskePack
from selfevolve.answers import compare
from selfevolve.sampling import FinishReason, Message, Reply, Sampling


@dataclass(frozen=True)
class Call:
    """One request to one seat."""

    seat: Seat
    turn: int  # from 1
    model: str  # the sampler's name
    messages: int | tuple[Message, ...]  # what was sent; a number: that many messages of the session's transcript
    sampling: Sampling
    place: int  # what draws hang on beside the seed: the session's key, or the prompt's place in the batch
    seconds: float  # wall time of that batch
    replies: tuple[Reply, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the call as plain values."""
        sent = self.messages if isinstance(self.messages, int) else [asdict(m) for m in self.messages]
        replies = [{**asdict(r), "finish_reason": r.finish_reason.value} for r in self.replies]
        return {
            "seat": self.seat.value, "turn": self.turn, "model": self.model, "messages": sent,
            "sampling": asdict(self.sampling), "place": self.place, "seconds": round(self.seconds, 4),
            "replies": replies,
        }  # fmt: skip

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Call:
        """Return the call that `to_json` wrote."""
        sent = row["messages"]
        return cls(
            Seat(row["seat"]), row["turn"], row["model"],
            sent if isinstance(sent, int) else tuple(Message(**m) for m in sent),
            Sampling(**row["sampling"]), row["place"], row["seconds"],
            tuple(Reply(**{**r, "finish_reason": FinishReason(r["finish_reason"])}) for r in row["replies"]),
        )  # fmt: skip


@dataclass(frozen=True)
class SessionRecord:
    """A finished session."""

    id: str  # asker/a+b/slot
    asker: str  # the asker's name in the benchmark
    pair: tuple[str, str]  # boundary_a and boundary_b, names in the pool
    slot: int  # which session of the pair, from 0; equal slots of two askers are compared as pairs
    flip: bool  # the asker knew boundary_b as Solver 1
    prompts: str  # the pack's name
    rules: Rules
    transcript: tuple[Message, ...]  # the asker's conversation
    turns: tuple[Turn, ...]
    calls: tuple[Call, ...]
    question: str | None  # the final question
    grade: Grade

    @property
    def label(self) -> Label:
        """How the session ended."""
        return self.grade.label

    @property
    def malformed(self) -> int:
        """Malformed turns."""
        return sum(turn.malformed is not None for turn in self.turns)

    def tokens(self, seat: Seat | None = None) -> int:
        """Return new tokens of a seat, or of all."""
        return sum(r.completion_tokens for c in self.calls if seat in (None, c.seat) for r in c.replies)

    def to_json(self) -> dict[str, Any]:
        """Return one line of ``sessions.jsonl``."""
        return {
            "id": self.id, "asker": self.asker, "pair": list(self.pair), "slot": self.slot, "flip": self.flip,
            "prompts": self.prompts, "rules": asdict(self.rules), "label": self.grade.label.value,
            "reason": self.grade.reason.value if self.grade.reason else None, "detail": self.grade.detail,
            "question": self.question, "answer": self.grade.answer, "answers": list(self.grade.answers),
            "marks": [m.value for m in self.grade.marks],
            "turns": [{**asdict(t), "malformed": t.malformed.value if t.malformed else None} for t in self.turns],
            "transcript": [asdict(m) for m in self.transcript], "calls": [c.to_json() for c in self.calls],
        }  # fmt: skip

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> SessionRecord:
        """Return the record that `to_json` wrote."""
        result = Grade(
            Label(row["label"]), Reason(row["reason"]) if row["reason"] else None, row["detail"], row["answer"],
            tuple(Mark(m) for m in row["marks"]), tuple(row["answers"]),
        )  # fmt: skip
        turns = tuple(
            Turn(t["question"], t["draft_answer"], Malformed(t["malformed"]) if t["malformed"] else None, t["cut"])
            for t in row["turns"]
        )
        return cls(
            row["id"], row["asker"], (row["pair"][0], row["pair"][1]), row["slot"], row["flip"], row["prompts"],
            Rules(**row["rules"]), tuple(Message(**m) for m in row["transcript"]), turns,
            tuple(Call.from_json(c) for c in row["calls"]), row["question"], result,
        )  # fmt: skip


def record(session: Session, asker: str, pair: tuple[str, str], slot: int, calls: Sequence[Call]) -> SessionRecord:
    """Return the record of a finished session."""
    if session.result is None:
        raise RuntimeError(f"session {session.id} is not over; it waits for {session.state.value}")
    return SessionRecord(
        session.id, asker, pair, slot, session.flip, session.pack.name, session.rules, tuple(session.messages),
        tuple(session.turns), tuple(calls), session.final_question, session.result,
    )  # fmt: skip


def replay(
    row: SessionRecord,
    pack: AskePack,
    *,
    equal: Equal = compare,
    truncated: Truncated = "excluded",
    checks: int | None = None,
    cross_checks: Sequence[Reply] | None = None,
) -> SessionRecord:
    """Play a session again from its replies, without a call, and return it with the grade that this gives.

    Args:
        row: the session; its calls are told to a new `Session` in order.
        pack: the prompts it was played with.
        equal: compares two answers.
        truncated: how a cut-off boundary reply counts.
        checks: use only so many of the cross-checks, from the first; None: all.
        cross_checks: other cross-checks in place of the recorded ones.

    Raises:
        ValueError: the calls do not fit the session, so the record is not whole.
    """
    given = len(cross_checks) if cross_checks is not None else row.rules.checks
    rules = replace(row.rules, checks=min(given, checks) if checks else given)
    session = Session(row.id, pack, rules, row.flip, equal=equal, truncated=truncated)
    waiting: dict[Seat, Reply] = {}
    for call in row.calls:
        if session.over:
            break
        if call.seat is Seat.ASKER and session.state is State.ASKER:
            session.hear_asker(call.replies[0])
        elif call.seat in (Seat.BOUNDARY_A, Seat.BOUNDARY_B) and session.state is State.BOUNDARY:
            waiting[call.seat] = call.replies[0]
            if len(waiting) == 2:
                session.hear_boundary(waiting[Seat.BOUNDARY_A], waiting[Seat.BOUNDARY_B])
                waiting = {}
        elif call.seat is Seat.CROSS_CHECK and session.state is State.CROSS_CHECK:
            session.hear_cross_check((call.replies if cross_checks is None else cross_checks)[: rules.checks])
        else:
            raise ValueError(f"{row.id}: a call to {call.seat.value} while the session waits for {session.state.value}")
    if not session.over and row.grade.reason is Reason.CONTEXT_EXHAUSTED:
        session.end(Reason.CONTEXT_EXHAUSTED, row.grade.detail)
    if session.result is None:
        raise ValueError(f"{row.id}: the calls end while the session waits for {session.state.value}")
    return replace(
        row, rules=rules, transcript=tuple(session.messages), turns=tuple(session.turns),
        question=session.final_question, grade=session.result,
    )  # fmt: skip
