"""One reply to a validity-aware prompt, read as a verdict."""

from __future__ import annotations

import re
from enum import StrEnum

from selfevolve.answers import extract
from selfevolve.sampling import Reply

INVALID = "INVALID"  # the word that rejects a question, and the gold answer of an invalid one

_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|sf)|operatorname)\s*\{(.*)\}", re.S)
_LONGEST = 100  # characters; a longer box is an answer, however it is wrapped
_EDGES = " \t\r\n$*_.!\"'`"


class Verdict(StrEnum):
    """What one reply says of a question."""

    VALID = "valid"  # it gives an answer
    INVALID = "invalid"  # it rejects the question
    UNDECIDED = "undecided"  # no box, an empty box, cut off, or failed: it says nothing


def is_rejection(answer: str) -> bool:
    r"""Return True when a box's content is the word INVALID: any case, bare or as ``\text{INVALID}``."""
    if len(answer) > _LONGEST:
        return False
    content = answer.strip(_EDGES)
    while wrapped := _WRAPPED.fullmatch(content):
        content = wrapped.group(1).strip(_EDGES)
    return content.casefold() == "invalid"


def read_verdict(reply: Reply) -> Verdict:
    """Return what the reply's final box says (R-Quest, prompt A.5: one box, an answer or INVALID).

    Only a reply that the model itself ended casts a vote. The word INVALID outside the final box counts for nothing.
    """
    answer = _answer(reply)
    if answer is None:
        return Verdict.UNDECIDED
    return Verdict.INVALID if is_rejection(answer) else Verdict.VALID


def why_unread(reply: Reply) -> str | None:
    """Return why a reply casts no vote: ``no_box``, or how it ended (``length``, ``timeout``, ``error``); else None."""
    if _answer(reply) is not None:
        return None
    return "no_box" if reply.complete else reply.finish_reason.value


def _answer(reply: Reply) -> str | None:
    answer = extract(reply.text, reply.finish_reason) if reply.complete else None
    return answer if answer is not None and answer.strip() else None
