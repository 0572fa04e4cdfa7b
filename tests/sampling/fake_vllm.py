"""A stand-in for the package vllm: as much of its interface as the sampler uses, strict about what real vLLM refuses."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any


@dataclass
class SamplingParams:
    """The fields of vLLM's class of the same name, with its checks."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int | None = 16
    seed: int | None = None
    stop_token_ids: list[int] | None = None

    def __post_init__(self) -> None:
        if self.temperature < 1e-5 and self.n > 1:
            raise ValueError(f"n must be 1 when using greedy sampling, got {self.n}.")


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None


@dataclass
class RequestOutput:
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


class LLM:
    """Answers with the prompt's own words, then the sample's seed; "abort" in a prompt aborts its first sample."""

    def __init__(self, model: str, tokenizer: Any, max_model_len: int, log: list[Any], **options: Any) -> None:
        self.model, self.tokenizer, self.options, self.log = model, tokenizer, options, log
        self.llm_engine = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=max_model_len))

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    def generate(self, prompts: list[dict[str, Any]], params: list[SamplingParams], *, use_tqdm: bool) -> list[Any]:
        self.log.append((prompts, params, use_tqdm))
        return [self.one(prompt["prompt_token_ids"], p) for prompt, p in zip(prompts, params, strict=True)]

    def one(self, ids: list[int], params: SamplingParams) -> RequestOutput:
        if len(ids) >= self.llm_engine.model_config.max_model_len:
            raise ValueError("The decoder prompt is longer than the maximum model length")
        assert params.max_tokens is not None and params.seed is not None
        words = self.tokenizer.decode(ids, skip_special_tokens=True).split()
        if "w13" in words:
            raise RuntimeError("CUDA error: out of luck")
        outputs = []
        for index in range(params.n):
            full = [*words, f"w{(params.seed + index) % 50}", "<eos>"]
            cut = full[: params.max_tokens]
            reason = "stop" if len(cut) == len(full) else "length"
            if "w12" in words and index == 0:
                reason = "abort"
            text = " ".join(word for word in cut if word != "<eos>")
            outputs.append(CompletionOutput(index, text, tuple(range(len(cut))), reason))
        return RequestOutput(ids, outputs[::-1])  # as they finished, not as they are numbered


def module(tokenizer: Any, max_model_len: int = 40) -> Any:
    """Return a module to put into ``sys.modules`` under the name vllm; ``log`` keeps the calls."""
    fake: Any = types.ModuleType("vllm")
    fake.__version__, fake.log, fake.SamplingParams = "0.0", [], SamplingParams
    fake.platforms = types.SimpleNamespace(current_platform=types.SimpleNamespace(is_cpu=lambda: fake.on_cpu))
    fake.on_cpu = False

    def start(model: str, max_model_len: int = max_model_len, **options: Any) -> LLM:
        return LLM(model, tokenizer, max_model_len, fake.log, **options)

    fake.LLM = start
    return fake
