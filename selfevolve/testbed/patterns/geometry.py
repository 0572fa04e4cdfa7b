"""Geometry: rectangles, triangles, angles, boxes."""

from random import Random

from selfevolve.testbed.pattern import Calculator, ErrorType, Params, Pattern, factor, number


def _rectangle(rng: Random, level: int) -> Params:
    w, h = factor(rng, level), factor(rng, level)
    return {"p": 2 * (w + h), "w": w}


def _rectangle_spoiled(rng: Random, level: int) -> Params:
    w = factor(rng, level) + level
    return {"p": rng.randint(2, 2 * w), "w": w}


def _rectangle_work(p: Params, c: Calculator) -> int:
    height = c("-", c("/", p["p"], 2), p["w"], ErrorType.CONTRADICTION)
    c.require(height, ">", 0)
    c.require(p["w"], ">", 0)
    return c("*", height, p["w"])


def _triangle(rng: Random, level: int) -> Params:
    a, b = number(rng, level) + 1, number(rng, level) + 1
    return {"a": a, "b": b, "c": rng.randint(abs(a - b) + 1, a + b - 1)}


def _triangle_spoiled(rng: Random, level: int) -> Params:
    a, b = number(rng, level), number(rng, level)
    return {"a": a, "b": b, "c": a + b + rng.randint(0, 3 * level)}


def _triangle_work(p: Params, c: Calculator) -> int:
    a, b, longest = sorted((p["a"], p["b"], p["c"]))
    c.require(longest, "<", a + b)
    return c("+", c("+", p["a"], p["b"]), p["c"])


def _angle(rng: Random, level: int) -> Params:
    step = (30, 15, 5, 1)[level - 1]
    a = step * rng.randint(1, 120 // step)
    return {"a": a, "b": step * rng.randint(1, (179 - a) // step)}


def _angle_spoiled(rng: Random, level: int) -> Params:
    step = (30, 15, 5, 1)[level - 1]
    a = step * rng.randint(60 // step, 150 // step)
    return {"a": a, "b": 180 - a + step * rng.randint(0, 60 // step)}


def _angle_work(p: Params, c: Calculator) -> int:
    c.require(min(p["a"], p["b"]), ">", 0)
    both = c("+", p["a"], p["b"])
    c.require(both, "<", 180)
    return c("-", 180, both)


def _box(rng: Random, level: int) -> Params:
    return {"a": factor(rng, level), "b": factor(rng, level), "k": rng.randint(2, 4 + level)}


def _box_work(p: Params, c: Calculator) -> int:
    c.require(min(p["a"], p["b"], p["k"]), ">", 0)
    return c("*", c("*", p["a"], p["b"]), p["k"])


PATTERNS = (
    Pattern(
        "rectangle_area",
        "geometry",
        (
            "a rectangle has perimeter {p} and width {w}. (what is|find) its area?",
            "a fence of {p} yards closes a rectangle with one side of {w} yards. how many square yards are inside?",
            "(what is|find) the area of a rectangle with one side {w} and perimeter {p}?",
        ),
        _rectangle,
        _rectangle_work,
        _rectangle_spoiled,
        ((ErrorType.MISSING_INFORMATION, "a rectangle has perimeter {p}. (what is|find) its area?"),),
    ),
    Pattern(
        "triangle_perimeter",
        "geometry",
        (
            "a triangle has sides {a}, {b} and {c}. (what is|find) its perimeter?",
            "(what is|find) the distance around a triangle with sides {a}, {b} and {c}?",
            "three straight roads of {a}, {b} and {c} miles form a triangle. how long is the way around it?",
        ),
        _triangle,
        _triangle_work,
        _triangle_spoiled,
        ((ErrorType.MISSING_INFORMATION, "a triangle has sides {a} and {b}. (what is|find) its perimeter?"),),
    ),
    Pattern(
        "third_angle",
        "geometry",
        (
            "two angles of a triangle are {a} and {b} degrees. how many degrees is the third angle?",
            "a triangle has angles of {a} and {b} degrees. (what is|find) the other angle?",
            "a roof is a triangle with {a} degrees on the left and {b} degrees on the right. how many degrees are at the top?",
        ),
        _angle,
        _angle_work,
        _angle_spoiled,
        (
            (
                ErrorType.MISSING_INFORMATION,
                "one angle of a triangle is {a} degrees. how many degrees is the third angle?",
            ),
        ),
    ),
    Pattern(
        "box_volume",
        "geometry",
        (
            "a box is {a} long, {b} wide and {k} high. (what is|find) its volume?",
            "how many unit cubes fill a box with sides {a}, {b} and {k}?",
            "a tank with sides {a}, {b} and {k} feet is full of water. how many cubic feet of water are in it?",
        ),
        _box,
        _box_work,
        None,
        ((ErrorType.MISSING_INFORMATION, "a box is {a} long and {b} wide. (what is|find) its volume?"),),
    ),
)
