"""The oracle: the truth about any string, by reading it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from selfevolve.testbed.grammar import Slots, tokens
from selfevolve.testbed.pattern import ErrorType, Exact, Flaw, Params, Pattern
from selfevolve.testbed.patterns import PATTERNS

MAX_CHARACTERS = 2_000  # longer than any question of the world


@dataclass(frozen=True)
class Truth:
    """What is so about a question."""

    pattern: str | None  # the exercise pattern's name; None for text that is no exercise of the world
    valid: bool
    error_type: ErrorType | None  # None exactly where valid
    answer: str | None  # the one right answer, a whole number in digits; None where invalid

    def to_json(self) -> dict[str, object]:
        """Return the truth as plain values, with its source."""
        return {"source": "oracle", **asdict(self)}


MALFORMED = Truth(None, False, ErrorType.MALFORMED, None)


@dataclass(frozen=True)
class Reading:
    """A question as it was read: its pattern, its numbers, and a flaw that its wording alone has."""

    pattern: Pattern
    slots: Slots
    error: ErrorType | None


def read(text: str) -> Reading | None:
    """Return how `text` reads as an exercise of the world, or None where it does not."""
    if len(text) > MAX_CHARACTERS:
        return None
    line = tokens(text)
    for pattern in PATTERNS:
        for template in pattern.templates:
            if (slots := template.read(line)) is not None:
                return Reading(pattern, slots, None)
        for error, template in pattern.flawed_templates:
            if (slots := template.read(line)) is not None:
                return Reading(pattern, slots, error)
    return None


def known(slots: Slots) -> Params | None:
    """Return the slots as plain numbers, or None where one is missing or ambiguous."""
    values = {k: v for k, v in slots.items() if isinstance(v, int)}
    return values if len(values) == len(slots) else None


def judge(reading: Reading) -> Truth:
    """Return the truth about a question that was read.

    A missing number outranks an ambiguous one, and both outrank what the wording alone lacks.
    """
    pattern = reading.pattern
    if any(v is None for v in reading.slots.values()):
        return Truth(pattern.name, False, ErrorType.MISSING_INFORMATION, None)
    params = known(reading.slots)
    if params is None:
        return Truth(pattern.name, False, ErrorType.AMBIGUITY, None)
    if reading.error is not None:
        return Truth(pattern.name, False, reading.error, None)
    try:
        return Truth(pattern.name, True, None, str(pattern.work(params, Exact())))
    except Flaw as flaw:
        return Truth(pattern.name, False, flaw.error, None)


def oracle(text: str) -> Truth:
    """Return the truth about any string: its pattern, validity, error type and answer.

    The text is read by the world's grammar (`selfevolve.testbed.grammar`) and worked exactly; a string that the grammar
    does not read is malformed. Blanks and letter case do not matter. Never raises.
    """
    reading = read(text)
    return MALFORMED if reading is None else judge(reading)
