"""Normal forms: what kind of thing an answer is, with a hashable key. Equal keys mean the same answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from selfevolve.answers._arithmetic import number
from selfevolve.answers._numeric import Value, same_value
from selfevolve.answers._tokens import Unreadable
from selfevolve.answers._units import Unit

Key = tuple[Any, ...]
_BLANK = re.compile(r"(?<![\d,])\s+|\s+(?!\s*[\d,])")


def squash(text: str) -> str:
    """Return ``text`` without the blanks that part no numbers."""
    return _BLANK.sub("", text)


@dataclass(frozen=True)
class Missing:
    """No answer at all: never the same as anything."""

    @cached_property
    def key(self) -> Key:
        return ("missing",)


@dataclass(frozen=True)
class Invalid:
    """The verdict INVALID, which equals only itself."""

    @cached_property
    def key(self) -> Key:
        return ("invalid",)


@dataclass(frozen=True)
class Text:
    """An answer in words, or one that this package cannot read as mathematics."""

    words: str  # lower case, without marks
    raw: str  # the cleaned text
    formula: bool = False  # it looks like mathematics, so a symbolic tool may still read it
    why: str = ""  # why it was not read as mathematics
    huge: bool = False  # a positive whole number of more than 100,000 bits

    @cached_property
    def key(self) -> Key:
        return ("text", self.words) if self.words and not self.formula else ("formula", squash(self.raw))


@dataclass(frozen=True)
class Choice:
    """An option of a multiple-choice question with the option's own text behind its letter."""

    letter: str
    rest: str

    @cached_property
    def key(self) -> Key:
        wordy = re.fullmatch(r"[A-Za-z ,.'\-]+", self.rest) is not None
        return ("choice", self.letter, " ".join(self.rest.casefold().split()).strip(" .") if wordy else "")


@dataclass(frozen=True)
class Date:
    """A day, or a month of a year; None for a part that is left out."""

    year: int | None
    month: int
    day: int | None

    @cached_property
    def key(self) -> Key:
        return ("date", self.year, self.month, self.day)


@dataclass(frozen=True)
class Scalar:
    """One number or one expression."""

    value: Value
    unit: Unit | None = None
    mark: str = ""  # "%" or "deg": value counts the mark in, bare does not
    bare: Value | None = None
    digits: int = 0  # significant digits, where it was written as one decimal
    places: int = 0  # digits after the point, then
    perhaps: tuple[Value, Unit] | None = None  # "5 m" may also be five metres
    decimal: bool = False  # and the number before it is written with a point, as measured ones are

    @cached_property
    def key(self) -> Key:
        return ("scalar", self.value.key, self.unit, self.mark, self.digits if self.digits >= 10 else 0)

    @cached_property
    def plain(self) -> bool:
        """True for a bare rational number that no courtesy touches: two such are the same only with equal keys."""
        loose = self.unit or self.mark or self.perhaps or self.digits >= 10
        return not loose and self.value.exact is not None and not self.value.delicate and not self.value.opaque


@dataclass(frozen=True)
class Group:
    """Several answers: ``list`` (bare), ``set`` (braces), or an ordered tuple named by its brackets, as ``(]``."""

    kind: str
    items: tuple[Form, ...]
    ordered: bool = False  # a bare list with an ellipsis keeps its order
    either: bool = False  # joined by "or": the members may be one value written twice

    @cached_property
    def key(self) -> Key:
        keys = [item.key for item in self.items]
        if self.kind in ("list", "set") and not self.ordered:
            unique = dict.fromkeys(keys) if self.kind == "set" else keys
            return (self.kind, tuple(sorted(unique, key=hash)))
        return (self.kind, tuple(keys))


@dataclass(frozen=True)
class Named:
    """A value with its left-hand side: ``x = 5``, ``f(n) = n^2``."""

    name: str
    form: Form  # with a function's variable renamed to a neutral one
    plain: Form  # as written

    @cached_property
    def key(self) -> Key:
        return ("named", self.name, self.form.key)


@dataclass(frozen=True)
class Record:
    """Values of several names: ``x = 2, y = 3``."""

    names: tuple[str, ...]
    forms: tuple[Form, ...]

    @cached_property
    def key(self) -> Key:
        return ("record", tuple(sorted(((n, f.key) for n, f in zip(self.names, self.forms, strict=True)), key=hash)))


@dataclass(frozen=True)
class Matrix:
    """Rows of expressions."""

    rows: tuple[tuple[Value, ...], ...]

    @cached_property
    def key(self) -> Key:
        return ("matrix", tuple(tuple(v.key for v in row) for row in self.rows))


@dataclass(frozen=True)
class Relation:
    """An equation or inequality: the difference of its sides at the points, scaled by its first value."""

    sign: str  # "=", "<", "<=", "!="; the greater ones are turned round
    scaled: Value

    @cached_property
    def key(self) -> Key:
        return ("relation", self.sign, self.scaled.key)


@dataclass(frozen=True)
class Cases:
    """A function given by cases, or a system of equations: rows in any order."""

    rows: tuple[tuple[Form, ...], ...]

    @cached_property
    def key(self) -> Key:
        return ("cases", tuple(sorted((tuple(f.key for f in row) for row in self.rows), key=hash)))


@dataclass(frozen=True)
class Ratio:
    """``a : b : c``, up to a common factor; ``clock`` holds the minutes since midnight where it may be a time."""

    parts: tuple[Value, ...]
    clock: int | None = None
    half: str = ""  # "am", "pm" or ""

    @cached_property
    def key(self) -> Key:
        if self.clock is not None:
            return ("clock", self.clock, self.half)
        first = self.parts[0].exact
        if first and all(p.exact is not None for p in self.parts):
            return ("ratio", *(Fraction(p.exact or 0) / first for p in self.parts))
        return ("ratio of", *(p.key for p in self.parts))


@dataclass(frozen=True)
class End:
    """One end of an interval."""

    value: Value
    closed: bool

    @property
    def size(self) -> Any:
        """The end's place on the line, for ordering."""
        if self.value.infinite:
            return float("inf") * self.value.infinite
        return number(self.value.at[0])


@dataclass(frozen=True)
class Region:
    """A set of real numbers: disjoint intervals in order."""

    pieces: tuple[tuple[End, End], ...]
    variable: str = field(default="", compare=False)  # "x" in x < 3

    @cached_property
    def key(self) -> Key:
        ends = tuple((a.value.key, a.closed, b.value.key, b.closed) for a, b in self.pieces)
        return ("region", self.variable, ends)


Form = (
    Missing
    | Invalid
    | Text
    | Choice
    | Date
    | Scalar
    | Group
    | Named
    | Record
    | Matrix
    | Relation
    | Cases
    | Ratio
    | Region
)


def interval(low: End, high: End, variable: str = "") -> Region:
    """Return one interval; `Unreadable` where its ends are not real numbers in order."""
    for end in (low, high):
        if not end.value.infinite and (not end.value.constant or number(end.value.at[0]).imag):
            raise Unreadable("an interval whose ends are no real numbers")
    if low.size > high.size or (low.size == high.size and not (low.closed and high.closed)):
        raise Unreadable("an interval whose ends are out of order")
    closed = (low.closed and not low.value.infinite, high.closed and not high.value.infinite)
    return Region(((End(low.value, closed[0]), End(high.value, closed[1])),), variable)


def union(regions: list[Region]) -> Region:
    """Return the union, touching pieces joined."""
    pieces = sorted((p for r in regions for p in r.pieces), key=lambda p: (p[0].size, not p[0].closed))
    out: list[tuple[End, End]] = []
    for low, high in pieces:
        if out:
            last_low, last_high = out[-1]
            touches = low.size < last_high.size or (_same_place(low, last_high) and (low.closed or last_high.closed))
            if touches:
                further = high.size > last_high.size or (_same_place(high, last_high) and high.closed)
                out[-1] = (last_low, high if further else last_high)
                continue
        out.append((low, high))
    return Region(tuple(out), regions[0].variable if regions else "")


def complement(region: Region) -> Region:
    """Return all real numbers outside ``region``."""
    from selfevolve.answers._numeric import infinity

    start = End(infinity(-1), False)
    out: list[tuple[End, End]] = []
    for low, high in region.pieces:
        if low.value.infinite == 0:
            piece = (start, End(low.value, not low.closed))
            if piece[0].size < piece[1].size or (piece[0].closed and piece[1].closed):
                out.append(piece)
        start = End(high.value, not high.closed)
    if start.value.infinite != 1:
        out.append((start, End(infinity(1), False)))
    return Region(tuple(out), region.variable)


def intersection(regions: list[Region]) -> Region:
    """Return the intersection, by the rule of De Morgan."""
    outside = union([complement(r) for r in regions])
    return Region(complement(outside).pieces, regions[0].variable)


def _same_place(a: End, b: End) -> bool:
    return same_value(a.value, b.value) is True
