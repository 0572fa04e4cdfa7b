"""Answers given in a sentence: where in it the value stands."""

from __future__ import annotations

import re

from selfevolve.answers._tokens import Unreadable, matching_brace

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_JOINT = re.compile(r"(?:[\s$,;.+]|\\[()\[\]]|\\quad|\\qquad|\\text\s*\{\s*(?:and|or)\s*\}|\band\b|\bor\b|\bpapers\b)*")
_MARKERS = re.compile(
    r"(?:answer|result|total|sum|value|solution)s?\s*(?:\([^()]*\)\s*)?(?:is|are|=|:)\s*"
    r"|\b(?:is|are|equals?|approach(?:es)?|becomes|gives|yields|get)\s+|(?:^|\s)answer\s*:?\s+|=\s*>\s*",
    re.IGNORECASE,
)
_LEAD = re.compile(r"(?:approximately|about|roughly|around|exactly|simply|then|just|only|\\approx|≈|=|:)\s*", re.IGNORECASE)
_HEDGES = re.compile(
    r"\b(?:not|never|cannot|except|least|most|than|unless|or more|or less|between|unknown|depends|any|either)\b", re.IGNORECASE
)


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
    if not found:
        return text
    last = [found[-1][2]]
    for (_, end, content), (start, _, _) in zip(reversed(found[:-1]), reversed(found[1:]), strict=True):
        if not _JOINT.fullmatch(text[end:start]):
            break
        last.insert(0, content)
    return ", ".join(last)


def value_in(text: str) -> str | None:
    """Return the part of a sentence that states its value; None where no marker such as "is" stands before it."""
    line = text.strip().splitlines()[-1] if text.strip() else ""
    tail: str | None = None
    for match in _MARKERS.finditer(line):
        tail = line[match.end() :]
    if tail is None or not tail.strip():
        return None
    tail = tail.strip()
    while True:
        shorter = _LEAD.sub("", tail, count=1) if _LEAD.match(tail) else tail
        if shorter == tail:
            break
        tail = shorter
    if tail.lower() == "zero":
        return "0"
    if _HEDGES.search(tail) or len(re.findall(r"(?<!\\)\b[A-Za-z]{4,}\b", tail)) > 3:
        return None
    return tail
