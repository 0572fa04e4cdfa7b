"""Seeds of single calls (ground floor: imports nothing of ours)."""

from __future__ import annotations

from hashlib import blake2b


def derive(seed: int, *path: object) -> int:
    """Return a seed in [0, 2**31) that depends on every part of the path, and on nothing else."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % 2**31
