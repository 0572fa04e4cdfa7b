"""Ask-E with the policy in training as the asker: whole sessions, or single questions that the policy checks itself.

Both are `Conversations` of `selfevolve.train`. They know neither a run nor a recipe, so that the loop and the training
of an asker on its own (`selfevolve.asker_training`) share them. Draws hang on (seed, step, turn, seat, place), so it
does not matter which places are advanced together where samplers are keyed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from aske.game import Rules, Seat, Session, State
from aske.labels import Grade, grade
from aske.prompts import AskePack
from aske.records import Call, SessionRecord, record
from selfevolve.ask_e import Pair, Table
from selfevolve.sampling import Prompt, Reply, Sampler, Sampling, sample_more
from selfevolve.seeds import derive
from selfevolve.train import TrainRow

Hook = Callable[[int, Sampler], None]  # (step, the policy with its current weights)


@dataclass(frozen=True)
class Checked:
    """One reply of the policy, with its own answers to the question in it."""

    reply: Reply
    checks: tuple[Reply, ...] | None  # None: no question could be read


class SelfChecked:
    """Conversations of one turn: the policy writes a question, and then answers it as the cross-check."""

    def __init__(self, read: Callable[[Reply], str | None], solve: Callable[[str], Prompt], table: Table, seed: int):
        """Keep how a question is read and asked, and how cross-checks are drawn."""
        self.read, self.solve, self.table, self.seed = read, solve, table, seed
        self.step = 0
        self.heard: dict[int, Checked] = {}

    def begin(self, step: int, places: Sequence[int], rows: Sequence[TrainRow]) -> Sequence[Prompt]:
        """Return the rows' prompts."""
        self.step, self.heard = step, {}
        return [row.prompt for row in rows]

    def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
        """Have the policy answer every question that could be read; every conversation is then over."""
        questions = {place: self.read(replies[place]) for place in sorted(replies)}
        asked = {place: self.solve(q) for place, q in questions.items() if q is not None}
        sampling = self.table.check_sampling(derive(self.seed, self.step))
        groups = sample_more(policy, list(asked.values()), sampling, list(asked))
        checks = {place: tuple(group) for place, group in zip(asked, groups, strict=True)}
        self.heard |= {place: Checked(reply, checks.get(place)) for place, reply in replies.items()}
        return dict.fromkeys(replies)

    def outcomes(self, places: Sequence[int]) -> Sequence[Checked]:
        """Return what was heard at each place."""
        return [self.heard[place] for place in places]


@dataclass(frozen=True)
class Outcome:
    """A finished session of training."""

    record: SessionRecord
    audit: Grade | None = None  # the final question under more cross-checks; never in the reward; None: not audited


@dataclass
class _Playing:
    """A session under way."""

    session: Session
    pair: Pair
    calls: list[Call] = field(default_factory=list)
    audit: Grade | None = None


class AskeConversations:
    """Whole sessions of Ask-E, one a place; all sessions of a group face the same pair."""

    def __init__(
        self,
        pack: AskePack,
        rules: Rules,
        table: Table,
        *,
        group: int,
        seed: int,
        asker: Sampling,
        cross_check: Sampler | None = None,
        prefix: str = "training",
        audit: int = 0,
        hook: Hook | None = None,
    ) -> None:
        """Seat the solvers.

        Args:
            pack: the prompts of the game.
            rules: probes, cuts; its number of cross-checks gives way to the table's.
            table: boundary solvers and pairs.
            group: sessions of one group.
            seed: of pairs, order, solvers and cross-checks.
            asker: how the trainer samples the policy, for the records.
            cross_check: a fixed model; None: the policy with its current weights.
            prefix: begins the ids of sessions.
            audit: cross-checks more for each final question, drawn at the solvers' temperature, whose agreement is
                measured and rewarded nowhere; 0 switches them off.
            hook: called once a step, before the solvers are asked, for example to evaluate the policy.
        """
        self.pack, self.rules, self.table = pack, replace(rules, checks=table.checks), table
        self.group, self.seed, self.asker, self.cross_check = group, seed, asker, cross_check
        self.prefix, self.audit, self.hook = prefix, audit, hook
        self.step = self.turn = 0
        self.playing: dict[int, _Playing] = {}

    def begin(self, step: int, places: Sequence[int], rows: Sequence[TrainRow]) -> Sequence[Prompt]:
        """Open a session at each place; the openings are the rows' prompts."""
        self.step, self.turn = step, 0
        seed = derive(self.seed, step)
        self.playing = {
            place: _Playing(
                Session(
                    f"{self.prefix}-s{step:02d}-{place:06d}",
                    self.pack,
                    self.rules,
                    flip=Random(derive(seed, "flip", place)).random() < 0.5,
                ),
                self.table.pair(seed, place // self.group),
            )
            for place in places
        }
        return [self.playing[place].session.asker_prompt() for place in places]

    def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
        """Take a turn of the policy at each place, ask the solvers, and return what the policy is told."""
        self.turn += 1
        if self.turn == 1 and self.hook is not None:
            self.hook(self.step, policy)
        for place in sorted(replies):
            p = self.playing[place]
            sent = len(p.session.messages)
            p.calls.append(Call(Seat.ASKER, self.turn, "policy", sent, self.asker, place, 0.0, (replies[place],)))
            p.session.hear_asker(replies[place])
        self._ask_boundary(sorted(replies))
        self._ask_cross_check(sorted(replies), self.cross_check or policy)
        return {place: self._said(self.playing[place].session) for place in replies}

    def outcomes(self, places: Sequence[int]) -> Sequence[Outcome]:
        """Return the sessions' records."""
        found = [self.playing[place] for place in places]
        return [
            Outcome(record(p.session, "policy", p.pair, place, p.calls), p.audit)
            for place, p in zip(places, found, strict=True)
        ]

    # ------------------------------------------------------------ solvers

    @staticmethod
    def _said(session: Session) -> str | None:
        return session.messages[-1].content if session.state is State.ASKER else None

    def _waiting(self, places: Sequence[int], state: State) -> list[int]:
        return [place for place in places if self.playing[place].session.state is state]

    def _ask_boundary(self, places: Sequence[int]) -> None:
        asked = self._waiting(places, State.BOUNDARY)
        prompts = {place: self.playing[place].session.boundary_prompt() for place in asked}
        pairs = {place: self.playing[place].pair for place in asked}
        seed, start = derive(self.seed, self.step, self.turn), time.perf_counter()
        answered = self.table.boundary(prompts, pairs, seed)
        seconds = time.perf_counter() - start
        for place, replies in answered.items():
            p = self.playing[place]
            for seat, name, reply in zip((Seat.BOUNDARY_A, Seat.BOUNDARY_B), p.pair, replies, strict=True):
                sampling = self.table.boundary_sampling(seed, name)
                p.calls.append(Call(seat, self.turn, name, prompts[place], sampling, place, seconds, (reply,)))
            p.session.hear_boundary(*replies)

    def _ask_cross_check(self, places: Sequence[int], sampler: Sampler) -> None:
        asked = self._waiting(places, State.CROSS_CHECK)
        if not asked:
            return
        prompts = [self.playing[place].session.cross_check_prompt() for place in asked]
        seed = derive(self.seed, self.step, self.turn)
        sampling, start = self.table.check_sampling(seed), time.perf_counter()
        groups = sample_more(sampler, prompts, sampling, asked)
        seconds = time.perf_counter() - start
        audits: Sequence[Sequence[Reply]] = [()] * len(asked)
        if self.audit:
            more = replace(self.table.sampling, n=self.audit, seed=derive(seed, "audit"))
            audits = sample_more(sampler, prompts, more, asked)
        for place, prompt, group, audit in zip(asked, prompts, groups, audits, strict=True):
            p = self.playing[place]
            name = "policy" if self.cross_check is None else sampler.name
            p.calls.append(Call(Seat.CROSS_CHECK, self.turn, name, prompt, sampling, place, seconds, tuple(group)))
            p.session.hear_cross_check(group)
            if audit:
                p.audit = grade(final_boundary(p.calls), audit)


def final_boundary(calls: Sequence[Call]) -> tuple[Reply, ...]:
    """Return the boundary solvers' replies to the final question, in the order of the pair; () where none was asked."""
    checked = next((c.turn for c in calls if c.seat is Seat.CROSS_CHECK), None)
    if checked is None:
        return ()
    solvers = (Seat.BOUNDARY_A, Seat.BOUNDARY_B)
    return tuple(c.replies[0] for seat in solvers for c in calls if c.seat is seat and c.turn == checked)
