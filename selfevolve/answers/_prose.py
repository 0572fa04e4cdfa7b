"""Answers given in a sentence: where in it the value stands."""

from __future__ import annotations

import re

from selfevolve.answers._tokens import Unreadable, matching_brace

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_TEXT = r"\\text\s*\{[^{}]{0,30}\}"
_JOINT = re.compile(
    rf"(?:[\s$,;.]|\\[()\[\]]|\\q?quad|{_TEXT}|[A-Za-z](?:_\{{?\w\}}?)?\s*=|(?:[A-Za-z]+\s+)?\b(?:and|or)\b)*"
)
_STATED = re.compile(r"\banswer\s*(?:is\s*|:\s*|=\s*|(?=[$\\\d]))", re.IGNORECASE)
_FINAL = re.compile(r"\bfinal answer is\s+(?!.*\\boxed)", re.IGNORECASE | re.DOTALL)
_CLOSING = re.compile(r"\s*I hope (?:it|this) is correct\b.*\Z", re.DOTALL)  # the end of a usual prompt's answer format
_MARKERS = re.compile(
    r"\b(?:is|are|it's|equals?|approach(?:es)?|becomes|gives|yields|get|got|approximately|about|roughly|around)\s+|:\s+",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:approximately|about|roughly|exactly|simply|then|just|equal to|\\approx|≈|=|:)\s*", re.IGNORECASE
)
_HEDGES = re.compile(
    r"\b(?:not|never|cannot|except|least|most|than|unless|or more|or less|between|unknown|depends|any|either|more|less"
    r"|as \w+ becomes)\b",
    re.IGNORECASE,
)
_MATH = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_NUMBER = re.compile(r"(?<![\w.,/^])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w/^]|[.,]\d)")


def boxes(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and content of every complete box in ``text``, in order, outermost only."""
    found: list[tuple[int, int, str]] = []
    at = 0
    while True:
        match = _BOX.search(text, at)
        if match is None:
            return found
        try:
            end = matching_brace(text, match.end() - 1)
        except Unreadable:
            return found
        found.append((match.start(), end + 1, text[match.end() : end]))
        at = end + 1


def unbox(text: str) -> str:
    """Return what the last boxes of a text hold, several joined as a list; the text itself where it has none."""
    found = boxes(text)
    if not found or _FINAL.search(text, found[-1][1]):
        return text
    if len(found) == 1 and _BOX.match(found[0][2]) and text.strip() != found[0][2] and len(found[0][2]) < 1000:
        return unbox(found[0][2])
    last = [found[-1][2]]
    for (_, end, content), (start, _, _) in zip(reversed(found[:-1]), reversed(found[1:]), strict=True):
        if not _JOINT.fullmatch(text[end:start]):
            break
        if content not in last:
            last.insert(0, content)
    return ", ".join(last)


def value_in(text: str) -> str | None:
    """Return the part of a sentence that states its value, or None.

    In this order: what stands behind the last "answer is"; the only formula between dollar signs; what stands behind
    the last "is" (and the like); the only number. A hedge such as "at least" or "not" before the value gives None.
    """
    text = _CLOSING.sub("", text)
    if len(_WORD.findall(text)) < 1:
        return None
    stated = list(_STATED.finditer(text))
    if stated:
        tail = text[stated[-1].end() :].strip()
        sentence = _value_at(tail) if len(tail) < len(text) else None
        again = value_in(tail) if re.match(r"[A-Z][a-z]+ ", tail) else None  # "Answer: The largest n is 34."
        return again or sentence
    formulas = [next(part for part in match.groups() if part) for match in _MATH.finditer(text)]
    at = [match.end() for match in _MATH.finditer(text)]
    only_named = len(formulas) == 1 and len(formulas[0].strip()) == 1 and _MARKERS.search(text, at[0])
    if len(formulas) == 1 and not only_named and not _HEDGES.search(_MATH.sub(" ", text)):
        return formulas[0].strip()
    lines = [line for line in text.splitlines() if line.strip()]
    line = lines[-1] if lines else ""
    markers = list(_MARKERS.finditer(line))
    if markers:
        return _value_at(line[markers[-1].end() :])
    numbers = _NUMBER.findall(text)
    words = len(_WORD.findall(text))
    plain = re.sub(r"\bat (?:least|most)\b", "", text) if words >= 6 else text  # the answer to "how many at least?"
    if len(numbers) == 1 and words >= 3 and not _HEDGES.search(plain):
        return str(numbers[0])
    return None


def _value_at(tail: str) -> str | None:
    tail = tail.strip()
    while True:
        lead = _LEAD.match(tail)
        if lead is None:
            break
        tail = tail[lead.end() :]
    formula = _MATH.match(tail)
    if formula:
        return next(part for part in formula.groups() if part).strip()
    tail = re.split(r"\.(?:\s|$)|\n", tail, maxsplit=1)[0].strip()
    if tail.lower() == "zero":
        return "0"
    if not tail or _HEDGES.search(tail):
        return None
    if len(re.findall(r"(?<!\\)\b[A-Za-z]{4,}\b", tail)) > 3:  # "there are 12 distinct sequences that meet ..."
        first = _NUMBER.match(tail)
        return first.group() if first and len(_NUMBER.findall(tail)) == 1 else None
    return tail
