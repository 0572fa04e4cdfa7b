"""Drive many sessions with samplers: turn by turn, all sessions of a wave side by side.

The questions of a wave are put to each solver in one batch, so in-process models decode them together and servers get
them at once; different solvers are asked at the same time where they are servers.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, TypeVar

from aske.game import Rules, Seat, Session, State
from aske.labels import Equal, Reason
from aske.prompts import AskePack
from aske.records import Call, SessionRecord, record
from selfevolve.answers import compare
from selfevolve.sampling import KeyedSampler, Prompt, Reply, Sampler, Sampling

T = TypeVar("T")
U = TypeVar("U")
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
    samplings: Mapping[str, Sampling] = field(default_factory=dict)  # of single solvers, in place of the seat's


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
        slots: the sessions of the wave; the same wave and seed give the same records. With samplers whose draws hang
            on keys, a session's record does not depend on the rest of the wave.
        asker: the asker's name in the records.
        seats: the samplers.
        pack: the prompts.
        rules: probes, cross-checks, cuts.
        samplings: how the seats are sampled.
        seed: seed of the run; each call's seed hangs on it, the turn and the seat, and its draws on the session too.
        equal: compares two answers.
        progress: told before each request what is asked, how many sessions are over, and of how many.
    """
    wave = [_Playing(s, Session(s.id, pack, rules, s.flip, equal=equal)) for s in slots]
    turn = 0
    while any(not p.session.over for p in wave):
        turn += 1
        _tell(progress, f"asker, turn {turn}", wave, State.ASKER)
        _ask_asker(wave, seats, samplings.asker, derive(seed, turn, "asker"), turn)
        _tell(progress, f"boundary solvers, turn {turn}", wave, State.BOUNDARY)
        _ask_boundary(wave, seats, samplings.boundary, derive(seed, turn, "boundary"), turn)
        _tell(progress, "cross-check", wave, State.CROSS_CHECK)
        _ask_cross_check(wave, seats, samplings.cross_check, derive(seed, turn, "cross-check"), turn)
    return [record(p.session, asker, p.slot.pair, p.slot.slot, p.calls) for p in wave]


def _tell(progress: Progress | None, what: str, wave: Sequence[_Playing], state: State) -> None:
    if progress is not None and any(p.session.state is state for p in wave):
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
    ids = [p.slot.id for p in active]
    calls = ask(Seat.ASKER, turn, seats.asker, ids, prompts, replace(sampling, n=1, seed=seed), sent)
    for p, call in zip(active, calls, strict=True):
        p.calls.append(call)
        p.session.hear_asker(call.replies[0])


def _ask_boundary(wave: Sequence[_Playing], seats: Seats, sampling: Sampling, seed: int, turn: int) -> None:
    active = [p for p in wave if p.session.state is State.BOUNDARY]
    wanted: dict[tuple[str, int], list[tuple[int, Seat]]] = {}
    for i, p in enumerate(active):
        for name, seat in zip(p.slot.pair, (Seat.BOUNDARY_A, Seat.BOUNDARY_B), strict=True):
            # the second copy of a solver that is paired with itself draws under a seed of its own
            copy = 1 if seat is Seat.BOUNDARY_B and name == p.slot.pair[0] else 0
            wanted.setdefault((name, copy), []).append((i, seat))

    def ask_one(who: tuple[str, int]) -> list[Call]:
        name, copy = who
        ids = [active[i].slot.id for i, _ in wanted[who]]
        prompts = [active[i].session.boundary_prompt() for i, _ in wanted[who]]
        drawn = replace(seats.samplings.get(name, sampling), n=1, seed=derive(seed, name, copy))
        calls = ask(Seat.BOUNDARY_A, turn, seats.solvers[name], ids, prompts, drawn)
        return [replace(call, seat=seat) for call, (_, seat) in zip(calls, wanted[who], strict=True)]

    side_by_side = seats.side_by_side and len(wanted) > 1
    answered = _in_threads(ask_one, list(wanted)) if side_by_side else [ask_one(who) for who in wanted]
    found: dict[tuple[int, Seat], Call] = {}
    for who, calls in zip(wanted, answered, strict=True):
        found.update(zip(wanted[who], calls, strict=True))
    for i, p in enumerate(active):
        a, b = found[i, Seat.BOUNDARY_A], found[i, Seat.BOUNDARY_B]
        p.calls += [a, b]
        p.session.hear_boundary(a.replies[0], b.replies[0])


def _in_threads(call: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """Return the results of calls made at the same time, in order; the first error is raised.

    The threads are daemons: an interrupted program does not wait for a silent server, as an executor would.
    """
    done: SimpleQueue[tuple[int, U | None, BaseException | None]] = SimpleQueue()

    def work(place: int, item: T) -> None:
        try:
            done.put((place, call(item), None))
        except BaseException as error:  # raised where the caller waits
            done.put((place, None, error))

    for place, item in enumerate(items):
        threading.Thread(target=work, args=(place, item), daemon=True).start()
    found: dict[int, Any] = {}
    for _ in items:
        place, result, error = done.get()
        if error is not None:
            raise error
        found[place] = result
    return [found[place] for place in range(len(items))]


def _ask_cross_check(wave: Sequence[_Playing], seats: Seats, sampling: Sampling, seed: int, turn: int) -> None:
    active = [p for p in wave if p.session.state is State.CROSS_CHECK]
    if not active:
        return
    prompts = [p.session.cross_check_prompt() for p in active]
    drawn = replace(sampling, n=active[0].session.rules.checks, seed=seed)
    calls = ask(Seat.CROSS_CHECK, turn, seats.cross_check, [p.slot.id for p in active], prompts, drawn)
    for p, call in zip(active, calls, strict=True):
        p.calls.append(call)
        p.session.hear_cross_check(call.replies)


def ask(
    seat: Seat,
    turn: int,
    sampler: Sampler,
    ids: Sequence[str],
    prompts: Sequence[Prompt],
    sampling: Sampling,
    sent: Sequence[int] | None = None,
) -> list[Call]:
    """Put prompts to a sampler in one batch and return one call a prompt.

    Where the sampler takes keys, the draws hang on (seed, id); else on (seed, id of the first prompt, place).

    Args:
        seat: who is asked.
        turn: from 1.
        sampler: who answers.
        ids: the session of each prompt, or another name of it that is its own within the seed.
        prompts: what is sent.
        sampling: n and seed included.
        sent: counts transcript messages where the prompts are the asker's conversations.
    """
    if not prompts:
        return []
    start = time.perf_counter()
    groups: list[list[Reply]]
    if isinstance(sampler, KeyedSampler):
        places = [derive(name) for name in ids]
        groups = sampler.sample_keyed(prompts, sampling, places)
    else:
        places = list(range(len(prompts)))
        sampling = replace(sampling, seed=derive(sampling.seed, ids[0]))
        groups = sampler.sample(prompts, sampling)
    seconds = time.perf_counter() - start
    return [
        Call(seat, turn, sampler.name, tuple(prompt) if sent is None else sent[i], sampling, places[i], seconds,
             tuple(group))
        for i, (prompt, group) in enumerate(zip(prompts, groups, strict=True))
    ]  # fmt: skip
