"""Who says that two questions are one exercise: the judge's protocol, and a judge that asks a model."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from novelty.prompts import same_type_prompt
from novelty.verdict import SameType, read_same_type
from selfevolve.sampling import FinishReason, Prompt, Sampler, Sampling

Pair = tuple[str, str]  # (candidate, reference): question A and question B of the prompt


@runtime_checkable
class NoveltyJudge(Protocol):
    """Anything that judges pairs of questions."""

    def same_type(self, pairs: Sequence[Pair]) -> list[SameType]:
        """Return a verdict for each pair ``(candidate, reference)``, in order; a failure is UNDECIDED, never raised."""
        ...


@dataclass
class JudgeCounts:
    """What a judge has done since it was made."""

    pairs: int = 0  # pairs put to the judge
    from_cache: int = 0  # of these, answered from memory
    asked: int = 0  # of these, prompts sent to the sampler
    calls: int = 0  # calls of the sampler, each with a batch of prompts
    unreadable: int = 0  # replies without a verdict, of those asked; failed and truncated ones included
    failed: int = 0  # of the unreadable, replies that timed out or failed
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ModelJudge:
    """Ask a sampler, with one reply a pair (R-Quest, section 3.2: the frozen base model).

    Verdicts are remembered by the exact texts of the pair, in their order; a failed call is not remembered.
    """

    def __init__(
        self,
        sampler: Sampler,
        prompt_builder: Callable[[str, str], Prompt] = same_type_prompt,
        sampling: Sampling | None = None,
        *,
        cache: bool = True,
    ) -> None:
        """Keep what is needed to ask.

        Args:
            sampler: The model that judges.
            prompt_builder: Makes the prompt from candidate and reference.
            sampling: One reply a pair; by default greedy, 512 tokens. Its seed is mixed with the pairs' texts, so that
                a candidate's verdicts are drawn independently and the same pairs get the same replies in any run.
            cache: Remember verdicts. Off, every pair is asked anew.

        Raises:
            ValueError: The sampling asks for more than one reply a prompt.
        """
        self.sampling = sampling or Sampling(temperature=0.0, max_tokens=512)
        if self.sampling.n != 1:
            raise ValueError(f"sampling.n is {self.sampling.n}; a pair gets one verdict, so set it to 1")
        self.sampler = sampler
        self.prompt_builder = prompt_builder
        self.counts = JudgeCounts()
        self._known: dict[Pair, SameType] | None = {} if cache else None

    def same_type(self, pairs: Sequence[Pair]) -> list[SameType]:
        """Return a verdict for each pair, in order; one call of the sampler, none if all pairs are known."""
        self.counts.pairs += len(pairs)
        if self._known is None:
            return [verdict for verdict, _ in self._ask(pairs)]
        verdicts = {pair: self._known[pair] for pair in pairs if pair in self._known}
        new = [pair for pair in dict.fromkeys(pairs) if pair not in verdicts]
        self.counts.from_cache += len(pairs) - len(new)
        for pair, (verdict, failed) in zip(new, self._ask(new), strict=True):
            verdicts[pair] = verdict
            if not failed:
                self._known[pair] = verdict
        return [verdicts[pair] for pair in pairs]

    def forget(self) -> None:
        """Empty the memory of pairs; the counts stay."""
        if self._known is not None:
            self._known.clear()

    def remembered(self) -> list[tuple[str, str, str]]:
        """Return the memory as rows (candidate, reference, verdict), for a file."""
        return [(*pair, verdict.value) for pair, verdict in (self._known or {}).items()]

    def remember(self, rows: Iterable[Sequence[str]]) -> None:
        """Add rows of `remembered` to the memory; without one they are passed over."""
        if self._known is not None:
            self._known.update({(a, b): SameType(verdict) for a, b, verdict in rows})

    def _ask(self, pairs: Sequence[Pair]) -> list[tuple[SameType, bool]]:
        """Return a verdict for each pair and whether its call failed."""
        if not pairs:
            return []
        prompts = [self.prompt_builder(candidate, reference) for candidate, reference in pairs]
        mixed = zlib.crc32("\0".join(text for pair in pairs for text in pair).encode("utf-8", "surrogatepass"))
        replies = self.sampler.sample(prompts, replace(self.sampling, seed=self.sampling.seed ^ mixed))
        self.counts.calls += 1
        self.counts.asked += len(pairs)
        found: list[tuple[SameType, bool]] = []
        for reply in (samples[0] for samples in replies):
            verdict = read_same_type(reply.text, reply.complete)
            failed = reply.finish_reason in (FinishReason.TIMEOUT, FinishReason.ERROR)
            self.counts.unreadable += verdict is SameType.UNDECIDED
            self.counts.failed += failed
            self.counts.prompt_tokens += reply.prompt_tokens
            self.counts.completion_tokens += reply.completion_tokens
            found.append((verdict, failed))
        return found
