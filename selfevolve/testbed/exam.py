"""The testbed's exam: a fixed set of valid questions over all patterns and levels, for measuring solvers."""

from __future__ import annotations

from functools import cache
from random import Random

from selfevolve.testbed.oracle import oracle
from selfevolve.testbed.pattern import LEVELS
from selfevolve.testbed.patterns import PATTERNS
from selfevolve.testbed.tasks import valid_question

PER_CELL = 3  # questions a pattern and level


@cache
def exam(seed: int = 7) -> tuple[tuple[str, str], ...]:
    """Return (question, answer) pairs: `PER_CELL` different questions for each pattern and level, 384 in all."""
    rng = Random(f"exam/{seed}")
    items: dict[str, str] = {}
    for pattern in PATTERNS:
        for level in LEVELS:
            cell: dict[str, str] = {}
            while len(cell) < PER_CELL:
                question = valid_question(rng, pattern, level)
                answer = oracle(question).answer
                assert answer is not None
                if question not in items:
                    cell[question] = answer
            items |= cell
    return tuple(items.items())
