"""Which tokens open and close a group, and how deep each token of a list lies."""

from __future__ import annotations

from selfevolve.answers._parser import MAX_DEPTH
from selfevolve.answers._tokens import Token, Unreadable


def is_open(token: Token) -> bool:
    """Return True for any opening bracket."""
    return (token.kind == "op" and token.value in "([{") or (token.kind == "cmd" and token.value in ("{", "langle"))


def is_close(token: Token) -> bool:
    """Return True for any closing bracket."""
    return (token.kind == "op" and token.value in ")]}") or (token.kind == "cmd" and token.value in ("}", "rangle"))


def depths(tokens: list[Token]) -> list[int]:
    """Return how deep each token lies; brackets and environments count, a bracket itself lies outside."""
    out: list[int] = []
    depth = 0
    for token in tokens:
        if is_close(token) or (token.kind == "cmd" and token.value in ("end", "rfloor", "rceil")):
            depth -= 1
        out.append(depth)
        if is_open(token) or (token.kind == "cmd" and token.value in ("begin", "lfloor", "lceil")):
            depth += 1
            if depth > MAX_DEPTH:
                raise Unreadable(f"more than {MAX_DEPTH} nested groups")
    if depth or min(out, default=0) < 0:
        raise Unreadable("the brackets do not balance")
    return out
