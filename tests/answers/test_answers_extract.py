# ruff: noqa: RUF001
"""Reading the final answer off a reply."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from selfevolve.answers import extract, extract_choice, extract_final_number, read_json, read_label

BLOCKS = [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<THINK>", "</Think>"), ("[THINK]", "[/THINK]")]


class Reason(StrEnum):
    """Any string enum will do as a finish reason."""

    STOP = "stop"
    LENGTH = "length"


def test_table(reply: dict[str, Any]) -> None:
    assert extract(reply["text"], reply["finish_reason"]) == reply["expected"], reply["origin"]


def test_finish_reason_may_be_an_enum() -> None:
    assert extract(r"\boxed{5}", Reason.STOP) == "5"
    assert extract(r"\boxed{5}", Reason.LENGTH) is None


def test_many_boxes_are_read_in_good_time() -> None:
    assert extract(r"\boxed{1} " * 20_000) == "1"
    assert extract(r"\boxed{" * 20_000) is None
    assert extract("}" * 100_000 + r"\boxed{2}") == "2"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Final result: **58**", "58"),
        ("She keeps 64 stickers.", "64"),
        ("7 + 5 = 12, so 12.", "12"),
        ("It costs $1,234.50.", "1234.50"),
        ("It is 3-2", "2"),
        ("so x = -4", "-4"),
        ("so x = −4", "-4"),
        ("half of it is .5", ".5"),
        ("a, b", None),
        ("<think>7", None),
        # a piece of a number is not the number
        ("It is 1.5e3.", "1.5e3"),
        ("so 2E-4 of them", "2E-4"),
        ("The probability is 3/4.", "3/4"),
        (r"Thus $\frac{3}{4}$", "3/4"),
        (r"-\dfrac{1}{2}", "-1/2"),
        ("It takes 3 1/2 hours.", "3 1/2"),
        ("She loses -$5.", "-5"),
        (r"a change of -\$1,250", "-1250"),
        (r"12{,}500 people", "12500"),
        ("about 12\u202f500", "12500"),
        ("Its area is 25 cm^2.", "25"),
        (r"25 cm^{2}", "25"),
        ("25 m**2", "25"),
        ("x^2 = 9", "9"),
        (r"It turns by 45^\circ.", "45"),
        ("The answer is 10^3", None),
        ("The answer is 5²", None),
        ("10^3 = 1000", "1000"),
        ("Release 1.2.3", None),
        ("**12**", "12"),
        ("<thinking>7</thinking> 8", "8"),
        ("<thinking>7</thinking> no idea", None),
        ("we get １２．５", "12.5"),
    ],
)
def test_final_number(text: str, number: str | None) -> None:
    assert extract_final_number(text) == number


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Answer: (C)", "C"),
        ("The answer is **B**.", "B"),
        (r"\boxed{\text{(A)}}", "A"),
        ("I choose\n\nD", "D"),
        ("Answer: A and B", None),
        ("Answer: A or D", None),
        ("Answer: E", None),
        ("Answer: Anna", None),
        ("A is wrong, C is wrong", None),
        ("The best answer is B. The other answers are wrong.", "B"),
        ("Answer: B\n\nExplanation: the answer A is wrong", "B"),
        ("The correct option is C", "C"),
        ("Answer: B; C", None),
        (r"\boxed{\mathrm{~B}}", "B"),
        ("**Answer:** B", "B"),
        (r"\boxed{B", None),
        # decoration
        (r"\boxed{c}", "C"),
        ("Answer: (d)", "D"),
        ("The correct answer is option C.", "C"),
        (r"\boxed{\text{Option C}}", "C"),
        ('Answer: "C"', "C"),
        ("Answer - C", "C"),
        ("Answer: <C>", "C"),
        # words and lists are no choice
        ("Answer: a cat", None),
        ("Answer: A B", None),
        ("Answer: A\n\n(B)", None),
        ("Answer: not A", None),
        ("Answer: optional", None),
        ("Answer: 【B】", "B"),
        ("The answer is Ｃ.", "C"),
    ],
)
def test_choice(text: str, choice: str | None) -> None:
    assert extract_choice(text, "A-D") == choice
    assert extract_choice(text, "ABCD") == choice


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # every spelling of a thinking block: closed, it is not read; open, nothing is
        *[(f"{a}\\boxed{{6}}{b} so \\boxed{{7}}", "7") for a, b in BLOCKS],
        *[(f"{a}\\boxed{{6}}{b} I could not decide.", None) for a, b in BLOCKS],
        *[(f"{a}maybe \\boxed{{6}}", None) for a, _ in BLOCKS],
        # a box without braces holds a plain number, and counts as the last box
        (r"the answer is $\boxed 7$.", "7"),
        (r"\boxed{3}; no, \boxed 5.", "5"),
        (r"\boxed -1,250", "-1,250"),
        (r"\boxed 5, then \boxed{6}", "6"),
        (r"\boxed 5x", None),
        (r"\boxed 10^3", None),
        (r"It is \boxed{4}, as \boxed asks.", "4"),
    ],
)
def test_thinking_and_bare_boxes(text: str, answer: str | None) -> None:
    assert extract(text) == answer


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("DIFFERENT", "DIFFERENT"),
        ("They share a method.\nSAME_TYPE", "SAME_TYPE"),
        ("Verdict: **same_type**.", "SAME_TYPE"),
        ("They are not SAME_TYPE", None),
        ("SAME_TYPE\nor so I think", None),
        ("SAME_TYPE or DIFFERENT", None),
        ("<think>SAME_TYPE</think>\nDIFFERENT", "DIFFERENT"),
        ("<think>SAME_TYPE", None),
        (r"\boxed{DIFFERENT}", "DIFFERENT"),
        ("INDIFFERENT", None),
        ("", None),
        # after the marker, with something behind it or around it
        ("Verdict: SAME_TYPE\n\nReason: both are linear.", "SAME_TYPE"),
        ("My verdict is SAME_TYPE", "SAME_TYPE"),
        ("Final verdict - DIFFERENT", "DIFFERENT"),
        ("Conclusion: DIFFERENT", "DIFFERENT"),
        ("- SAME_TYPE", "SAME_TYPE"),
        ("<verdict>SAME_TYPE</verdict>", "SAME_TYPE"),
        ("Verdict\uff1aSAME_TYPE", "SAME_TYPE"),
        ("'DIFFERENT'", "DIFFERENT"),
        ("The answer is 12.\nVerdict: DIFFERENT\nThat is all.", "DIFFERENT"),
        # two are none, and so is a hedge
        ("Verdict: SAME_TYPE\nVerdict: DIFFERENT\nI cannot tell.", None),
        ("SAME_TYPE\nDIFFERENT", None),
        ("Verdict: not DIFFERENT\nVerdict: SAME_TYPE\nor so", None),
        ("Verdict: SAME_TYPE, mostly", None),
    ],
)
def test_label(text: str, label: str | None) -> None:
    assert read_label(text, ["SAME_TYPE", "DIFFERENT"]) == label


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Here it is: {"a": [1, 2,],} done', {"a": [1, 2]}),
        ('{"r": "\\theta and \\nu"}', {"r": "\\theta and \\nu"}),
        ('{"r": "line\\nNext"}', {"r": "line\nNext"}),
        ('{"r": "a, ]"}', {"r": "a, ]"}),
        ("[" * 100_000, None),
        ("nothing", None),
        # every command of LaTeX keeps its backslash and its letters
        *[
            (f'{{"r": "\\{name} x"}}', {"r": f"\\{name} x"})
            for name in (
                *("underline", "uparrow", "bigl", "boxed", "bmatrix", "fbox", "forall", "nonumber", "neq", "not"),
                *("textbf", "tfrac", "therefore", "rho", "rightarrow", "sqrt", "alpha", "nabla"),
            )
        ],
        ('{"r": "a\\tb\\nc"}', {"r": "a\tb\nc"}),
        ('{"r": "\\u00e9 \\\\frac"}', {"r": "\u00e9 \\frac"}),
        # braces of prose, several objects, a thinking block, a line feed in a string
        ('The set {1, 2} gives {"a": 1}.', {"a": 1}),
        ('First {"a": 1}, then {"a": {"b": 2}}', {"a": {"b": 2}}),
        ('<think>{"a": 0}</think>{"a": 1}', {"a": 1}),
        ('<think>{"a": 0}', None),
        ('{"a": "one\ntwo"}', {"a": "one\ntwo"}),
        ('{"score": NaN}', None),
        ('{"a": 1', None),
        ("{" * 100_000, None),
        ('{"a": "' * 20_000 + "}", None),
    ],
)
def test_json(text: str, value: object) -> None:
    assert read_json(text) == value
