"""Numbers and letters as the parser reads them: mixed numbers, bases, subscripts, unknown functions."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Any

from selfevolve.answers._stream import Stream
from selfevolve.answers._tokens import Token, Unreadable

Node = tuple[Any, ...]  # see _parser.py
_APPLIED = frozenset("fghFGHT")  # a letter that is a function where a bracket follows


class Atoms(Stream):
    """The parser's part for numbers and letters."""

    @abstractmethod
    def expression(self) -> Node:
        """Read a sum of products."""

    @abstractmethod
    def atom(self) -> Node:
        """Read one atom."""

    @abstractmethod
    def argument(self) -> Node:
        """Read a command's argument."""

    def number(self, token: Token) -> Node:
        assert token.number is not None
        if self.is_op("_"):
            return self.in_base(token.value)
        whole = token.value.isdigit()
        if whole and self.is_cmd("frac"):
            at, tokens = self.at, list(self.tokens)
            part = self.atom()
            if _proper(part):
                return ("add", ("num", token.number, 0), part)
            self.at, self.tokens = at, tokens
        one, two, three = self.now, self.peek(), self.peek(2)
        if whole and one.kind == "num" and one.spaced and two.value == "/" and three.kind == "num":
            if not (one.value.isdigit() and three.value.isdigit() and (one.number or 0) < (three.number or 0)):
                raise Unreadable("two numbers stand side by side")
            self.at += 3
            return ("add", ("num", token.number, 0), ("div", ("num", one.number, 0), ("num", three.number, 0)))
        return ("num", token.number, token.digits)

    def in_base(self, digits: str) -> Node:
        """Return the value of digits with a base behind them: ``204_5``."""
        self.expect("_")
        base = self.argument()
        if base[0] != "num" or not 2 <= base[1] <= 36 or base[1].denominator != 1 or len(digits) > 2000:
            raise Unreadable("a number with a subscript that is no base")
        try:
            whole, _, part = digits.partition(".")
            return ("num", Fraction(int((whole + part) or "0", int(base[1])), int(base[1]) ** len(part)), 0)
        except ValueError as error:
            raise Unreadable(f"{digits} has digits outside base {base[1]}") from error

    def letter(self, token: Token) -> Node:
        name = token.value
        if self.is_op("_"):
            return self.subscripted(name)
        if name == "e":
            return ("const", "e")
        if name in ("i", "I") and not self.is_op("("):
            return ("const", "i")
        while self.is_op("'"):
            self.at += 1
            name += "'"
        if name == "C" and self.is_op("(") and self.choice_of_two():
            return ("call", "binom", *self.arguments())
        if name[0] in _APPLIED and self.is_op("("):
            return ("apply", name, *self.arguments())
        return ("sym", name)

    def choice_of_two(self) -> bool:
        """True before ``(5, 2)``, so that C(5, 2) is a binomial coefficient."""
        ahead = [self.peek(k) for k in range(5)]
        return [t.value for t in ahead][0::2] == ["(", ",", ")"] and all(t.kind in ("num", "let") for t in ahead[1::2])

    def subscripted(self, name: str) -> Node:
        """Return ``x_1`` as one symbol, and ``F_{n-1}`` as F applied to n - 1."""
        self.expect("_")
        if self.is_op("{"):
            start = self.at
            depth = 0
            while True:
                token = self.take()
                if token.kind == "end":
                    raise Unreadable("a brace is never closed")
                depth += (token.value == "{") - (token.value == "}") if token.kind == "op" else 0
                if depth == 0:
                    break
            inner = self.tokens[start + 1 : self.at - 1]
            if any(t.kind == "op" and t.value in "+-*/" for t in inner) and inner[0].value not in "+-":
                return ("apply", name, type(self)([*inner, Token("end", "", False)]).expression())
            index = "".join(t.value for t in inner)
        else:
            index = self.take().value
        return ("sym", f"{name}_{index}")

    def arguments(self) -> list[Node]:
        self.expect("(")
        found = [self.expression()]
        while self.is_op(","):
            self.at += 1
            found.append(self.expression())
        self.expect(")")
        return found


def _proper(node: Node) -> bool:
    if node[0] != "div" or node[1][0] != "num" or node[2][0] != "num":
        return False
    return bool(0 < node[1][1] < node[2][1] and node[1][1].denominator == 1 and node[2][1].denominator == 1)
