"""Arithmetic: sums, products, brackets, exact division."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number

WHAT_IS = "(what is|compute|find the value of)"


def _add_sub(rng: Random, level: int) -> Params:
    a, b = number(rng, level), number(rng, level)
    return {"a": a, "b": b, "c": rng.randint(1, a + b)}


def _add_sub_spoiled(rng: Random, level: int) -> Params:
    a, b = number(rng, level), number(rng, level)
    return {"a": a, "b": b, "c": a + b + number(rng, level)}


def _add_sub_work(p: Params, c: Calculator) -> int:
    return c("-", c("+", p["a"], p["b"]), p["c"])


def _mul_add(rng: Random, level: int) -> Params:
    return {"a": factor(rng, level), "b": factor(rng, level), "c": number(rng, level)}


def _mul_add_work(p: Params, c: Calculator) -> int:
    return c("+", c("*", p["a"], p["b"]), p["c"])


def _bracket(rng: Random, level: int) -> Params:
    return {"a": factor(rng, level), "b": factor(rng, level), "k": factor(rng, level)}


def _bracket_work(p: Params, c: Calculator) -> int:
    return c("*", c("+", p["a"], p["b"]), p["k"])


def _quotient(rng: Random, level: int) -> Params:
    k, q = factor(rng, level), factor(rng, level) + level
    b = rng.randint(1, min(9 * level, k * q))
    return {"a": k * q - b, "b": b, "k": k}


def _quotient_spoiled(rng: Random, level: int) -> Params:
    p = _quotient(rng, level)
    return {**p, "k": 0} if rng.random() < 0.3 else {**p, "a": p["a"] + rng.randint(1, p["k"] - 1)}


def _quotient_work(p: Params, c: Calculator) -> int:
    return c("/", c("+", p["a"], p["b"]), p["k"])


PATTERNS = (
    Pattern(
        "add_subtract",
        "arithmetic",
        (
            f"{WHAT_IS} {{a}} + {{b}} - {{c}}?",
            "add {b} to {a} and then take away {c}. which whole number is (left|the result)?",
            "{who} has {a} {thing}, gets {b} more and loses {c}. how many {thing} (are left|remain)?",
        ),
        _add_sub,
        _add_sub_work,
        _add_sub_spoiled,
        ((ErrorType.MISSING_INFORMATION, "{who} has {a} {thing} and loses a few. how many {thing} are left?"),),
    ),
    Pattern(
        "multiply_add",
        "arithmetic",
        (
            f"{WHAT_IS} {{a}} * {{b}} + {{c}}?",
            "multiply {a} by {b} and add {c}. what do you get?",
            "there are {a} boxes with {b} {thing} each and {c} single {thing}. how many {thing} are there?",
        ),
        _mul_add,
        _mul_add_work,
        None,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "there are {a} boxes of {thing} and {c} single {thing}. how many {thing} are there?",
            ),
        ),
    ),
    Pattern(
        "bracket_product",
        "arithmetic",
        (
            f"{WHAT_IS} ( {{a}} + {{b}} ) * {{k}}?",
            "take the sum of {a} and {b}, then multiply it by {k}. what is the (result|product)?",
            "each of {k} bags holds {a} red and {b} blue {thing}. how many {thing} are in the bags?",
        ),
        _bracket,
        _bracket_work,
        None,
        (
            (
                ErrorType.AMBIGUITY,
                "a few of {k} bags hold {a} red {thing} and others hold {b}. how many {thing} are in the bags?",
            ),
        ),
    ),
    Pattern(
        "exact_quotient",
        "arithmetic",
        (
            "which whole number is ( {a} + {b} ) / {k}?",
            "the sum of {a} and {b} is split into {k} equal whole parts. how large is each part?",
            "divide the sum of {a} and {b} by {k}. which whole number do you get?",
        ),
        _quotient,
        _quotient_work,
        _quotient_spoiled,
    ),
)
