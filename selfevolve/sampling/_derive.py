"""Seeds of a run and of single calls (ground floor: imports nothing of ours)."""

from __future__ import annotations

from hashlib import blake2b


def derive(seed: int, *path: object) -> int:
    """Return a seed in [0, 2**31) that depends on every part of the path, and on nothing else."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % 2**31


def draw_seed(seed: int, key: int, sample: int) -> int:
    """Return the seed, below 2**31, of numbered samples of one prompt.

    vLLM gives sample i of a request the request's seed + i. With seeds counted in the same way, a request for samples
    from ``sample`` on brings what a larger request from 0 on would have brought.
    """
    return derive(seed, key) // 2 + sample
