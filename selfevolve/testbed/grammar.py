"""The testbed's small language: templates that both write and read questions.

A template is a line of words with

* ``{a}``: a number slot; read as a whole number without leading zeros, as ``some`` (a missing number) or as
  ``3 or 5`` (an ambiguous one);
* ``{who}``, ``{thing}`` and the other names in `LEXICON`: a word slot of a closed class;
* ``(find|compute)``: a choice of words without meaning of its own.

Reading goes by the same template compiled to a regular expression over `tokens`, so a question is recognised by its
form and never looked up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from random import Random

LEXICON: dict[str, tuple[str, ...]] = {
    "who": ("anna", "ben", "clara", "david", "eva", "felix", "greta", "hugo", "ida", "jonas"),
    "thing": ("apples", "pens", "books", "cups", "stamps", "coins", "shells", "cards", "balls", "keys"),
    "goods": ("rolls", "cakes", "pears", "lamps", "boots", "maps", "ropes", "pans"),
    "vehicle": ("car", "train", "bus", "boat", "truck", "tram"),
    "group": ("class", "club", "team", "choir", "village", "office"),
    "drink": ("tea", "milk", "juice", "cocoa", "coffee", "soup"),
}
SOME = "some"
MAX_DIGITS = 3  # a longer number is not of the world; it also keeps every answer printable

Number = int | tuple[int, int] | None  # a value, an ambiguous pair ("3 or 5"), or a missing number ("some")
Slots = dict[str, Number]

_TOKEN = re.compile(r"[0-9]+|[a-z]+|[^\sa-z0-9]")
_PART = re.compile(r"\{(?P<slot>\w+)\}|\((?P<choice>[^(){}]*\|[^(){}]*)\)|(?P<literal>[^{}()]+|[()])")
_DIGITS = rf"(?:0|[1-9][0-9]{{0,{MAX_DIGITS - 1}}})"
_NUMBER = rf"{_DIGITS} or {_DIGITS}|{_DIGITS}|{SOME}"


def tokens(text: str) -> str:
    """Return `text` in lower case as its words, numbers and signs, one blank between each."""
    return " ".join(_TOKEN.findall(text.lower()))


def read_number(text: str) -> Number:
    """Return the value of what a number slot matched; two equal alternatives are one number."""
    if text == SOME:
        return None
    first, _, second = text.partition(" or ")
    if not second or int(first) == int(second):
        return int(first)
    return int(first), int(second)


def write_number(value: Number) -> str:
    """Return `value` as a number slot shows it."""
    if value is None:
        return SOME
    return f"{value[0]} or {value[1]}" if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Template:
    """One wording; see the module's text for the notation."""

    text: str

    def __post_init__(self) -> None:
        """Refuse a choice that holds a slot: choices are words without meaning of their own."""
        if any("|" in (m["literal"] or "") for m in _PART.finditer(self.text)):
            raise ValueError(f"a choice in {self.text!r} holds a slot; write two wordings instead")

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Names of the number slots, in order of first use."""
        names = [m["slot"] for m in _PART.finditer(self.text) if m["slot"]]
        return tuple(dict.fromkeys(n for n in names if n.rstrip("12") not in LEXICON))

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        seen: set[str] = set()
        parts: list[str] = []
        for match in _PART.finditer(self.text):
            if slot := match["slot"]:
                body = "|".join(LEXICON[slot.rstrip("12")]) if slot.rstrip("12") in LEXICON else _NUMBER
                parts.append(f"(?P={slot})" if slot in seen else f"(?P<{slot}>{body})")
                seen.add(slot)
            elif choice := match["choice"]:
                parts.append("(?:" + "|".join(re.escape(tokens(c)) for c in choice.split("|")) + ")")
            elif literal := tokens(match["literal"]):
                parts.append(re.escape(literal))
        return re.compile(" ".join(parts).replace("\\ ", " "))

    def read(self, line: str) -> Slots | None:
        """Return the number slots of `line` (already `tokens`), or None where the form differs."""
        match = self._regex.fullmatch(line)
        if match is None:
            return None
        words = {k: v for k, v in match.groupdict().items() if k.rstrip("12") in LEXICON}
        if len(set(words.values())) < len(words):  # two names for two people, two goods, two drinks
            return None
        return {k: read_number(v) for k, v in match.groupdict().items() if k not in words}

    def write(self, slots: Slots, rng: Random) -> str:
        """Return the wording with `slots` filled in and words of the closed classes drawn."""
        words: dict[str, str] = {}

        def fill(match: re.Match[str]) -> str:
            if slot := match["slot"]:
                kind = slot.rstrip("12")
                if kind not in LEXICON:
                    return write_number(slots[slot])
                if slot not in words:
                    words[slot] = rng.choice([w for w in LEXICON[kind] if w not in words.values()])
                return words[slot]
            return rng.choice(match["choice"].split("|")) if match["choice"] else match["literal"]

        return _PART.sub(fill, self.text)
