"""The sampler on vLLM in this process: the only place that imports vllm (ground floor: imports nothing of ours).

Axis legend: ``[prompt][sample]``.
"""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfevolve.sampling._derive import draw_seed
from selfevolve.sampling._guard import Guard
from selfevolve.sampling.protocol import FinishReason, Prompt, Reply, Sampling
from selfevolve.sampling.transformers_sampler import Formatter

logger = logging.getLogger(__name__)


def load_vllm() -> Any:
    """Import vllm.

    Raises:
        ValueError: it is not installed, or does not import; the message names the remedy.
    """
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        raise ValueError(
            "vllm is not installed; install selfevolve[vllm] (vllm 0.31.0; TRL 1.16 supports 0.22 to 0.31), "
            "or use the transformers sampler or a server"
        ) from None


class VllmSampler:
    """Answer prompts with a model that vLLM holds in this process."""

    def __init__(
        self,
        model: Any,
        *,
        name: str | None = None,
        engine: Mapping[str, Any] | None = None,
        max_prompt_tokens: int | None = None,
        template_options: dict[str, Any] | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        """Start or keep the engine, and decide the prompt format.

        Args:
            model: a folder or hub id, or a loaded ``vllm.LLM`` (kept as it is).
            name: shown in records; None: the model's path or type.
            engine: further arguments of ``vllm.LLM``, such as ``gpu_memory_utilization`` or ``max_model_len``. On a CPU
                ``enable_chunked_prefill`` is off unless given.
            max_prompt_tokens: a longer prompt is answered by an ERROR reply; None: what the model's context leaves.
            template_options: further variables for the chat template (for example ``{"enable_thinking": False}``).
            trust_remote_code: run code that the model's repository carries.

        Raises:
            ValueError: vllm is not installed.
        """
        vllm = load_vllm()
        by_path = isinstance(model, str | Path)
        if by_path and trust_remote_code:
            logger.warning("%s: code from the model's repository will run (trust_remote_code)", model)
        self._params: Any = vllm.SamplingParams
        # "auto" would also read weights that are pickled code
        options = {"load_format": "safetensors"} | dict(engine or {}) | {"trust_remote_code": trust_remote_code}
        if vllm.platforms.current_platform.is_cpu():
            # a seeded prompt that is read in parts ends the engine there: "CPU Generator does not use offset"
            options.setdefault("enable_chunked_prefill", False)
        before = {child.pid for child in multiprocessing.active_children()}
        self.engine: Any = vllm.LLM(model=str(model), **options) if by_path else model
        # the engine's own process does not notice that this one was killed, and would keep its memory
        own = [child.pid for child in multiprocessing.active_children() if child.pid not in before and child.pid]
        self._guard = Guard(own) if own else None
        self.name = name or (str(model) if by_path else type(model).__name__)
        self.formatter = Formatter(self.engine.get_tokenizer(), template_options)
        self.format = self.formatter.format
        self.max_prompt_tokens = max_prompt_tokens
        logger.info("%s: prompts in %s format, engine vLLM %s", self.name, self.format.value, _version(vllm))

    def close(self) -> None:
        """Shut the engine down; the sampler is of no use after."""
        core = getattr(getattr(self.engine, "llm_engine", None), "engine_core", None)
        if core is not None:
            core.shutdown()
        if self._guard is not None:
            self._guard.end()

    @property
    def identity(self) -> str:
        """What a reply depends on beside prompt, sampling and sample index, while the weights stay what they are."""
        parts = {"vllm": self.name, "format": self.format.value, "template": self.formatter.template_options}
        return json.dumps(parts, sort_keys=True, default=str)

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` replies for each prompt, in order; axes ``[prompt][sample]``.

        A prompt that is empty or too long is never cut: its replies have finish reason ERROR and say why. At
        temperature 0 one reply a prompt is drawn and copied (vLLM refuses more). An engine that fails gives ERROR
        replies.
        """
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `sample` does; seeds hang on a key a prompt in place of its position."""
        ids = self.formatter.ids(prompts)
        limit = self.prompt_limit(sampling)
        refusals = [_refusal(len(prompt), limit) for prompt in ids]
        good = [i for i, refusal in enumerate(refusals) if refusal is None]
        start = time.monotonic()
        drawn: dict[int, list[Reply]] = {}
        if good:
            try:
                drawn = dict(
                    zip(good, self._draw([ids[i] for i in good], [keys[i] for i in good], sampling), strict=True)
                )
            except Exception as error:  # an engine may fail in any way; a failed call is a reply
                logger.exception("%s: the engine failed", self.name)
                text = f"the engine failed: {type(error).__name__}: {error}"
                drawn = {i: [_failed(len(ids[i]), text)] * sampling.n for i in good}
        logger.debug("%s: %d prompts in %.1f s", self.name, len(good), time.monotonic() - start)
        return [
            drawn[i] if refusal is None else [_failed(len(ids[i]), refusal)] * sampling.n
            for i, refusal in enumerate(refusals)
        ]

    def prompt_limit(self, sampling: Sampling) -> int | None:
        """Return the longest prompt in tokens that leaves room for the reply, or None without a limit."""
        context = getattr(self.engine.llm_engine.model_config, "max_model_len", None)
        limits = [self.max_prompt_tokens, None if context is None else context - sampling.max_tokens]
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None

    def _draw(self, ids: list[list[int]], keys: list[int], sampling: Sampling) -> list[list[Reply]]:
        """Let the engine answer prompts of token ids; their seeds hang on ``keys``."""
        greedy = sampling.temperature == 0
        seeds = [draw_seed(sampling.seed, key, sampling.first) for key in keys]
        params = [
            self._params(
                n=1 if greedy else sampling.n,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k if sampling.top_k > 0 else -1,
                max_tokens=sampling.max_tokens,
                seed=seed,
                **({} if self.formatter.turn_end is None else {"stop_token_ids": [self.formatter.turn_end]}),
            )
            for seed in seeds
        ]
        start = time.monotonic()
        outputs = self.engine.generate([{"prompt_token_ids": prompt} for prompt in ids], params, use_tqdm=False)
        seconds = time.monotonic() - start
        answers: list[list[Reply]] = []
        for prompt, seed, output in zip(ids, seeds, outputs, strict=True):
            done = sorted(output.outputs, key=lambda completion: completion.index)
            opened = self.formatter.opened(prompt)
            replies = [_reply(completion, opened, len(prompt), seconds, seed) for completion in done]
            replies = replies * sampling.n if greedy else replies
            lost = _failed(len(prompt), f"the engine gave {len(replies)} of {sampling.n} replies")
            answers.append((replies + [lost] * sampling.n)[: sampling.n])
        return answers


def _version(vllm: Any) -> str:
    return str(getattr(vllm, "__version__", "of unknown version"))


def _refusal(length: int, limit: int | None) -> str | None:
    if length == 0:
        return "the prompt has no tokens; give it at least one"
    if limit is not None and length > limit:
        return f"the prompt has {length} tokens, at most {limit} fit; shorten it or raise the limit"
    return None


def _failed(prompt_tokens: int, text: str) -> Reply:
    return Reply("", FinishReason.ERROR, prompt_tokens, 0, text)


def _reply(completion: Any, opened: str, prompt_tokens: int, seconds: float, seed: int) -> Reply:
    """Read one completion, behind what its prompt opened.

    Stop and length are what they say, everything else (abort, none) is an error by name.
    """
    reason, error = FinishReason.ERROR, None
    if completion.finish_reason in ("stop", "length"):
        reason = FinishReason(completion.finish_reason)
    else:
        error = f"finish reason {completion.finish_reason or 'null'}"
    return Reply(opened + completion.text, reason, prompt_tokens, len(completion.token_ids), error, seconds, seed)
