"""Tokens of a cleaned answer: numbers, letters, words, commands, text and marks, each knowing the blank before it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from selfevolve.answers._units import SINGLE_LETTERS
from selfevolve.answers._words import words


class Unreadable(ValueError):
    """The text is not one of the forms that this package reads; the message says why."""


class TooLarge(Unreadable):
    """The value has too many digits to be worked out."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; ``value`` is a `Fraction` for a number, else text."""

    kind: str  # num, let (one letter), word, func, cmd, text, op, end
    value: str
    spaced: bool  # a blank stands before it
    number: Fraction | None = None
    digits: int = 0  # a decimal's digits after its point


FUNCTIONS = frozenset(
    words(
        "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth ln log lg exp sqrt cbrt abs "
        "gcd lcm max min floor ceil det binom asin acos atan factorial sign sgn cis"
    )
)
CONSTANTS = {"pi": "pi", "infinity": "infty", "infty": "infty", "inf": "infty", "oo": "infty"}
GREEK = frozenset(
    words(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho "
        "sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
    )
)
_SHORT_WORDS = frozenset(
    words(
        "yes no odd even true both one two none all any the of is are if in at on to it by an as so we be do "
        "for not who his her she he cm mm km kg ft yd mi min sec hr am pm day mph rad deg pct per east west "
        "and or with east when"
    )
)
_TEXT_COMMANDS = frozenset(words(
    "text mbox textbf textit textrm textnormal textsf emph mathrm mathbf mathsf mathit operatorname "
    "boldsymbol bm bf rm it mathcal mathfrak hbox texttt"
))  # fmt: skip
_FUNCTION_HEAD = re.compile(r"(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|sqrt|exp|pi)(.*)")

_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?!\d)(?!,\d)")
_REPEATING = re.compile(r"(\d*)\.(\d*)(?:\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))|\((\d+)\))")
_TRAILING = re.compile(r"(\d{0,20})\.(\d{0,8}?)(\d{1,8}?)\3{2,20}\s?(?:\.\.\.|\\[lc]?dots)")
_HIGH_BASE = re.compile(r"(\d{0,50}(?=[A-F\d]*[A-F])[\dA-F]{1,50})_\{?(1[6-9]|[23]\d)\}?(?!\d)")
_NUMBER = re.compile(r"\d+\.\d+|\.\d+|\d+\.(?!\.)|\d+")
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,6})(?![\d.A-Za-z])")
_RUN = re.compile(r"[A-Za-z]+")
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?|\\([{}|_&^\\])")
_MARKS = frozenset("+-*/^_=<>()[]{}|,;:!%'.&\"?#@\n")


def integer(digits: str) -> int:
    """Return ``int(digits)``, also for longer runs than the interpreter converts in one go."""
    value = 0
    for start in range(0, len(digits), 4000):
        part = digits[start : start + 4000]
        value = value * 10 ** len(part) + int(part)
    return value


def _decimal(text: str) -> tuple[Fraction, int]:
    whole, _, part = text.partition(".")
    return Fraction(integer(whole + part), 10 ** len(part)), len(part)


def _repeating(whole: str, head: str, block: str) -> Fraction:
    """Return the value of ``whole.head(block)(block)...``."""
    scale = 10 ** len(head)
    period = 10 ** len(block) - 1
    return Fraction(integer(whole + head or "0"), scale) + Fraction(integer(block), scale * period)


class _Scanner:
    """Walks once through the text; ``out`` holds the tokens."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0  # of brackets in which a comma parts values
        self.spaced = False
        self.out: list[Token] = []

    def add(self, kind: str, value: str, number: Fraction | None = None, digits: int = 0) -> None:
        self.out.append(Token(kind, value, self.spaced, number, digits))
        self.spaced = False

    def scan(self) -> list[Token]:
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char == " ":
                self.spaced = True
                self.at += 1
            elif (char.isdigit() and char.isascii()) or (char == "." and text[self.at + 1 : self.at + 2].isdigit()):
                self.number()
            elif char.isalpha() and char.isascii():
                if char in "ABCDEF" and self.in_high_base():
                    continue
                run = _RUN.match(text, self.at)
                assert run is not None
                self.at = run.end()
                self.letters(run.group())
            elif char == "\\":
                self.command()
            elif char in _MARKS:
                self.mark(char)
            else:
                raise Unreadable(f"the character {char!r} is no part of a formula")
        self.add("end", "")
        return self.out

    def number(self) -> None:
        text = self.text
        repeating = _REPEATING.match(text, self.at)
        if repeating is None and ("..." in text or "dots" in text):
            repeating = _TRAILING.match(text, self.at)
        if repeating:
            self.at = repeating.end()
            whole, head, *blocks = repeating.groups()
            block = next(b for b in blocks if b)
            self.add("num", "repeating", _repeating(whole, head, block))
            return
        if self.in_high_base():
            return
        grouped = _THOUSANDS.match(text, self.at) if self.depth == 0 else None
        match = grouped or _NUMBER.match(text, self.at)
        assert match is not None
        written, self.at = match.group().replace(",", ""), match.end()
        if grouped and re.match(r"\.\d", text[self.at : self.at + 2]):
            tail = re.compile(r"\.\d+").match(text, self.at)
            assert tail is not None
            written, self.at = written + tail.group(), tail.end()
        value, digits = _decimal(written)
        exponent = _EXPONENT.match(text, self.at)
        if exponent:
            power = int(exponent.group(1))
            if abs(power) > 10_000:
                raise TooLarge(f"the exponent {power} is too large to write out")
            self.at = exponent.end()
            value *= Fraction(10) ** power
            digits -= power
        self.add("num", written, value, digits if "." in written else 0)

    def in_high_base(self) -> bool:
        """Read digits with letters among them and a base behind them: ``1A_{16}``."""
        based = _HIGH_BASE.match(self.text, self.at)
        if based is None or int(based.group(2)) > 36 or (len(based.group(1)) == 1 and based.group(1).isalpha()):
            return False
        self.at = based.end()
        self.add("num", "based", Fraction(int(based.group(1), int(based.group(2)))))
        return True

    def letters(self, run: str) -> None:
        if run in ("min", "sec") and self.out and (self.out[-1].kind == "num" or self.out[-1].value == "/"):
            self.add("word", run)  # of time
        elif run in FUNCTIONS:
            self.add("func", run)
        elif run in CONSTANTS:
            self.add("cmd", CONSTANTS[run])
        elif len(run) > 1 and run in GREEK:
            self.add("cmd", run)
        elif len(run) == 1:
            self.add("let", run)
        elif run.lower() in _SHORT_WORDS or (len(run) > 4 and not _FUNCTION_HEAD.match(run)):
            self.add("word", run)
        else:
            head = _FUNCTION_HEAD.match(run)
            if head and head.group(2) and len(head.group(2)) <= 2:
                self.add("cmd" if head.group(1) == "pi" else "func", head.group(1))
                self.letters(head.group(2))
            elif len(run) > 4:
                self.add("word", run)
            else:  # a product such as xy; a unit such as cm stays whole and the parser decides
                self.add("run", run)

    def command(self) -> None:
        match = _COMMAND.match(self.text, self.at)
        if match is None:
            raise Unreadable("a backslash stands alone")
        self.at = match.end()
        name = match.group(1) or match.group(2)
        if name in _TEXT_COMMANDS:
            self.text_argument(name)
        elif name in FUNCTIONS and name not in ("sqrt", "binom"):
            self.add("func", name)
        else:
            if name in ("{", "langle"):
                self.depth += 1
            elif name in ("}", "rangle"):
                self.depth -= 1
            self.add("cmd", name)

    def text_argument(self, name: str) -> None:
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1
        if self.text[self.at : self.at + 1] != "{":
            return
        end = matching_brace(self.text, self.at)
        content = self.text[self.at + 1 : end].strip()
        parted = self.spaced or self.text[self.at + 1] == " "
        if re.fullmatch(r"\([A-Za-z]\)", content):  # an option's letter
            content = content[1]
        self.at = end + 1
        self.spaced = True
        if re.fullmatch(r"[A-Za-z]", content):
            before = self.out[-1] if self.out else Token("end", "", False)
            measured = (content in SINGLE_LETTERS or (parted and content in "CFTH")) and (
                before.kind == "num" or before.value in (")", "}")
            )
            self.add("text" if measured else "let", content)
        elif content in FUNCTIONS:
            self.spaced = True
            self.letters(content)
        elif re.search(r"[\d\\^]", content) or name in ("mathbf", "boldsymbol", "bm"):
            inner = _Scanner(content)
            inner.depth = self.depth
            self.out.extend(inner.scan()[:-1])
        else:
            self.add("text", content)
        self.spaced = True

    def mark(self, char: str) -> None:
        if self.text.startswith("...", self.at):
            self.at += 3
            self.add("cmd", "ldots")
            return
        if char in "([":
            self.depth += 1
        elif char in ")]":
            self.depth -= 1
        self.at += 1
        if char == "\n":
            self.spaced = True
            return
        self.add("op", char)


def matching_brace(text: str, start: int) -> int:
    """Return the index of the brace that closes the one at ``start``; `Unreadable` where none does."""
    depth = 0
    index = start
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    raise Unreadable("a brace is never closed")


def thin_out(text: str) -> str:
    """Return ``text`` without brackets that directly wrap other brackets, so that ``((((1))))`` becomes ``(1)``."""
    if "((" not in text and "{{" not in text and "({" not in text and "{(" not in text:
        return text
    open_at: list[int] = []
    partner: dict[int, int] = {}
    for index, char in enumerate(text):
        if char in "({":
            if char == "{" and index and text[index - 1] == "\\":
                continue
            open_at.append(index)
        elif char in ")}":
            if char == "}" and index and text[index - 1] == "\\":
                continue
            if not open_at or (text[open_at[-1]] == "(") != (char == ")"):
                return text
            partner[open_at.pop()] = index
    if open_at:
        return text
    drop: set[int] = set()
    for start, end in partner.items():
        if partner.get(start + 1) == end - 1 and text[start] == text[start + 1]:
            drop.update((start + 1, end - 1))
    return "".join(c for i, c in enumerate(text) if i not in drop)


def tokenise(text: str) -> list[Token]:
    """Return the tokens of a cleaned text, an ``end`` token last; `Unreadable` where it is no formula."""
    return _Scanner(thin_out(text)).scan()
