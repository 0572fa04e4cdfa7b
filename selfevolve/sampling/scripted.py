"""A sampler whose replies are written by the caller: for tests, examples and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selfevolve.sampling.protocol import FinishReason, Prompt, Reply, Sampling


class ScriptedSampler:
    """Answer every prompt by a function ``script(prompt, sample_index) -> str | Reply``.

    A string becomes a complete reply; token counts are counts of blank-separated words. The prompts seen are kept in
    ``calls`` (one entry a call of `sample`), so that a test can assert what was asked.
    """

    def __init__(self, script: Callable[[Prompt, int], str | Reply], name: str = "scripted") -> None:
        """Keep the script."""
        self.script = script
        self.name = name
        self.calls: list[tuple[tuple[Prompt, ...], Sampling]] = []

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` scripted replies a prompt; axes ``[prompt][sample]``."""
        self.calls.append((tuple(prompts), sampling))
        indices = range(sampling.first, sampling.first + sampling.n)
        return [[self._reply(prompt, i) for i in indices] for prompt in prompts]

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `sample` does: a script hangs on the prompt and the sample index alone."""
        return self.sample(prompts, sampling)

    def _reply(self, prompt: Prompt, index: int) -> Reply:
        answer = self.script(prompt, index)
        if isinstance(answer, Reply):
            return answer
        words = sum(len(m.content.split()) for m in prompt)
        return Reply(answer, FinishReason.STOP, words, len(answer.split()))
