"""The oracle's answers against enumeration: each pattern's question is answered by trying, not by its formula.

A function here returns the set of all answers that fit the numbers of a question, so a question is valid exactly when
the set has one element.
"""

from __future__ import annotations

from itertools import combinations, permutations, product
from random import Random

import pytest

from selfevolve.testbed.grammar import Slots
from selfevolve.testbed.oracle import oracle
from selfevolve.testbed.pattern import LEVELS, Params
from selfevolve.testbed.patterns import BY_NAME, PATTERNS

TOP = 2500  # no answer of the drawn questions is larger, unless counted by other means


def triangle(p: Params) -> set[int]:
    a, b, c = p["a"], p["b"], p["c"]
    proper = all(x < y + z for x, y, z in permutations((a, b, c)))
    return {a + b + c} if proper else set()


def angle(p: Params) -> set[int]:
    return {x for x in range(1, 180) if p["a"] > 0 and p["b"] > 0 and p["a"] + p["b"] + x == 180}


def recursion(p: Params) -> set[int]:
    terms = [p["a"]]
    while len(terms) < p["n"]:
        terms.append(terms[-1] + terms[-1] + p["b"])
    return {terms[p["n"] - 1]} if p["n"] >= 1 else set()


def climbs(p: Params) -> set[int]:
    """Walk day by day until the height is met exactly; a walk that gains nothing never arrives."""
    height, days = 0, 0
    while p["a"] > p["b"] and height < p["n"]:
        height, days = height + p["a"] - p["b"], days + 1
    return {days} if height == p["n"] and p["a"] > p["b"] else set()


def chase(p: Params) -> set[int]:
    ahead, behind, hours = p["d"], 0, 0
    while p["w"] > p["v"] and behind < ahead:
        ahead, behind, hours = ahead + p["v"], behind + p["w"], hours + 1
    return {hours} if behind == ahead and p["w"] > p["v"] else set()


def neither(p: Params) -> set[int]:
    """Try all sizes of the four regions."""
    only_a, only_b = p["a"] - p["k"], p["b"] - p["k"]
    rest = p["n"] - only_a - only_b - p["k"]
    return {rest} if min(only_a, only_b, rest) >= 0 else set()


BRUTE = {
    "add_subtract": lambda p: {x for x in range(TOP) if x + p["c"] == p["a"] + p["b"]},
    "multiply_add": lambda p: {sum([p["a"]] * p["b"]) + p["c"]},
    "bracket_product": lambda p: {len(range(p["a"] + p["b"])) * p["k"]},
    "exact_quotient": lambda p: {x for x in range(TOP) if p["k"] and x * p["k"] == p["a"] + p["b"]},
    "remainder": lambda p: {r for r in range(p["k"]) for q in range(TOP) if q * p["k"] + r == p["a"]},
    "common_divisor": lambda p: {max(d for d in range(1, 1000) if p["a"] % d == 0 and p["b"] % d == 0)},
    "only_multiple": lambda p: {m for m in range(p["a"] + 1, p["b"]) if p["k"] and m % p["k"] == 0},
    "digit_sum": lambda p: {p["b"] * sum(d * n for d, n in ((d, str(p["a"]).count(str(d))) for d in range(10)))},
    "linear_equation": lambda p: {x for x in range(TOP) if p["k"] * x + p["b"] == p["c"]},
    "sum_difference": lambda p: {x for x in range(p["s"] + 1) if x - (p["s"] - x) == p["d"]},
    "sum_product": lambda p: {p["s"] ** 2 - 2 * p["p"]} if p["s"] ** 2 - 4 * p["p"] >= 0 else set(),
    "two_statements": lambda p: {x for x in range(TOP) if x + p["a"] == p["s"] and x + p["b"] == p["t"]},
    "nth_term": lambda p: {list(range(p["a"], TOP, p["d"]))[p["n"] - 1]} if p["n"] else set(),
    "next_term": lambda p: {x for x in range(TOP) if p["b"] - p["a"] == p["c"] - p["b"] == x - p["c"]},
    "recursion": recursion,
    "range_sum": lambda p: {sum(range(p["a"], p["b"] + 1))} if p["a"] <= p["b"] else set(),
    "product_of_choices": lambda p: {sum(1 for _ in product(range(p["a"]), range(p["b"]), range(p["k"])))},
    "pairs": lambda p: {sum(1 for _ in combinations(range(p["n"]), 2))},
    "neither_set": neither,
    "ordered_selection": lambda p: {n} if (n := sum(1 for _ in permutations(range(p["n"]), p["k"]))) else set(),
    "rectangle_area": lambda p: {p["w"] * h for h in range(1, TOP) if 2 * (p["w"] + h) == p["p"]},
    "triangle_perimeter": triangle,
    "third_angle": angle,
    "box_volume": lambda p: {sum(1 for _ in product(range(p["a"]), range(p["b"]), range(p["k"])))},
    "travel": lambda p: {sum([p["v"]] * p["t"]) + p["d"]},
    "meeting": lambda p: {t for t in range(TOP) if p["v"] + p["w"] > 0 and t * p["v"] + t * p["w"] == p["d"]},
    "catch_up": chase,
    "leaking_tank": climbs,
    "two_purchases": lambda p: {sum([p["x"]] * p["a"] + [p["y"]] * p["b"])},
    "change": lambda p: {c for c in range(TOP) if c + sum([p["x"]] * p["a"]) == p["n"]},
    "heads_and_legs": lambda p: {c for c in range(p["h"] + 1) if 4 * c + 2 * (p["h"] - c) == p["n"]},
    "before_and_after": lambda p: {
        x for x in range(TOP) if x - p["a"] >= 0 and x - p["a"] + p["b"] == p["n"]
    },
}  # fmt: skip


def test_every_pattern_has_a_brute_force() -> None:
    assert set(BRUTE) == set(BY_NAME)
    assert len(PATTERNS) >= 24
    assert len({p.field for p in PATTERNS}) >= 6


@pytest.mark.parametrize("name", sorted(BRUTE))
def test_answers_equal_enumeration(name: str) -> None:
    pattern, rng = BY_NAME[name], Random(name)
    for i in range(160):
        level = LEVELS[i % 4]
        spoilt = pattern.spoil is not None and i % 2 == 1
        params = pattern.spoil(rng, level) if spoilt and pattern.spoil else pattern.draw(rng, level)
        if name == "ordered_selection" and params["n"] > 9:
            params["n"] = 9  # permutations are counted one by one
        slots: Slots = dict(params)
        text = pattern.templates[i % len(pattern.templates)].write(slots, rng)
        truth = oracle(text)
        found = BRUTE[name](params)
        assert truth.valid == (len(found) == 1), (text, truth, found)
        assert truth.answer == (str(found.pop()) if truth.valid else None), (text, truth)
        assert truth.pattern == name
