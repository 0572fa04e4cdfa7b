"""A list of tokens with a place in it: what the parser needs beside the grammar."""

from __future__ import annotations

from abc import ABC

from selfevolve.answers._tokens import Token, Unreadable


class Stream(ABC):  # noqa: B024 - a base to build on, never used alone
    """The tokens and the place of the next one; ``depth`` counts nested groups, ``bars`` open absolute values."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0

    # -- the token list
    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def peek(self, offset: int = 1) -> Token:
        return self.tokens[min(self.at + offset, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def is_op(self, value: str) -> bool:
        return self.now.kind == "op" and self.now.value == value

    def is_cmd(self, *values: str) -> bool:
        return self.now.kind == "cmd" and self.now.value in values

    def expect(self, value: str) -> None:
        if not (self.now.kind in ("op", "cmd") and self.now.value == value):
            raise Unreadable(f"expected {value!r}, found {self.now.value!r}")
        self.at += 1

    def environment_rows(self) -> tuple[str, list[list[list[Token]]]]:
        r"""Return the name and the cells, each a token list, of ``{name} a & b \\ c & d \end{name}``."""
        name = self.braced_name()
        if name == "array" and self.is_op("{"):
            self.braced_name()
        rows: list[list[list[Token]]] = [[[]]]
        depth = 0
        while True:
            token = self.take()
            if token.kind == "end":
                raise Unreadable(f"the environment {name} never ends")
            if token.kind == "cmd" and token.value == "end" and depth == 0:
                self.braced_name()
                break
            depth += (token.value == "begin") - (token.value == "end") if token.kind == "cmd" else 0
            if depth == 0 and token.kind == "cmd" and token.value == "\\":
                rows.append([[]])
            elif depth == 0 and token.kind == "op" and token.value == "&":
                rows[-1].append([])
            else:
                rows[-1][-1].append(token)
        return name, [row for row in rows if any(row)]

    def braced_name(self) -> str:
        self.expect("{")
        name = ""
        while not self.is_op("}"):
            if self.now.kind == "end":
                raise Unreadable("a brace is never closed")
            name += self.take().value
        self.at += 1
        return name
