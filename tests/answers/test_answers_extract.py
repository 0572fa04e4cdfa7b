# ruff: noqa: RUF001
"""Reading the final answer off a reply."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from selfevolve.answers import extract, extract_choice, extract_final_number, read_json, read_label


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
        (r"\boxed{B", None),
    ],
)
def test_choice(text: str, choice: str | None) -> None:
    assert extract_choice(text, "A-D") == choice
    assert extract_choice(text, "ABCD") == choice


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
    ],
)
def test_json(text: str, value: object) -> None:
    assert read_json(text) == value
