r"""Ask-E sessions for pre-training the testbed's asker: a weak policy that reads results well and seldom acts on them.

Each session is played by `aske.Session` with the prompts of ``aske/prompts/testbed.yaml``, so its text is what the game
sends. A turn of the asker is written as

    #Reasoning#<solver1> 5 : 5<right><solver2> 8 : 5<wrong><keep>#Question# what is 3 + 4?#Draft# 3 + 4 = 7\boxed{ 7}

Its reasoning sets what solver 1 and solver 2 answered beside its own last draft's answer, says whether they agree, then
what is asked next. A model of three layers does not learn to compare numbers unseen, so they are written down; nor to
work a question before it is written, so the draft stands last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from aske import AskePack, Rules, Session, State, load_pack
from aske.game import shown
from selfevolve.answers import extract
from selfevolve.sampling import FinishReason, Reply
from selfevolve.testbed.pattern import LEVELS, Pattern
from selfevolve.testbed.patterns import FIELDS
from selfevolve.testbed.profiles import BASE, NUMBER_FIELDS, Asking, Profile
from selfevolve.testbed.tasks import Exercise, draw_pattern, exercise, flawed_question, solve_reply
from selfevolve.testbed.vocabulary import EOS, REPLY

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PROBES = (0, 1, 2, 3, 4)
PROBE_WEIGHTS = (1, 1, 1, 3, 3)  # training plays 3 probes, the benchmark 4
RIGHT, WRONG = "<right>", "<wrong>"


class Move(StrEnum):
    """What the asker does next, as its mark."""

    KEEP = "<keep>"  # the last probe that split the pair, with other numbers: same wording and level
    CHANGE = "<change>"  # another pattern
    HARDER = "<harder>"  # the last probe's wording, one level up
    EASIER = "<easier>"  # the last probe's wording, one level down


@dataclass(frozen=True)
class Policy:
    """How often the demonstrated asker does what its results call for; else it changes the pattern."""

    reads: float = 0.98  # chance that a mark says what the solver's answer was
    keeps: float = 0.35  # after a split: ask such a question again
    returns: float = 0.30  # at the final turn, after a split in any probe
    harder: float = 0.25  # after two right answers
    easier: float = 0.25  # after two wrong ones
    lost: float = 0.01  # a turn ends without its question
    cut: float = 0.01  # a solver's reply is cut off, so the asker reads no answer


DILIGENT = Policy(keeps=0.9, returns=0.9, harder=0.9, easier=0.9)  # shows first what the moves mean


@dataclass(frozen=True)
class Probe:
    """A question that was put to the pair, and what the asker says of it."""

    pattern: Pattern
    level: int
    wording: int  # which of the pattern's templates
    marks: tuple[str, str] | None = None  # of solver 1 and 2; None: not yet known, or the probe was lost
    seen: str = ""  # the reasoning that led to the marks

    @property
    def split(self) -> bool:
        """True where exactly one solver is marked right."""
        return self.marks is not None and self.marks[0] != self.marks[1]


class Piece(NamedTuple):
    """A part of a session's text, up to the mark where the other side goes on."""

    text: str
    asker: bool  # True: written by the asker


@cache
def pack() -> AskePack:
    """Return the prompts of the testbed."""
    return load_pack("testbed")


def draw_solver(rng: Random) -> Profile:
    """Draw a solver's competence: general of any strength, or strong in some fields and weak in the others."""
    easy = 0.4 * rng.random() ** 2
    hard = min(0.95, easy + 0.8 * rng.random())
    solver = replace(BASE, name="drawn", guess_easy=easy, guess_hard=hard, slip=0.12 * rng.random() ** 2)
    kind = rng.random()
    if kind < 0.5:
        return solver
    chosen = NUMBER_FIELDS if kind < 0.75 else tuple(f for f in FIELDS if rng.random() < 0.5)
    strong = set(chosen) if rng.random() < 0.5 else set(FIELDS) - set(chosen)
    fields = {f: -1.0 if f in strong else 0.6 for f in FIELDS}
    return replace(solver, guess_hard=max(hard, 0.7), fields=fields)


def _moved(probe: Probe, by: int) -> Probe | None:
    level = probe.level + by
    return Probe(probe.pattern, level, probe.wording) if level in LEVELS else None


def decide(rng: Random, asking: Asking, policy: Policy, probes: list[Probe], final: bool) -> tuple[Move, Probe]:
    """Return the next move and what is asked; `probes` are all so far, with the marks of the last one."""
    last = probes[-1] if probes else None
    splits = [p for p in probes if p.split]
    pick = rng.random()
    if splits and (final or probes[-1].split):
        if pick < (policy.returns if final else policy.keeps):
            return Move.KEEP, replace(splits[-1], marks=None, seen="")
    elif last is not None and last.marks == (RIGHT, RIGHT) and pick < policy.harder:
        if (harder := _moved(last, 1)) is not None:
            return Move.HARDER, harder
    elif (
        last is not None
        and last.marks == (WRONG, WRONG)
        and pick < policy.easier
        and (easier := _moved(last, -1)) is not None
    ):
        return Move.EASIER, easier
    pattern = draw_pattern(rng, asking)
    while last is not None and pattern is last.pattern:
        pattern = draw_pattern(rng, asking)
    level = rng.choices(LEVELS, weights=asking.levels)[0]
    return Move.CHANGE, Probe(pattern, level, rng.randrange(len(pattern.templates)))


def turn(rng: Random, profile: Profile, seen: str, move: Move, probe: Probe) -> tuple[str, Exercise]:
    """Return an asker's turn and its question; the draft is as good as `profile`, `seen` is what it says of results."""
    if rng.random() < profile.asking.invalid:
        text = flawed_question(rng, probe.pattern, probe.level)
    else:
        text = probe.pattern.templates[probe.wording].write(dict(probe.pattern.draw(rng, probe.level)), rng)
    question = exercise(text)
    draft = shown(Reply(solve_reply(rng, profile, question), FinishReason.STOP), pack(), Rules().reply_chars)
    draft = draft.replace(" \\boxed", "\\boxed")  # a mark takes its blank: so a sampled turn decodes
    return f"#Reasoning#{seen}{move}#Question# {text}#Draft# {draft}", question


def _reply(rng: Random, policy: Policy, solver: Profile, question: Exercise) -> Reply:
    if rng.random() < policy.cut:
        return Reply("<think> guess", FinishReason.LENGTH)
    return Reply(solve_reply(rng, solver, question), FinishReason.STOP)


def _read(rng: Random, policy: Policy, probe: Probe, draft: str | None, replies: tuple[Reply, Reply]) -> Probe:
    """Return the probe with its marks, and with the reasoning that states them."""
    given = [extract(r.text, r.finish_reason) for r in replies]
    said = [(a == draft) == (rng.random() < policy.reads) for a in given]
    marks = (RIGHT if said[0] else WRONG, RIGHT if said[1] else WRONG)
    numbers = [answer if answer is not None else pack().no_answer for answer in given]
    first, second = (f" {number} : {draft}{mark}" for number, mark in zip(numbers, marks, strict=True))
    return replace(probe, marks=marks, seen=f"<solver1>{first}<solver2>{second}")


def demonstrate(rng: Random, profile: Profile, policy: Policy = Policy(), probes: int | None = None) -> Session:
    """Play a session up to its final question: the asker by `policy`, against two solvers that are drawn.

    Args:
        rng: draws everything.
        profile: what the asker asks and how well it works its own questions.
        policy: what it makes of results.
        probes: how many; None: drawn by `PROBE_WEIGHTS`.
    """
    count = rng.choices(PROBES, weights=PROBE_WEIGHTS)[0] if probes is None else probes
    session = Session("demonstration", pack(), Rules(probes=count, checks=1))
    solvers = draw_solver(rng), draw_solver(rng)
    asked: list[Probe] = []
    while session.state is State.ASKER:
        move, probe = decide(rng, profile.asking, policy, asked, session.left == 0)
        text, question = turn(rng, profile, asked[-1].seen if asked else "", move, probe)
        if session.left and rng.random() < policy.lost:
            text = text.replace(f"#Question# {question.text}", "")
        session.hear_asker(Reply(text, FinishReason.STOP))
        if session.question is not None and len(asked) < count:
            replies = _reply(rng, policy, solvers[0], question), _reply(rng, policy, solvers[1], question)
            probe = _read(rng, policy, probe, session.turns[-1].draft_answer, replies)
            session.hear_boundary(*replies)
        asked.append(probe)
    return session


def pieces(session: Session) -> list[Piece]:
    """Return the session's text as the chat template renders it, cut where the asker begins and ends."""
    return [
        Piece(m.content + (EOS if m.role == "assistant" else REPLY), m.role == "assistant") for m in session.messages
    ]


def token_ids(parts: list[Piece], tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[bool]]:
    """Return a session's token ids, and for each whether the asker wrote it."""
    encoded = tokenizer([p.text for p in parts])["input_ids"]
    return [i for ids in encoded for i in ids], [p.asker for p, ids in zip(parts, encoded, strict=True) for _ in ids]
