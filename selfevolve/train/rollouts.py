"""Rollout batches: which rows a step trains on, sampling from the live policy, and the reward of the whole batch.

No TRL here: `selfevolve.train.trl_backend` calls `Maker.make` from TRL's ``rollout_func``. One-reply rollouts are
`RolloutMaker`; conversations of several turns are `selfevolve.train.conversations.ConversationMaker`.
Axis legend for flat lists: ``[input * responses + sample]``, groups contiguous; a process holds one contiguous slice.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import stdev
from time import perf_counter
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object

from selfevolve.sampling import FinishReason, Sampling
from selfevolve.sampling.decoding import Completion
from selfevolve.sampling.transformers_sampler import Formatter
from selfevolve.train.advantages import checked_rewards, group_advantages, spread
from selfevolve.train.spec import BatchReward, LogRow, Rollout, RolloutBatch, TrainingError, TrainRow, TrainSpec

_SHOWN = 10  # numbers of rows left out that a note names


@dataclass
class Clock:
    """Seconds spent in named parts; the time of a part inside another counts for the inner one only."""

    seconds: dict[str, float] = field(default_factory=dict)
    inner: float = 0.0  # seconds of the parts that ended inside the one that is open

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the block to a part."""
        start, before, self.inner = perf_counter(), self.inner, 0.0
        try:
            yield
        finally:
            whole = perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + whole - self.inner
            self.inner = before + whole

    def now(self) -> float:
        """Return the time in seconds, from a start that is the same for all calls."""
        return perf_counter()

    def of(self, *names: str) -> float:
        """Return the seconds of the parts together."""
        return sum(self.seconds.get(name, 0.0) for name in names)


@dataclass(frozen=True)
class Plan:
    """Which rows a stage trains on, step by step."""

    row: tuple[int, ...]  # row of each input, shape (steps * prompts,)
    ids: dict[int, list[int]]  # prompt tokens of each row that is used
    left_out: tuple[int, ...]  # rows whose prompt is empty or too long
    notes: tuple[str, ...]


def make_plan(rows: Sequence[TrainRow], ids: Sequence[list[int]], spec: TrainSpec, context: int | None = None) -> Plan:
    """Order the rows for a stage: one shuffle of all rows after another, cut to ``steps * prompts`` inputs.

    Args:
        rows: what to train on.
        ids: prompt tokens of each row.
        spec: the stage; its seed alone decides the order.
        context: positions that the model has for prompt and completion, or None without a limit.

    Raises:
        TrainingError: no row is left.
    """
    limit = spec.max_prompt_tokens
    if context is not None and context - spec.max_new_tokens < limit:
        limit = context - spec.max_new_tokens
    fitting = [i for i, prompt in enumerate(ids) if 0 < len(prompt) <= limit]
    left_out = tuple(sorted(set(range(len(rows))) - set(fitting)))
    if not fitting:
        raise TrainingError(
            f"none of the {len(rows)} rows has a prompt of 1 to {limit} tokens",
            "Raise max_prompt_tokens, lower max_new_tokens where the context is short, or shorten the prompts.",
        )
    notes = []
    if left_out:
        shown = ", ".join(map(str, left_out[:_SHOWN])) + (", ..." if len(left_out) > _SHOWN else "")
        notes.append(
            f"{len(left_out)} of {len(rows)} rows left out: prompt empty or over {limit} tokens (rows {shown}, from 0)"
        )
    if len(fitting) < spec.prompts:
        notes.append(
            f"{len(fitting)} rows serve the {spec.prompts} inputs of a rollout batch: rows are repeated in turn"
        )
    shuffler = random.Random(f"rows {spec.seed}")
    order: list[int] = []
    while len(order) < spec.steps * spec.prompts:
        order += shuffler.sample(fitting, len(fitting))
    return Plan(tuple(order[: spec.steps * spec.prompts]), {i: ids[i] for i in fitting}, left_out, tuple(notes))


@dataclass(frozen=True)
class LocalRollouts:
    """This process's slice of a rollout batch, for the loss; axes ``[place][token]``."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]  # all that follows the prompt, at least one id
    advantages: list[float]
    mask: list[list[int]]  # of completion_ids; 1: a token of the policy that carries gradient


@dataclass(frozen=True)
class Played:
    """One place of a rollout batch, sampled and not yet rewarded."""

    prompt_ids: list[int]
    completion_ids: list[int]  # all that follows the prompt, at least one id
    written: list[int]  # of completion_ids; 1: the policy wrote it
    cut: bool  # a reply met the token limit
    outcome: Any  # what the reward needs, picklable
    turns: int = 1  # the policy's replies
    exhausted: bool = False  # it ended for lack of context


@dataclass(frozen=True)
class Stage:
    """What the rollout batches of a stage are made of."""

    rows: Sequence[TrainRow]
    plan: Plan
    spec: TrainSpec
    process: tuple[int, int]  # index, count
    clock: Clock
    formatter: Formatter
    end_ids: tuple[int, ...]  # every id that ends a reply
    context: int | None  # positions that the model has for prompt and completion; None without a limit


class Maker(ABC):
    """What one-reply rollouts and conversations share: the places, one reward for all processes, the facts."""

    def __init__(self, stage: Stage) -> None:
        """Keep what the batches are made of."""
        self.rows, self.plan, self.spec, self.clock = stage.rows, stage.plan, stage.spec, stage.clock
        self.index, self.count = stage.process
        self.facts: dict[str, Any] = {}  # of the last batch: the fields of `LogRow` known before the updates

    @abstractmethod
    def play(
        self,
        step: int,
        places: Sequence[int],
        row_of: Sequence[int],
        sampler: Any,
        ready: Callable[[], AbstractContextManager[Any]],
    ) -> list[Played]:
        """Sample this process's places; ``row_of`` names the row of each."""

    @abstractmethod
    def score(self, step: int, row_of: Sequence[int], outcomes: Sequence[Any], sampler: Any) -> Sequence[float | None]:
        """Return one reward a place of the whole batch; called on the main process only."""

    def make(
        self, step: int, sampler: Any, ready: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> LocalRollouts:
        """Sample and reward rollout batch ``step`` (1 for the first), and return this process's slice.

        Random numbers hang on (seed, step, place in the batch), so the completions do not depend on the number of
        processes.

        Args:
            step: which batch.
            sampler: has ``sample_ids`` over the live policy, as `TransformersSampler`.
            ready: makes the context in which the policy can be sampled from.
        """
        spec = self.spec
        size = spec.completions // self.count
        places = range(self.index * size, (self.index + 1) * size)
        local = slice(places.start, places.stop)
        row_of = [
            self.plan.row[(step - 1) * spec.prompts + place // spec.responses] for place in range(spec.completions)
        ]
        mine = self._everywhere(lambda: self.play(step, places, row_of[local], sampler, ready))
        give_memory_back()
        outcomes = gather_object([played.outcome for played in mine])
        counts = gather_object([_counts(played) for played in mine])
        rewards = self._rewards(lambda: self.score(step, row_of, outcomes, sampler), spec.completions)
        self.facts = {"step": step, **self._reward_facts(rewards)}
        self.facts |= {name: sum(count[name] for count in counts) for name in counts[0]}
        self.facts["turns"] /= spec.completions
        return LocalRollouts(
            [played.prompt_ids for played in mine],
            [played.completion_ids for played in mine],
            group_advantages(rewards, spec.responses)[local],
            [
                [0] * len(played.written) if reward is None else played.written
                for played, reward in zip(mine, rewards[local], strict=True)
            ],
        )

    def sampling(self, step: int, turn: int = 1) -> Sampling:
        """Return how the policy's replies of a turn (1 for the first) are drawn; its seed hangs on step and turn."""
        spec = self.spec
        name = f"rollouts {spec.seed} {step}" + (f" turn {turn}" if turn > 1 else "")
        return Sampling(
            n=1,
            temperature=spec.temperature,
            top_p=spec.top_p,
            top_k=spec.top_k,
            max_tokens=spec.max_new_tokens,
            seed=random.Random(name).getrandbits(62),
        )

    def _everywhere(self, play: Callable[[], list[Played]]) -> list[Played]:
        """Return what this process played; a failure on one process is raised on all, so that none waits for it."""
        failure: Exception | None = None
        mine: list[Played] = []
        try:
            mine = play()
        except Exception as error:
            failure = error
        failures = gather_object([None if failure is None else f"{type(failure).__name__}: {failure}"])
        if failure is not None:
            raise failure
        for index, message in enumerate(failures):
            if message is not None:
                raise TrainingError(f"the rollouts failed on process {index}: {message}")
        return mine

    def _rewards(self, score: Callable[[], Sequence[float | None]], expected: int) -> list[float | None]:
        """Return the rewards of the whole batch, computed on the main process; its failure is raised everywhere."""
        message: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.index == 0:
            try:
                message[0] = checked_rewards(score(), expected)
            except Exception as error:  # the other processes wait for a message: send them the failure first
                failure, message[1] = error, f"{type(error).__name__}: {error}"
        broadcast_object_list(message)
        if failure is not None:
            raise failure
        if message[1] is not None:
            raise TrainingError(f"the reward failed on the main process: {message[1]}")
        rewards: list[float | None] = message[0]
        return rewards

    def _reward_facts(self, rewards: Sequence[float | None]) -> dict[str, Any]:
        scored = [reward for reward in rewards if reward is not None]
        group = self.spec.responses
        groups = [rewards[start : start + group] for start in range(0, len(rewards), group)]
        return {
            "reward_mean": sum(scored) / len(scored) if scored else None,
            "reward_std": stdev(scored) if len(scored) > 1 else None,
            "scored": len(scored),
            "masked": len(rewards) - len(scored),
            "groups": len(groups),
            "zero_spread": sum(spread(part) is None for part in groups),
        }


def give_memory_back() -> None:
    """Give the GPU back what the rollouts' keys and values took: servers that answer for the reward may share it."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _counts(played: Played) -> dict[str, int]:
    """Return what one place adds to the counts of a batch."""
    written = sum(played.written)
    return {
        "clipped": int(played.cut),
        "completion_tokens": written,
        "prompt_tokens": len(played.prompt_ids),
        "world_tokens": len(played.written) - written,
        "turns": played.turns,
        "exhausted": int(played.exhausted),
    }


class RolloutMaker(Maker):
    """Samples one reply a place from the live policy."""

    def __init__(self, stage: Stage, reward: BatchReward) -> None:
        """Keep what the batches are made of, and what scores them."""
        super().__init__(stage)
        self.reward, self.formatter = reward, stage.formatter

    def play(
        self,
        step: int,
        places: Sequence[int],
        row_of: Sequence[int],
        sampler: Any,
        ready: Callable[[], AbstractContextManager[Any]],
    ) -> list[Played]:
        """Sample one reply to each place's prompt; the outcome is its `Completion`."""
        prompts = [self.plan.ids[row] for row in row_of]
        with self.clock.part("generate"), ready():
            drawn = [group[0] for group in sampler.sample_ids(prompts, self.sampling(step), keys=list(places))]
        return [
            Played(prompt, list(reply.ids), [1] * len(reply.ids), not reply.stopped, reply)
            for prompt, reply in zip(prompts, drawn, strict=True)
        ]

    def score(
        self, step: int, row_of: Sequence[int], outcomes: Sequence[Completion], sampler: Any
    ) -> Sequence[float | None]:
        """Return the batch reward of all replies."""
        texts = sampler.texts(outcomes)
        rollouts = [self._rollout(row, reply, texts[reply.ids]) for row, reply in zip(row_of, outcomes, strict=True)]
        with self.clock.part("reward"):
            return self.reward(RolloutBatch(step, tuple(rollouts)))

    def _rollout(self, row: int, completion: Completion, text: str) -> Rollout:
        reason = FinishReason.STOP if completion.stopped else FinishReason.LENGTH
        source = self.rows[row]
        text = self.formatter.opened(self.plan.ids[row]) + text
        return Rollout(row, source.prompt, source.payload, text, reason, len(completion.ids))


def length_warnings(rows: Sequence[LogRow], spec: TrainSpec) -> list[str]:
    """Name the limits that were met too often: of a reply's length, and of a conversation's."""
    notes = []
    stuck = [row for row in rows if row.clipped > 0.9 * row.completions and row.zero_spread == row.groups]
    if stuck:
        notes.append(
            f"in {len(stuck)} of {len(rows)} steps nearly all completions were cut off at {spec.max_new_tokens} tokens "
            "and no group had a spread of rewards: max_new_tokens is probably too small"
        )
    ended, played = sum(row.exhausted for row in rows), sum(row.completions for row in rows)
    if ended > 0.1 * played:
        notes.append(
            f"{ended} of {played} conversations ended because the model's context had no room for another reply of "
            f"{spec.max_new_tokens} tokens: lower max_new_tokens, shorten the world's turns, or play fewer of them"
        )
    return notes
