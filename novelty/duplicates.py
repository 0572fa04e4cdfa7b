r"""Questions that are equal up to typesetting.

``\(x\)`` and ``$x$``, ``\dfrac`` and ``\frac``, ``2 x = 8`` and ``2x=8`` are typesetting. Numbers, letters, their
case and the words are not: a question with another number is another question.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|.", re.DOTALL)  # a control word, a control symbol, or one character
_SILENT = re.compile(r"\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits|[!()\[\]$])|\$")
_BLANK = re.compile(r"\s|~|\\(?:quad|qquad|enspace|thinspace|newline|[\\,;:>\s])")
_WRAPPER = re.compile(r"\\(?:text|textrm|textit|textbf|textnormal|mathrm|mbox|operatorname\*?)")
_GREEK = (
    *(
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
    ),
    *("pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
    *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"),
)
_SAME_GLYPH = {
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\cfrac": r"\frac",
    r"\dbinom": r"\binom",
    r"\tbinom": r"\binom",
    r"\le": "\N{LESS-THAN OR EQUAL TO}",
    r"\leq": "\N{LESS-THAN OR EQUAL TO}",
    r"\ge": "\N{GREATER-THAN OR EQUAL TO}",
    r"\geq": "\N{GREATER-THAN OR EQUAL TO}",
    r"\ne": "\N{NOT EQUAL TO}",
    r"\neq": "\N{NOT EQUAL TO}",
    r"\to": "\N{RIGHTWARDS ARROW}",
    r"\rightarrow": "\N{RIGHTWARDS ARROW}",
    r"\times": "\N{MULTIPLICATION SIGN}",
    r"\cdot": "\N{MIDDLE DOT}",
    "\N{DOT OPERATOR}": "\N{MIDDLE DOT}",
    r"\infty": "\N{INFINITY}",
    r"\degree": "\N{DEGREE SIGN}",
    r"\div": "\N{DIVISION SIGN}",
    r"\pm": "\N{PLUS-MINUS SIGN}",
    r"\in": "\N{ELEMENT OF}",
    r"\angle": "\N{ANGLE}",
    r"\emptyset": "\N{EMPTY SET}",
    **{rf"\{name}": letter for name, letter in zip(_GREEK, "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", strict=True)},
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    r"\dots": "...",
    r"\ldots": "...",
    r"\cdots": "...",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    r"\%": "%",
    r"\#": "#",
    r"\&": "&",
    r"\_": "_",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
    "\N{ZERO WIDTH SPACE}": "",
    "\N{ZERO WIDTH NO-BREAK SPACE}": "",
}
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))")
_LONE_BRACES = re.compile(r"(?<!\\)\{([^\\{}])\}")  # x^{2}: braces around one character
_IDLE_BLANK = re.compile(r"(?<![^\W\d_]) | (?![^\W\d_])")  # a blank that does not stand between two letters
_KEPT_BLANK = re.compile(r"(?<=\d) (?=\d)|(?<=\d\.) (?=\d)|(?<=\d,) (?=\d{3}(?!\d))")  # 1 2; 1. 2; 1, 234
_MARK = "\0"  # stands for a blank that must stay


def normal_text(question: str) -> str:
    """Return a text that two questions share exactly when they differ in typesetting at most.

    Case, punctuation and every digit stay. Blanks stay where they part two words or two numbers (``1 2``, ``1. 2``, and
    ``1, 234``, which is a list where ``1,234`` may be one number). The text is for comparing, not for showing.
    """
    pieces: list[str] = []
    braces: list[bool] = []  # for each open brace: is it shown?
    unwrap = False
    for token in _TOKEN.findall(unicodedata.normalize("NFC", question).replace(_MARK, " ")):
        if _BLANK.fullmatch(token):
            pieces.append(" ")
            continue
        if token == "{":
            braces.append(not unwrap)
            pieces.append(" " if unwrap else token)
        elif token == "}" and braces:
            pieces.append(token if braces.pop() else " ")
        elif _SILENT.fullmatch(token) or _WRAPPER.fullmatch(token):
            pieces.append(" ")
        else:
            pieces.append(_SAME_GLYPH.get(token, token))
        unwrap = bool(_WRAPPER.fullmatch(token))
    text = _LONE_BRACES.sub(r" \1 ", _DEGREES.sub(" \N{DEGREE SIGN} ", "".join(pieces)))
    text = _KEPT_BLANK.sub(_MARK, " ".join(text.split()))
    return _IDLE_BLANK.sub("", text).replace(_MARK, " ")


def is_duplicate(first: str, second: str) -> bool:
    """Return True when two questions differ in typesetting at most."""
    return normal_text(first) == normal_text(second)


def first_indices(questions: Sequence[str]) -> list[int]:
    """Return the index of the first of each set of duplicates, ascending."""
    first: dict[str, int] = {}
    for index, question in enumerate(questions):
        first.setdefault(normal_text(question), index)
    return list(first.values())


def deduplicate(questions: Sequence[str]) -> list[str]:
    """Return the questions without later duplicates, in order and as they were written."""
    return [questions[index] for index in first_indices(questions)]
