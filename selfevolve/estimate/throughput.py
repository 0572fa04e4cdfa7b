"""The throughput model: how long a device takes to read prompts, decode replies, and learn from them.

A decoding step reads the weights once for all rows, and each row's keys and values; it takes the longer of what memory
and arithmetic need (the roofline of Williams et al. 2009), and a fixed time a layer for its launch. Reading prompts and
learning are bound by arithmetic: two operations a weight and token forward, twice that backward (Kaplan et al. 2020,
section 2.1), and attention's, which grow with the square of the length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from selfevolve.estimate.devices import Device
from selfevolve.estimate.shapes import Shape

# Assumptions, not measured on GPUs. docs/recipes.md tells where they come from.
BANDWIDTH_SHARE = 0.6  # of the memory bandwidth, while decoding
DECODE_MFU = 0.4  # of the peak arithmetic, while decoding in large batches
MFU = 0.4  # the same, while prompts are read and while learning
EAGER_LAYER = 0.7e-3  # seconds a layer and decoding step: kernels started one by one from Python
GRAPH_LAYER = 0.02e-3  # the same where the engine replays a recorded step, as vLLM does


@dataclass(frozen=True)
class Profile:
    """What a processor does in practice."""

    flops: float  # operations a second, while reading prompts and learning
    decode_flops: float  # operations a second, while decoding
    bandwidth: float  # bytes a second, while decoding
    number_bytes: int  # of a weight and of a key or value
    layer_seconds: float  # fixed time of a layer in a decoding step
    continuous: bool  # a finished row is replaced at once; else a batch ends with its longest reply


def profile(device: Device, number_bytes: int, engine: bool) -> Profile:
    """Return a device's profile under the stated assumptions.

    Args:
        device: its peaks.
        number_bytes: 2 for bfloat16, 4 for float32.
        engine: vLLM or the like decodes; else transformers, in process.
    """
    peak = 1e12 * (device.tflops if number_bytes == 2 else device.float32_tflops)
    return Profile(
        flops=MFU * peak,
        decode_flops=DECODE_MFU * peak,
        bandwidth=BANDWIDTH_SHARE * device.bandwidth * 1e9,
        number_bytes=number_bytes,
        layer_seconds=GRAPH_LAYER if engine else EAGER_LAYER,
        continuous=engine,
    )


def attention_flops(shape: Shape, length: float, earlier: float) -> float:
    """Return the operations of ``length`` queries over ``earlier`` positions each: scores, then weighted values."""
    return 4.0 * shape.layers * shape.heads * shape.head_dim * length * earlier


def prefill_seconds(shape: Shape, p: Profile, prompts: int, length: float) -> float:
    """Return the time to read ``prompts`` of ``length`` tokens; the head is asked for the last position only."""
    each = 2.0 * shape.body * length + attention_flops(shape, length, length / 2) + 2.0 * shape.head
    return prompts * each / p.flops


def decode_seconds(
    shape: Shape, p: Profile, replies: int, prompt: float, length: float, limit: int, batch: int
) -> float:
    """Return the time to decode ``replies``.

    Args:
        shape: the model.
        p: the processor.
        replies: how many.
        prompt: tokens before each.
        length: new tokens of a reply, mean.
        limit: new tokens of the longest reply of a batch.
        batch: rows decoded at once, at most.
    """
    if not replies or length <= 0:
        return 0.0
    rows = min(batch, replies)
    tokens = replies * length
    steps = tokens / rows if p.continuous else math.ceil(replies / rows) * float(limit)
    alive = tokens / steps  # rows of a step, mean
    earlier = prompt + length / 2
    read = (shape.body + shape.head + alive * earlier * shape.cache_bytes(1)) * p.number_bytes
    done = alive * (2.0 * (shape.body + shape.head) + attention_flops(shape, 1.0, earlier))
    step = max(read / p.bandwidth, done / p.decode_flops) + shape.layers * p.layer_seconds
    return steps * step


def learn_seconds(shape: Shape, p: Profile, sequences: int, prompt: float, length: float, passes: float) -> float:
    """Return the time of forward and backward passes over ``sequences``; the head reads the replies' positions only.

    ``passes`` counts in forward passes, see `passes_of`.
    """
    total = prompt + length
    forward = 2.0 * shape.body * total + attention_flops(shape, total, total / 2) + 2.0 * shape.head * length
    return sequences * passes * forward / p.flops


def update_seconds(p: Profile, trained: int, updates: int) -> float:
    """Return the time of AdamW's updates, bound by memory: gradient, weight and two moments in float32."""
    return updates * trained * 28.0 / p.bandwidth  # four read, three written


def passes_of(lora: bool, kl: bool, updates: int, checkpointing: bool) -> float:
    """Return what a rollout's learning costs, in forward passes.

    One forward and two backward; of frozen weights no gradient is taken, so one backward under adapters. One more for
    the reference of the KL term, one for the log-probabilities at sampling where a batch serves several updates, and
    one where activations are computed again.
    """
    return 1.0 + (1.0 if lora else 2.0) + kl + (updates > 1) + checkpointing
