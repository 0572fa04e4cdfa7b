"""Rates: travel, meeting, catching up, filling."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number


def _travel(rng: Random, level: int) -> Params:
    return {"v": number(rng, level) + 1, "t": factor(rng, min(level, 3)), "d": number(rng, level)}


def _travel_work(p: Params, c: Calculator) -> int:
    return c("+", c("*", p["v"], p["t"]), p["d"])


def _meeting(rng: Random, level: int) -> Params:
    v, w, t = number(rng, min(level, 3)) + 1, number(rng, min(level, 3)) + 1, factor(rng, min(level, 3))
    return {"d": (v + w) * t, "v": v, "w": w}


def _meeting_spoiled(rng: Random, level: int) -> Params:
    p = _meeting(rng, level)
    return {**p, "d": p["d"] + rng.randint(1, p["v"] + p["w"] - 1)} if rng.random() < 0.6 else {**p, "v": 0, "w": 0}


def _meeting_work(p: Params, c: Calculator) -> int:
    return c("/", p["d"], c("+", p["v"], p["w"]))


def _catch_up(rng: Random, level: int) -> Params:
    v, gap, t = number(rng, level), factor(rng, level), factor(rng, level)
    return {"d": gap * t, "v": v, "w": v + gap}


def _catch_up_spoiled(rng: Random, level: int) -> Params:
    p = _catch_up(rng, level)
    if rng.random() < 0.7:
        return {**p, "v": p["w"], "w": p["v"]}
    return {**p, "d": p["d"] + rng.randint(1, p["w"] - p["v"] - 1)}


def _catch_up_work(p: Params, c: Calculator) -> int:
    return c("/", p["d"], c("-", p["w"], p["v"]))


def _fill(rng: Random, level: int) -> Params:
    leak, net, t = rng.randint(1, 4 * level), factor(rng, level), factor(rng, level) + 1
    return {"n": net * t, "a": leak + net, "b": leak}


def _fill_spoiled(rng: Random, level: int) -> Params:
    p = _fill(rng, level)
    if rng.random() < 0.7:
        return {**p, "b": p["a"] + rng.randint(0, 5)}
    return {**p, "n": p["n"] + rng.randint(1, p["a"] - p["b"] - 1)}


def _fill_work(p: Params, c: Calculator) -> int:
    return c("/", p["n"], c("-", p["a"], p["b"]))


PATTERNS = (
    Pattern(
        "travel",
        "rates",
        (
            "a {vehicle} drives {v} miles an hour for {t} hours and then {d} miles more. how many miles is that?",
            "after {t} hours at {v} miles an hour a {vehicle} still has {d} miles to go. how long is the whole way?",
            "a {vehicle} covers {v} miles in each of {t} hours, then {d} miles. (what is|find) the total distance?",
        ),
        _travel,
        _travel_work,
        None,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "a {vehicle} drives {v} miles an hour and then {d} miles more. how many miles is that?",
            ),
        ),
    ),
    Pattern(
        "meeting",
        "rates",
        (
            "two trains are {d} miles apart and drive towards each other at {v} and {w} miles an hour. after how many whole hours do they meet exactly?",
            "{who1} and {who2} start {d} miles apart and walk towards each other at {v} and {w} miles an hour. in how many whole hours do they meet?",
            "two boats at {v} and {w} miles an hour close a gap of {d} miles head on. how many whole hours does it take?",
        ),
        _meeting,
        _meeting_work,
        _meeting_spoiled,
    ),
    Pattern(
        "catch_up",
        "rates",
        (
            "a {vehicle} is {d} miles ahead at {v} miles an hour. another follows at {w} miles an hour. in how many whole hours does it catch up?",
            "{who1} leads by {d} miles and walks {v} miles an hour. {who2} runs {w} miles an hour behind. after how many whole hours are they level?",
            "a thief has a lead of {d} yards and runs {v} yards a second. the guard runs {w} yards a second. how many whole seconds does the chase last?",
        ),
        _catch_up,
        _catch_up_work,
        _catch_up_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "a {vehicle} is {d} miles ahead at {v} miles an hour. another follows. in how many whole hours does it catch up?",
            ),
        ),
    ),
    Pattern(
        "leaking_tank",
        "rates",
        (
            "a pipe fills {a} litres a minute and a leak loses {b} litres a minute. how many whole minutes until a tank of {n} litres is full?",
            "a tank holds {n} litres. each minute {a} litres flow in and {b} litres flow out. after how many whole minutes is the empty tank full?",
            "a snail climbs {a} feet a day and slips {b} feet each night. in how many such whole days does it gain {n} feet?",
        ),
        _fill,
        _fill_work,
        _fill_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "a pipe fills {a} litres a minute and a leak loses {b} litres a minute. how many whole minutes until a tank is full?",
            ),
        ),
    ),
)
