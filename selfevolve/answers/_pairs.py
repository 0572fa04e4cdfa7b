"""Are two normal forms the same answer? True, False, or None where the forms alone cannot tell. Symmetric."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from selfevolve.answers._arithmetic import number
from selfevolve.answers._forms import (
    Cases,
    Choice,
    Date,
    Form,
    Group,
    Invalid,
    Matrix,
    Missing,
    Named,
    Ratio,
    Record,
    Region,
    Relation,
    Scalar,
    Text,
    union,
)
from selfevolve.answers._numeric import POINTS, Value, evaluate, same_value
from selfevolve.answers._quantities import same_quantity, times
from selfevolve.answers._structure import as_region
from selfevolve.answers._wording import EITHER_DATE

HUGE_BITS = 100_000  # a huge power or factorial is larger than any number of fewer bits
_TUPLES = ("()", "[]", "(]", "[)")
_RANK: dict[type, int] = {
    Missing: 0, Invalid: 1, Text: 2, Date: 3, Choice: 4, Named: 5, Record: 6, Relation: 7, Cases: 8, Region: 9,
    Ratio: 10, Matrix: 11, Group: 12, Scalar: 13,
}  # fmt: skip


def same(a: Form, b: Form) -> bool | None:
    """Return whether ``a`` and ``b`` are one answer; None where that is open."""
    if _RANK[type(a)] > _RANK[type(b)]:
        a, b = b, a
    if isinstance(a, Missing):
        return None
    if a.key == b.key and not _delicate(a):
        return True
    if isinstance(a, Invalid):
        return False
    return _RULES[type(a)](a, b)


def _delicate(form: Form) -> bool:
    return not isinstance(form, Text) and _holds_delicate(form.key)


def _holds_delicate(key: Any) -> bool:
    return key == "delicate" or (isinstance(key, tuple) and any(_holds_delicate(part) for part in key))


# -- words
def _text(a: Text, b: Form) -> bool | None:
    if a.why == EITHER_DATE and isinstance(b, Text | Date):
        return None
    if isinstance(b, Text):
        if a.why.startswith("longer") or b.why.startswith("longer"):
            return None
        return None if a.formula and b.formula else False
    if a.why.startswith("longer"):
        return None
    if a.huge and isinstance(b, Scalar):
        return False if _modest(b) else None
    if a.why == "a division by zero" and isinstance(b, Scalar) and b.value.constant and not b.value.infinite:
        return False
    return None if a.formula else False


def _modest(b: Scalar) -> bool:
    if b.value.infinite:
        return True
    first = b.value.at[0]
    if not b.value.constant or first is None:
        return False
    if isinstance(first, Fraction):
        return first.numerator.bit_length() - first.denominator.bit_length() < HUGE_BITS
    return bool(abs(number(first)) < 2**1000)


def _choice(a: Choice, b: Form) -> bool | None:
    if isinstance(b, Choice):
        if a.letter != b.letter:
            return False
        return None if a.key[2] and b.key[2] else True  # two texts behind one letter: initials, or a slip
    return isinstance(b, Scalar) and b.key == ("scalar", _letter(a.letter).key, None, "", 0)


def _date(a: Date, b: Form) -> bool | None:
    if not isinstance(b, Date):
        part = isinstance(b, Scalar) and b.value.exact is not None and b.value.exact in (a.year, a.day)
        return None if part else False
    if a.month != b.month or any(None not in pair and pair[0] != pair[1] for pair in _dated(a, b)):
        return False
    return None if any(None in pair and pair != (None, None) for pair in _dated(a, b)) else True


def _dated(a: Date, b: Date) -> tuple[tuple[int | None, int | None], ...]:
    return (a.year, b.year), (a.day, b.day)


def _letter(name: str) -> Value:
    return evaluate(("const", "i") if name == "I" else ("sym", name))


# -- names and relations
def _named(a: Named, b: Form) -> bool | None:
    if isinstance(b, Named):
        if a.name == b.name:
            return same(a.form, b.form)
        if ("(" in a.name) != ("(" in b.name):
            return same(a.plain, b.plain)  # y = 2x and f(x) = 2x
        turned, other = _as_relation(a), _as_relation(b)  # x = y and y = x
        return bool(turned and other and _relation(turned, other))
    if isinstance(b, Relation):
        turned = _as_relation(a)
        return False if turned is None else _relation(turned, b)
    if isinstance(b, Record):
        roots = all(re.fullmatch(re.escape(a.name) + r"_\{?\d\}?", name) for name in b.names)
        if roots and isinstance(a.plain, Group) and a.plain.kind == "list":
            return _matched(b.forms, a.plain.items, same)
        names = tuple(a.name[1:-1].split(","))
        point = isinstance(a.plain, Group) and a.name[0] == "(" and len(names) == len(a.plain.items)
        return _record(b, Record(names, a.plain.items)) if point and isinstance(a.plain, Group) else False
    if a.name == "P" and isinstance(b, Scalar) and isinstance(a.plain, Group):
        return None  # a point, or a number of permutations
    return same(a.plain, b)


def _as_relation(a: Named) -> Relation | None:
    if not isinstance(a.plain, Scalar) or not a.name.replace("_", "").isalnum() or a.plain.value.infinite:
        return None
    left, right = evaluate(("sym", a.name)), a.plain.value
    values = right.at * POINTS if right.constant else right.at
    gaps: list[Any] = []
    for x, y in zip(left.at, values, strict=True):
        both = isinstance(x, Fraction) and isinstance(y, Fraction)
        gaps.append(None if y is None else x - y if both else number(x) - number(y))
    if not gaps[0]:
        return None
    exact = all(g is None or isinstance(g, Fraction) for g in gaps)
    scaled = tuple(None if g is None else g / gaps[0] if exact else number(g) / number(gaps[0]) for g in gaps)
    return Relation("=", Value(scaled, right.delicate))


def _record(a: Record, b: Form) -> bool | None:
    if isinstance(b, Record):
        if set(a.names) != set(b.names):
            return False
        other = dict(zip(b.names, b.forms, strict=True))
        return _all(same(f, other[n]) for n, f in zip(a.names, a.forms, strict=True))
    if isinstance(b, Group) and b.kind == "set" and all(re.fullmatch(r"[xzrt]_\{?\d\}?", name) for name in a.names):
        return _matched(_distinct(a.forms), _distinct(b.items), same)
    if isinstance(b, Group) and b.kind in ("list", "()") and len(b.items) == len(a.forms):
        if b.kind == "list" and all(re.fullmatch(r"[xzrt]_\{?\d\}?", name) for name in a.names):
            return _matched(a.forms, b.items, same)  # x_1 = 2, x_2 = 3 are the roots 2 and 3
        by_name = [f for _, f in sorted(zip(a.names, a.forms, strict=True), key=lambda pair: pair[0])]
        return _any((_in_order(a.forms, b.items), _in_order(by_name, b.items)))
    return False


def _relation(a: Relation, b: Form) -> bool | None:
    if isinstance(b, Region) and a.sign != "=":
        return None  # x^2 < 4 has the solutions (-2, 2): not worked out here
    if not isinstance(b, Relation) or a.sign != b.sign:
        return False
    return same_value(a.scaled, b.scaled)


def _cases(a: Cases, b: Form) -> bool | None:
    if not isinstance(b, Cases) or len(a.rows) != len(b.rows):
        return False
    return _matched(a.rows, b.rows, _in_order)


# -- sets of numbers
def _region(a: Region, b: Form) -> bool | None:
    if isinstance(b, Region):
        if a.variable and b.variable and a.variable != b.variable:
            return False
        other = b
    else:
        found = as_region(b) or _joined(b)
        if found is None:
            return False
        other = found
    if len(a.pieces) != len(other.pieces):
        return False
    pairs = [(x, y) for p, q in zip(a.pieces, other.pieces, strict=True) for x, y in zip(p, q, strict=True)]
    if any(x.closed != y.closed for x, y in pairs):
        return False
    return _all(same(Scalar(x.value), Scalar(y.value)) for x, y in pairs)


def _joined(b: Form) -> Region | None:
    """Return intervals in a list, such as (-inf, 1), (3, inf), as their union."""
    if not isinstance(b, Group) or b.kind != "list":
        return None
    regions = [as_region(item) for item in b.items]
    found = [r for r in regions if r is not None]
    return union(found) if len(found) == len(regions) else None


def _ratio(a: Ratio, b: Form) -> bool | None:
    if isinstance(b, Scalar):
        if a.half and a.clock is not None and b.value.exact == (a.clock // 60 + 11) % 12 + 1:
            return None  # "5 p.m." against "5"
        if len(a.parts) != 2 or b.unit or b.mark or a.half:
            return False
        return _proportion(a.parts, (b.value, Value((Fraction(1),))))
    if not isinstance(b, Ratio):
        return False
    if a.clock is not None and b.clock is not None:
        if bool(a.half) != bool(b.half):
            bare = b.clock if a.half else a.clock
            twelve = 720 if 60 <= bare < 780 else 1440  # 3:30 may be either half's, 15:30 and 0:30 are the day's
            return (a.clock - b.clock) % twelve == 0
        return a.clock == b.clock
    if a.half or b.half or len(a.parts) != len(b.parts):
        return False
    return _proportion(a.parts, b.parts)


def _proportion(a: Sequence[Value], b: Sequence[Value]) -> bool | None:
    """Return whether a1 : a2 : ... equals b1 : b2 : ..., by products crosswise."""
    products = []
    for k in range(1, len(a)):
        products.append(same_value(times(a[0], b[k]), times(a[k], b[0])))
    return _all(products)


# -- matrices and groups
def _matrix(a: Matrix, b: Form) -> bool | None:
    if isinstance(b, Matrix):
        if len(a.rows) != len(b.rows) or len(a.rows[0]) != len(b.rows[0]):
            return False
        pairs = zip(a.rows, b.rows, strict=True)
        return _all(same(Scalar(x), Scalar(y)) for r, s in pairs for x, y in zip(r, s, strict=True))
    if isinstance(b, Group) and b.kind in ("()", "[]") and (len(a.rows) == 1 or len(a.rows[0]) == 1):
        return _in_order([Scalar(v) for row in a.rows for v in row], b.items)
    if isinstance(b, Scalar) and len(a.rows) == len(a.rows[0]) == 1:
        return same(Scalar(a.rows[0][0]), b)
    return False


def _group(a: Group, b: Form) -> bool | None:
    if not isinstance(b, Group):
        kept = _distinct(a.items) if a.either else a.items
        return same(kept[0], b) if len(kept) == 1 and a.kind in ("set", "list") else False
    if a.either or b.either:
        firsts = [_distinct(g.items) if g.either else list(g.items) for g in (a, b)]
        if [len(f) for f in firsts] != [len(a.items), len(b.items)]:
            return same(*(f[0] if len(f) == 1 else Group("list", tuple(f)) for f in firsts))
    loose = ("list", "set")
    for one, other in ((a, b), (b, a)):
        if one.kind == "set" and len(one.items) == 1 and other.kind in _TUPLES:
            return same(one.items[0], other)  # {(1, 2)} and (1, 2)
    if a.kind in loose and b.kind in loose:
        if a.ordered or b.ordered:
            return _in_order(a.items, b.items)
        if "set" in (a.kind, b.kind):
            return _matched(_distinct(a.items), _distinct(b.items), same)
        return _matched(a.items, b.items, same)
    if a.kind in loose or b.kind in loose:
        if "set" in (a.kind, b.kind) or not {a.kind, b.kind} & {"()", "[]"}:
            return False
        return _in_order(a.items, b.items)
    if a.kind != b.kind and (len(a.items) == 2 or {a.kind, b.kind} != {"()", "[]"}):
        return False
    return _in_order(a.items, b.items)


def _distinct(items: Sequence[Form]) -> list[Form]:
    kept: list[Form] = []
    for item in items:
        if all(same(item, k) is not True for k in kept):
            kept.append(item)
    return kept


def _in_order(a: Sequence[Form], b: Sequence[Form]) -> bool | None:
    return _all(same(x, y) for x, y in zip(a, b, strict=True)) if len(a) == len(b) else False


def _matched(a: Sequence[Any], b: Sequence[Any], equal: Callable[[Any, Any], bool | None]) -> bool | None:
    """Return whether the members of ``a`` and ``b`` can be paired off; order does not matter."""
    if len(a) != len(b):
        return False
    verdicts = [[equal(x, y) for y in b] for x in a]
    if _pairing([[v is True for v in row] for row in verdicts]):
        return True
    return None if _pairing([[v is not False for v in row] for row in verdicts]) else False


def _pairing(allowed: list[list[bool]]) -> bool:
    """Return whether every row can take a column of its own (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, ok in enumerate(allowed[row]):
            if ok and column not in seen:
                seen.add(column)
                if column not in owner or place(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(allowed)))


def _all(verdicts: Any) -> bool | None:
    result: bool | None = True
    for verdict in verdicts:
        if verdict is False:
            return False
        result = None if verdict is None else result
    return result


def _any(verdicts: Any) -> bool | None:
    result: bool | None = False
    for verdict in verdicts:
        if verdict is True:
            return True
        result = None if verdict is None else result
    return result


_RULES: dict[type, Callable[[Any, Any], bool | None]] = {
    Text: _text, Date: _date, Choice: _choice, Named: _named, Record: _record, Relation: _relation, Cases: _cases,
    Region: _region, Ratio: _ratio, Matrix: _matrix, Group: _group, Scalar: same_quantity,
}  # fmt: skip
