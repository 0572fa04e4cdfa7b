"""One reply of a judge, read as a verdict: are two questions one exercise?"""

from __future__ import annotations

import re
from enum import StrEnum

from selfevolve.answers.extract import after_thinking


class SameType(StrEnum):
    """What a judge says of a pair of questions."""

    SAME = "same"  # SAME_TYPE: versions of one exercise
    DIFFERENT = "different"  # DIFFERENT
    UNDECIDED = "undecided"  # no verdict, more than one, cut off, or failed


LONGEST = 200  # characters of a line that can still be a bare verdict in its wrappings
_WORDS = {"same_type": SameType.SAME, "different": SameType.DIFFERENT}
_BULLET = re.compile(r"^(?:[-*+>#]+\s+|\d+[.)]\s+)*")
_WRAPPED = re.compile(r"\\(?:boxed|fbox|text|textbf|textit|texttt|mathrm|mathbf|mathsf)\s*\{(.*)\}")
_EDGES = " \t$*_`.\"'\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}()[]<>"
_MARKER = re.compile(  # "Verdict: X", "**Final answer:** X", "... the same setup. My verdict is: X"
    r"(?:^|[.!?;] )[ *_#>-]*(?:(?:so|thus|therefore|hence),? )?(?:(?:the|my|our) )?"
    r"(?:final(?: (?:verdict|answer|judge?ment|decision|conclusion))?|verdict|answer|judge?ment|decision|conclusion)"
    r"(?: is)? ?[*_]* ?:(?P<rest>.*)$",
    re.IGNORECASE,
)


def read_same_type(text: str, complete: bool = True) -> SameType:
    """Return the verdict of a judge's reply (R-Quest, prompt B.1).

    The word SAME_TYPE or DIFFERENT counts as the whole last line, or as all that follows a marker such as ``Verdict:``
    on a line. The last line has precedence; without a verdict there, the markers of the reply must agree. Marks of
    emphasis, quotes, boxes and a full stop around the word are ignored, and so is its case.

    Args:
        text: The reply. A closed thinking block is not read; one left open holds no verdict.
        complete: False where the reply was cut off or failed: it never counts.
    """
    if not complete:
        return SameType.UNDECIDED
    spoken = after_thinking(text)
    lines = [" ".join(line.split()) for line in (spoken or "").splitlines() if line.strip()]
    if not lines:
        return SameType.UNDECIDED
    last = _whole(lines[-1])
    if last is not None:
        listed = len(lines) > 1 and _whole(lines[-2]) not in (None, last)  # the two choices, copied one below the other
        return SameType.UNDECIDED if listed else last
    marked = [verdict for line in lines if (verdict := _after_marker(line)) is not None]
    return marked[0] if len(set(marked)) == 1 else SameType.UNDECIDED


def _whole(line: str) -> SameType | None:
    """Return the verdict that a piece of text consists of, or None."""
    if len(line) > LONGEST:
        return None
    word = _BULLET.sub("", line.strip(), count=1).replace("\\_", "_").strip(_EDGES)
    while wrapped := _WRAPPED.fullmatch(word):
        word = wrapped.group(1).strip(_EDGES)
    return _WORDS.get(word.casefold())


def _after_marker(line: str) -> SameType | None:
    """Return the verdict that follows a marker up to the end of the line; UNDECIDED if something else does."""
    found = _MARKER.search(line)
    if found is None or not found["rest"].strip(" \t*_"):
        return None
    return _whole(found["rest"]) or SameType.UNDECIDED
