r"""Shapes of token lists that the structure reads in a way of their own: ``P(1, 2)``, ``x \neq 0, 1``, columns."""

from __future__ import annotations

from selfevolve.answers._brackets import depths
from selfevolve.answers._tokens import Token, Unreadable

_BARS = ("|", "lvert", "rvert", "vert")


def is_named_point(tokens: list[Token]) -> bool:
    """Return True for a capital letter with coordinates right behind it, as in ``P(1, 2)``."""
    first = tokens[0]
    if len(tokens) < 6 or first.kind != "let" or not first.value.isupper() or first.value in "CFGH":
        return False
    if tokens[1].value != "(" or tokens[-1].value != ")" or tokens[1].kind != "op":
        return False
    inner = depths(tokens[1:])
    return all(d > 0 for d in inner[1:-1]) and any(
        t.value == "," and d == 1 for t, d in zip(tokens[1:], inner, strict=True)
    )


def column_names(tokens: list[Token]) -> str:
    r"""Return ``(x,y)`` for a column of letters such as ``\begin{pmatrix} x \\ y \end{pmatrix}``; else ""."""
    if len(tokens) < 8 or tokens[0].value != "begin" or tokens[-1].value != "}":
        return ""
    close = next((k for k, t in enumerate(tokens) if t.value == "}"), 0)
    end = next((k for k, t in enumerate(tokens) if t.kind == "cmd" and t.value == "end"), 0)
    inner = tokens[close + 1 : end]
    letters = [t.value for t in inner if t.kind == "let"]
    plain = len(letters) >= 2 and len(letters) + sum(t.value in ("\\", "&") for t in inner) == len(inner)
    return "(" + ",".join(letters) + ")" if plain else ""


def without_transposition(tokens: list[Token]) -> list[Token] | None:
    r"""Return what stands before ``^T`` or ``^{\top}``; None where that is not the end."""
    for tail in (("^", "T"), ("^", "{", "T", "}"), ("^", "top"), ("^", "{", "top", "}"), ("^", "intercal")):
        if len(tokens) > len(tail) + 2 and tuple(t.value for t in tokens[-len(tail) :]) == tail:
            rest = tokens[: -len(tail)]
            grouped = rest[-1].value in ")]" or (rest[0].value == "begin" and rest[-1].value == "}")
            return rest if grouped and rest[0].value in ("(", "[", "begin") else None
    return None


def inside_bars(tokens: list[Token]) -> list[Token] | None:
    """Return what stands in one pair of bars around all tokens, one real variable in it; else None."""
    if len(tokens) < 3 or tokens[0].value not in _BARS or tokens[-1].value not in _BARS:
        return None
    inner = tokens[1:-1]
    if any(t.value in _BARS for t in inner):
        return None
    letters = {t.value for t in inner if t.kind == "let"}
    return inner if len(letters) == 1 and not letters & {"z", "w", "i"} else None


def unlike_each(parts: list[list[Token]], relation: object) -> list[list[Token]] | None:
    r"""Return ``x \neq 0, 1`` as ``x \neq 0`` and ``x \neq 1``; None where the parts are something else."""
    marks = [[k for k, t in enumerate(part) if relation(t)] for part in parts]  # type: ignore[operator]
    if len(marks[0]) != 1 or any(marks[1:]) or parts[0][marks[0][0]].value != "ne":
        return None
    try:
        depths(parts[0])
    except Unreadable:
        return None
    head = parts[0][: marks[0][0] + 1]
    return [parts[0], *(head + part for part in parts[1:])]
