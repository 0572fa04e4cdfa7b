"""The game: a session as a state machine that asks for replies and is told them. No model, no network, no clock.

Seats: one asker, two boundary solvers (``boundary_a``, ``boundary_b``), a cross-check. The pair has no order for the
asker: which solver it knows as Solver 1 is drawn once a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aske.labels import Equal, Grade, Label, Reason, Truncated, failure, grade
from aske.parsing import Malformed, Turn, parse_turn, printable
from aske.prompts import AskePack
from selfevolve.answers import compare, extract
from selfevolve.answers.extract import after_thinking
from selfevolve.sampling import Message, Prompt, Reply

_SUMMARY = "summary:"


class Seat(StrEnum):
    """Who is asked."""

    ASKER = "asker"
    BOUNDARY_A = "boundary_a"
    BOUNDARY_B = "boundary_b"
    CROSS_CHECK = "cross_check"


class State(StrEnum):
    """Whose reply the session waits for."""

    ASKER = "asker"  # `asker_prompt`, then `hear_asker`
    BOUNDARY = "boundary"  # `boundary_prompt`, then `hear_boundary`
    CROSS_CHECK = "cross_check"  # `cross_check_prompt`, then `hear_cross_check`
    OVER = "over"  # `grade` is set


@dataclass(frozen=True)
class Rules:
    """What is fixed for all sessions of a benchmark or a training run."""

    probes: int = 4  # questions before the final one; 4 in the benchmark, 3 in training, 0 without probing
    checks: int = 3  # cross-check replies, which must agree; 3 in the benchmark, 1 in training
    question_words: int = 200  # longer questions are cut
    reply_chars: int = 2000  # what the asker reads of a solver's reply is cut to this

    def __post_init__(self) -> None:
        """Refuse counts outside their range."""
        if self.probes < 0 or self.checks < 1 or self.question_words < 1 or self.reply_chars < 1:
            raise ValueError(f"{self}: probes must be 0 or more, the others 1 or more")


def shown(reply: Reply, pack: AskePack, limit: int) -> str:
    """Return what the asker reads of a solver's reply: a short summary and the final answer, cut to `limit` characters.

    The summary is the text behind the last "Summary:" where there is one, else the reply without its thinking block.
    It is the summary that is cut; an answer is cut only where it alone is too long.
    """
    answer = extract(reply.text, reply.finish_reason.value)
    if pack.summary == "thinking":
        text = reply.text.rpartition("</think>")[0].replace("<think>", "")
    else:
        text = after_thinking(reply.text) or ""
        at = text.lower().rfind(_SUMMARY)
        text = text if at < 0 else text[at + len(_SUMMARY) :].lstrip("*_ ")
    given = printable(answer) if answer is not None else pack.no_answer
    room = limit - len(pack.fill_shown("", given))
    return pack.fill_shown(printable(text).strip()[: max(0, room)], given)[:limit]


@dataclass
class Session:
    """One session, driven from outside."""

    id: str
    pack: AskePack
    rules: Rules = Rules()
    flip: bool = False  # True: the asker knows boundary_b as Solver 1
    messages: list[Message] = field(default_factory=list)  # the asker's conversation so far
    turns: list[Turn] = field(default_factory=list)
    state: State = State.ASKER
    result: Grade | None = None  # set when the session is over
    equal: Equal = compare
    truncated: Truncated = "excluded"
    _boundary: tuple[Reply, Reply] | None = None

    def __post_init__(self) -> None:
        """Write the opening."""
        if not self.messages:
            self.messages = list(self.pack.open(self.rules.probes, self.rules.question_words))

    # ------------------------------------------------------------ what is known

    @property
    def over(self) -> bool:
        """True when nothing more is asked."""
        return self.state is State.OVER

    @property
    def final(self) -> bool:
        """True when the turn under way, or the last one, is the final one."""
        return len(self.turns) > self.rules.probes or (self.state is State.ASKER and self.left == 0)

    @property
    def left(self) -> int:
        """Probes that the asker may still write."""
        return max(0, self.rules.probes - len(self.turns))

    @property
    def question(self) -> str | None:
        """The last turn's question."""
        return self.turns[-1].question if self.turns else None

    @property
    def final_question(self) -> str | None:
        """The final question, once it is there."""
        return self.turns[-1].question if len(self.turns) > self.rules.probes else None

    @property
    def malformed(self) -> int:
        """Malformed turns so far."""
        return sum(turn.malformed is not None for turn in self.turns)

    # ------------------------------------------------------------ the asker

    def asker_prompt(self) -> Prompt:
        """Return the asker's conversation."""
        self._expect(State.ASKER)
        return tuple(self.messages)

    def hear_asker(self, reply: Reply) -> None:
        """Take the asker's turn: put its question to the solvers, count the probe as lost, or end."""
        self._expect(State.ASKER)
        reason = failure(reply)
        if reason in (Reason.HTTP, Reason.TIMEOUT, Reason.CONTEXT_EXHAUSTED):
            self.end(reason, f"asker, turn {len(self.turns) + 1}: {reply.error or reply.finish_reason.value}")
            return
        self.messages.append(Message("assistant", printable(reply.text)))
        told = " ".join(m.content for m in self.pack.open(self.rules.probes, self.rules.question_words))
        turn = parse_turn(reply, self.rules.question_words, told)
        self.turns.append(turn)
        if turn.question is not None:
            self.state = State.BOUNDARY
        elif len(self.turns) > self.rules.probes:
            problem = turn.malformed or Malformed.NO_QUESTION
            self._finish(Grade(Label.NO_QUESTION, detail=f"the final turn is malformed: {problem.value}"))
        else:
            self.messages.append(self.pack.after_lost(self.left))

    # ------------------------------------------------------------ the solvers

    def boundary_prompt(self) -> Prompt:
        """Return what both boundary solvers are asked: the question and nothing else of the session."""
        self._expect(State.BOUNDARY)
        return self.pack.solver(self.turns[-1].question or "")

    def hear_boundary(self, a: Reply, b: Reply) -> None:
        """Take both boundary solvers' replies, in the order of the pair.

        A failed call in a probe ends the session: the asker would go on with less than it is due. A reply that was cut
        off in a probe is shown as one without an answer.
        """
        self._expect(State.BOUNDARY)
        if len(self.turns) > self.rules.probes:
            self._boundary = (a, b)
            self.state = State.CROSS_CHECK
            return
        for name, reply in ((Seat.BOUNDARY_A, a), (Seat.BOUNDARY_B, b)):
            reason = failure(reply)
            if reason is not None and reason is not Reason.TRUNCATED:
                self.end(reason, f"{name.value}, probe {len(self.turns)}: {reply.error or reply.finish_reason.value}")
                return
        texts = [shown(reply, self.pack, self.rules.reply_chars) for reply in ((b, a) if self.flip else (a, b))]
        self.messages.append(self.pack.after_probe(texts[0], texts[1], self.left))
        self.state = State.ASKER

    # ------------------------------------------------------------ the cross-check

    def cross_check_prompt(self) -> Prompt:
        """Return what the cross-check is asked, `Rules.checks` times."""
        self._expect(State.CROSS_CHECK)
        return self.pack.solver(self.turns[-1].question or "")

    def hear_cross_check(self, replies: Sequence[Reply]) -> None:
        """Take the cross-checks and end the session with its grade."""
        self._expect(State.CROSS_CHECK)
        assert self._boundary is not None
        if len(replies) != self.rules.checks:
            raise ValueError(f"{len(replies)} cross-checks are given; the rules ask for {self.rules.checks}")
        self._finish(grade(self._boundary, replies, self.equal, self.truncated))

    # ------------------------------------------------------------ ends

    def end(self, reason: Reason, detail: str) -> None:
        """End the session as ungradable: a failed call, or no room for the asker's next turn."""
        if self.over:
            raise RuntimeError(f"session {self.id} is over; it cannot end once more")
        self._finish(Grade(Label.UNGRADABLE, reason, detail))

    def _finish(self, result: Grade) -> None:
        self.result = result
        self.state = State.OVER

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise RuntimeError(f"session {self.id} waits for {self.state.value}, not for {state.value}")
