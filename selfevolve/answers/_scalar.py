"""One number or expression with what may stand around it: money signs, percent, degrees, units, a ratio, a time."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from selfevolve.answers._atoms import Node
from selfevolve.answers._forms import Form, Ratio, Scalar
from selfevolve.answers._nodes import has_pm
from selfevolve.answers._numeric import Value, evaluate, infinity
from selfevolve.answers._parser import Parser, parse_whole
from selfevolve.answers._tokens import Token, Unreadable
from selfevolve.answers._units import SINGLE_LETTERS, Unit, may_be, read_unit
from selfevolve.answers._words import words

_END = Token("end", "", False)
_MONEY = {"usd": "usd", "eur": "eur", "gbp": "gbp", "yen": "yen", "inr": "inr"}
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_PERCENT = frozenset(["percent", "pct", "percents"])
_DEGREE = frozenset(["degree", "degrees", "deg"])
_NO_UNITS = frozenset(words("if for where when with is are otherwise or and not mod of as"))


def read(tokens: list[Token]) -> Form | tuple[Node, Node]:
    """Return the scalar, or twice the same node where a plus-or-minus sign makes it two values."""
    money, tokens = _money(tokens)
    if not tokens:
        raise Unreadable("a sign without a number")
    colons = [k for k, t in enumerate(tokens) if t.kind == "op" and t.value == ":"]
    if colons and not money:
        return _ratio(tokens)
    infinite = _infinite(tokens)
    if infinite is not None:
        return infinite
    temperature = _temperature(tokens)
    if temperature is not None:
        return temperature
    added = None if money else _added(tokens) or _quotient_of_units(tokens)
    if added is not None:
        return added
    parser = Parser([*tokens, _END])
    node = _sign_inside(parser.expression())
    rest = tokens[parser.at :] if parser.now.kind != "end" else []
    scale = 0
    while rest and rest[0].kind in ("word", "text") and rest[0].value.lower() in _SCALES:
        scale += _SCALES[rest[0].value.lower()]
        rest = rest[1:]
    if scale:
        node = ("mul", node, ("num", Fraction(10**scale), 0))
    if node[0] == "matrix" or (has_pm(node) and not rest):
        return node, node
    if rest and rest[0].kind == "num":
        raise Unreadable("two numbers stand side by side")
    cut = next((k for k, t in enumerate(rest) if t.kind == "num" and rest[k - 1].value not in "^-{"), 0)
    if cut and len(rest) > 40:
        raise Unreadable("more quantities side by side than one answer has")
    if cut:
        return _compound(_with_unit(node, rest[:cut], money, tokens), read(rest[cut:]))
    return _with_unit(node, rest, money, tokens)


def _sign_inside(node: Node) -> Node:
    """Return ``-20%`` as minus twenty percent, and ``125/10 %`` as a percentage: the mark belongs to the whole."""
    if node[0] == "neg":
        inner = _sign_inside(node[1])
        if inner[0] in ("pct", "deg"):
            return (inner[0], ("neg", inner[1]))
    if node[0] == "div" and node[1][0] == "num" and node[2][0] in ("pct", "deg") and node[2][1][0] == "num":
        return (node[2][0], ("div", node[1], node[2][1]))
    return node


def _added(tokens: list[Token]) -> Scalar | None:
    """Return the sum of quantities in falling units, each number with one name behind it: ``2 m 50 cm``."""
    if len(tokens) not in (4, 6, 8) or any(t.kind != "num" for t in tokens[::2]):
        return None
    names = [t.value for t in tokens[1::2]]
    if not all(t.kind in ("let", "run", "word", "text") and (may_be(t.value)) for t in tokens[1::2]):
        return None
    parts = [Scalar(Value((t.number or Fraction(0),)), read_unit(n)) for t, n in zip(tokens[::2], names, strict=True)]
    return in_falling_units(parts)


def _quotient_of_units(tokens: list[Token]) -> Scalar | None:
    """Return ``0.005 g/cm^3`` as measured: a letter over the name of a unit is no quotient of variables."""
    at = next((k for k, t in enumerate(tokens) if t.kind in ("let", "run", "word", "text")), 0)
    tail = tokens[at:]
    over = any(a.value == "/" and b.kind in ("word", "text") for a, b in pairwise(tail))
    named = [t for t in tail if t.kind in ("let", "run", "word", "text")]
    if not at or tokens[at - 1].kind != "num" or len(tail) > 12 or not over or not all(may_be(t.value) for t in named):
        return None
    try:
        return _measured(parse_whole(tokens[:at]), tail)
    except Unreadable:
        return None


def as_measured(form: Scalar) -> Scalar:
    """Return the reading of ``2 m`` as two metres; another scalar as it is."""
    return form if form.perhaps is None else Scalar(form.perhaps[0], form.perhaps[1], bare=form.perhaps[0])


def in_falling_units(parts: list[Scalar]) -> Scalar | None:
    """Return the sum of ``1 hour`` and ``30 minutes`` in the last unit; None where they are separate quantities."""
    total = parts[0]
    for part in parts[1:]:
        if not (total.unit and part.unit and total.unit[0] == part.unit[0] and total.unit[1] > part.unit[1]):
            return None
        a, b = total.value.exact, part.value.exact
        if a is None or b is None or a.denominator != 1 or not 0 <= b * part.unit[1] < total.unit[1]:
            return None
        value = Value((a * total.unit[1] / part.unit[1] + b,))
        total = Scalar(value, part.unit, bare=value)
    return total


def _compound(first: Scalar, second: Form | tuple[Node, Node]) -> Scalar:
    """Return the sum of ``2 feet`` and ``6 inches``, in the second unit."""
    if not (isinstance(second, Scalar) and first.unit and second.unit and first.unit[0] == second.unit[0]):
        raise Unreadable("two quantities side by side that do not add up")
    a, b = first.value.exact, second.value.exact
    if a is None or b is None or first.unit[1] <= second.unit[1]:
        raise Unreadable("two quantities side by side that do not add up")
    total = Value((a * first.unit[1] / second.unit[1] + b,))
    return Scalar(total, second.unit, bare=total)


def from_node(node: Node, sign: int) -> Scalar:
    """Return the scalar that ``node`` is with every plus-or-minus read as ``sign``."""
    return Scalar(evaluate(node, sign))


def _money(tokens: list[Token]) -> tuple[str, list[Token]]:
    """Return the currency that a money sign names, and the tokens without the sign."""
    for at in (0, 1, len(tokens) - 1):
        if at < len(tokens) and tokens[at].kind == "cmd" and tokens[at].value in _MONEY:
            if at == 1 and at != len(tokens) - 1 and tokens[0].value not in "+-":
                continue
            return _MONEY[tokens[at].value], tokens[:at] + tokens[at + 1 :]
    return "", tokens


def _infinite(tokens: list[Token]) -> Scalar | None:
    signs = [t.value for t in tokens[:-1]]
    if tokens[-1].kind == "cmd" and tokens[-1].value == "infty" and signs in ([], ["+"], ["-"]):
        return Scalar(infinity(-1 if signs == ["-"] else 1))
    return None


def _temperature(tokens: list[Token]) -> Scalar | None:
    r"""Return ``20^\circ C`` as a measured quantity."""
    scale = {"C": "celsius", "F": "fahrenheit"}.get(tokens[-1].value)
    if scale is None or not any(t.kind == "cmd" and t.value in ("circ", "degree") for t in tokens[-4:-1]):
        return None
    node = _sign_inside(parse_whole(tokens[:-1]))
    return _measured(node[1], [Token("word", scale, True)]) if node[0] == "deg" else None


def _with_unit(node: Node, rest: list[Token], money: str, tokens: list[Token]) -> Scalar:
    words = [t.value.lower() for t in rest]
    if node[0] == "pct" or (rest and words[0] in _PERCENT and len(rest) == 1):
        inner = node[1] if node[0] == "pct" else node
        return _marked("pct", "%", inner)
    if node[0] == "deg" or (rest and words[0] in _DEGREE and len(rest) == 1):
        if rest and node[0] == "deg":  # 20 °C
            return _measured(node[1], [Token("word", "degree", True), *rest])
        return _marked("deg", "deg", node[1] if node[0] == "deg" else node)
    if money:
        decimal = _decimal(node)
        value = evaluate(node)
        if rest and words != ["usd"] and read_unit(" ".join(words)) != (money, Fraction(1)):
            raise Unreadable("words behind an amount of money")
        return Scalar(value, (money, Fraction(1)), bare=value, digits=decimal[0], places=decimal[1])
    if rest:
        return _measured(node, rest)
    digits, places = _decimal(node)
    return Scalar(
        evaluate(node), digits=digits, places=places, perhaps=_perhaps(tokens), decimal=bool(tokens[0].digits)
    )


def _marked(kind: str, mark: str, inner: Node) -> Scalar:
    digits, places = _decimal(inner)
    return Scalar(evaluate((kind, inner)), None, mark, evaluate(inner), digits, places)


def _measured(node: Node, rest: list[Token]) -> Scalar:
    text = _unit_text(rest)
    value = evaluate(node)
    digits, places = _decimal(node)
    return Scalar(value, read_unit(text), bare=value, digits=digits, places=places)


def _unit_text(rest: list[Token]) -> str:
    text = ""
    for token in rest:
        ok = token.kind in ("word", "text", "run", "let") or (token.kind == "op" and token.value in "/^{}.-()*")
        ok = (
            ok or token.kind == "num" or (token.kind == "cmd" and token.value in ("cdot", "usd", "Omega", "circ", "mu"))
        )
        if not ok or (token.kind in ("word", "text") and token.value.lower().split(" ")[0] in _NO_UNITS):
            raise Unreadable(f"{token.value!r} stands behind the number")
        text += (" " if token.spaced else "") + token.value
    if len(re.findall(r"[A-Za-z]+", text)) > 4:
        raise Unreadable("a sentence stands behind the number")
    return text


def _decimal(node: Node) -> tuple[int, int]:
    """Return significant digits and places of a number that was written as a decimal; zeros where it was not."""
    while node[0] == "neg":
        node = node[1]
    if node[0] == "mul" and len(node) == 3 and node[2][0] == "pow" and node[1][0] == "num":
        node = node[1]  # 2.5 \times 10^{-3}
        return (_significant(node), -1) if node[2] else (0, 0)
    if node[0] != "num" or not node[2]:
        return 0, 0
    return _significant(node), node[2]


def _significant(node: Node) -> int:
    scaled = abs(node[1]) * 10 ** node[2] if node[2] > 0 else abs(node[1]) / 10 ** -node[2]
    return len(str(scaled.numerator)) if scaled < 10**300 else 0


def _perhaps(tokens: list[Token]) -> tuple[Value, Unit] | None:
    """Return the reading of ``5 m`` or ``10 m/s`` as a measured quantity, beside five times m."""
    micro = len(tokens) > 2 and tokens[-2].kind == "cmd" and tokens[-2].value == "mu"
    at = len(tokens) - 2 if micro else next((k for k, t in enumerate(tokens) if t.kind in ("let", "run")), 0)
    tail = tokens[at:]
    if at == 0 or tokens[at - 1].kind not in ("num", "op") or len(tail) > 8:
        return None
    for token in tail[micro:]:
        if token.kind == "let" and token.value not in SINGLE_LETTERS:
            return None
        if token.kind == "run" and not may_be(token.value):
            return None
        if token.kind not in ("let", "run", "num") and not (token.kind == "op" and token.value in "/^{}-"):
            return None
    try:
        value = evaluate(parse_whole(tokens[:at]))
    except Unreadable:
        return None
    unit = read_unit("".join((" " if t.spaced else "") + t.value for t in tail))
    return (value, unit) if value.constant and unit else None


def _ratio(tokens: list[Token]) -> Ratio:
    half = ""
    tail = "".join(t.value.lower() for t in tokens if t.kind in ("word", "text", "run", "let")).replace(".", "")
    marks = [k for k, t in enumerate(tokens) if t.kind in ("word", "text", "run", "let")]
    if tail in ("am", "pm"):
        half = tail
        tokens = tokens[: marks[0]]
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.value in "({[") - (token.value in ")}]") if token.kind == "op" else 0
        if depth == 0 and token.kind == "op" and token.value == ":":
            parts.append([])
        else:
            parts[-1].append(token)
    if not all(parts):
        raise Unreadable("a ratio with an empty side")
    clock = _clock(parts, half)
    if half and clock is None:
        raise Unreadable("no time of day")
    return Ratio(tuple(evaluate(parse_whole(p)) for p in parts), clock, half)


def _clock(parts: list[list[Token]], half: str) -> int | None:
    if len(parts) != 2 or any(len(p) != 1 or p[0].kind != "num" for p in parts):
        return None
    hours, minutes = parts[0][0].value, parts[1][0].value
    if not (hours.isdigit() and re.fullmatch(r"[0-5]\d", minutes) and int(hours) <= (12 if half else 24)):
        return None
    base = int(hours) % 12 + (12 if half == "pm" else 0) if half else int(hours)
    return base * 60 + int(minutes)
