"""Equations and inequalities as normal forms."""

from __future__ import annotations

from fractions import Fraction

from selfevolve.answers._arithmetic import number
from selfevolve.answers._atoms import Node
from selfevolve.answers._forms import End, Form, Region, Relation, complement, interval
from selfevolve.answers._nodes import has_pm, symbols
from selfevolve.answers._numeric import Value, evaluate, infinity
from selfevolve.answers._tokens import Unreadable

TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def relation(sign: str, left: Node, right: Node) -> Form:
    """Return an equation or inequality; a linear one in one variable as a region."""
    if has_pm(left) or has_pm(right):
        raise Unreadable("a relation with a plus-or-minus sign")
    difference = evaluate(("add", left, ("neg", right)))
    free = symbols(left) | symbols(right)
    if sign != "=" and len(free) == 1:
        found = _linear_region(sign, ("add", left, ("neg", right)), next(iter(free)))
        if found is not None:
            return found
    first = difference.at[0]
    if sign in (">", ">="):
        sign = TURNED[sign]
        difference = Value(tuple(None if v is None else -v for v in difference.at), difference.delicate)
        first = difference.at[0]
    if first is None or first == 0:
        raise Unreadable("a relation that holds everywhere")
    scale = first if sign in ("=", "!=") else abs(first)
    if any(v is not None and not isinstance(v, Fraction) for v in difference.at):
        scale = number(scale)
        scaled = tuple(None if v is None else number(v) / scale for v in difference.at)
    else:
        scaled = tuple(None if v is None else v / scale for v in difference.at)
    return Relation(sign, Value(scaled, difference.delicate))


def _linear_region(sign: str, node: Node, name: str) -> Region | None:
    """Return where ``node`` (sign) 0 holds, for ``node`` linear in ``name`` with rational numbers; else None."""
    at = []
    for x in (Fraction(0), Fraction(1), Fraction(3), Fraction(-7, 3)):
        try:
            value = evaluate(_put(node, name, x)).exact
        except Unreadable:
            return None
        if value is None:
            return None
        at.append(value)
    slope = at[1] - at[0]
    if slope == 0 or at[2] != at[0] + 3 * slope or at[3] != at[0] - Fraction(7, 3) * slope:
        return None
    if slope < 0:
        sign = TURNED.get(sign, sign)
    return half_line(sign, Value((-at[0] / slope,)), name)


def _put(node: Node, name: str, value: Fraction) -> Node:
    if node == ("sym", name):
        return ("num", value, 0)
    return tuple(_put(p, name, value) if isinstance(p, tuple) else p for p in node)


def half_line(sign: str, bound: Value, name: str) -> Region:
    """Return the numbers that stand in relation ``sign`` to ``bound``."""
    closed = sign in ("<=", ">=")
    if sign == "!=":
        return complement(Region(((End(bound, True), End(bound, True)),), name))
    if sign in ("<", "<="):
        return interval(End(infinity(-1), False), End(bound, closed), name)
    return interval(End(bound, closed), End(infinity(1), False), name)
