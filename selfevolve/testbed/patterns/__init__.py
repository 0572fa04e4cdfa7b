"""All exercise patterns of the world, one file a field."""

from selfevolve.testbed.pattern import Pattern
from selfevolve.testbed.patterns import algebra, arithmetic, counting, geometry, numbers, rates, sequences, stories

PATTERNS: tuple[Pattern, ...] = (
    *arithmetic.PATTERNS,
    *numbers.PATTERNS,
    *algebra.PATTERNS,
    *sequences.PATTERNS,
    *counting.PATTERNS,
    *geometry.PATTERNS,
    *rates.PATTERNS,
    *stories.PATTERNS,
)
BY_NAME: dict[str, Pattern] = {p.name: p for p in PATTERNS}
FIELDS: tuple[str, ...] = tuple(dict.fromkeys(p.field for p in PATTERNS))

__all__ = ["BY_NAME", "FIELDS", "PATTERNS"]
