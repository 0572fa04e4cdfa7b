"""Number theory: remainders, common divisors, multiples in a range, digits."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number


def _remainder(rng: Random, level: int) -> Params:
    return {"a": number(rng, level) + 5, "k": factor(rng, level) + 1}


def _remainder_spoiled(rng: Random, level: int) -> Params:
    return {"a": number(rng, level) + 5, "k": 0}


def _remainder_work(p: Params, c: Calculator) -> int:
    return c("%", p["a"], p["k"])


def _gcd(rng: Random, level: int) -> Params:
    while True:
        g = factor(rng, level)
        a, b = sorted((g * factor(rng, level), g * factor(rng, level)), reverse=True)
        if a != b:
            return {"a": a, "b": b}


def _gcd_work(p: Params, c: Calculator) -> int:
    a, b = p["a"], p["b"]
    c.require(a + b, ">", 0, ErrorType.NO_SOLUTION)  # every number divides 0 and 0
    while b:
        a, b = b, c("%", a, b)
    return a


def _only_multiple(rng: Random, level: int) -> Params:
    k = factor(rng, level) + 2
    m = k * rng.randint(2, 3 + 2 * level)
    return {"k": k, "a": m - rng.randint(1, k - 1), "b": m + rng.randint(1, k - 1)}


def _only_multiple_spoiled(rng: Random, level: int) -> Params:
    k = factor(rng, level) + 2
    m = k * rng.randint(2, 3 + 2 * level)
    if rng.random() < 0.5:
        return {"k": k, "a": m, "b": m + rng.randint(1, k)}  # none strictly between
    return {"k": k, "a": m - rng.randint(1, k - 1), "b": m + k + rng.randint(1, k)}  # two or three


def _only_multiple_work(p: Params, c: Calculator) -> int:
    k, a, b = p["k"], p["a"], p["b"]
    c.require(k, ">", 0, ErrorType.NO_SOLUTION)
    below = c("%", a, k)
    found = c("+", c("-", a, below), k)
    c.require(found, "<", b, ErrorType.NO_SOLUTION)
    c.require(found + k + 1, ">", b, ErrorType.AMBIGUITY)
    return found


def _digit_sum(rng: Random, level: int) -> Params:
    return {"a": rng.randint(11, (30, 99, 499, 999)[level - 1]), "b": factor(rng, level)}


def _digit_sum_work(p: Params, c: Calculator) -> int:
    total = 0
    for i, digit in enumerate(str(p["a"])):
        total = c("+", total, int(digit)) if i else int(digit)
    return c("*", total, p["b"])


PATTERNS = (
    Pattern(
        "remainder",
        "number theory",
        (
            "(what is|find) the remainder when {a} is divided by {k}?",
            "(what is|compute) {a} modulo {k}?",
            "{a} {thing} are packed into boxes of {k}. how many {thing} stay outside the full boxes?",
        ),
        _remainder,
        _remainder_work,
        _remainder_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "{a} {thing} are packed into boxes. how many {thing} stay outside the full boxes?",
            ),
        ),
    ),
    Pattern(
        "common_divisor",
        "number theory",
        (
            "(what is|find) the greatest common divisor of {a} and {b}?",
            "(what is|find) the largest number that divides both {a} and {b}?",
            "{a} red and {b} blue {thing} are put into the largest number of equal sets. how many sets are there?",
        ),
        _gcd,
        _gcd_work,
        None,
        (
            (ErrorType.AMBIGUITY, "which number divides both {a} and {b}?"),
            (ErrorType.NO_SOLUTION, "(what is|find) the largest common multiple of {a} and {b}?"),
        ),
    ),
    Pattern(
        "only_multiple",
        "number theory",
        (
            "(what is|find) the only multiple of {k} that lies between {a} and {b}?",
            "exactly one number above {a} and below {b} is divisible by {k}. which one?",
            "{who} thinks of a number greater than {a} and less than {b}. it is a multiple of {k}. which number is it?",
        ),
        _only_multiple,
        _only_multiple_work,
        _only_multiple_spoiled,
        ((ErrorType.NO_SOLUTION, "(what is|find) the largest multiple of {k} that is greater than {a}?"),),
    ),
    Pattern(
        "digit_sum",
        "number theory",
        (
            "add the digits of {a} and multiply the sum by {b}. what is the result?",
            "(what is|find) {b} times the digit sum of {a}?",
            "{who} writes down {a}, adds up its digits and takes the sum {b} times. which number comes out?",
        ),
        _digit_sum,
        _digit_sum_work,
    ),
)
