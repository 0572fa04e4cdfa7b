"""Are two final answers the same answer?

`compare` works in this order and stops at the first that decides: normal forms (strings, exact numbers, sets, units,
expressions at random points), then mathruler and math-verify in a worker process. Plain numbers never reach a worker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from selfevolve.answers import _workers
from selfevolve.answers._forms import Form, Missing, Scalar, Text
from selfevolve.answers._pairs import same
from selfevolve.answers._read import form_of
from selfevolve.answers._words import words

MAX_SYMBOLIC = 400  # characters of a formula that is sent to a symbolic tool


class Equivalence(StrEnum):
    """Whether two answers are the same."""

    SAME = "same"
    DIFFERENT = "different"
    UNDECIDED = "undecided"  # missing, out of time, or unreadable: never counted as different


class Route(StrEnum):
    """What decided a comparison."""

    FORM = "form"  # the normal forms
    SYMBOLIC = "symbolic"  # mathruler or math-verify
    NONE = "none"  # nothing did: the verdict is undecided


@dataclass(frozen=True)
class Comparison:
    """A verdict with its evidence."""

    verdict: Equivalence
    reason: str  # for people, one sentence
    route: Route


_ALPHABET = re.compile(r"[0-9A-Za-z\\{}()\[\]|+\-*/^_=<>.,:;!&' \n]+")
_RUN = re.compile(r"\\?[A-Za-z]+")
_BINARY = (
    r"\\(?:le|ge|ne|lt|gt|equiv|times|cdot|div|subset|subseteq)(?![A-Za-z])"  # between two sides; the tools drop it
)
_PLAIN_WORDS = frozenset(
    words("sin cos tan cot sec csc ln log exp sqrt pi max min gcd lcm arcsin arccos arctan sinh cosh tanh")
)
_COMMANDS = frozenset(
    words(
        "frac sqrt pi infty cdot times pm le ge ne in cup cap int iint oint sum prod lim to partial nabla "
        "binom lfloor rfloor lceil rceil sin cos tan cot sec csc ln log exp arcsin arccos arctan sinh cosh "
        "tanh max min gcd lcm alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu "
        "nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega begin "
        "end pmatrix bmatrix matrix vmatrix cases array mathbb mathrm overline vec hat bar ell hbar circ "
        "emptyset varnothing setminus mid infty det"
    )
)
_ENGLISH = frozenset(words("to or is in at of on by an as if it no we be do so he up us my me"))  # not products
# What the tools are there for: where neither text has any of it, they read an odd notation by guesswork.
_BEYOND = re.compile(r"\\(?:i*int|oint|sum|prod|lim|partial|nabla|begin)(?![a-zA-Z])")
_ENVIRONMENTS = frozenset(["pmatrix", "bmatrix", "matrix", "vmatrix", "cases", "array"])
_DIFFERENTIAL = re.compile(r"d[a-z]|[a-zA-Z]{1,2}")


def compare(gold: str | None, predicted: str | None) -> Equivalence:
    """Return whether ``predicted`` is the answer ``gold``; the order of the two does not matter.

    A missing answer (None, "", "None") is UNDECIDED against anything, another missing one included.
    """
    return explain(gold, predicted).verdict


def explain(gold: str | None, predicted: str | None) -> Comparison:
    """Return the verdict of `compare` with its reason and what decided it; never raises on any text."""
    a, b = form_of(gold), form_of(predicted)
    try:
        verdict = True if gold == predicted and not isinstance(a, Missing) else same(a, b)
    except Exception as error:  # untrusted text: a failure is no evidence that the answers differ
        return Comparison(Equivalence.UNDECIDED, f"the normal forms do not compare: {error}", Route.NONE)
    if verdict is not None:
        return Comparison(_verdict(verdict), _form_reason(verdict, a, b), Route.FORM)
    if isinstance(a, Missing) or isinstance(b, Missing):
        return Comparison(Equivalence.UNDECIDED, "an answer is missing", Route.NONE)
    if isinstance(a, Scalar) and isinstance(b, Scalar) and not (a.value.opaque or b.value.opaque):
        return Comparison(Equivalence.UNDECIDED, "a letter may be a unit or a variable, or digits run out", Route.NONE)
    first, second = sorted((gold or "", predicted or ""))
    return _symbolic(first, second)


def _verdict(same_answer: bool) -> Equivalence:
    return Equivalence.SAME if same_answer else Equivalence.DIFFERENT


def _form_reason(verdict: bool, a: Form, b: Form) -> str:
    kinds = " and ".join(sorted({type(a).__name__.lower(), type(b).__name__.lower()}))
    return f"the normal forms ({kinds}) are {'equal' if verdict else 'unequal'}"


@lru_cache(maxsize=20_000)
def _cached_verdict(first: str, second: str) -> tuple[bool | None, str]:
    try:
        return _workers.ask(first, second)
    except _workers.WorkerUnavailable:
        raise
    except _workers.WorkerFailed as error:  # out of time once is out of time again: do not wait for it twice
        return None, str(error)


def _symbolic(first: str, second: str) -> Comparison:
    """Ask the symbolic tools about two formulas that the normal forms leave open."""
    for form in (form_of(first), form_of(second)):
        if isinstance(form, Text) and not form.formula:
            return Comparison(Equivalence.UNDECIDED, f"an answer was not read: {form.why}", Route.NONE)
    formulas = [_formula(text) for text in (first, second)]
    for text in formulas:
        reason = unsafe(text)
        if reason:
            return Comparison(Equivalence.UNDECIDED, f"not sent to a symbolic tool: {reason}", Route.NONE)
    try:
        verdict, by = _cached_verdict(*formulas)
    except _workers.WorkerFailed as error:
        return Comparison(Equivalence.UNDECIDED, str(error), Route.NONE)
    if verdict is None:
        return Comparison(Equivalence.UNDECIDED, by, Route.NONE)
    if verdict is False and not any(_BEYOND.search(formula) for formula in formulas):
        return Comparison(
            Equivalence.UNDECIDED, f"{by} sees no equality in a notation that is not read here", Route.NONE
        )
    return Comparison(_verdict(verdict), f"{by} finds them {'equal' if verdict else 'unequal'}", Route.SYMBOLIC)


def _formula(text: str) -> str:
    form = form_of(text)
    return form.raw if isinstance(form, Text) else text.strip().strip("$")


def balanced(text: str) -> bool:
    """Return whether braces pair off, and round and square brackets as many open as close."""
    depth = 0
    for mark in re.sub(r"\\[{}\\]", "", text):
        depth += (mark == "{") - (mark == "}")
        if depth < 0:
            return False
    return depth == 0 and sum(text.count(c) for c in "([") == sum(text.count(c) for c in ")]")


def unsafe(text: str) -> str:
    """Return why ``text`` must not reach a symbolic parser, or "".

    The tools end in Python's ``eval`` (by way of sympy's ``parse_expr``), so a formula passes only if each of its
    characters, words and commands is on a list; no name of Python, no attribute and no quoted text is.
    """
    if len(text) > MAX_SYMBOLIC:
        return f"longer than {MAX_SYMBOLIC} characters"
    if not _ALPHABET.fullmatch(text):
        return "a character that formulas do not have"
    if "__" in text or re.search(r"\.\s*[A-Za-z_]|[A-Za-z_)]\s*\.(?!\d)", text) or "''" in text:
        return "an attribute or a name of a program"
    for match in _RUN.finditer(text):
        word = match.group()
        if word.startswith("\\"):
            if word[1:] not in _COMMANDS:
                return f"the command {word}"
        elif word in _ENGLISH or (
            word not in _PLAIN_WORDS and word not in _ENVIRONMENTS and not _DIFFERENTIAL.fullmatch(word)
        ):
            return f"the word {word}"
    if not balanced(text) or text.count("\\{") != text.count("\\}"):
        return "brackets that do not balance"
    if re.search(rf"(?:[-+*/^_=<>]|{_BINARY})\s*\Z", text):
        return "an operator at the end"
    if re.match(rf"\s*(?:[*/^_<>]|{_BINARY})", text):
        return "an operator at the start"
    if re.search(r"\^[^^]{0,40}\^", text) or re.search(r"\d{7,}\s*!|!\s*[)}]*\s*!|\^\s*\{?\s*\d{5,}", text):
        return "a tower of powers or factorials"
    return ""
