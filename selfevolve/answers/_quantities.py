"""Are two numbers or expressions the same, with the units, marks and digits that stand with them?"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from selfevolve.answers._arithmetic import number
from selfevolve.answers._forms import Form, Scalar
from selfevolve.answers._numeric import Value, same_value
from selfevolve.answers._units import Unit

MIN_ROUNDED = 10  # significant digits from which a decimal may stand for the value it rounds
FLOAT_DIGITS = 15  # significant digits from which it is taken for a machine number


def same_quantity(a: Scalar, b: Form) -> bool | None:
    """Return whether two scalars are one, by value and unit; None where that is open."""
    assert isinstance(b, Scalar)
    if a.mark or b.mark:
        return _marked(a, b)
    if a.unit and b.unit:
        if a.unit[0] != b.unit[0]:
            return False
        return _close(_scaled(a, a.unit), _scaled(b, b.unit))
    if a.unit or b.unit:
        plain, measured = (b, a) if a.unit else (a, b)
        if plain.perhaps is not None:
            value, unit = plain.perhaps
            return same_quantity(Scalar(value, unit, bare=value), measured)
        return _close(plain, Scalar(measured.value, digits=measured.digits, places=measured.places))
    verdict = _close(a, b)
    if verdict is False and a.perhaps and b.perhaps:
        (x, first), (y, second) = a.perhaps, b.perhaps  # 500 nm and 5e-7 m
        return first[0] == second[0] and _close(_scaled(Scalar(x), first), _scaled(Scalar(y), second))
    if verdict is False and (a.perhaps is None) != (b.perhaps is None):
        measured, other = (a, b) if a.perhaps else (b, a)
        if measured.perhaps and _close(Scalar(measured.perhaps[0]), other):
            return True if measured.decimal else None  # "2 m" against "2": m is a unit or a variable
    return verdict


def _scaled(a: Scalar, unit: Unit) -> Scalar:
    factor = Value((unit[1],))
    return a if unit[1] == 1 else Scalar(times(a.value, factor))


def _marked(a: Scalar, b: Scalar) -> bool | None:
    """Compare where a percent or degree sign stands; without one on the other side its bare number will do too."""
    if a.mark and b.mark:
        return same_value(a.value, b.value) if a.mark == b.mark else False
    marked, plain = (a, b) if a.mark else (b, a)
    assert marked.bare is not None
    if plain.unit:
        return same_value(marked.value, plain.value) if (marked.mark, plain.unit[0]) == ("deg", "angle") else False
    bare = Scalar(marked.bare, digits=marked.digits, places=marked.places)
    verdicts = _close(Scalar(marked.value), plain), _close(bare, plain)
    return True if True in verdicts else None if None in verdicts else False


def _close(a: Scalar, b: Scalar) -> bool | None:
    """Return whether two values agree, exactly or as a long decimal that rounds the other."""
    verdict = same_value(a.value, b.value)
    if verdict is False and (_rounds(a, b) or _rounds(b, a)):
        return True
    return verdict


def _rounds(short: Scalar, other: Scalar) -> bool:
    """Return whether the decimal ``short`` is ``other`` rounded or cut at its last digit.

    From `MIN_ROUNDED` digits on only, for a value that has no decimal as short as that; from `FLOAT_DIGITS` on an
    error in the fifteenth digit is allowed, as machine numbers have it.
    """
    value = short.value.exact
    if value is None or short.digits < MIN_ROUNDED or not other.value.constant or other.value.infinite or not value:
        return False
    target = number(other.value.at[0])
    if target.imag or (other.digits and other.digits <= short.digits and short.digits < FLOAT_DIGITS):
        return False
    gap = abs(number(value) - target)
    if short.digits >= FLOAT_DIGITS and gap < abs(target) * 10.0**-14:
        return True
    shift = 0  # the place of the last digit: value * 10^shift is a whole number
    size = abs(value)
    while size >= 10:
        size, shift = size / 10, shift + 1
    while size < 1:
        size, shift = size * 10, shift - 1
    last = number(Fraction(10) ** (shift - short.digits + 1))
    return bool(gap <= last / 2 or (gap < last and abs(number(value)) < abs(target)))


def times(a: Value, b: Value) -> Value:
    """Return the product of two values, point by point."""
    if a.infinite or b.infinite:
        return Value((None,))
    size = max(len(a.at), len(b.at))
    xs, ys = (a.at * size if a.constant else a.at)[:size], (b.at * size if b.constant else b.at)[:size]
    out: list[Any] = []
    for x, y in zip(xs, ys, strict=True):
        both = isinstance(x, Fraction) and isinstance(y, Fraction)
        out.append(None if x is None or y is None else x * y if both else number(x) * number(y))
    return Value(tuple(out), a.delicate or b.delicate)
