"""The sampler protocol: where replies come from, and what every reply carries.

Axis legend for nested lists in this package: ``[prompt][sample]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"  # the model ended it
    LENGTH = "length"  # cut off at the token limit
    TIMEOUT = "timeout"  # the deadline passed
    ERROR = "error"  # the call failed after its retries


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str  # "system", "user" or "assistant"
    content: str


Prompt = tuple[Message, ...]  # a whole conversation, ending where the reply begins


def user(content: str, system: str | None = None) -> Prompt:
    """Return a prompt of one user turn, after a system turn if one is given."""
    turns = (Message("user", content),)
    return (Message("system", system), *turns) if system else turns


@dataclass(frozen=True)
class Sampling:
    """How replies are drawn.

    ``temperature`` 0 is greedy decoding; ``top_k`` 0 and ``top_p`` 1 switch those cuts off.
    """

    n: int = 1  # replies a prompt
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512  # new tokens a reply, at most
    seed: int = 0  # same seed, prompts and model: same replies (in-process backends)
    first: int = 0  # index of the first sample: n more replies of a draw of which `first` are had already

    def __post_init__(self) -> None:
        """Refuse values outside their range, with the value met and the range."""
        if self.n < 1:
            raise ValueError(f"n is {self.n}; ask for at least 1 reply a prompt")
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}; it must be 0 (greedy) or above")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be in (0, 1]")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (off) or above")
        if self.first < 0:
            raise ValueError(f"first is {self.first}; it must be 0 or above")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be at least 1")


@dataclass(frozen=True)
class Reply:
    """One sampled reply; untrusted text."""

    text: str  # "" when nothing came
    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None  # what failed, where finish_reason is timeout or error
    # how it came, which takes no part in comparing replies
    seconds: float = field(default=0.0, compare=False)  # wall time of its call with retries; 0.0: not measured
    seed: int | None = field(default=None, compare=False)  # the seed its call was made with, where the backend tells
    cached: bool = field(default=False, compare=False)  # read from a cache: nothing was paid for it now

    @property
    def complete(self) -> bool:
        """True when the model itself ended the reply: only such a reply can cast a vote."""
        return self.finish_reason is FinishReason.STOP


def are_copies(groups: Sequence[Sequence[Reply]], least: int = 8) -> bool:
    """Return True where every prompt's replies are one text, so that their agreement says nothing.

    A server that gives all processes, or all choices, one seed answers so, or one that ignores the temperature. Groups
    of fewer than three whole replies are passed over; below ``least`` others it may be chance.

    Args:
        groups: replies drawn above temperature 0; axes ``[prompt][sample]``.
        least: prompts that must be seen.
    """
    whole = [[reply.text for reply in group if reply.complete and reply.text] for group in groups]
    told = [texts for texts in whole if len(texts) >= 3]
    return len(told) >= least and all(len(set(texts)) == 1 for texts in told)


@runtime_checkable
class Sampler(Protocol):
    """Anything that answers prompts."""

    name: str  # shown in records and reports

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` replies for each prompt, in order; axes ``[prompt][sample]``.

        A failed call is a `Reply` with its finish reason, never an exception and never a missing entry.
        """
        ...


@runtime_checkable
class KeyedSampler(Sampler, Protocol):
    """A sampler whose draws hang on a key a prompt in place of its position in the list."""

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `Sampler.sample` does for prompts that stand at the places ``keys`` of a longer list."""
        ...


def sample_more(
    sampler: Sampler, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]
) -> list[list[Reply]]:
    """Ask for samples ``first`` to ``first + n - 1`` of some prompts of a list that was sampled before.

    A keyed sampler continues the same draw: the replies are those that a larger ``n`` would have given at once. Any
    other draws independently, under a seed of its own.

    Args:
        sampler: who answers.
        prompts: the prompts that need more.
        sampling: with the seed of the earlier call, ``first`` replies already had, and ``n`` more wanted.
        keys: places of the prompts in the earlier list.
    """
    if not prompts:
        return []
    if isinstance(sampler, KeyedSampler):
        return sampler.sample_keyed(prompts, sampling, list(keys))
    if not sampling.first:
        return sampler.sample(prompts, sampling)
    return sampler.sample(
        prompts, replace(sampling, seed=(sampling.seed * 1_000_003 + sampling.first) % 2**62, first=0)
    )
