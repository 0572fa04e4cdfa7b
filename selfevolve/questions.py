"""Reading the questioner's replies: one question in its block, then a boxed answer."""

from __future__ import annotations

import re

from selfevolve.answers import extract
from selfevolve.answers.extract import after_thinking, behind_thinking
from selfevolve.records import Candidate, ParseFailure
from selfevolve.sampling import FinishReason

_BLOCK = re.compile(r"<question>(.*?)</question>", re.DOTALL)


def parse_question(text: str, finish_reason: str) -> tuple[str | None, str | None, ParseFailure | None]:
    """Return (question, the questioner's own answer, failure); exactly one of question and failure is None.

    The last complete ``<question>`` block after the thinking block counts, and a complete, filled box must follow it.
    In a thinking block that never closes there is none. Both prompt packs use this form (R-Quest, prompt C.1).
    """
    if finish_reason != FinishReason.STOP:
        return None, None, ParseFailure.CUT_OFF
    body = behind_thinking(text)
    blocks = list(_BLOCK.finditer(body))
    if not blocks or after_thinking(body[: blocks[-1].start()]) is None:
        return None, None, ParseFailure.NO_QUESTION
    question = blocks[-1].group(1).rpartition("<question>")[2].strip()
    if not question:
        return None, None, ParseFailure.EMPTY_QUESTION
    answer = extract(body[blocks[-1].end() :], finish_reason)
    return (question, answer, None) if answer is not None else (None, None, ParseFailure.NO_ANSWER)


def read_candidate(round: int, stage: str, step: int, index: int, text: str, finish_reason: str) -> Candidate:
    """Return the candidate that one reply stands for."""
    question, answer, failure = parse_question(text, finish_reason)
    return Candidate(
        id=f"r{round:02d}-{stage}-s{step:02d}-{index:06d}",
        round=round,
        stage=stage,
        step=step,
        index=index,
        reply=text,
        finish_reason=str(finish_reason),
        question=question,
        own_answer=answer,
        parse_failure=failure,
    )
