"""From an answer's text to its normal form."""

# ruff: noqa: RUF001
from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import lru_cache

from selfevolve.answers import _prose
from selfevolve.answers._clean import MAX_LENGTH, clean, undouble
from selfevolve.answers._forms import Choice, Date, Form, Group, Invalid, Missing, Record, Scalar, Text
from selfevolve.answers._numeric import Value
from selfevolve.answers._structure import Reader
from selfevolve.answers._tokens import FUNCTIONS, TooLarge, Unreadable, _decimal, tokenise
from selfevolve.answers._wording import (
    EITHER_DATE,
    congruence_in,
    date_in,
    number_in_words,
    option_in,
    unclear_date,
    without_solution,
    words_in_list,
)

CACHED_LENGTH = 500  # characters; the forms of longer answers are not kept
_MISSING = frozenset(["", "none", "null", "n/a", "nil"])
_PLAIN_NUMBER = re.compile(r"[+-]?(?:\d{1,15}|\d{1,12}\.\d{1,15})")
_PLAIN_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d{1,15})\}\{(\d{1,15})\}|(-?)(\d{1,15})/(\d{1,15})")
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox|mathbf|textrm)\s*\{([^{}]*)\}")
_SENTENCE_IN_TEXT = re.compile(r"\\(?:text|mathrm|textrm)\s*\{([A-Za-z ,:]{8,}|is|are)\s*\}")
_CHOICE = re.compile(r"(?:\(([A-J])\)\s*|([A-J])[).:]\s+)([A-Za-z\d][^=]*)", re.DOTALL)
_CALLS = "(?:" + "|".join(sorted(FUNCTIONS)) + r")\b"
_SAME_WORDS = {"does not exist": "dne", "infinite": "infinity", "all reals": "all real numbers",
               "undefined": "undefined", "not defined": "undefined"}  # fmt: skip


def form_of(answer: str | None) -> Form:
    """Return the normal form of ``answer``: never raises, never runs anything that stands in it."""
    if answer is None:
        return Missing()
    if len(answer) > MAX_LENGTH:
        return Text("", answer.strip(), why=f"longer than {MAX_LENGTH} characters")
    return _form(answer) if len(answer) <= CACHED_LENGTH else _form_of_text(answer)


@lru_cache(maxsize=20_000)
def _form(answer: str) -> Form:
    return _form_of_text(answer)


def _form_of_text(answer: str) -> Form:
    text = answer.strip()
    if _PLAIN_NUMBER.fullmatch(text):
        return _plain(text)
    fraction = _PLAIN_FRACTION.fullmatch(text)
    if fraction:
        sign, top, bottom = fraction.group(1, 2, 3) if fraction.group(2) else fraction.group(4, 5, 6)
        if int(bottom):
            return Scalar(Value((Fraction(int(sign + top), int(bottom)),)))
    try:
        return _read(text)
    except RecursionError:
        return Text("", text, why="nested too deeply")
    except Exception as error:  # untrusted text: whatever fails, it is an answer that was not read
        cleaned = clean(text)
        return Text("", cleaned, formula=True, why=str(error) or type(error).__name__, huge=_is_huge(error, cleaned))


def _is_huge(error: Exception, text: str) -> bool:
    """Return True where only sums, products, powers and factorials of whole numbers above one are too large.

    Each of these is at least as large as its largest part, so the whole is as large as the part that was refused.
    """
    numbers = re.findall(r"\d+", text)
    only = re.fullmatch(r"(?:[\d\s^*+!(){}]|\\cdot|\\times)+", text) is not None
    return isinstance(error, TooLarge) and only and all(n.lstrip("0") not in ("", "1") for n in numbers)


def _plain(text: str) -> Form:
    value, places = _decimal(text.lstrip("+-"))
    digits = len(text.lstrip("+-0.").replace(".", "")) if places else 0
    return Scalar(Value((-value if text[0] == "-" else value,)), digits=digits, places=places)


def _read(answer: str) -> Form:
    text = clean(_prose.unbox(undouble(answer)))
    if len(text) > MAX_LENGTH:  # characters that stand for whole commands
        return Text("", text, why=f"longer than {MAX_LENGTH} characters")
    bare = re.sub(r"\s+", " ", _WRAPPER.sub(r" \1 ", text)).strip().strip("\"'`*").strip(" .")
    lower = bare.lower()
    if lower in _MISSING:
        return Missing()
    if lower == "invalid":
        return Invalid()
    choice = _CHOICE.fullmatch(bare)
    if choice:
        return Choice(choice.group(1) or choice.group(2), choice.group(3))
    letter = option_in(bare)
    if letter:
        return Reader.read(letter)
    date = date_in(lower)
    if date is not None:
        return Date(*date)
    if unclear_date(bare):
        return Text(re.sub(r"\b0", "", bare), text, why=EITHER_DATE)
    congruence = congruence_in(text)
    if congruence is not None:
        name, residues, modulus = congruence
        return Text(f"{name} {sorted(residues)} mod {modulus}", text)
    words = _words(text, bare)
    if words is not None:
        return words
    if text.startswith("{") and text.endswith("}") and '"' in text:
        return _from_json(text)
    try:
        return Reader.read(text)
    except TooLarge:
        raise
    except Unreadable as error:
        why = str(error)
    source = undouble(answer)
    tail = _prose.value_in(_SENTENCE_IN_TEXT.sub(r"\1 ", source)) or _prose.value_in(source)
    if tail is not None:
        text = clean(tail)
        try:
            return Reader.read(text)
        except Unreadable as error:
            why = str(error)
    return Text(_folded(bare), text, formula=_looks_like_formula(text), why=why)


def _words(text: str, bare: str) -> Form | None:
    """Return the form of an answer made of words only; None where it may be mathematics."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z ,.'’\-]*", bare):
        return None
    lower = _SAME_WORDS.get(bare.lower(), bare.lower())
    counted = number_in_words(lower)
    if counted is not None:
        return Scalar(Value((counted,)))
    if without_solution(lower):
        return Reader.read(r"\emptyset")
    if lower in ("all real numbers", "all real", "infinity"):
        return Reader.read(r"\infty" if lower == "infinity" else r"\mathbb{R}")
    wrapped = _WRAPPER.fullmatch(text) is not None
    if len(bare) == 1 or (not wrapped and not _is_prose(bare)):
        return None
    listed = words_in_list(bare)
    if listed is not None:
        return Group("list", tuple(_member(part) for part in listed[0]), either=listed[1])
    if lower.endswith(" zero") and _prose.value_in(bare) == "0":
        return _plain("0")
    return Text(_folded(lower), text)


def _member(word: str) -> Form:
    counted = number_in_words(word.lower())
    if counted is not None:
        return Scalar(Value((counted,)))
    return Reader.read(word) if re.fullmatch(r"[A-Za-z]", word) else Text(_folded(word), word)


def _is_prose(bare: str) -> bool:
    """Return True where some run of letters can only be a word."""
    tokens = tokenise(re.sub(r"[’\-]", " ", bare))
    return any(t.kind == "word" or (t.kind == "run" and len(t.value) > 2 and t.value.isalpha()) for t in tokens)


def _folded(words: str) -> str:
    return re.sub(r"[\s\-]+", " ", re.sub(r"[\"'`.,;:!?]", "", words.casefold())).strip()


def _looks_like_formula(text: str) -> bool:
    """Return True for text that may be mathematics after all; a call of a program is not."""
    program = re.search(r"__|[\"']|(?<!\\)\b(?!" + _CALLS + r")[a-z]{3,}\s*\(|[A-Za-z)]\.[A-Za-z]", text)
    return bool(re.search(r"[\d\\=^+*/<>]", text)) and program is None


def _from_json(text: str) -> Form:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Unreadable("braces with quotes that are no JSON") from error
    if not isinstance(found, dict) or not found:
        raise Unreadable("JSON that is no object")
    forms = tuple(form_of(v if isinstance(v, str) else json.dumps(v)) for v in found.values())
    if len(forms) == 1:
        return forms[0]
    return Record(tuple(str(k) for k in found), forms) if len(set(found)) == len(forms) else Group("list", forms)
