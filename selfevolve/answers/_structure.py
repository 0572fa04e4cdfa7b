"""The outer structure of an answer: lists, sets, points, intervals, relations, units; expressions go to the parser."""

from __future__ import annotations

from selfevolve.answers import _scalar
from selfevolve.answers._atoms import Node
from selfevolve.answers._brackets import depths, is_close, is_open
from selfevolve.answers._combine import combine
from selfevolve.answers._forms import (
    Cases,
    End,
    Form,
    Group,
    Matrix,
    Named,
    Region,
    Scalar,
    Text,
    complement,
    intersection,
    interval,
    union,
)
from selfevolve.answers._names import name_of, neutral_name
from selfevolve.answers._nodes import symbols
from selfevolve.answers._numeric import Value, evaluate, infinity
from selfevolve.answers._parser import Parser, parse_whole
from selfevolve.answers._relations import TURNED, half_line, relation
from selfevolve.answers._shapes import column_names, inside_bars, is_named_point, unlike_each, without_transposition
from selfevolve.answers._tokens import Token, Unreadable, tokenise

_OPEN = {"(": ")", "[": "]", "{": "}"}
_RELATIONS = {"=": "=", "<": "<", ">": ">", "le": "<=", "ge": ">=", "ne": "!=", "approx": "~", "in": "in", "equiv": "="}
_END = Token("end", "", False)


def split(tokens: list[Token], wanted: object) -> tuple[list[list[Token]], list[str]]:
    """Return the parts between the top-level tokens for which ``wanted`` gives a name, and those names."""
    if not any(wanted(token) for token in tokens):  # type: ignore[operator]
        return [tokens], []
    parts: list[list[Token]] = [[]]
    names: list[str] = []
    for token, depth in zip(tokens, depths(tokens), strict=True):
        name = wanted(token) if depth == 0 else None  # type: ignore[operator]
        if name:
            parts.append([])
            names.append(name)
        else:
            parts[-1].append(token)
    return parts, names


def _joint(token: Token) -> str | None:
    if token.kind == "op" and token.value in ",;":
        return "list"
    if token.kind in ("word", "text"):
        word = token.value.strip(" ,;").lower()
        return word if word in ("and", "or") else None
    return "list" if token.kind == "cmd" and token.value in ("\\", "land", "lor", "wedge", "vee") else None


def _relation(token: Token) -> str | None:
    return _RELATIONS.get(token.value) if token.kind in ("op", "cmd") else None


def _set_mark(token: Token) -> str | None:
    if token.kind == "cmd" and token.value in ("cup", "cap", "setminus", "backslash"):
        return "setminus" if token.value == "backslash" else token.value
    return None


class Reader:
    """Functions from tokens to a form, from the outside in."""

    @staticmethod
    def read(text: str) -> Form:
        """Return the form of a cleaned text; `Unreadable` where it is no mathematics."""
        tokens = tokenise(text)[:-1]
        if not tokens:
            raise Unreadable("nothing is left to read")
        return Reader.several(tokens)

    @staticmethod
    def several(tokens: list[Token]) -> Form:
        if len(tokens) > 1 and tokens[0].kind in ("word", "text") and tokens[0].value.lower() in ("either", "both"):
            tokens = tokens[1:]
        parts, joints = split(tokens, _joint)
        kept = [p for p in parts if p]
        if len(kept) > 200:
            raise Unreadable("more than 200 values")
        if len(kept) == 1:
            return Reader.item(kept[0])
        if (unlike := unlike_each(kept, _relation)) is not None:
            return intersection([f for f in map(Reader.item, unlike) if isinstance(f, Region)])
        forms = [Reader.item(p) for p in kept]
        return combine(forms, set(joints))

    @staticmethod
    def item(tokens: list[Token]) -> Form:
        parts, relations = split(tokens, _relation)
        if not relations:
            return Reader.plain(tokens)
        if not all(parts):
            if not parts[0] and relations[0] in ("=", "~") and all(parts[1:]):
                return Reader.item(tokens[1:])
            raise Unreadable("a relation with an empty side")
        return Reader.chain(parts, relations)

    @staticmethod
    def chain(parts: list[list[Token]], relations: list[str]) -> Form:
        if "~" in relations:
            cut = relations.index("~")
            if cut == 0 and name_of(parts[0]) is not None and len(parts) == 2:
                relations = ["="]
            else:
                parts, relations = parts[: cut + 1], relations[:cut]
                if not relations:
                    return Reader.plain(parts[0])
        if relations == ["in"]:
            inside = Reader.plain(parts[1])
            name = name_of(parts[0])
            if isinstance(inside, Region) and name:
                return Region(inside.pieces, name)
            return inside
        if all(r == "=" for r in relations):
            return Reader.equation(parts)
        return Reader.inequality(parts, relations)

    @staticmethod
    def equation(parts: list[list[Token]]) -> Form:
        if len(parts) == 2 and len(parts[1]) == 1 and parts[1][0].kind == "let" and name_of(parts[0]) is None:
            parts = parts[::-1]  # 5 = x
        if (names := column_names(parts[0])) and len(parts) == 2:
            plain = Reader.plain(parts[1])
            return Named(names, plain, plain)
        name = name_of(parts[0])
        if name is not None:
            plain = Reader.plain(parts[-1])
            if name == "":
                return plain
            neutral, variable = neutral_name(parts[0], name)
            if variable is None:
                return Named(name, plain, plain)
            swapped = [Token("let", "@", t.spaced) if t.kind == "let" and t.value == variable else t for t in parts[-1]]
            return Named(neutral, Reader.plain(swapped), plain)
        if len(parts) > 2:
            return Reader.plain(parts[-1])
        left, right = parse_whole(parts[0]), parse_whole(parts[1])
        if not symbols(left) and not symbols(right):
            return Reader.plain(parts[1])
        return relation("=", left, right)

    @staticmethod
    def inequality(parts: list[list[Token]], relations: list[str]) -> Form:
        size = _absolute(parts, relations)
        if size is not None:
            return size
        named = [name_of(p) for p in parts]
        at = [k for k, name in enumerate(named) if name]
        if len(at) == 1:
            rest = [p for k, p in enumerate(parts) if k != at[0]]
            values = [endpoint(p) for p in rest]
            if all(v is not None for v in values):
                return _bounded(named[at[0]] or "", at[0], parts, relations)
        if len(parts) != 2:
            raise Unreadable("a chain of inequalities without one variable in it")
        return relation(relations[0], parse_whole(parts[0]), parse_whole(parts[1]))

    @staticmethod
    def plain(tokens: list[Token]) -> Form:
        """Return the form of a value without a relation around it."""
        if not tokens:
            raise Unreadable("nothing is left to read")
        parts, marks = split(tokens, _set_mark)
        if marks:
            return _set_expression(parts, marks)
        first = tokens[0]
        if first.kind == "cmd" and first.value in ("emptyset", "varnothing") and len(tokens) == 1:
            return Group("set", ())
        if first.kind == "cmd" and first.value == "mathbb" and len(tokens) == 4:
            if tokens[2].value == "R":
                return Region(((End(infinity(-1), False), End(infinity(1), False)),))
            return Text("set " + tokens[2].value, "mathbb " + tokens[2].value)
        if first.kind == "cmd" and first.value == "begin" and len(tokens) > 2 and tokens[2].value == "cases":
            return _cases(tokens)
        if is_open(first) and is_close(tokens[-1]) and all(d > 0 for d in depths(tokens)[1:-1]):
            grouped = Reader.bracketed(tokens)
            if grouped is not None:
                return grouped
        if (upright := _transposed(tokens)) is not None:
            return upright
        if is_named_point(tokens):
            inner = Reader.bracketed(tokens[1:])
            if isinstance(inner, Group):
                return Named(first.value, inner, inner)
        if len(tokens) == 1 and first.kind == "cmd" and first.value in ("ldots", "dots", "cdots", "dotsc"):
            return Text("...", "...")
        return Reader.scalar(tokens)

    @staticmethod
    def bracketed(tokens: list[Token]) -> Form | None:
        """Return the group in one pair of brackets; None where the brackets only hold one expression."""
        opening, closing, inner = tokens[0], tokens[-1], tokens[1:-1]
        if opening.kind == "op" and opening.value == "{":
            if any(t.kind == "cmd" and t.value in ("choose", "over") for t in inner):
                return None
            return Reader.several(inner) if inner else None
        if opening.kind == "cmd" and opening.value == "{":
            return _set_form(inner)
        parts, joints = split(inner, lambda t: t.value if t.kind == "op" and t.value in ",;" else None)
        if "," not in joints and ";" not in joints:
            if opening.value == "[" and all(is_open(p[0]) for p in parts if p) and inner:
                return Reader.several(inner)
            if opening.value == "(" and inner and (inner[0].kind == "cmd" and inner[0].value == "begin"):
                return Reader.several(inner)
            return None
        if not all(parts):
            raise Unreadable("a point or interval with an empty place")
        if ";" in joints and "," in joints:
            rows = [split(r, lambda t: "," if t.kind == "op" and t.value == "," else None)[0]
                    for r in split(inner, lambda t: ";" if t.kind == "op" and t.value == ";" else None)[0]]  # fmt: skip
            return matrix([[parse_whole(cell) for cell in row] for row in rows])
        forms = tuple(Reader.item(p) for p in parts)
        kind = ("(" if opening.value in ("(", "langle") else "[") + (")" if closing.value in (")", "rangle") else "]")
        if kind == "[]" and len(forms) > 0 and all(isinstance(f, Group) and f.kind == "[]" for f in forms):
            rows_of = [f.items for f in forms if isinstance(f, Group)]
            if len({len(r) for r in rows_of}) == 1 and all(isinstance(c, Scalar) for r in rows_of for c in r):
                return Matrix(tuple(tuple(c.value for c in r if isinstance(c, Scalar)) for r in rows_of))
        if all(isinstance(f, Named) for f in forms):
            return combine(list(forms), {"list"})
        two = [k for k, f in enumerate(forms) if isinstance(f, Group) and f.kind == "list"]
        if len(two) == 1 and isinstance(several := forms[two[0]], Group):  # (0, ±2) stands for two points
            before, behind = forms[: two[0]], forms[two[0] + 1 :]
            return Group("list", tuple(Group(kind, (*before, one, *behind)) for one in several.items))
        return Group(kind, forms)

    @staticmethod
    def scalar(tokens: list[Token]) -> Form:
        if tokens[0].kind == "op" and tokens[0].value == "(" and len(tokens) == 3 and tokens[1].kind == "let":
            return Reader.scalar(tokens[1:2])  # (C) is C
        found = _scalar.read(tokens)
        if isinstance(found, tuple):
            if found[0][0] == "matrix":
                return matrix([list(row) for row in found[0][1]])
            both = [_scalar.from_node(found[0], 1), _scalar.from_node(found[1], -1)]
            return both[0] if both[0].key == both[1].key else combine(list(both), {"list"})
        return found


def _transposed(tokens: list[Token]) -> Matrix | None:
    """Return a matrix, or a row written as a point, with ``^T`` behind it."""
    rest = without_transposition(tokens)
    form = None if rest is None else Reader.plain(rest)
    if isinstance(form, Matrix):
        return Matrix(tuple(zip(*form.rows, strict=True)))
    if isinstance(form, Group) and form.kind in ("()", "[]"):
        values = [f.value for f in form.items if isinstance(f, Scalar)]
        return Matrix(tuple((v,) for v in values)) if len(values) == len(form.items) else None
    return None


def _absolute(parts: list[list[Token]], relations: list[str]) -> Region | None:
    """Return the numbers for which ``|x - 2| < 3`` or its like holds; None for anything else."""
    if len(parts) != 2 or relations[0] not in TURNED:
        return None
    turned = inside_bars(parts[0]) is None
    inner, bound = inside_bars(parts[1 if turned else 0]), parts[0 if turned else 1]
    if inner is None or endpoint(bound) is None:
        return None
    sign = TURNED[relations[0]] if turned else relations[0]
    minus = [Token("op", "-", False), Token("op", "(", False), *bound, Token("op", ")", False)]
    both = [Reader.inequality([inner, bound], [sign]), Reader.inequality([inner, minus], [TURNED[sign]])]
    regions = [r for r in both if isinstance(r, Region)]
    if len(regions) != 2:
        return None
    return union(regions) if sign[0] == ">" else intersection(regions)


def matrix(rows: list[list[Node]]) -> Form:
    """Return a matrix of the rows' values."""
    if len({len(row) for row in rows}) != 1 or sum(len(row) for row in rows) > 400:
        raise Unreadable("a matrix with rows of unlike length")
    return Matrix(tuple(tuple(evaluate(cell) for cell in row) for row in rows))


def endpoint(tokens: list[Token]) -> Value | None:
    """Return the constant that ``tokens`` state, or None."""
    try:
        form = Reader.scalar(tokens)
    except Unreadable:
        return None
    return form.value if isinstance(form, Scalar) and (form.value.constant or form.value.infinite) else None


def _bounded(name: str, at: int, parts: list[list[Token]], relations: list[str]) -> Region:
    """Return the region of ``a < x <= b`` and its like; ``at`` is the variable's place."""
    regions = []
    for k, sign in enumerate(relations):
        left, right = k, k + 1
        if at == left:
            bound = endpoint(parts[right])
        elif at == right:
            bound, sign = endpoint(parts[left]), TURNED.get(sign, sign)
        else:
            raise Unreadable("a chain of inequalities with its variable at an end")
        if bound is None or sign not in ("<", ">", "<=", ">=", "!="):
            raise Unreadable("an inequality without a number for its bound")
        regions.append(half_line(sign, bound, name))
    return regions[0] if len(regions) == 1 else Region(intersection(regions).pieces, name)


def _set_expression(parts: list[list[Token]], marks: list[str]) -> Form:
    regions = [as_region(Reader.plain(p)) for p in parts]
    if any(r is None for r in regions):
        raise Unreadable("a union of things that are no sets of numbers")
    found = [r for r in regions if r is not None]
    total = found[0]
    for mark, region in zip(marks, found[1:], strict=True):
        if mark == "cup":
            total = union([total, region])
        else:
            total = intersection([total, complement(region) if mark == "setminus" else region])
    return total


def as_region(form: Form) -> Region | None:
    """Return ``form`` as a set of real numbers where it is one: an interval, or a finite set."""
    if isinstance(form, Region):
        return form
    if not isinstance(form, Group) or not all(isinstance(f, Scalar) for f in form.items):
        return None
    values = [f.value for f in form.items if isinstance(f, Scalar)]
    try:
        if form.kind == "set":
            return union([interval(End(v, True), End(v, True)) for v in values]) if values else Region(())
        if form.kind in ("()", "[]", "(]", "[)") and len(values) == 2:
            return interval(End(values[0], form.kind[0] == "["), End(values[1], form.kind[1] == "]"))
    except Unreadable:
        return None
    return None


def _set_form(inner: list[Token]) -> Form:
    """Return the set in braces, written out or by a condition."""
    if not inner:
        return Group("set", ())
    parts, marks = split(inner, lambda t: "|" if t.value in ("mid", "|", ":") else None)
    if len(marks) == 1 and all(parts) and not any(t.kind == "op" and t.value == "," for t in parts[0]):
        condition = Reader.several(parts[1])
        if isinstance(condition, Region):
            return Region(condition.pieces)
        raise Unreadable("a set given by a condition that is no inequality")
    form = Reader.several(inner)
    if isinstance(form, Group) and form.kind == "list":
        return Group("set", form.items, form.ordered)
    return Group("set", (form,))


def _condition(cell: list[Token]) -> list[Token]:
    """Return a cell without the "if" before its condition and the comma or full stop behind it."""
    while cell and cell[0].kind in ("word", "text") and cell[0].value.strip(" ,").lower() in ("if", "for", "when"):
        cell = cell[1:]
    while cell and cell[-1].kind == "op" and cell[-1].value in ",;.":
        cell = cell[:-1]
    return cell


def _cases(tokens: list[Token]) -> Form:
    parser = Parser([*tokens[1:], _END])
    _, rows = parser.environment_rows()
    if parser.now.kind != "end":
        raise Unreadable("something stands behind the cases")
    read = tuple(tuple(Reader.several(cell) for cell in map(_condition, row) if cell) for row in rows)
    if read and all(len(row) == 1 and isinstance(row[0], Named) for row in read):
        return combine([row[0] for row in read], {"list"})  # a solved system
    return Cases(read)
