"""Reading an asker's turn: three sections, a draft answer, and the one question that leaves the asker.

An asker's reply is untrusted text. Only what stands in the question section is ever shown to a solver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from selfevolve.answers import extract
from selfevolve.answers.extract import after_thinking
from selfevolve.sampling import FinishReason, Reply


class Malformed(StrEnum):
    """What is wrong with a turn; a turn can lack several things, the first in this order is named."""

    CUT_OFF = "cut_off"  # the reply did not end by itself
    NO_QUESTION = "no_question"  # no question section, or an empty one
    ECHO = "echo"  # the question section repeats the instructions
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


ECHO_WORDS = 5  # a shorter question may stand in the instructions by chance
CHARACTERS_A_WORD = 20  # a question of so many characters a word is cut by characters: some scripts have no blanks

# How models write a header, at the beginning of a line: "#Question#", "**# Question #**", "## Question ##:",
# "#Final Question#", and "### Question" where nothing else stands on the line. Bounded, so that no text is slow.
_MARKS, _HASHES = r"[*_`]{0,4}", r"(?:\\?#){1,6}"
_NAME = rf"[ \t]{{0,8}}{_MARKS}(?:final[ \t]{{1,4}})?(reasoning|draft|question){_MARKS}:?[ \t]{{0,8}}"
_AT_LINE = re.compile(
    rf"^[ \t>-]{{0,8}}{_MARKS}{_HASHES}{_NAME}(?:{_HASHES}[*_`:]{{0,4}}[ \t]{{0,8}}:?|$)", re.IGNORECASE | re.MULTILINE
)
_ANYWHERE = re.compile(rf"{_MARKS}{_HASHES}{_NAME}{_HASHES}[*_`:]{{0,4}}[ \t]{{0,8}}:?", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text that can be sent on: control characters dropped, lone surrogates replaced."""
    return _SURROGATE.sub("\ufffd", _UNPRINTABLE.sub("", text))


def _sections(text: str) -> dict[str, str]:
    """Return the text of each section that is there.

    Where all three headers begin a line, only such headers count, so that a question or a draft may name a section
    within a line; else headers count at any place. Of a repeated section the last one counts, and reasoning and draft
    before the question come before those after it. Where the question stands first of all it is the first one: what
    looks like another one is then a mention in private text, and what follows it must not leave the asker.
    """
    heads = list(_AT_LINE.finditer(text))
    if len({h.group(1).lower() for h in heads}) < 3:
        heads = list(_ANYWHERE.finditer(text))
    names = [h.group(1).lower() for h in heads]
    ends = [*(h.start() for h in heads[1:]), len(text)]
    texts = [text[h.end() : end].strip() for h, end in zip(heads, ends[: len(heads)], strict=True)]
    questions = [i for i, name in enumerate(names) if name == "question"]
    chosen = (questions[0] if names[0] == "question" else questions[-1]) if questions else len(names)
    found: dict[str, str] = {}
    for i in [*range(chosen + 1, len(names)), *range(chosen)]:
        if names[i] != "question":
            found[names[i]] = texts[i]
    if questions:
        found["question"] = texts[chosen]
    return found


def cut_words(text: str, limit: int) -> tuple[str, bool]:
    """Return the first `limit` words of a text with its spacing kept, and whether anything was cut."""
    ends = [m.end() for m in re.finditer(r"\S+", text)]
    return (text, False) if len(ends) <= limit else (text[: ends[limit - 1]], True)


def _question(text: str, words: int) -> tuple[str | None, bool]:
    """Return the question that is put to the solvers, None where nothing is asked, and whether it was cut."""
    text = printable(text).strip()
    if text.count("```") % 2:  # the whole reply stood in a code block, whose beginning lies before the question
        text = text.removesuffix("```").strip()
    if not any(c.isalnum() for c in text):
        return None, False
    cut, was_cut = cut_words(text, words)
    most = words * CHARACTERS_A_WORD
    return cut[:most], was_cut or len(cut) > most


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _echoes(question: str, told: str) -> bool:
    """Return whether a question is a piece of the instructions: small models copy what a section shall hold."""
    plain = _plain(question)
    return plain.count(" ") >= ECHO_WORDS - 1 and plain in _plain(told)


def parse_turn(reply: Reply, words: int = 200, told: str = "") -> Turn:
    """Read one turn.

    A thinking block is taken off first; an unfinished one leaves nothing. A reply that was cut off has no question: its
    last section may be half of one.

    Args:
        reply: the asker's reply.
        words: the question's limit; it is also cut at `CHARACTERS_A_WORD` times as many characters.
        told: the instructions that the asker was given; a question that stands in them word for word is none.
    """
    if reply.finish_reason is not FinishReason.STOP:
        return Turn(None, None, Malformed.CUT_OFF)
    sections = _sections(after_thinking(reply.text) or "")
    draft_answer = extract(sections.get("draft", ""))
    question, was_cut = _question(sections.get("question", ""), words)
    problem = None
    if question is None:
        problem = Malformed.NO_QUESTION
    elif _echoes(question, told):
        question, was_cut, problem = None, False, Malformed.ECHO
    elif not sections.get("reasoning"):
        problem = Malformed.NO_REASONING
    elif "draft" not in sections:
        problem = Malformed.NO_DRAFT
    elif draft_answer is None:
        problem = Malformed.NO_DRAFT_ANSWER
    return Turn(question, draft_answer, problem, was_cut)
