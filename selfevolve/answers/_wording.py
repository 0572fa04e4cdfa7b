"""Answers in words that stand for something else: numbers, dates, options, lists of words, congruences, no solution."""

from __future__ import annotations

import re
from fractions import Fraction

from selfevolve.answers._words import words

_TO_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_SMALL = {word: k for k, word in enumerate(words(_TO_TWENTY))}
_TENS = {w: 10 * k for k, w in enumerate(words("twenty thirty forty fifty sixty seventy eighty ninety"), start=2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_PARTS = {"half": 2, "halve": 2, "third": 3, "fourth": 4, "quarter": 4, "fifth": 5, "sixth": 6, "seventh": 7}
_PARTS |= {"eighth": 8, "ninth": 9, "tenth": 10}
_MONTHS = words("january february march april may june july august september october november december")
_MONTH = {name: k for k, name in enumerate(_MONTHS, start=1)} | {name[:3]: k for k, name in enumerate(_MONTHS, start=1)}
_MONTH["sept"] = 9
_NAME = "(" + "|".join(sorted(_MONTH, key=len, reverse=True)) + r")\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_WEEKDAY = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,?\s+)?"
_DATES = (  # groups: which of year, month, day
    (re.compile(rf"{_WEEKDAY}{_NAME}\s+{_DAY}(?:,?\s*(\d{{4}}))?"), "mdy"),
    (re.compile(rf"{_WEEKDAY}(?:the\s+)?{_DAY}\s+(?:of\s+)?{_NAME}(?:,?\s*(\d{{4}}))?"), "dmy"),
    (re.compile(r"(\d{4})-(\d{2})-(\d{2})"), "ymd"),
    (re.compile(r"(\d{1,2})/(1[3-9]|2\d|3[01])/((?:19|20)\d{2})"), "mdy"),
    (re.compile(r"(1[3-9]|2\d|3[01])/(\d{1,2})/((?:19|20)\d{2})"), "dmy"),
    (re.compile(r"(\d{1,2})/(?=0?\1/)0?(\d{1,2})/((?:19|20)\d{2})"), "mdy"),
    (re.compile(rf"{_NAME},?\s+(\d{{4}})"), "my"),
)
EITHER_DATE = "one of two dates"  # why `3/4/2020` is not read
_SLASHED = re.compile(r"(?:0?[1-9]|1[0-2])/(?:0?[1-9]|1[0-2])/(?:19|20)\d{2}")
_NO_SOLUTION = re.compile(
    r"(?:there (?:is|are|exists?) )?no (?:real |valid |possible |integer )?(?:solutions?|roots?)(?: exists?)?"
    r"|(?:the )?(?:equation|system) has no (?:real )?(?:solutions?|roots?)"
    r"|none exist|(?:the )?(?:empty|null) set",
)
_OPTION = re.compile(r"(?:the )?(?:correct )?(?:option|choice|answer)(?: is)?:?\s*\(?([A-Ja-j])\)?", re.IGNORECASE)
_LIST_JOINT = re.compile(r"\s*,\s*(?:and |or )?|\s+and\s+|\s+or\s+")
_SENTENCE = frozenset(words(
    "is are was were the a an of to in on at by for with from that this it its be has have not no if so both either"
    " neither nor only some all every any each but because since as than then more less when which who"
))  # fmt: skip
_CONGRUENCE = re.compile(
    r"(?:([A-Za-z])\s*(?:=|\\equiv)?\s*)?\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\\?,?\s*"
    r"\(?\s*(?:\\pmod|\\mod|\\bmod|\\text\s*\{\s*mod\s*\}|mod)\s*\{?\s*(\d+)\s*\}?\s*\)?"
)


def number_in_words(text: str) -> Fraction | None:
    """Return the number that English words (lower case) name: ``twenty-five``, ``two thirds``; None for others."""
    parts = [w for w in re.split(r"[\s\-]+", text) if w]
    if not 0 < len(parts) <= 20:
        return None
    if len(parts) > 1 and parts[-1].removesuffix("s") in _PARTS:
        top = _whole(parts[:-1]) if parts[:-1] != ["a"] else 1
        return Fraction(top, _PARTS[parts[-1].removesuffix("s")]) if top is not None else None
    whole = _whole(parts)
    return None if whole is None else Fraction(whole)


def _whole(parts: list[str]) -> int | None:
    total = group = 0
    last = ""  # what kind of word came before: unit, ten, hundred, scale
    lowest = 10**12
    for word in parts:
        if word == "and" and last in ("hundred", "scale"):
            continue
        if word in _SMALL and (last in ("", "hundred", "scale") or (last == "ten" and 0 < _SMALL[word] < 10)):
            group, last = group + _SMALL[word], "unit"
        elif word in _TENS and last in ("", "hundred", "scale"):
            group, last = group + _TENS[word], "ten"
        elif word == "hundred" and last in ("", "unit") and group < 10 and (group or not last):
            group, last = 100 * max(group, 1), "hundred"
        elif word in _SCALES and _SCALES[word] < lowest and last in ("unit", "ten", "hundred"):
            lowest = _SCALES[word]
            total, group, last = total + group * lowest, 0, "scale"
        else:
            return None
    return total + group if last else None


def date_in(text: str) -> tuple[int | None, int, int | None] | None:
    """Return year, month and day that a text (lower case) is the date of; None for a part left out, or no date."""
    for pattern, order in _DATES:
        found = pattern.fullmatch(text)
        if not found:
            continue
        at = dict(zip(order, found.groups(), strict=True))
        month = _MONTH.get(at["m"]) or int(at["m"])
        day = int(at["d"]) if at.get("d") else None
        if 1 <= month <= 12 and (day is None or 1 <= day <= 31):
            return int(at["y"]) if at.get("y") else None, month, day
    return None


def unclear_date(text: str) -> bool:
    """Return whether a text such as ``3/4/2020`` may be either of two dates; as a quotient nobody writes it."""
    return _SLASHED.fullmatch(text) is not None


def without_solution(text: str) -> bool:
    """Return whether words (lower case) say that nothing solves the problem."""
    return _NO_SOLUTION.fullmatch(text) is not None


def option_in(text: str) -> str | None:
    """Return the letter that a text such as ``Option (B)`` names, or None."""
    found = _OPTION.fullmatch(text)
    return found.group(1).upper() if found else None


def words_in_list(text: str) -> tuple[list[str], bool] | None:
    """Return the members of a list of names or words, and whether "or" joins them; None for one thing or a sentence."""
    parts = [p.strip(" .") for p in _LIST_JOINT.split(re.sub(r"\A(?:[Ee]ither|[Bb]oth) ", "", text))]
    if not 2 <= len(parts) <= 30 or not all(parts):
        return None
    for part in parts:
        named = part.split()
        if len(named) > 3 or (not re.fullmatch("[A-Z]", part) and not _SENTENCE.isdisjoint(part.lower().split())):
            return None
    return parts, re.search(r"\bor\b", text) is not None


def congruence_in(text: str) -> tuple[str, frozenset[int], int] | None:
    r"""Return name, residues and modulus of ``n \equiv 3 \pmod 7``; None for anything else."""
    found = _CONGRUENCE.fullmatch(text) if "mod" in text and "equiv" in text else None
    if not found or len(found.group(3)) > 100 or len(found.group(2)) > 1000 or not int(found.group(3)):
        return None
    modulus = int(found.group(3))
    return found.group(1) or "", frozenset(int(r) % modulus for r in found.group(2).split(",")), modulus
