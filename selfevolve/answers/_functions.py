"""The named functions: roots, absolute values, logarithms, trigonometry, binomial coefficients."""

from __future__ import annotations

from fractions import Fraction
from math import comb, gcd, lcm
from typing import Any, Protocol

from selfevolve.answers._arithmetic import number, real
from selfevolve.answers._tokens import TooLarge, Unreadable
from selfevolve.answers._words import words


class Worker(Protocol):
    """What the functions need of the evaluator that calls them."""

    ctx: Any

    def power(self, a: Any, b: Any) -> Any:
        """Return a to the power b, within bounds."""
        ...

    def factorial(self, n: Any, marks: int) -> Any:
        """Return the factorial (``marks`` 1) or double factorial (2)."""
        ...


def call(work: Worker, name: str, values: list[Any]) -> Any:
    """Return the value of the function ``name``; `Unreadable` where it has none."""
    x = values[0]
    ctx = work.ctx
    if name in ("root", "sqrt", "cbrt"):
        index = values[1] if name == "root" else Fraction(2 if name == "sqrt" else 3)
        if not isinstance(index, Fraction) or index == 0:
            raise Unreadable("a root without a number for its index")
        return work.power(x, 1 / index)
    if name in ("abs", "norm"):
        return abs(x)
    if name in ("floor", "ceil"):
        if not isinstance(x, Fraction):
            return Fraction(int(ctx.floor(x.real) if name == "floor" else ctx.ceil(x.real)))
        return Fraction(x.numerator // x.denominator if name == "floor" else -(-x.numerator // x.denominator))
    if name == "factorial":
        return work.factorial(x, 1)
    if name == "cis":
        angle = number(x)
        return ctx.cos(angle) + ctx.mpc(0, 1) * ctx.sin(angle)
    if name in ("gcd", "lcm", "max", "min", "binom", "mod"):
        return _of_several(work, name, values)
    return _elementary(work, name, values)


def _of_several(work: Worker, name: str, values: list[Any]) -> Any:
    whole = all(isinstance(v, Fraction) and v.denominator == 1 for v in values)
    if name in ("gcd", "lcm"):
        if not whole:
            raise Unreadable(f"{name} of something that is no integer")
        return Fraction((gcd if name == "gcd" else lcm)(*(int(v) for v in values)))
    if name == "mod":
        if not whole or values[1] == 0:
            raise Unreadable("a remainder of something that is no integer")
        return Fraction(int(values[0]) % int(values[1]))
    if name in ("max", "min"):
        if not all(real(v) for v in values):
            raise Unreadable(f"{name} of something that is not real")
        return (max if name == "max" else min)(values, key=number)
    if len(values) != 2:
        raise Unreadable("a binomial coefficient without two entries")
    n, k = values
    if whole and k >= 0 and 0 <= n <= 20_000:
        return Fraction(comb(int(n), int(k)))
    if abs(number(n)) > 10_000 or abs(number(k)) > 10_000:
        raise TooLarge("a large binomial coefficient")
    return work.ctx.binomial(number(n), number(k))


_INVERSE = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot"}
_PLAIN = frozenset(words("sin cos tan cot sec csc sinh cosh tanh coth asin acos atan acot"))


def _elementary(work: Worker, name: str, values: list[Any]) -> Any:
    ctx = work.ctx
    x = number(values[0])
    if name in ("ln", "log", "lg", "logbase"):
        return _logarithm(work, name, values)
    if len(values) != 1:
        raise Unreadable(f"{name} with {len(values)} arguments")
    if name == "exp":
        return work.power(+ctx.e, values[0])
    name = _INVERSE.get(name, name)
    if name not in _PLAIN:
        raise Unreadable(f"the function {name} is not read here")
    if abs(x) > 10**6:
        raise TooLarge(f"{name} of a large number")
    try:
        return getattr(ctx, name)(x)
    except (ZeroDivisionError, ValueError) as error:
        raise Unreadable(f"{name} has no value there") from error


def _logarithm(work: Worker, name: str, values: list[Any]) -> Any:
    """Return a logarithm; one without a base is to base ten."""
    ctx = work.ctx
    if len(values) != (2 if name == "logbase" else 1) or values[-1] == 0:
        raise Unreadable("a logarithm without a value")
    if values[-1] == 1:
        return Fraction(0)
    top = ctx.log(number(values[-1]))
    if name == "ln":
        return top
    base = values[0] if name == "logbase" else Fraction(10)
    bottom = ctx.log(number(base)) if base != 0 else 0
    if not bottom:
        raise Unreadable("a logarithm to a base without powers")
    result = top / bottom
    nearest = ctx.nint(result.real)  # log_2 8 is 3 exactly
    if not result.imag and abs(nearest) < 10_000 and abs(result - nearest) < ctx.mpf(10) ** -90:
        guess = int(nearest)
        if isinstance(base, Fraction) and work.power(base, Fraction(guess)) == values[-1]:
            return Fraction(guess)
    return result
