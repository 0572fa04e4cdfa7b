"""Left-hand sides: which tokens name a value, as in ``x = 5``, ``f(n) = n^2`` or ``AB : CD = 2``."""

from __future__ import annotations

import re

from selfevolve.answers._brackets import is_close, is_open
from selfevolve.answers._tokens import GREEK, Token
from selfevolve.answers._words import words

_RATIOS = frozenset(words("sin cos tan cot sec csc"))  # of an angle
_NAME_COMMANDS = GREEK | frozenset(words("frac angle triangle overline vec odot hbar prime circ max min"))


def name_of(tokens: list[Token]) -> str | None:
    """Return the name that a left-hand side gives: ``""`` for a description in words, None where it is no name."""
    shown = [t.value for t in tokens]
    if len(tokens) == 9 and shown[1:5] == ["^", "{", "-", "1"] and tokens[0].kind == tokens[7].kind == "let":
        return f"{shown[0]}^-1({shown[7]})" if [shown[5], shown[6], shown[8]] == ["}", "(", ")"] else None
    if len(tokens) == 2 and shown[0] in _RATIOS and (shown[1] in GREEK or tokens[1].value.isupper()):
        return f"{shown[0]} {shown[1]}"  # sin A = 3/5
    text = ""
    inside = 0
    brackets: list[str] = []
    plain_words = all(t.kind in ("word", "text", "run", "let") for t in tokens)
    if plain_words and (len(tokens) > 1 or tokens[0].kind in ("word", "text")):
        return "" if any(t.kind in ("word", "text") for t in tokens) else None
    for index, token in enumerate(tokens):
        after_subscript = index > 0 and tokens[index - 1].value == "_"
        if is_open(token):
            brackets.append("_" if after_subscript else token.value)
            inside += 1
        elif is_close(token):
            inside -= 1
            if not brackets:
                return None
            brackets.pop()
        elif (
            (token.kind == "num" and not (after_subscript or (brackets and brackets[-1] in ("(", "_"))))
            or (token.kind == "run" and not token.value.isupper() and not inside)
            or (token.kind == "cmd" and token.value not in _NAME_COMMANDS)
            or (token.kind == "func" and token.value not in ("max", "min"))
            or (token.kind == "op" and token.value not in "(){}[]|:,_/'+-")
            or (token.value in "+-" and not inside)
            or (token.kind == "let" and index and tokens[index - 1].kind == "let" and not inside)
        ):
            return None
        text += "" if token.value in "{}" else token.value
    if text.startswith("(") and not re.fullmatch(r"\([A-Za-z](,[A-Za-z])+\)", text):
        return None
    if re.search(r"[a-z]\([^()]*[+\-][^()]*\)", text) and not re.match(r"[a-zA-Z]\(", text):
        return None
    return text


def neutral_name(tokens: list[Token], name: str) -> tuple[str, str | None]:
    """Return ``f(x)`` as ``f(@)`` with its variable ``x``; another name with None."""
    match = re.fullmatch(r"([A-Za-z]'*(?:\^-1)?)\(([a-zA-Z])\)", name)
    return (f"{match.group(1)}(@)", match.group(2)) if match else (name, None)
