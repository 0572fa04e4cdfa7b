"""Numbers to work with: exact fractions, and mpmath numbers of 100 digits in a context of each thread's own."""

from __future__ import annotations

import importlib
import threading
from fractions import Fraction
from typing import Any

DIGITS = 100  # decimal digits of inexact work
_LOCAL = threading.local()


def context() -> Any:
    """Return this thread's arithmetic; mpmath's own shared one is not safe between threads."""
    found = getattr(_LOCAL, "context", None)
    if found is None:
        mpmath = importlib.import_module("mpmath")
        found = _LOCAL.context = mpmath.MPContext()
        found.dps = DIGITS
    return found


def number(x: Any) -> Any:
    """Return ``x`` as a number of this thread's arithmetic."""
    if isinstance(x, Fraction):
        ctx = context()
        return ctx.mpf(x.numerator) / x.denominator
    return x


def real(x: Any) -> bool:
    """Return whether a number is real."""
    return isinstance(x, Fraction) or x.imag == 0


def bits_of(x: Fraction) -> int:
    """Return the length of the longer of numerator and denominator."""
    return max(x.numerator.bit_length(), x.denominator.bit_length())


def rational_root(a: Fraction, q: int) -> Fraction | None:
    """Return the exact q-th root of ``a`` > 0, or None."""
    top, bottom = _integer_root(a.numerator, q), _integer_root(a.denominator, q)
    return Fraction(top, bottom) if top is not None and bottom is not None else None


def _integer_root(n: int, q: int) -> int | None:
    """Return the exact q-th root of ``n`` > 0, or None."""
    guess = 1 << -(-n.bit_length() // q)
    while True:  # Newton's steps from above
        lower = ((q - 1) * guess + n // guess ** (q - 1)) // q
        if lower >= guess:
            return guess if guess**q == n else None
        guess = lower
