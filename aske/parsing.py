"""Reading an asker's turn: three sections, a draft answer, and the one question that leaves the asker.

An asker's reply is untrusted text. Only what stands in the question section is ever shown to a solver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from selfevolve.answers import extract
from selfevolve.sampling import FinishReason, Reply


class Malformed(StrEnum):
    """What is wrong with a turn; a turn can lack several things, the first in this order is named."""

    CUT_OFF = "cut_off"  # the reply did not end by itself
    NO_QUESTION = "no_question"  # no question section, or an empty one
    NO_REASONING = "no_reasoning"  # no reasoning section, or an empty one
    NO_DRAFT = "no_draft"  # no draft section
    NO_DRAFT_ANSWER = "no_draft_answer"  # the draft holds no boxed answer


@dataclass(frozen=True)
class Turn:
    """One turn of the asker, read."""

    question: str | None  # what the solvers are asked, cut; None where there is none
    draft_answer: str | None  # the asker's own boxed answer; never shown to anybody
    malformed: Malformed | None  # None: all three sections are there, with a boxed answer in the draft
    cut: bool = False  # the question was longer than the limit


_SECTIONS = ("reasoning", "draft", "question")
# "#Question#", "# Question #", "**#Question#**", "## Question ##:" at any place: models vary it
_HEADER = re.compile(r"[*_`]*#+[ \t]*(reasoning|draft|question)[ \t]*#+[*_`]*[ \t]*:?", re.IGNORECASE)
_THOUGHT_END = "</think>"


def _sections(text: str) -> dict[str, str]:
    """Return the text of each section; of a repeated header the last one counts."""
    found: dict[str, str] = {}
    heads = list(_HEADER.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        end = following.start() if following else len(text)
        found[head.group(1).lower()] = text[head.end() : end].strip()
    return found


def cut_words(text: str, limit: int) -> tuple[str, bool]:
    """Return the first `limit` words of a text with its spacing kept, and whether anything was cut."""
    ends = [m.end() for m in re.finditer(r"\S+", text)]
    return (text, False) if len(ends) <= limit else (text[: ends[limit - 1]], True)


def parse_turn(reply: Reply, words: int = 200) -> Turn:
    """Read one turn.

    A thinking block is taken off first; an unfinished one leaves nothing. A reply that was cut off has no question: its
    last section may be half of one.

    Args:
        reply: the asker's reply.
        words: the question's limit.
    """
    if reply.finish_reason is not FinishReason.STOP:
        return Turn(None, None, Malformed.CUT_OFF)
    text = reply.text
    if _THOUGHT_END in text:
        text = text.rsplit(_THOUGHT_END, 1)[1]
    elif "<think>" in text:
        return Turn(None, None, Malformed.NO_QUESTION)
    sections = _sections(text)
    draft_answer = extract(sections.get("draft", ""))
    raw = sections.get("question", "")
    if not raw:
        return Turn(None, draft_answer, Malformed.NO_QUESTION)
    question, was_cut = cut_words(raw, words)
    problem = None
    if not sections.get("reasoning"):
        problem = Malformed.NO_REASONING
    elif "draft" not in sections:
        problem = Malformed.NO_DRAFT
    elif draft_answer is None:
        problem = Malformed.NO_DRAFT_ANSWER
    return Turn(question, draft_answer, problem, was_cut)
