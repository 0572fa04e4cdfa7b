"""Algebra: linear equations, sums and differences, sums and products, pairs of statements."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number


def _linear(rng: Random, level: int) -> Params:
    k, x, b = factor(rng, level), factor(rng, level) + level - 1, number(rng, level)
    return {"k": k, "b": b, "c": k * x + b}


def _linear_spoiled(rng: Random, level: int) -> Params:
    p = _linear(rng, level)
    if rng.random() < 0.5:
        return {**p, "c": p["c"] + rng.randint(1, p["k"] - 1)}
    return {**p, "b": p["c"] + rng.randint(1, 9)}


def _linear_work(p: Params, c: Calculator) -> int:
    return c("/", c("-", p["c"], p["b"]), p["k"])


def _sum_difference(rng: Random, level: int) -> Params:
    y, d = number(rng, level), number(rng, level)
    return {"s": 2 * y + d, "d": d}


def _sum_difference_spoiled(rng: Random, level: int) -> Params:
    p = _sum_difference(rng, level)
    return {**p, "s": p["s"] + 1} if rng.random() < 0.5 else {"s": p["s"], "d": p["s"] + rng.randint(1, 9)}


def _sum_difference_work(p: Params, c: Calculator) -> int:
    c.require(p["d"], "<", p["s"] + 1)
    return c("/", c("+", p["s"], p["d"]), 2)


def _sum_product(rng: Random, level: int) -> Params:
    x, y = factor(rng, level), factor(rng, level)
    return {"s": x + y, "p": x * y}


def _sum_product_spoiled(rng: Random, level: int) -> Params:
    s = factor(rng, level) + 2
    return {"s": s, "p": s * s // 4 + rng.randint(1, 9)}


def _sum_product_work(p: Params, c: Calculator) -> int:
    square, double = c("*", p["s"], p["s"]), c("*", 2, p["p"])
    c.require(square + 1, ">", 2 * double, ErrorType.NO_SOLUTION)  # real x and y need s^2 >= 4 p
    return c("-", square, double)


def _two_statements(rng: Random, level: int) -> Params:
    x, a, b = number(rng, level), number(rng, level), number(rng, level)
    return {"a": a, "s": x + a, "b": b, "t": x + b}


def _two_statements_spoiled(rng: Random, level: int) -> Params:
    p = _two_statements(rng, level)
    return {**p, "t": p["t"] + rng.choice((-1, 1, 2, 3, 10))}


def _two_statements_work(p: Params, c: Calculator) -> int:
    x = c("-", p["s"], p["a"])
    c.require(c("+", x, p["b"]), "=", p["t"])
    return x


PATTERNS = (
    Pattern(
        "linear_equation",
        "algebra",
        (
            "(solve|find the whole number x with) {k} x + {b} = {c}?",
            "{k} times a whole number plus {b} is {c}. (what is|find) the number?",
            "{who} buys {k} equal {goods} and a bag for {b} coins and pays {c} coins. what does each of the {goods} cost in whole coins?",
        ),
        _linear,
        _linear_work,
        _linear_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "{k} times a whole number plus another number is {c}. (what is|find) the number?",
            ),
        ),
    ),
    Pattern(
        "sum_difference",
        "algebra",
        (
            "x + y = {s} and x - y = {d} with whole numbers x and y. find x?",
            "two whole numbers have sum {s} and difference {d}. (what is|find) the larger one?",
            "{who1} and {who2} have {s} {thing} together. {who1} has {d} more. how many {thing} does {who1} have?",
        ),
        _sum_difference,
        _sum_difference_work,
        _sum_difference_spoiled,
        (
            (ErrorType.MISSING_INFORMATION, "x + y = {s} with whole numbers x and y. find x?"),
            (ErrorType.AMBIGUITY, "two whole numbers have sum {s} and difference {d}. (what is|find) the number?"),
        ),
    ),
    Pattern(
        "sum_product",
        "algebra",
        (
            "x and y are real, x + y = {s} and x y = {p}. find x x + y y?",
            "two real numbers have sum {s} and product {p}. (what is|find) the sum of their squares?",
            "the roots of t t - {s} t + {p} = 0 are real. (what is|find) the sum of the squares of the roots?",
        ),
        _sum_product,
        _sum_product_work,
        _sum_product_spoiled,
    ),
    Pattern(
        "two_statements",
        "algebra",
        (
            "x + {a} = {s} and x + {b} = {t} for a whole number x. find x?",
            "a whole number grows to {s} when {a} is added and to {t} when {b} is added. (what is|find) the number?",
            "{who} had some {thing} in a box. with {a} more there are {s}, with {b} more there would be {t}. how many {thing} were in the box?",
        ),
        _two_statements,
        _two_statements_work,
        _two_statements_spoiled,
        ((ErrorType.AMBIGUITY, "x + {a} = {s} or x + {b} = {t} for a whole number x. find x?"),),
    ),
)
