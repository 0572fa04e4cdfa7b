"""What stands in an expression: its free symbols, plus-or-minus signs, the imaginary unit."""

from __future__ import annotations

from typing import Any

from selfevolve.answers._atoms import Node


def symbols(node: Node) -> frozenset[str]:
    """Return the names of the free symbols and letter functions in ``node``."""
    kind = node[0]
    if kind == "sym":
        return frozenset((node[1],))
    found: frozenset[str] = frozenset((f"{node[1]}()",)) if kind == "apply" else frozenset()
    for part in node[1:]:
        if isinstance(part, tuple):
            found |= _symbols_of_part(part)
    if kind in ("sum", "prod"):
        found -= {node[1]}
    return found


def _symbols_of_part(part: tuple[Any, ...]) -> frozenset[str]:
    if part and isinstance(part[0], tuple):  # rows of a matrix
        return frozenset().union(*(_symbols_of_part(inner) for inner in part))
    return symbols(part)


def has_imaginary(node: Node) -> bool:
    """Return True where the imaginary unit stands in ``node``."""
    parts = (p for p in node[1:] if isinstance(p, tuple) and p and isinstance(p[0], str))
    return node == ("const", "i") or node[:2] == ("call", "cis") or any(has_imaginary(p) for p in parts)


def has_pm(node: Node) -> bool:
    """Return True where a plus-or-minus sign stands in ``node``."""
    return node[0] == "pm" or any(has_pm(p) for p in node[1:] if isinstance(p, tuple) and p and isinstance(p[0], str))
