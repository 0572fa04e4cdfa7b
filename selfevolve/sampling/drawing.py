"""Drawing tokens: counter-based random numbers, the temperature, top-k and top-p cuts, and the choice itself.

Shapes: R rows decoded at once (a row is one sample of one prompt), V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfevolve.sampling.protocol import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd constant of SplitMix64 (Steele, Lea, Flood 2014)
_CHOICE_ELEMENTS = 1 << 23  # R x V above this is chosen in slices, to bound memory for large vocabularies


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the SplitMix64 finaliser of each element: a bijection of 64-bit words that scatters neighbours."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seed: int, keys: NDArray[np.uint64], samples: NDArray[np.uint64], steps: int) -> NDArray[np.float64]:
    """Return numbers uniform on [0, 1), shape (R, steps), each a function of (seed, key, sample, step) alone."""
    start = _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64) + _GOLDEN)
    stream = _mix(_mix(start ^ _mix(keys + _GOLDEN)) ^ _mix(samples * _GOLDEN + np.uint64(1)))
    counter = np.arange(1, steps + 1, dtype=np.uint64) * _GOLDEN
    bits = _mix(stream[:, None] + counter[None, :])
    return (bits >> np.uint64(12)).astype(np.float64) * 2.0**-52


def largest(values: Tensor, count: int) -> Tensor:
    """Return the ``count`` largest values of each row, largest first, shape (R, count); NaN counts as largest.

    As ``topk``, which on a CPU costs five times as much as numpy's partition.
    """
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        return values.topk(count, dim=-1).values
    top = np.partition(values.numpy(), values.shape[-1] - count, axis=-1)[:, -count:]
    return torch.from_numpy(np.sort(top, axis=-1)[:, ::-1].copy())


def nucleus_floor(probabilities: Tensor, top_p: float) -> Tensor:
    """Return the smallest probability that top-p keeps in each row, shape (R, 1).

    A token is kept while the mass ranked above it is below ``top_p``: the support of transformers' own warper. Tokens
    tied with the last one kept are kept too.
    """
    size = probabilities.shape[-1]
    ranked = 32
    while True:
        ranked = min(ranked, size)
        top = largest(probabilities, ranked)
        above = top.cumsum(-1, dtype=torch.float64) - top
        kept = above < top_p
        if ranked == size or not bool(kept[:, -1].any()):
            return top.gather(1, kept.sum(-1, keepdim=True).clamp_min(1) - 1)
        ranked *= 4


def token_probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the unnormalised float32 probabilities that tokens are drawn from, shape (R, V); 0 = cut off.

    The order is that of transformers: temperature, then top-k, then top-p over what is left.
    """
    scores = logits.float()
    if sampling.temperature != 1.0:
        scores = scores / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        floor = largest(scores, sampling.top_k)[:, -1:]
        scores = scores.masked_fill(scores < floor, -torch.inf)
    probabilities = scores.softmax(-1)
    if sampling.top_p < 1.0:
        floor = nucleus_floor(probabilities, sampling.top_p)
        probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
    return probabilities


def _refuse_nan(values: Tensor) -> None:
    if bool(values.isnan().any()):
        raise ValueError("the model's logits are not numbers (NaN); its weights are broken, load an earlier checkpoint")


def choose(logits: Tensor, sampling: Sampling, uniform: Tensor | None) -> Tensor:
    """Return the next token of each row, shape (R,): the argmax, or by inverting the cumulative distribution.

    Args:
        logits: shape (R, V).
        sampling: temperature and cuts.
        uniform: float64 numbers on [0, 1), shape (R,); None for greedy decoding.

    Raises:
        ValueError: logits that are not numbers.
    """
    if uniform is None:
        best = logits.max(-1)
        _refuse_nan(best.values)
        return best.indices
    rows = max(1, _CHOICE_ELEMENTS // logits.shape[-1])
    chosen = []
    for start in range(0, len(logits), rows):
        cumulative = token_probabilities(logits[start : start + rows], sampling).cumsum(-1, dtype=torch.float64)
        _refuse_nan(cumulative[:, -1])
        target = uniform[start : start + rows, None] * cumulative[:, -1:]
        chosen.append(torch.searchsorted(cumulative, target, right=True).squeeze(1))
    return chosen[0] if len(chosen) == 1 else torch.cat(chosen)
