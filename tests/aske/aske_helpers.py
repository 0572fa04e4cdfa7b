"""Texts and scripted seats for the tests of the game."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, settings

from aske import AskePack, Rules, Samplings, Seats, Session, SessionRecord, Slot, load_pack, play
from selfevolve.sampling import FinishReason, Prompt, Reply, ScriptedSampler

PACK = load_pack("standard")
ONE_PROBE, DRAWN = Rules(probes=1, checks=1), Samplings()
REASONING, DRAFT = "zebra-reasoning-7781", "walrus-draft-3312"  # marks that are found again wherever they leak
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)  # on a busy machine


def stop(text: str) -> Reply:
    return Reply(text, FinishReason.STOP, 10, 5)


def cut(text: str) -> Reply:
    return Reply(text, FinishReason.LENGTH, 10, 5)


def failed(error: str = "500 Internal Server Error") -> Reply:
    return Reply("", FinishReason.ERROR, error=error)


def late() -> Reply:
    return Reply("", FinishReason.TIMEOUT, error="no answer within 30 s")


def turn(question: str, answer: str = "4", reasoning: str = REASONING, draft: str = DRAFT) -> str:
    return f"#Reasoning#\n{reasoning}\n#Draft#\n{draft}, so \\boxed{{{answer}}}\n#Question#\n{question}"


def solved(answer: str, summary: str = "I added.") -> str:
    return f"Long work.\nSummary: {summary}\n\\boxed{{{answer}}}"


def session(probes: int = 1, checks: int = 1, pack: AskePack = PACK, **more: object) -> Session:
    return Session("s", pack, Rules(probes=probes, checks=checks), **more)  # type: ignore[arg-type]


Script = Callable[[Prompt, int], str | Reply]


def in_turn(*replies: str | Reply) -> Script:
    """Return a script that gives the replies in order, whoever asks."""
    left = list(replies)
    return lambda prompt, index: left.pop(0)


def asker_by_turn(*texts: str | Reply) -> Script:
    """Return an asker that gives its n-th text in its n-th turn, in every session."""
    return lambda prompt, index: texts[sum(m.role == "assistant" for m in prompt)]


def played(
    asker: Script,
    a: Script,
    b: Script,
    check: Script,
    *,
    slots: Sequence[Slot] = (Slot("asker/a+b/0", ("a", "b"), 0, False),),
    rules: Rules = ONE_PROBE,
    seed: int = 0,
    pack: AskePack = PACK,
    samplings: Samplings = DRAWN,
    **seats: object,
) -> list[SessionRecord]:
    names = {"a": ScriptedSampler(a, "model-a"), "b": ScriptedSampler(b, "model-b")}
    given = Seats(ScriptedSampler(asker, "model-asker"), names, ScriptedSampler(check, "model-check"), **seats)  # type: ignore[arg-type]
    return play(slots, "asker", given, pack, rules, samplings, seed=seed)
