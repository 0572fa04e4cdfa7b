"""Drive many sessions with samplers: turn by turn, all sessions of a wave side by side.

The questions of a wave are put to each solver in one batch, so in-process models decode them together and servers get
them at once; different solvers are asked at the same time where they are servers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from aske.game import Rules, Seat, Session, State
from aske.labels import Equal, Reason
from aske.prompts import AskePack
from aske.records import Call, SessionRecord, record
from selfevolve.answers import compare
from selfevolve.sampling import Message, Prompt, Reply, Sampler, Sampling

Progress = Callable[[str, int, int], None]  # (what is being done, done, of)
Count = Callable[[Prompt], int]  # tokens of a prompt


@dataclass(frozen=True)
class Samplings:
    """How each kind of seat is sampled; n and seed are set by the game."""

    asker: Sampling = field(default_factory=lambda: Sampling(temperature=1.0, max_tokens=2048))
    boundary: Sampling = field(default_factory=lambda: Sampling(temperature=0.7, max_tokens=4096))
    cross_check: Sampling = field(default_factory=lambda: Sampling(temperature=0.7, max_tokens=4096))


@dataclass(frozen=True)
class Seats:
    """Who sits where."""

    asker: Sampler
    solvers: Mapping[str, Sampler]  # by their names in the pool
    cross_check: Sampler
    context: int | None = None  # positions of the asker's context; None: not checked
    count: Count | None = None  # counts the asker's tokens; None: estimated from its last turn, see `_room`
    side_by_side: bool = False  # ask different solvers in threads at the same time (servers)


@dataclass(frozen=True)
class Slot:
    """A session that is to be played."""

    id: str
    pair: tuple[str, str]
    slot: int
    flip: bool


@dataclass
class _Playing:
    """A session with its calls so far."""

    slot: Slot
    session: Session
    calls: list[Call] = field(default_factory=list)


def derive(*parts: object) -> int:
    """Return a seed of 62 bits that hangs on all parts."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big") >> 2


def play(
    slots: Sequence[Slot],
    asker: str,
    seats: Seats,
    pack: AskePack,
    rules: Rules,
    samplings: Samplings,
    *,
    seed: int,
    equal: Equal = compare,
    progress: Progress | None = None,
) -> list[SessionRecord]:
    """Play one wave of sessions and return their records, in order.

    Args:
        slots: the sessions of the wave; the same wave and seed give the same records.
        asker: the asker's name in the records.
        seats: the samplers.
        pack: the prompts.
        rules: probes, cross-checks, cuts.
        samplings: how the seats are sampled.
        seed: seed of the wave; each call's seed hangs on it, the turn and the seat.
        equal: compares two answers.
        progress: told before each request what is asked, how many sessions are over, and of how many.
    """
    wave = [_Playing(s, Session(s.id, pack, rules, s.flip, equal=equal)) for s in slots]
    turn = 0
    while any(not p.session.over for p in wave):
        turn += 1
        _tell(progress, f"asker, turn {turn}", wave)
        _ask_asker(wave, seats, samplings.asker, derive(seed, turn, "asker"), turn)
        _tell(progress, f"boundary solvers, turn {turn}", wave)
        _ask_boundary(wave, seats, samplings.boundary, derive(seed, turn, "boundary"), turn)
        _tell(progress, "cross-check", wave)
        _ask_cross_check(wave, seats, samplings.cross_check, derive(seed, turn, "cross-check"), turn)
    return [record(p.session, asker, p.slot.pair, p.slot.slot, p.calls) for p in wave]


def _tell(progress: Progress | None, what: str, wave: Sequence[_Playing]) -> None:
    if progress is not None:
        progress(what, sum(p.session.over for p in wave), len(wave))


def _room(playing: _Playing, seats: Seats, max_tokens: int) -> int | None:
    """Return the tokens left in the asker's context after this turn's limit; None where no context is known.

    Without a counter, the last turn's own counts are taken, and two characters a token for what was said since.
    """
    if seats.context is None:
        return None
    prompt = playing.session.asker_prompt()
    if seats.count is not None:
        return seats.context - seats.count(prompt) - max_tokens
    last = next((c.replies[0] for c in reversed(playing.calls) if c.seat is Seat.ASKER), None)
    known = last.prompt_tokens + last.completion_tokens if last is not None else 0
    new = prompt[-1:] if known else prompt
    return seats.context - known - sum(len(m.content) // 2 + 8 for m in new) - max_tokens


def _ask_asker(wave: Sequence[_Playing], seats: Seats, sampling: Sampling, seed: int, turn: int) -> None:
    active = []
    for p in wave:
        if p.session.state is not State.ASKER:
            continue
        room = _room(p, seats, sampling.max_tokens)
        if room is not None and room < 0:
            p.session.end(Reason.CONTEXT_EXHAUSTED, f"turn {turn} needs {-room} tokens more than the context has")
        else:
            active.append(p)
    sent = [len(p.session.messages) for p in active]
    prompts = [p.session.asker_prompt() for p in active]
    calls = _sample(Seat.ASKER, turn, seats.asker, prompts, replace(sampling, n=1, seed=seed), sent)
    for p, call in zip(active, calls, strict=True):
        p.calls.append(call)
        p.session.hear_asker(call.replies[0])


def _ask_boundary(wave: Sequence[_Playing], seats: Seats, sampling: Sampling, seed: int, turn: int) -> None:
    active = [p for p in wave if p.session.state is State.BOUNDARY]
    wanted: dict[str, list[tuple[int, Seat]]] = {}
    for i, p in enumerate(active):
        for name, seat in zip(p.slot.pair, (Seat.BOUNDARY_A, Seat.BOUNDARY_B), strict=True):
            wanted.setdefault(name, []).append((i, seat))

    def ask(name: str) -> list[Call]:
        prompts = [active[i].session.boundary_prompt() for i, _ in wanted[name]]
        drawn = replace(sampling, n=1, seed=derive(seed, name))
        calls = _sample(Seat.BOUNDARY_A, turn, seats.solvers[name], prompts, drawn)
        return [replace(call, seat=seat) for call, (_, seat) in zip(calls, wanted[name], strict=True)]

    if seats.side_by_side and len(wanted) > 1:
        with ThreadPoolExecutor(len(wanted)) as pool:
            answered = list(pool.map(ask, wanted))
    else:
        answered = [ask(name) for name in wanted]
    found: dict[tuple[int, Seat], Call] = {}
    for name, calls in zip(wanted, answered, strict=True):
        found.update(zip(wanted[name], calls, strict=True))
    for i, p in enumerate(active):
        a, b = found[i, Seat.BOUNDARY_A], found[i, Seat.BOUNDARY_B]
        p.calls += [a, b]
        p.session.hear_boundary(a.replies[0], b.replies[0])


def _ask_cross_check(wave: Sequence[_Playing], seats: Seats, sampling: Sampling, seed: int, turn: int) -> None:
    active = [p for p in wave if p.session.state is State.CROSS_CHECK]
    if not active:
        return
    prompts = [p.session.cross_check_prompt() for p in active]
    drawn = replace(sampling, n=active[0].session.rules.checks, seed=seed)
    for p, call in zip(active, _sample(Seat.CROSS_CHECK, turn, seats.cross_check, prompts, drawn), strict=True):
        p.calls.append(call)
        p.session.hear_cross_check(call.replies)


def _sample(
    seat: Seat,
    turn: int,
    sampler: Sampler,
    prompts: list[Prompt],
    sampling: Sampling,
    sent: Sequence[int] | None = None,
) -> list[Call]:
    """Return one call a prompt; `sent` counts transcript messages where the prompt is the asker's conversation."""
    if not prompts:
        return []
    start = time.perf_counter()
    groups: list[list[Reply]] = sampler.sample(prompts, sampling)
    seconds = time.perf_counter() - start
    return [
        Call(seat, turn, sampler.name, _messages(prompt, None if sent is None else sent[i]), sampling, i, seconds,
             tuple(group))
        for i, (prompt, group) in enumerate(zip(prompts, groups, strict=True))
    ]  # fmt: skip


def _messages(prompt: Prompt, sent: int | None) -> int | tuple[Message, ...]:
    return tuple(prompt) if sent is None else sent
