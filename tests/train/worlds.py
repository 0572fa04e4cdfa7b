"""Worlds for tests of conversations, and a sampler that keeps what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfevolve.sampling import Prompt, Reply, Sampler
from selfevolve.sampling.decoding import Completion
from selfevolve.sampling.transformers_sampler import TransformersSampler
from selfevolve.train import TrainRow


class Interview:
    """Asks place p ``(p % most) + 1`` further questions about words of its own, and keeps all replies."""

    def __init__(self, most: int = 2) -> None:
        self.most = most
        self.replies: dict[int, list[Reply]] = {}
        self.steps: list[int] = []
        self.openings: Sequence[Prompt] | None = None  # in place of the rows' prompts

    def begin(self, step: int, places: Sequence[int], rows: Sequence[TrainRow]) -> Sequence[Prompt]:
        self.steps.append(step)
        self.replies = {place: [] for place in places}
        return self.openings or [row.prompt for row in rows]

    def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
        for place, reply in replies.items():
            self.replies[place].append(reply)
        return {
            place: f"w{place % 9} w{len(self.replies[place])}"
            if len(self.replies[place]) <= place % self.most + 1
            else None
            for place in replies
        }

    def outcomes(self, places: Sequence[int]) -> Sequence[Any]:
        return [(place, [reply.text for reply in self.replies[place]]) for place in places]


class Recorder(TransformersSampler):
    """Keeps, in ``calls``, (prompt, sampled ids) of every turn by place."""

    calls: dict[int, list[tuple[list[int], Completion]]]

    def sample_ids(self, prompts: Any, sampling: Any, keys: Any = None) -> Any:
        groups = super().sample_ids(prompts, sampling, keys)
        self.__dict__.setdefault("calls", {})
        for key, prompt, group in zip(range(len(prompts)) if keys is None else keys, prompts, groups, strict=True):
            self.calls.setdefault(key, []).append((list(prompt), group[0]))
        return groups
