"""One sampler for a checkpoint and the backend that the recipe gives it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfevolve.config.backends import Backend
from selfevolve.sampling import KeyedSampler, Prompt, Reply, Sampler, Sampling
from selfevolve.serving.process import ServerError, without_launcher


@dataclass(frozen=True)
class Way:
    """How models compute, wherever they live; endpoints decide for themselves."""

    dtype: str  # "float32" or "bfloat16"
    batch: int  # replies decoded at once, by transformers in process
    max_prompt_tokens: int | None = None  # a longer prompt is an error reply; None: what the context leaves
    trust_remote_code: bool = False  # run code that a model's repository carries


class Elsewhere:
    """Stands for a frozen model that the main process alone samples from: the others hold no copy of it."""

    def __init__(self, name: str) -> None:
        """Keep the model's name."""
        self.name = name

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Refuse, as `sample_keyed` does."""
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Raise: a stage that asks here has its reward computed on a process that should not."""
        raise RuntimeError(f"{self.name} lives in the main process of the stage and was asked in another")


def make_sampler(way: Way, backend: Backend, weights: str, name: str, log: Path) -> KeyedSampler:
    """Return a sampler of ``weights``; servers are not started yet, endpoints not asked.

    Args:
        way: number type, limits and trust.
        backend: where the model lives.
        weights: folder or hub id; for an endpoint the name to ask for, unless the backend has one.
        name: shown in records and messages.
        log: file for a server's output.

    Raises:
        ServerError: vLLM is not installed or does not start, or the endpoint's key is not in the environment.
    """
    limit, trusted = way.max_prompt_tokens, way.trust_remote_code
    match backend.kind:
        case "transformers":
            import torch

            from selfevolve.sampling.transformers_sampler import TransformersSampler

            return TransformersSampler(
                weights,
                name=name,
                batch=way.batch,
                max_prompt_tokens=limit,
                dtype=getattr(torch, way.dtype),
                trust_remote_code=trusted,
            )
        case "vllm":
            from selfevolve.sampling.vllm_sampler import VllmSampler

            engine: dict[str, Any] = {"dtype": way.dtype}
            if backend.gpu_memory is not None:
                engine["gpu_memory_utilization"] = backend.gpu_memory
            try:
                with without_launcher():
                    return VllmSampler(
                        weights,
                        name=name,
                        engine=engine | backend.engine,
                        max_prompt_tokens=limit,
                        trust_remote_code=trusted,
                    )
            except ValueError as error:
                raise ServerError(f"{name}: {error}") from error
            except RuntimeError as error:  # the engine is a process of its own, and says in its lines what it lacks
                raise ServerError(
                    f"{name}: vLLM did not start: {error}",
                    "read the engine's lines above. Less free memory than its share: lower gpu_memory of its backend. "
                    "No room for one sequence of the model's whole context: engine: {max_model_len: 8192}, or the like",
                ) from error
        case "server":
            from selfevolve.serving.served import ServedSampler

            return ServedSampler(
                backend,
                weights,
                name,
                log,
                dtype=way.dtype,
                max_prompt_tokens=limit,
                trust_remote_code=trusted,
            )
        case "endpoint":
            from selfevolve.serving.hosted import HostedSampler

            return HostedSampler(backend, backend.model or weights, name)


def start(sampler: Sampler) -> None:
    """Start what the sampler rests on, and do not wait: servers come up while other things are made ready."""
    if (begin := getattr(sampler, "prepare", None)) is not None:
        begin()


def check(sampler: Sampler) -> None:
    """See that the sampler's server or endpoint is well; models in process always are.

    Raises:
        ServerError: it is not, and cannot be mended.
    """
    if (look := getattr(sampler, "check", None)) is not None:
        look()


def close(samplers: list[Sampler]) -> None:
    """Stop servers, shut engines down, and give a GPU's memory back; the samplers are of no use after."""
    while samplers:  # a name here that outlived the loop would keep the last model, and so its memory
        _end(samplers.pop())
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _end(sampler: Sampler) -> None:
    if (end := getattr(sampler, "close", None)) is not None:
        end()
