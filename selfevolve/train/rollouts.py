"""Rollout batches: which rows a step trains on, sampling from the live policy, and the reward of the whole batch.

No TRL here: `selfevolve.train.trl_backend` calls `RolloutMaker.make` from TRL's ``rollout_func``.
Axis legend for flat lists: ``[input * responses + sample]``, groups contiguous; a process holds one contiguous slice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import stdev
from time import perf_counter
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object

from selfevolve.sampling import FinishReason, Sampling
from selfevolve.sampling.decoding import Completion
from selfevolve.train.advantages import checked_rewards, group_advantages, spread
from selfevolve.train.spec import BatchReward, LogRow, Rollout, RolloutBatch, TrainingError, TrainRow, TrainSpec


@dataclass
class Clock:
    """Seconds spent in named parts; parts do not nest."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the block to a part."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start

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
        notes.append(f"{len(left_out)} of {len(rows)} rows left out: prompt empty or over {limit} tokens")
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
    """This process's slice of a rollout batch, for the loss."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    advantages: list[float]
    masked: list[bool]  # no gradient at all


class RolloutMaker:
    """Samples rollout batches from the live policy and has them rewarded, once a step for all processes."""

    def __init__(
        self,
        rows: Sequence[TrainRow],
        plan: Plan,
        reward: BatchReward,
        spec: TrainSpec,
        process: tuple[int, int],
        clock: Clock,
    ) -> None:
        """Keep what the batches are made of; ``process`` is (index, count)."""
        self.rows, self.plan, self.reward, self.spec, self.clock = rows, plan, reward, spec, clock
        self.index, self.count = process
        self.facts: dict[str, Any] = {}  # of the last batch: the fields of `LogRow` known before the updates

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
        row_of = [
            self.plan.row[(step - 1) * spec.prompts + place // spec.responses] for place in range(spec.completions)
        ]
        prompt_ids = [self.plan.ids[row_of[place]] for place in places]
        sampling = Sampling(
            n=1,
            temperature=spec.temperature,
            top_p=spec.top_p,
            top_k=spec.top_k,
            max_tokens=spec.max_new_tokens,
            seed=random.Random(f"rollouts {spec.seed} {step}").getrandbits(62),
        )
        with self.clock.part("generate"), ready():
            mine = [group[0] for group in sampler.sample_ids(prompt_ids, sampling, keys=list(places))]
        everyone: list[Completion] = gather_object(mine)
        rewards = self._rewards(step, row_of, everyone, sampler)
        advantages = group_advantages(rewards, spec.responses)
        self._note(step, row_of, everyone, rewards)
        local = slice(places.start, places.stop)
        return LocalRollouts(
            prompt_ids,
            [list(completion.ids) for completion in mine],
            advantages[local],
            [reward is None for reward in rewards[local]],
        )

    def _rewards(self, step: int, row_of: list[int], completions: list[Completion], sampler: Any) -> list[float | None]:
        """Return the rewards of the whole batch, computed on the main process; its failure is raised everywhere."""
        message: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.index == 0:
            try:
                texts = sampler.texts(completions)
                batch = RolloutBatch(
                    step,
                    tuple(
                        self._rollout(row, completion, texts[completion.ids])
                        for row, completion in zip(row_of, completions, strict=True)
                    ),
                )
                with self.clock.part("reward"):
                    message[0] = checked_rewards(self.reward(batch), len(batch.rollouts))
            except Exception as error:  # the other processes wait for a message: send them the failure first
                failure, message[1] = error, f"{type(error).__name__}: {error}"
        broadcast_object_list(message)
        if failure is not None:
            raise failure
        if message[1] is not None:
            raise TrainingError(f"the reward failed on the main process: {message[1]}")
        rewards: list[float | None] = message[0]
        return rewards

    def _rollout(self, row: int, completion: Completion, text: str) -> Rollout:
        reason = FinishReason.STOP if completion.stopped else FinishReason.LENGTH
        source = self.rows[row]
        return Rollout(row, source.prompt, source.payload, text, reason, len(completion.ids))

    def _note(self, step: int, row_of: list[int], completions: list[Completion], rewards: list[float | None]) -> None:
        scored = [reward for reward in rewards if reward is not None]
        group = self.spec.responses
        groups = [rewards[start : start + group] for start in range(0, len(rewards), group)]
        self.facts = {
            "step": step,
            "reward_mean": sum(scored) / len(scored) if scored else None,
            "reward_std": stdev(scored) if len(scored) > 1 else None,
            "scored": len(scored),
            "masked": len(rewards) - len(scored),
            "groups": len(groups),
            "zero_spread": sum(spread(part) is None for part in groups),
            "clipped": sum(not completion.stopped for completion in completions),
            "completion_tokens": sum(len(completion.ids) for completion in completions),
            "prompt_tokens": sum(len(self.plan.ids[row]) for row in row_of),
        }


def length_warning(rows: Sequence[LogRow], spec: TrainSpec) -> list[str]:
    """Name the length limit where nearly all completions met it and no group had a spread."""
    stuck = [row for row in rows if row.clipped > 0.9 * row.completions and row.zero_spread == row.groups]
    if not stuck:
        return []
    return [
        f"in {len(stuck)} of {len(rows)} steps nearly all completions were cut off at {spec.max_new_tokens} tokens "
        "and no group had a spread of rewards: max_new_tokens is probably too small"
    ]
