"""Reading the questioner's replies."""

from __future__ import annotations

import pytest

from selfevolve.questions import parse_question, read_candidate
from selfevolve.records import Candidate, ParseFailure

CASES = [
    # (reply, finish reason, question, own answer, failure); origin in brackets
    ("<question>What is 1+1?</question>\n\\boxed{2}", "stop", "What is 1+1?", "2", None),  # [the format]
    ("<question> what is 3 + 4 - 2?</question>\\boxed{ 5}", "stop", "what is 3 + 4 - 2?", "5", None),  # [testbed]
    ("<think>try <question>x</question></think><question>y?</question>\\boxed{1}", "stop", "y?", "1", None),  # [thinking]
    ("<question>a?</question><question>b?</question>\\boxed{3}", "stop", "b?", "3", None),  # [the last one counts]
    ("<question>old <question>new?</question>\\boxed{3}", "stop", "new?", "3", None),  # [unclosed block before]
    ("<question>Put it in a box. boxes?</question>\\boxed{3}", "stop", "Put it in a box. boxes?", "3", None),  # [R-Zero drops "box"]
    ("<question>multi\nline?</question>\\boxed{\\frac{1}{2}}", "stop", "multi\nline?", "\\frac{1}{2}", None),  # [braces]
    ("<question>a?</question>\\boxed{2}", "length", None, None, ParseFailure.CUT_OFF),
    ("<question>a?\\boxed{2}", "stop", None, None, ParseFailure.NO_QUESTION),
    ("", "stop", None, None, ParseFailure.NO_QUESTION),
    ("<question>  </question>\\boxed{2}", "stop", None, None, ParseFailure.EMPTY_QUESTION),
    ("<question>a?</question>", "stop", None, None, ParseFailure.NO_ANSWER),
    ("\\boxed{2}<question>a?</question>", "stop", None, None, ParseFailure.NO_ANSWER),  # [the box must follow]
    ("<question>a?</question>\\boxed{}", "stop", None, None, ParseFailure.NO_ANSWER),
    ("<think><question>a?</question>\\boxed{2}", "error", None, None, ParseFailure.CUT_OFF),
    ("<think>try <question>a?</question>\\boxed{2}", "stop", None, None, ParseFailure.NO_QUESTION),  # [an open thought]
    ("<thinking>try <question>a?</question>\\boxed{2}</thinking>", "stop", None, None, ParseFailure.NO_QUESTION),
    ("<thinking>x</thinking><question>y?</question>\\boxed{1}", "stop", "y?", "1", None),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "finish", "question", "answer", "failure"), CASES)
def test_cases(reply: str, finish: str, question: str | None, answer: str | None, failure: ParseFailure | None) -> None:
    assert parse_question(reply, finish) == (question, answer, failure)


def test_a_candidate_survives_its_record() -> None:
    for reply, finish, *_ in CASES:
        candidate = read_candidate(3, "questioner", 2, 17, reply, finish)
        assert Candidate.from_json(candidate.to_json()) == candidate
        assert candidate.id == "r03-questioner-s02-000017"
