"""The throughput model of `selfevolve check` against a measured small run on one CPU core.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_estimate.py

First the core's own figures: operations a second of a matrix product, bytes a second read from memory, and the fixed
time of a layer in a decoding step (one row, what its arithmetic takes taken off). Then two models decode a batch and
learn from it, a testbed backbone and a wider random one whose time is in matrix products, and the same formulas that
the GPU table uses estimate their times at these figures, with no efficiency below 1 assumed. The last line is one JSON
object. CPU seconds, one thread.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from selfevolve.backbones import resolve_backbone
from selfevolve.estimate import Shape, shape_of
from selfevolve.estimate.throughput import Profile, decode_seconds, learn_seconds, prefill_seconds
from selfevolve.sampling import Sampling
from selfevolve.sampling.decoding import Decoder
from tests.tiny_model import tiny_model

PROMPT, NEW = 48, 64  # tokens
WIDE = {"words": 8188, "hidden": 512, "layers": 4}  # and the settings of `tiny_model`


def seconds(act: Callable[[], Any], times: int = 3) -> float:
    """Return the median of CPU seconds of a few calls, after one that is not counted."""
    act()
    found = []
    for _ in range(times):
        start = time.process_time()
        act()
        found.append(time.process_time() - start)
    return statistics.median(found)


def core() -> tuple[float, float]:
    """Return operations a second of a float32 matrix product, and bytes a second of a sum over 256 MB."""
    a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)
    flops = 20 * 2 * 1024**3 / seconds(lambda: [a @ b for _ in range(20)])
    big = torch.rand(64 * 1024**2)
    return flops, big.numel() * 4 / seconds(big.sum)


def decode(model: Any, rows: int, new: int) -> list[list[Any]]:
    """Decode ``rows`` replies of exactly ``new`` tokens, each to a prompt of its own."""
    prompts = [[3 + (i * 7 + j) % 300 for j in range(PROMPT)] for i in range(rows)]
    return Decoder(model, 0, (), rows).decode(prompts, Sampling(1, max_tokens=new, seed=1))


def learn(model: Any, rows: int) -> None:
    """Make one forward and one backward pass over ``rows`` sequences, logits over the replies alone."""
    ids = torch.randint(3, 300, (rows, PROMPT + NEW))
    logits = model(ids, logits_to_keep=NEW).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -NEW:].flatten()).backward()
    model.zero_grad()


def measure(name: str, model: Any, shape: Shape, rows: int, core_profile: tuple[float, float]) -> dict[str, Any]:
    """Measure one model and set it against the formulas."""
    flops, bandwidth = core_profile
    bare = Profile(flops, flops, bandwidth, 4, 0.0, continuous=False)
    steps = seconds(lambda: decode(model, 1, NEW)) - seconds(lambda: decode(model, 1, 2))
    arithmetic = decode_seconds(shape, bare, 1, PROMPT, NEW - 2, NEW - 2, 1)
    fixed = max(0.0, steps - arithmetic) / ((NEW - 2) * shape.layers)
    p = Profile(flops, flops, bandwidth, 4, fixed, continuous=False)
    estimated = {
        "generate": decode_seconds(shape, p, rows, PROMPT, NEW, NEW, rows) + prefill_seconds(shape, p, rows, PROMPT),
        "learn": learn_seconds(shape, p, rows, PROMPT, NEW, passes=3),
    }
    measured = {"generate": seconds(lambda: decode(model, rows, NEW)), "learn": seconds(lambda: learn(model, rows))}
    print(f"{name}: {shape.parameters / 1e6:.1f} million weights, {rows} rows, {fixed * 1e3:.2f} ms a layer and step")
    for what, found in measured.items():
        print(
            f"  {what:<9} estimated {estimated[what]:7.2f} s   measured {found:7.2f} s   {found / estimated[what]:.2f}"
        )
    ratios = {f"{what}_ratio": round(measured[what] / estimated[what], 2) for what in measured}
    return {"model": name, "layer_ms": round(fixed * 1e3, 3), **ratios}


def main() -> None:
    """Measure and print."""
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    flops, bandwidth = core()
    print(f"this core: {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s")
    testbed = AutoModelForCausalLM.from_pretrained(
        resolve_backbone("testbed:base"), dtype=torch.float32, use_safetensors=True
    )
    c = (wide := tiny_model(**WIDE)).config
    shape = Shape(
        c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim,
        c.intermediate_size, c.vocab_size, tied=False,
    )  # fmt: skip
    results = [
        measure("testbed:base", testbed.eval(), shape_of("testbed:base"), 256, (flops, bandwidth)),
        measure("wide", wide, shape, 16, (flops, bandwidth)),
    ]
    print(json.dumps({"gflops": round(flops / 1e9, 1), "gb_s": round(bandwidth / 1e9, 1), "models": results}))


if __name__ == "__main__":
    main()
