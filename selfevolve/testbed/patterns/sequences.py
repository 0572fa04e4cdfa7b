"""Sequences: terms by formula, by continuation, by recursion, and sums of a range."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number


def _nth(rng: Random, level: int) -> Params:
    return {"a": number(rng, level), "d": factor(rng, level), "n": rng.randint(3, 4 + 2 * level)}


def _nth_spoiled(rng: Random, level: int) -> Params:
    return {**_nth(rng, level), "n": 0}


def _nth_work(p: Params, c: Calculator) -> int:
    return c("+", p["a"], c("*", c("-", p["n"], 1), p["d"]))


def _next(rng: Random, level: int) -> Params:
    a, d = number(rng, level), factor(rng, level)
    return {"a": a, "b": a + d, "c": a + 2 * d}


def _next_spoiled(rng: Random, level: int) -> Params:
    p = _next(rng, level)
    return {**p, "c": p["c"] + rng.choice((-1, 1, 2, 3))}


def _next_work(p: Params, c: Calculator) -> int:
    step = c("-", p["b"], p["a"])
    c.require(c("-", p["c"], p["b"]), "=", step)
    return c("+", p["c"], step)


def _recursion(rng: Random, level: int) -> Params:
    return {
        "a": rng.randint(1, 2 + 2 * level),
        "b": rng.randint(1, 3 * level),
        "n": rng.randint(2, (3, 3, 4, 5)[level - 1]),
    }


def _recursion_spoiled(rng: Random, level: int) -> Params:
    return {**_recursion(rng, level), "n": 0}


def _recursion_work(p: Params, c: Calculator) -> int:
    c.require(p["n"], ">", 0, ErrorType.NO_SOLUTION)
    term = p["a"]
    for _ in range(min(p["n"] - 1, 30)):
        term = c("+", c("*", 2, term), p["b"])
    if p["n"] > 31:  # the closed form of the same recursion, for indices beyond any worked solution
        return (1 << (p["n"] - 1)) * (p["a"] + p["b"]) - p["b"]
    return term


def _range_sum(rng: Random, level: int) -> Params:
    a = rng.randint(1, 4 * level)
    return {"a": a, "b": a + rng.randint(2, 3 + 3 * level)}


def _range_sum_spoiled(rng: Random, level: int) -> Params:
    p = _range_sum(rng, level)
    return {"a": p["b"], "b": p["a"]}


def _range_sum_work(p: Params, c: Calculator) -> int:
    c.require(p["a"], "<", p["b"] + 1)
    count = c("+", c("-", p["b"], p["a"]), 1)
    return c("/", c("*", c("+", p["a"], p["b"]), count), 2)


PATTERNS = (
    Pattern(
        "nth_term",
        "sequences",
        (
            "an arithmetic sequence starts with {a} and has step {d}. (what is|find) term number {n}?",
            "start at {a} and add {d} each time. (what is|find) entry {n} of the list, counting {a} as entry 1?",
            "{who} saves {a} coins in week 1 and {d} more each week than in the week before. how many coins does {who} save in week {n}?",
        ),
        _nth,
        _nth_work,
        _nth_spoiled,
        ((ErrorType.MISSING_INFORMATION, "an arithmetic sequence starts with {a}. (what is|find) term number {n}?"),),
    ),
    Pattern(
        "next_term",
        "sequences",
        (
            "(what is|find) the next term of the arithmetic sequence {a}, {b}, {c}?",
            "the numbers {a}, {b}, {c} grow by equal steps. which number comes next?",
            "on three days {who} walks {a}, {b} and {c} miles, always the same number more. how many miles come on day 4?",
        ),
        _next,
        _next_work,
        _next_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "(what is|find) the next term of the arithmetic sequence that starts with {a}?",
            ),
        ),
    ),
    Pattern(
        "recursion",
        "sequences",
        (
            "a sequence starts with {a}. each term is 2 times the last plus {b}. (what is|find) term number {n}?",
            "u 1 = {a} and u next = 2 u + {b}. (what is|find) u {n}?",
            "a pond has {a} frogs in year 1. each year the frogs double and then {b} join. how many frogs are there in year {n}?",
        ),
        _recursion,
        _recursion_work,
        _recursion_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "each term of a sequence is 2 times the last plus {b}. (what is|find) term number {n}?",
            ),
        ),
    ),
    Pattern(
        "range_sum",
        "sequences",
        (
            "(what is|find) the sum of all whole numbers from {a} up to {b}?",
            "add up {a}, {a} + 1 and so on up to {b}. what is the total?",
            "a stack has {a} {thing} in the top row, one more in each row, and {b} in the last row. how many {thing} are in the stack?",
        ),
        _range_sum,
        _range_sum_work,
        _range_sum_spoiled,
        ((ErrorType.NO_SOLUTION, "(what is|find) the sum of all whole numbers from {a} up without end?"),),
    ),
)
