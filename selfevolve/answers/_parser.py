r"""A small recursive-descent parser for one mathematical expression in LaTeX or plain notation.

Nodes are tuples, so they hash and compare: ``("num", Fraction, digits)``, ``("sym", name)``, ``("const", name)``,
``("add", a, b, ...)``, ``("mul", a, b, ...)``, ``("div", a, b)``, ``("neg", a)``, ``("pow", a, b)``,
``("pm", sign, a)``, ``("call", name, a, ...)``, ``("apply", name, a, ...)`` for a function known by its letter only,
``("fact", a, marks)``, ``("pct", a)``, ``("deg", a)``, ``("sum" or "prod", variable, low, high, body)``,
``("matrix", rows)``. Nothing here evaluates, and nothing in the text can run.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from selfevolve.answers._atoms import Atoms, Node
from selfevolve.answers._tokens import GREEK, Token, Unreadable
from selfevolve.answers._units import is_known
from selfevolve.answers._words import words

MAX_DEPTH = 40  # nested groups; each costs a few frames of the interpreter's stack

_ACCENTS = frozenset(
    ["vec", "bar", "hat", "tilde", "dot", "ddot", "overline", "overrightarrow", "underline", "widehat", "widetilde"]
)
_SYMBOL_COMMANDS = GREEK | frozenset(words("hbar ell Re Im angle triangle partial nabla odot circ prime square star"))
_STOPPERS = frozenset(["+", "-", ",", ")", "]", "}", "=", "<", ">", "/", "*", "|", ";", ":", "&", "!", "%"])
MATRIX_ENVIRONMENTS = frozenset(
    ["pmatrix", "bmatrix", "Bmatrix", "matrix", "vmatrix", "Vmatrix", "array", "smallmatrix"]
)


class Parser(Atoms):
    """Reads expressions off a token list; ``at`` is the next token."""

    # -- sums and products
    def expression(self) -> Node:
        terms: list[Node] = []
        sign: tuple[str, ...] = ()
        while True:
            while True:  # any run of leading signs
                if self.is_op("+"):
                    self.at += 1
                elif self.is_op("-"):
                    self.at += 1
                    sign = () if sign == ("neg",) else ("neg",) if not sign else (*sign, "neg")
                elif self.is_cmd("pm", "mp"):
                    sign = (*sign, self.take().value)
                else:
                    break
            term = self.product()
            for mark in reversed(sign):
                term = ("neg", term) if mark == "neg" else ("pm", 1 if mark == "pm" else -1, term)
            terms.append(term)
            sign = ()
            if not (self.is_op("+") or self.is_op("-") or self.is_cmd("pm", "mp")):
                break
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def product(self, in_function: bool = False) -> Node:
        """Read factors up to the next sum sign; in the bare argument of a function a bracket or function ends it."""
        left = self.power()
        quotients = 0
        bare_number = left[0] == "num"
        while True:
            if not in_function and (self.is_op("*") or self.is_cmd("times", "cdot", "ast")):
                self.at += 1
                right = self.signed_power()
                left, bare_number = _times(left, right), right[0] == "num"
            elif not in_function and (self.is_op("/") or self.is_cmd("div")):
                self.at += 1
                quotients += 1
                if quotients > MAX_DEPTH:
                    raise Unreadable(f"more than {MAX_DEPTH} quotients in a row")
                left, bare_number = ("div", left, self.signed_power()), False
            elif not in_function and self.is_cmd("bmod", "mod"):
                self.at += 1
                left, bare_number = ("call", "mod", left, self.signed_power()), False
            elif self.starts_factor(in_function):
                if self.now.kind == "num" and bare_number:
                    raise Unreadable("two numbers stand side by side")
                right = self.power()
                left, bare_number = _times(left, right), right[0] == "num"
            else:
                return left

    def signed_power(self) -> Node:
        if self.is_op("-"):
            self.at += 1
            return ("neg", self.power())
        if self.is_op("+"):
            self.at += 1
        return self.power()

    def starts_factor(self, in_function: bool) -> bool:
        kind, value = self.now.kind, self.now.value
        if kind in ("num", "let"):
            return True
        if kind == "run":
            return not self.run_is_unit()
        if kind == "func":
            return not in_function
        if kind == "op":
            if value == "|":
                return not in_function and self.bars == 0 and self.closing_bar()
            return value in "({[" and not (in_function and value in "([")
        if kind != "cmd":
            return False
        if in_function and value in ("sum", "prod", "sqrt", "lfloor", "lceil"):
            return value == "sqrt"
        return value in _SYMBOL_COMMANDS or value in _ACCENTS or value in _ATOM_COMMANDS

    def run_is_unit(self) -> bool:
        """True when a run such as ``cm`` ends the item after a number, so that it names a unit."""
        after = self.peek()
        if after.kind == "op" and after.value == "^":
            after = self.peek(3)
        ends = after.kind in ("end", "word", "num") or (after.kind == "op" and after.value in "/,;}")
        return self.at > 0 and ends and is_known(self.now.value)

    def closing_bar(self) -> bool:
        return any(t.kind == "op" and t.value == "|" for t in self.tokens[self.at + 1 :])

    # -- powers and marks behind a factor
    def power(self) -> Node:
        base = self.postfix(self.atom())
        if self.is_op("^"):
            self.at += 1
            if self.is_cmd("circ") or (self.is_op("{") and self.peek().value == "circ" and self.peek(2).value == "}"):
                self.at += 3 if self.is_op("{") else 1
                return self.postfix(("deg", base))
            exponent = self.exponent()
            if exponent == ("sym", "prime"):
                return self.postfix((base[0], f"{base[1]}'", *base[2:]) if base[0] == "sym" else base)
            return self.postfix(("pow", base, exponent))
        return base

    def exponent(self) -> Node:
        self.depth += 1
        node = self.one_exponent()
        self.depth -= 1
        return node

    def one_exponent(self) -> Node:
        if self.is_op("{"):
            return self.group("{", "}")
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"more than {MAX_DEPTH} powers of powers")
        if self.is_op("-"):
            self.at += 1
            return ("neg", self.exponent())
        base = self.atom()
        if self.is_op("^"):
            self.at += 1
            return ("pow", base, self.exponent())
        return base

    def postfix(self, node: Node) -> Node:
        while True:
            if self.is_op("!"):
                marks = 0
                while self.is_op("!"):
                    self.at += 1
                    marks += 1
                node = ("fact", node, marks)
            elif self.is_op("%"):
                self.at += 1
                node = ("pct", node)
            elif self.is_op("'") and node[0] == "sym":
                self.at += 1
                node = ("sym", node[1] + "'")
            elif self.is_cmd("circ", "degree"):
                self.at += 1
                node = ("deg", node)
            else:
                return node

    # -- atoms
    def group(self, opening: str, closing: str) -> Node:
        self.expect(opening)
        node = self.expression()
        if self.is_cmd("choose"):
            self.at += 1
            node = ("call", "binom", node, self.expression())
        elif self.is_cmd("over"):
            self.at += 1
            node = ("div", node, self.expression())
        self.expect(closing)
        return node

    def argument(self) -> Node:
        """Return a command's argument: a group, or one digit or letter as TeX reads it."""
        if self.is_op("{"):
            return self.group("{", "}")
        token = self.now
        if token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            rest = token.value[1:]
            self.tokens[self.at] = Token("num", rest, False, Fraction(int(rest)))
            return ("num", Fraction(int(token.value[0])), 0)
        return self.atom()

    def atom(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"more than {MAX_DEPTH} nested groups")
        node = self.one_atom()
        self.depth -= 1
        return node

    def one_atom(self) -> Node:
        token = self.take()
        if token.kind == "num":
            return self.number(token)
        if token.kind == "let":
            return self.letter(token)
        if token.kind == "run":  # xy^2 is x times y^2: the letters go back as single tokens
            self.tokens[self.at : self.at] = [Token("let", c, False) for c in token.value[1:]]
            return self.letter(Token("let", token.value[0], False))
        if token.kind == "func":
            return self.function(token.value)
        if token.kind == "op":
            return self.bracket(token.value)
        if token.kind == "cmd":
            return self.command(token.value)
        raise Unreadable(f"{token.value or 'the end'!r} is not part of a formula")

    def bracket(self, value: str) -> Node:
        if value == "{":
            self.at -= 1
            return self.group("{", "}")
        if value in "([":
            node = self.expression()
            self.expect({"(": ")", "{": "}", "[": "]"}[value])
            return node
        if value == "|":
            self.bars += 1
            node = self.expression()
            self.expect("|")
            self.bars -= 1
            return ("call", "abs", node)
        if value in "+-":
            node = self.power()
            return ("neg", node) if value == "-" else node
        raise Unreadable(f"{value!r} cannot begin a term")

    def function(self, name: str) -> Node:
        power: Node | None = None
        base: list[Node] = []
        while self.is_op("^") or self.is_op("_"):
            if self.take().value == "^":
                power = self.exponent()
            else:
                base = [self.argument()]
        if self.is_op("("):
            arguments = self.arguments()
        elif self.is_op("["):
            self.at += 1
            arguments = [self.expression()]
            self.expect("]")
        elif self.is_op("{"):
            arguments = [self.group("{", "}")]
        else:
            arguments = [self.product(in_function=True)]
        if power == ("neg", ("num", Fraction(1), 0)) and name in ("sin", "cos", "tan"):
            return ("call", "arc" + name, *arguments)
        node: Node = ("call", name, *base, *arguments) if not base else ("call", "logbase", *base, *arguments)
        return node if power is None else ("pow", node, power)

    def command(self, name: str) -> Node:
        handler = _ATOM_COMMANDS.get(name)
        if handler is not None:
            node: Node = handler(self)
            return node
        if name in _ACCENTS:
            inner = self.argument()
            label = "".join(str(part) for part in _flatten(inner))
            return ("sym", f"{name}:{label}")
        if name in _SYMBOL_COMMANDS:
            plain = {"varepsilon": "epsilon", "varphi": "phi", "vartheta": "theta"}.get(name, name)
            if plain in ("angle", "triangle"):
                return ("mul", ("sym", plain), self.product(in_function=True))
            if self.is_op("_"):
                return self.subscripted(plain)
            if plain == "Delta" and self.now.kind == "let":
                return ("sym", "Delta" + self.take().value)
            return ("sym", plain)
        raise Unreadable(f"the command \\{name} is not read here")

    def fraction(self) -> Node:
        return ("div", self.argument(), self.argument())

    def root(self) -> Node:
        index: Node = ("num", Fraction(2), 0)
        if self.is_op("["):
            index = self.group("[", "]")
        inside = self.atom()  # an undelimited root covers the whole number: \sqrt10 is the root of ten
        return ("call", "root", inside, index)

    def binomial(self) -> Node:
        return ("call", "binom", self.argument(), self.argument())

    def between(self, name: str, closing: str) -> Node:
        node = self.expression()
        self.expect(closing)
        return ("call", name, node)

    def running(self, kind: str) -> Node:
        """Return a sum or product over an integer variable with both bounds given."""
        low: Node | None = None
        high: Node | None = None
        variable = ""
        while self.is_op("_") or self.is_op("^"):
            if self.take().value == "^":
                high = self.argument()
            else:
                self.expect("{")
                variable = self.take().value
                self.expect("=")
                low = self.expression()
                self.expect("}")
        if low is None or high is None:
            raise Unreadable("a sum or product without both bounds")
        return (kind, variable, low, high, self.product())

    def environment(self) -> Node:
        name, rows = self.environment_rows()
        if name not in MATRIX_ENVIRONMENTS or len({len(r) for r in rows}) != 1:
            raise Unreadable(f"the environment {name} is not a matrix")
        parsed = tuple(tuple(parse_whole(cell) for cell in row) for row in rows)
        return ("call", "det", ("matrix", parsed)) if name == "vmatrix" else ("matrix", parsed)


def _times(left: Node, right: Node) -> Node:
    """Return a product; a chain of them stays one flat node."""
    return (*left, right) if left[0] == "mul" else ("mul", left, right)


def _flatten(node: Node) -> list[Any]:
    return [leaf for part in node[1:] for leaf in (_flatten(part) if isinstance(part, tuple) else [part])]


_ATOM_COMMANDS: dict[str, Any] = {
    "frac": Parser.fraction,
    "sqrt": Parser.root,
    "binom": Parser.binomial,
    "dbinom": Parser.binomial,
    "tbinom": Parser.binomial,
    "pi": lambda p: ("const", "pi"),
    "infty": lambda p: ("const", "infty"),
    "lfloor": lambda p: p.between("floor", "rfloor"),
    "lceil": lambda p: p.between("ceil", "rceil"),
    "lvert": lambda p: p.between("abs", "rvert"),
    "|": lambda p: p.between("norm", "|"),
    "sum": lambda p: p.running("sum"),
    "prod": lambda p: p.running("prod"),
    "begin": Parser.environment,
}


def parse_whole(tokens: list[Token]) -> Node:
    """Return the one expression that all of ``tokens`` make up; `Unreadable` where they do not."""
    parser = Parser([*tokens, Token("end", "", False)])
    node = parser.expression()
    if parser.now.kind != "end":
        raise Unreadable(f"{parser.now.value!r} is left over")
    return node
