"""How far questions crowd into few exercise patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from selfevolve.rates import Rate


def pattern_counts(patterns: Iterable[str | None]) -> list[tuple[str, int]]:
    """Return ``(pattern, questions)``, largest first, equal sizes by name; ungrouped questions (None) are left out."""
    counts = Counter(pattern for pattern in patterns if pattern is not None)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def top_share(counts: Iterable[tuple[str, int]], top: int = 5, asked: int | None = None) -> Rate:
    """Return the share of questions that lie in the ``top`` largest patterns (R-Quest, appendix B.3).

    All patterns count where there are fewer than ``top``. The largest are chosen on the same questions, so the share is
    biased upwards, the more the fewer there are: compare it at like numbers.

    Args:
        counts: ``(pattern, questions)``.
        top: How many patterns.
        asked: All questions, those without a pattern too; they are in neither numerator nor denominator.
    """
    sizes = sorted((size for _, size in counts), reverse=True)
    return Rate(sum(sizes[:top]), sum(sizes), asked=asked)
