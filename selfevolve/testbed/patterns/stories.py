"""Word problems: shopping, change, heads and legs, before and after."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number


def _shop(rng: Random, level: int) -> Params:
    return {"a": factor(rng, level), "x": factor(rng, level), "b": factor(rng, level), "y": factor(rng, level)}


def _shop_work(p: Params, c: Calculator) -> int:
    return c("+", c("*", p["a"], p["x"]), c("*", p["b"], p["y"]))


def _change(rng: Random, level: int) -> Params:
    a, x = factor(rng, level), factor(rng, level)
    return {"n": a * x + rng.randint(0, 9 * level), "a": a, "x": x}


def _change_spoiled(rng: Random, level: int) -> Params:
    a, x = factor(rng, level), factor(rng, level)
    return {"n": rng.randint(1, a * x - 1), "a": a, "x": x}


def _change_work(p: Params, c: Calculator) -> int:
    return c("-", p["n"], c("*", p["a"], p["x"]), ErrorType.CONTRADICTION)


def _legs(rng: Random, level: int) -> Params:
    cows, hens = factor(rng, level), factor(rng, level)
    return {"h": cows + hens, "n": 4 * cows + 2 * hens}


def _legs_spoiled(rng: Random, level: int) -> Params:
    p = _legs(rng, level)
    pick = rng.random()
    if pick < 0.4:
        return {**p, "n": p["n"] + 1}
    return {**p, "n": 2 * p["h"] - rng.randint(1, 2 * p["h"])} if pick < 0.7 else {**p, "n": 4 * p["h"] + 2 * level}


def _legs_work(p: Params, c: Calculator) -> int:
    spare = c("-", p["n"], c("*", 2, p["h"]), ErrorType.CONTRADICTION)
    cows = c("/", spare, 2, ErrorType.CONTRADICTION)
    c.require(cows, "<", p["h"] + 1)
    return cows


def _before(rng: Random, level: int) -> Params:
    a, b = number(rng, level), number(rng, level)
    return {"a": a, "b": b, "n": b + rng.randint(0, 5 * level)}


def _before_spoiled(rng: Random, level: int) -> Params:
    a, b = number(rng, level), number(rng, level) + 1
    return {"a": a, "b": b, "n": rng.randint(0, b - 1)}


def _before_work(p: Params, c: Calculator) -> int:
    return c("+", c("-", p["n"], p["b"], ErrorType.CONTRADICTION), p["a"])


PATTERNS = (
    Pattern(
        "two_purchases",
        "word problems",
        (
            "{who} buys {a} {goods1} for {x} coins each and {b} {goods2} for {y} coins each. how many coins is that?",
            "{a} {goods1} cost {x} coins each, {b} {goods2} cost {y} coins each. (what is|find) the total price?",
            "a hall has {a} rows of {x} seats and {b} rows of {y} seats. how many seats are there?",
        ),
        _shop,
        _shop_work,
        None,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "{who} buys {a} {goods1} for {x} coins each and {b} {goods2}. how many coins is that?",
            ),
        ),
    ),
    Pattern(
        "change",
        "word problems",
        (
            "{who} pays with {n} coins for {a} {goods} at {x} coins each. how many coins come back?",
            "{who} has {n} coins and buys {a} {goods} for {x} coins each. how many coins are left?",
            "a rope of {n} feet is cut into {a} parts of {x} feet and a rest. how long is the rest?",
        ),
        _change,
        _change_work,
        _change_spoiled,
        ((ErrorType.MISSING_INFORMATION, "{who} pays with {n} coins for {a} {goods}. how many coins come back?"),),
    ),
    Pattern(
        "heads_and_legs",
        "word problems",
        (
            "hens and cows have {h} heads and {n} legs together. how many cows are there?",
            "a farm has {h} animals, only hens and cows, with {n} legs. how many are cows?",
            "{h} bikes and carts have {n} wheels, 2 on a bike and 4 on a cart. how many carts are there?",
        ),
        _legs,
        _legs_work,
        _legs_spoiled,
        ((ErrorType.MISSING_INFORMATION, "hens and cows have {h} heads together. how many cows are there?"),),
    ),
    Pattern(
        "before_and_after",
        "word problems",
        (
            "{who} gave away {a} {thing}, then got {b} {thing} and now has {n}. how many {thing} did {who} have at first?",
            "{a} people left a bus, {b} got on and {n} are on it now. how many were on it before?",
            "a number is made smaller by {a}, then larger by {b}. the result is {n}, and it was never below zero. what was the number?",
        ),
        _before,
        _before_work,
        _before_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "{who} gave away {a} {thing}, then got a few and now has {n}. how many {thing} did {who} have at first?",
            ),
        ),
    ),
)
