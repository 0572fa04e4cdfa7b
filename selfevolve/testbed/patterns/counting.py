"""Counting: products of choices, pairs, overlapping sets, ordered selections."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number


def _choices(rng: Random, level: int) -> Params:
    return {"a": factor(rng, level), "b": factor(rng, level), "k": rng.randint(2, 3 + level)}


def _choices_work(p: Params, c: Calculator) -> int:
    return c("*", c("*", p["a"], p["b"]), p["k"])


def _pairs(rng: Random, level: int) -> Params:
    return {"n": rng.randint(*((3, 5), (4, 8), (6, 12), (9, 20))[level - 1])}


def _pairs_work(p: Params, c: Calculator) -> int:
    c.require(p["n"], ">", 0, ErrorType.NO_SOLUTION)
    return c("/", c("*", p["n"], c("-", p["n"], 1)), 2)


def _neither(rng: Random, level: int) -> Params:
    both = rng.randint(1, 4 * level)
    a, b = both + number(rng, level), both + number(rng, level)
    return {"n": a + b - both + rng.randint(0, 5 * level), "a": a, "b": b, "k": both}


def _neither_spoiled(rng: Random, level: int) -> Params:
    p = _neither(rng, level)
    if rng.random() < 0.5:
        return {**p, "k": min(p["a"], p["b"]) + rng.randint(1, 9)}
    return {**p, "n": p["a"] + p["b"] - p["k"] - rng.randint(1, min(p["a"], p["b"]) - p["k"] + 1)}


def _neither_work(p: Params, c: Calculator) -> int:
    c.require(p["k"], "<", min(p["a"], p["b"]) + 1)
    either = c("-", c("+", p["a"], p["b"]), p["k"])
    return c("-", p["n"], either, ErrorType.CONTRADICTION)


def _podium(rng: Random, level: int) -> Params:
    return {"n": rng.randint(*((3, 5), (4, 7), (6, 9), (8, 12))[level - 1]), "k": rng.choice((2, 3))}


def _podium_spoiled(rng: Random, level: int) -> Params:
    n = rng.randint(2, 3 + 2 * level)
    return {"n": n, "k": n + rng.randint(1, 5)}


def _podium_work(p: Params, c: Calculator) -> int:
    c.require(p["k"], "<", p["n"] + 1, ErrorType.NO_SOLUTION)
    c.require(p["k"], ">", 0, ErrorType.NO_SOLUTION)
    ways, left = p["n"], p["n"]
    for _ in range(p["k"] - 1):
        left = c("-", left, 1)
        ways = c("*", ways, left)
    return ways


PATTERNS = (
    Pattern(
        "product_of_choices",
        "counting",
        (
            "{who} owns {a} hats, {b} coats and {k} scarfs. how many outfits of one hat, one coat and one scarf are there?",
            "a menu has {a} starters, {b} mains and {k} desserts. how many meals of one of each (are there|can be made)?",
            "a code has one of {a} letters, one of {b} digits and one of {k} colours. how many codes are there?",
        ),
        _choices,
        _choices_work,
        None,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "{who} owns {a} hats, {b} coats and a few scarfs. how many outfits of one hat, one coat and one scarf are there?",
            ),
        ),
    ),
    Pattern(
        "pairs",
        "counting",
        (
            "{n} people shake hands, each pair once. how many handshakes are there?",
            "in a {group} of {n} players everybody plays everybody once. how many games are there?",
            "how many straight lines join {n} points if no three points are on a line?",
        ),
        _pairs,
        _pairs_work,
        None,
        (
            (ErrorType.AMBIGUITY, "in a {group} of {n} players all play a few games. how many games are there?"),
            (ErrorType.MISSING_INFORMATION, "in a {group} everybody plays everybody once. how many games are there?"),
        ),
    ),
    Pattern(
        "neither_set",
        "counting",
        (
            "in a {group} of {n} people {a} like {drink1}, {b} like {drink2} and {k} like both. how many like neither?",
            "of {n} people {a} drink {drink1}, {b} drink {drink2} and {k} drink both. how many drink none of them?",
            "a {group} has {n} members. {a} can swim, {b} can ski and {k} can do both. how many can do neither?",
        ),
        _neither,
        _neither_work,
        _neither_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "in a {group} of {n} people {a} like {drink1} and {b} like {drink2}. how many like neither?",
            ),
        ),
    ),
    Pattern(
        "ordered_selection",
        "counting",
        (
            "in how many ways can {k} of {n} runners take the first {k} places?",
            "how many lines of {k} different cards can be laid from {n} cards?",
            "a {group} of {n} people fills {k} different posts with different people. in how many ways?",
        ),
        _podium,
        _podium_work,
        _podium_spoiled,
    ),
)
