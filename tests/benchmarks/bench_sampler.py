"""Speed of the in-process sampler against `model.generate` on the same prompts. CPU seconds, one thread.

    python tests/benchmarks/bench_sampler.py [--prompts 60] [--samples 10] [--tokens 24] [--batch 512]

A random model of the testbed's size (width 96, three layers, 0.4M parameters). Three workloads: many samples a prompt
(votes and solutions: ours reads each prompt once), one sample a prompt, and verdicts of one token at temperature 0.
Both ways make the same number of tokens: no reply ends early. `model.generate` gets the prompts sorted by length in
batches of the same size; its sampling takes no cut, ours runs with none and with top-k 40. The last line is one JSON
object; its ``ratio`` is that of the first workload.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from selfevolve.sampling import Sampling
from selfevolve.sampling.transformers_sampler import TransformersSampler
from tests.tiny_model import tiny_model, tiny_tokenizer


def seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of the faster of two runs."""
    times = []
    for _ in range(2):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def generate(model: Any, prompts: list[list[int]], samples: int, tokens: int, batch: int, greedy: bool) -> None:
    """Answer the prompts with transformers, as many rows at once as ``batch``."""
    ordered = sorted(prompts, key=len)
    for start in range(0, len(ordered), max(1, batch // samples)):
        part = ordered[start : start + max(1, batch // samples)]
        width = len(part[-1])
        ids = torch.tensor([[0] * (width - len(p)) + p for p in part])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in part])
        choice = {"do_sample": False} if greedy else {"do_sample": True, "top_k": 0, "num_return_sequences": samples}
        model.generate(ids, attention_mask=mask, max_new_tokens=tokens, eos_token_id=None, **choice)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = tiny_model(spread=12.0), tiny_tokenizer()
    sampler = TransformersSampler(model, tokenizer, batch=options.batch)
    sampler.decoder.end_ids = ()  # no reply ends early, on either side
    rng = random.Random(0)

    def prompts(count: int) -> list[list[int]]:
        return [[rng.randrange(4, 396) for _ in range(rng.randint(5, 80))] for _ in range(count)]

    few, many = prompts(options.prompts), prompts(options.prompts * options.samples)
    result: dict[str, Any] = {"batch": options.batch, "against": "transformers model.generate, dynamic cache"}
    for name, ids, n, tokens, greedy in (
        ("samples", few, options.samples, options.tokens, False),
        ("single", many, 1, options.tokens, False),
        ("verdicts", many, 1, 1, True),
    ):
        sampling = Sampling(n=n, max_tokens=tokens, temperature=0.0 if greedy else 1.0)
        ours = seconds(lambda ids=ids, sampling=sampling: sampler.sample_ids(ids, sampling))
        theirs = seconds(
            lambda ids=ids, n=n, tokens=tokens, greedy=greedy: generate(model, ids, n, tokens, options.batch, greedy)
        )
        made, read = len(ids) * n * tokens, sum(map(len, ids))
        result[name] = {
            "ratio": round(theirs / ours, 2),
            "seconds": round(ours, 2),
            "generate_seconds": round(theirs, 2),
            "new_tokens_a_second": round(made / ours),
            "generate_new_tokens_a_second": round(made / theirs),
            "prompt_tokens": read,
        }
        print(f"{name}: {result[name]}", flush=True)
    cut = seconds(lambda: sampler.sample_ids(few, Sampling(n=options.samples, max_tokens=options.tokens, top_k=40)))
    result["top_k_40_new_tokens_a_second"] = round(len(few) * options.samples * options.tokens / cut)
    result["ratio"] = result["samples"]["ratio"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
