"""Values of expressions: exact fractions where possible, else 100 digits; symbols are tried at six fixed points.

Two expressions with symbols are the same function when they agree at the points to 70 digits (a random identity test;
for polynomials over the rationals the points are exact, after J. T. Schwartz, "Fast probabilistic algorithms", 1980).
Point 2 has mixed and 3 negative coordinates, the others positive ones. A point where some part of an expression without
the imaginary unit is not real is left out, so that ``ln(x^2)`` equals ``2 ln(x)`` on the common domain, while
``sqrt(x^2)`` does not equal ``x``.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from selfevolve.answers._arithmetic import bits_of, context, number, rational_root, real
from selfevolve.answers._atoms import Node
from selfevolve.answers._functions import call
from selfevolve.answers._nodes import has_imaginary, symbols
from selfevolve.answers._tokens import TooLarge, Unreadable

MAX_BITS = 60_000  # of an exact numerator or denominator
MAX_EXPONENT = 1_000_000  # binary exponent of an inexact value
MAX_STEPS = 50_000  # nodes worked out at one point; long numbers count for more
MAX_TERMS = 5_000  # of a finite sum or product
POINTS = 6


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression is worth, one entry a point; a constant has one entry."""

    at: tuple[Any, ...]  # Fraction, mpmath number, or None where it is undefined
    delicate: bool = False  # terms of very unlike size were added, so agreement proves nothing
    infinite: int = 0  # 1 or -1 for the infinities
    opaque: bool = False  # a sum without known ends stands in it, so disagreement proves nothing

    @property
    def constant(self) -> bool:
        return len(self.at) == 1

    @property
    def exact(self) -> Fraction | None:
        """The rational value of a constant, where it is known exactly."""
        first = self.at[0] if len(self.at) == 1 and not self.infinite else None
        return first if isinstance(first, Fraction) else None

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable; equal keys mean equal values, except for delicate ones, which have a key of their own kind."""
        if self.infinite:
            return ("infinite", self.infinite)
        return ("delicate" if self.delicate else "value", *(_quantise(x) for x in self.at))


def infinity(sign: int) -> Value:
    """Return plus or minus infinity."""
    return Value((None,), infinite=sign)


def evaluate(node: Node, sign: int = 1) -> Value:
    """Return the value of ``node`` with every plus-or-minus read as ``sign``.

    Raises `Unreadable` where it has none (a division by zero), `TooLarge` where it cannot be worked out.
    """
    if not symbols(node):
        work = _Evaluator(0, sign)
        value = work.run(node)
        return Value((value,), work.delicate, opaque=work.opaque)
    plain, whole = [], []  # plain ones leave out a point where some part is not real
    delicate = opaque = False
    imaginary = has_imaginary(node)
    for k in range(POINTS):
        work = _Evaluator(k, sign)
        try:
            whole.append(work.run(node))
        except Unreadable:
            if k in (0, 1):
                raise
            whole.append(None)
        plain.append(None if work.unreal and not imaginary else whole[-1])
        delicate, opaque = delicate or work.delicate, opaque or work.opaque
    values = plain if sum(v is not None for v in plain) >= 2 else whole
    if all(v is not None and v == values[0] and isinstance(v, Fraction) for v in values):
        return Value((values[0],), delicate, opaque=opaque)  # the symbols cancel
    return Value(tuple(values), delicate, opaque=opaque)


def same_value(a: Value, b: Value) -> bool | None:
    """Return whether two values agree; None where the digits at hand cannot tell."""
    if a.infinite or b.infinite:
        return a.infinite == b.infinite
    size = max(len(a.at), len(b.at))
    pairs = list(zip(a.at * size if a.constant else a.at, b.at * size if b.constant else b.at, strict=False))[:size]
    compared, exact = 0, True
    for k, (x, y) in enumerate(pairs):
        if x is None or y is None:
            continue
        if size > 1 and (real(x) != real(y) or (k in (2, 3) and not real(x))):
            continue
        compared += 1
        exact = exact and isinstance(x, Fraction) and isinstance(y, Fraction)
        close = _close(x, y)
        if close is not True:
            return None if a.opaque or b.opaque else close
    if compared < min(2, size) or (not exact and (a.delicate or b.delicate)):
        return None
    return True


def _close(x: Any, y: Any) -> bool | None:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x == y
    x, y = number(x), number(y)
    gap, size = abs(x - y), max(abs(x), abs(y))
    if gap <= size * context().mpf(10) ** -70:
        return True
    return False if gap > size * context().mpf(10) ** -50 else None


def _quantise(x: Any) -> Any:
    if x is None or isinstance(x, Fraction):
        return x
    ctx = context()
    return (ctx.nstr(x.real, 60), ctx.nstr(x.imag, 60))


def _unit_hash(text: str) -> int:
    return zlib.crc32(text.encode()) * 2654435761 % (1 << 32)


class _Evaluator:
    """Works out one node at one point."""

    def __init__(self, k: int, sign: int) -> None:
        self.k = k
        self.sign = sign
        self.delicate = False
        self.opaque = False
        self.unreal = False
        self.bound: dict[str, Fraction] = {}
        self.steps = 0
        self.ctx = context()

    def run(self, node: Node) -> Any:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooLarge(f"more than {MAX_STEPS} steps")
        if node[0] == "num":
            return node[1]
        value = getattr(self, "do_" + node[0])(node)
        if not isinstance(value, Fraction):
            return self.checked(value)
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        if bits < 500:
            return value
        self.steps += bits // 500
        return value if bits <= MAX_BITS else self.checked(number(value))

    def checked(self, value: Any) -> Any:
        ctx = self.ctx
        if not ctx.isfinite(value):
            raise Unreadable("the expression has no finite value")
        if value.imag and abs(value.imag) < abs(value) * ctx.mpf(10) ** -85:
            value = value.real
        elif value.imag and abs(value.real) < abs(value) * ctx.mpf(10) ** -85:
            value = ctx.mpc(0, value.imag)
        elif not value.imag:
            value = value.real
        self.unreal = self.unreal or bool(value.imag)
        if value and abs(ctx.mag(value)) > MAX_EXPONENT:
            raise TooLarge("the value has more than 300,000 digits")
        return value

    # -- leaves
    def do_num(self, node: Node) -> Any:
        return node[1]

    def do_sym(self, node: Node) -> Any:
        name = node[1]
        if name in self.bound:
            return self.bound[name]
        h = _unit_hash(f"{name}|{self.k}")
        size = Fraction(601 + h % 1201, 997) if self.k < 4 else Fraction(101 + h % 4801, 997)
        negative = self.k == 3 or (self.k == 2 and h >> 20 & 1)
        return -size if negative else size

    def do_const(self, node: Node) -> Any:
        ctx = self.ctx
        if node[1] == "infty":
            raise Unreadable("infinity inside an expression")
        return {"pi": +ctx.pi, "e": +ctx.e, "i": ctx.mpc(0, 1)}[node[1]]

    # -- arithmetic
    def do_add(self, node: Node) -> Any:
        values = [self.run(part) for part in node[1:]]
        if all(isinstance(v, Fraction) for v in values):
            return sum(values, Fraction(0))
        numbers = [number(v) for v in values]
        total = self.ctx.fsum(numbers)
        sizes = [abs(n) for n in numbers if n]
        if not sizes:
            return Fraction(0)
        if min(sizes) < max(sizes) * self.ctx.mpf(10) ** -30:
            self.delicate = True
        if abs(total) < max(sizes) * self.ctx.mpf(10) ** -85:
            return Fraction(0)
        return total

    def do_mul(self, node: Node) -> Any:
        values = [self.run(part) for part in node[1:]]
        result = values[0]
        for value in values[1:]:
            if (
                isinstance(result, Fraction)
                and isinstance(value, Fraction)
                and bits_of(result) + bits_of(value) < MAX_BITS
            ):
                result = result * value
            elif value == 0 or result == 0:
                result = Fraction(0)
            else:
                result = number(result) * number(value)
        return result

    def do_div(self, node: Node) -> Any:
        top, bottom = self.run(node[1]), self.run(node[2])
        if bottom == 0:
            raise Unreadable("a division by zero")
        if isinstance(top, Fraction) and isinstance(bottom, Fraction):
            return top / bottom
        return number(top) / number(bottom)

    def do_neg(self, node: Node) -> Any:
        return -self.run(node[1])

    def do_pm(self, node: Node) -> Any:
        return node[1] * self.sign * self.run(node[2])

    def do_pct(self, node: Node) -> Any:
        value = self.run(node[1])
        return value / 100

    def do_deg(self, node: Node) -> Any:
        return number(self.run(node[1])) * self.ctx.pi / 180

    def do_pow(self, node: Node) -> Any:
        return self.power(self.run(node[1]), self.run(node[2]))

    def power(self, a: Any, b: Any) -> Any:
        ctx = self.ctx
        if b == 0:
            return Fraction(1)
        if a == 0:
            if not real(b) or number(b) < 0:
                raise Unreadable("a division by zero")
            return Fraction(0)
        if a == 1:
            return Fraction(1)
        if isinstance(b, Fraction) and b.denominator > 1 and b.denominator % 2 and real(a) and a < 0:
            root = self.power(-a, b)  # the real root of a negative number
            return -root if b.numerator % 2 else root
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            if b.denominator == 1:
                if bits_of(a) * abs(b) <= MAX_BITS:
                    return a ** int(b)
            elif a > 0 and b.denominator <= 64 and bits_of(a) * abs(b) <= MAX_BITS:
                exact = rational_root(a, b.denominator)
                if exact is not None:
                    return exact**b.numerator
        x, y = number(a), number(b)
        growth = (y * ctx.log(x)).real / ctx.ln2 if abs(ctx.mag(y)) < 200 else ctx.inf
        if abs(growth) > MAX_EXPONENT:
            raise TooLarge("a power with more than 300,000 digits")
        return ctx.power(x, y)

    def do_fact(self, node: Node) -> Any:
        return self.factorial(self.run(node[1]), node[2])

    def factorial(self, n: Any, marks: int) -> Any:
        if marks > 2:
            raise Unreadable("three factorial signs in a row")
        if isinstance(n, Fraction) and n.denominator == 1:
            if n < 0:
                raise Unreadable("the factorial of a negative number")
            if n <= 3000:
                result = 1
                for factor in range(int(n), 1, -marks):
                    result *= factor
                return Fraction(result)
        if marks == 2:
            return self.double_factorial(number(n))
        return self.gamma(number(n) + 1)

    def double_factorial(self, n: Any) -> Any:
        if abs(n) > 3000:
            raise TooLarge("the double factorial of a large number")
        return self.ctx.fac2(n)

    def gamma(self, x: Any) -> Any:
        if abs(x) > 50_000:
            raise TooLarge("the factorial of a large number")
        try:
            return self.ctx.gamma(x)
        except ValueError as error:
            raise Unreadable("a factorial without a value") from error

    # -- functions
    def do_apply(self, node: Node) -> Any:
        """Return a fixed but arbitrary value for an unknown function, the same for the same arguments."""
        name, *arguments = node[1:]
        shown = ",".join(str(_quantise(self.run(a))) for a in arguments)
        return Fraction(500 + _unit_hash(f"{name}({shown})") % 100_003, 70_001)

    def do_sum(self, node: Node) -> Any:
        return self.running(node)

    def do_prod(self, node: Node) -> Any:
        return self.running(node)

    def running(self, node: Node) -> Any:
        kind, variable, low_node, high_node, body = node
        low, high = self.run(low_node), self.run(high_node)
        if symbols(low_node) | symbols(high_node):
            # No end of the sum is known: it stands for a function of its bounds and of the body at a generic index.
            self.opaque = True
            inner = self.run(body)
            shown = f"{kind}|{_quantise(low)}|{_quantise(high)}|{_quantise(inner)}"
            return Fraction(500 + _unit_hash(shown) % 100_003, 70_001)
        if not all(isinstance(v, Fraction) and v.denominator == 1 for v in (low, high)):
            raise Unreadable("a sum whose bounds are no integers")
        if high - low > MAX_TERMS:
            raise TooLarge(f"a sum of more than {MAX_TERMS} terms")
        outer = self.bound.get(variable)
        total: Any = Fraction(int(kind == "prod"))
        for index in range(int(low), int(high) + 1):
            self.bound[variable] = Fraction(index)
            term = self.run(body)
            both = isinstance(total, Fraction) and isinstance(term, Fraction) and bits_of(total) < MAX_BITS
            x, y = (total, term) if both else (number(total), number(term))
            total = x + y if kind == "sum" else x * y
            self.steps += bits_of(total) // 500 if isinstance(total, Fraction) else 0
        self.bound.pop(variable)
        if outer is not None:
            self.bound[variable] = outer
        return total

    def do_matrix(self, node: Node) -> Any:
        raise Unreadable("a matrix inside an expression")

    def do_call(self, node: Node) -> Any:
        name, *parts = node[1:]
        if name == "det":
            return self.determinant(parts[0])
        values = [self.run(part) for part in parts]
        return call(self, name, values)

    def determinant(self, node: Node) -> Any:
        if node[0] != "matrix" or len(node[1]) != len(node[1][0]) or len(node[1]) > 5:
            raise Unreadable("a determinant of something that is no small square matrix")
        return self.minor([[self.run(cell) for cell in row] for row in node[1]])

    def minor(self, rows: list[list[Any]]) -> Any:
        if len(rows) == 1:
            return rows[0][0]
        total: Any = Fraction(0)
        for column, head in enumerate(rows[0]):
            rest = [row[:column] + row[column + 1 :] for row in rows[1:]]
            term = number(head) * number(self.minor(rest)) if not isinstance(head, Fraction) else head
            if isinstance(head, Fraction):
                below = self.minor(rest)
                term = head * below if isinstance(below, Fraction) else number(head) * below
            both = isinstance(total, Fraction) and isinstance(term, Fraction)
            step = term if column % 2 == 0 else -term
            total = total + step if both else number(total) + number(step)
        return total
