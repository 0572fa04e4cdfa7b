"""Reading a judge's verdict: one row a case, with the reason it is there."""

import time

import pytest

from novelty import SameType, read_same_type

SAME, DIFFERENT, UNDECIDED = SameType.SAME, SameType.DIFFERENT, SameType.UNDECIDED

CASES = [
    # the bare word: the whole reply of the testbed's judge
    ("SAME_TYPE", SAME),
    ("DIFFERENT", DIFFERENT),
    ("  same_type \n\n", SAME),
    # the whole last line, with marks around it
    ("Both ask for the shortest path in a small graph.\n\nSAME_TYPE", SAME),
    ("One counts, the other measures.\n**DIFFERENT**", DIFFERENT),
    ("Compared.\n`SAME_TYPE`.", SAME),
    ('Compared.\n"DIFFERENT."', DIFFERENT),
    ("Compared.\n\N{LEFT DOUBLE QUOTATION MARK}SAME_TYPE\N{RIGHT DOUBLE QUOTATION MARK}", SAME),
    ("Compared.\n$\\boxed{\\text{SAME\\_TYPE}}$", SAME),
    ("- the same setup\n- SAME_TYPE", SAME),
    ("### DIFFERENT", DIFFERENT),
    # a marker
    ("They share nothing.\nVerdict: DIFFERENT", DIFFERENT),
    ("**Answer:** SAME_TYPE.", SAME),
    ("**Final verdict: SAME_TYPE**", SAME),
    ("Final: DIFFERENT", DIFFERENT),
    ("One asks for a sum, one for a path. My final answer is: DIFFERENT", DIFFERENT),
    ("Verdict: SAME_TYPE\n\nBoth are sums of an arithmetic series.", SAME),
    ("Verdict:\nDIFFERENT", DIFFERENT),
    # the last line has precedence over a marker
    ("Answer: DIFFERENT\nOn second thoughts the setup is shared.\nSAME_TYPE", SAME),
    # reasoning blocks
    ("<think>SAME_TYPE?\nDIFFERENT</think>\nSAME_TYPE", SAME),
    ("<think>It looks shared.\nSAME_TYPE", UNDECIDED),
    ("DIFFERENT</think>", UNDECIDED),
    ("<thinking>SAME_TYPE?\nDIFFERENT</thinking>\nSAME_TYPE", SAME),
    ("<thinking>It looks shared.\nSAME_TYPE", UNDECIDED),
    # both words, or the task echoed
    ("SAME_TYPE or DIFFERENT", UNDECIDED),
    ("Verdict: SAME_TYPE or DIFFERENT", UNDECIDED),
    ("end with exactly SAME_TYPE or DIFFERENT.", UNDECIDED),
    ("Choose one:\n- SAME_TYPE\n- DIFFERENT", UNDECIDED),
    ("SAME_TYPE\nDIFFERENT", UNDECIDED),
    ("SAME_TYPE/DIFFERENT", UNDECIDED),
    # a negation, a doubt
    ("not SAME_TYPE", UNDECIDED),
    ("Verdict: not SAME_TYPE", UNDECIDED),
    ("!SAME_TYPE", UNDECIDED),
    ("~~SAME_TYPE~~", UNDECIDED),
    ("I would not give this answer: SAME_TYPE", UNDECIDED),
    ("SAME_TYPE?", UNDECIDED),
    # markers that disagree
    ("Verdict: SAME_TYPE\nVerdict: DIFFERENT\nThat is all.", UNDECIDED),
    # the word within a sentence is no verdict, nor is a neighbour of the word
    ("So the two questions are DIFFERENT", UNDECIDED),
    ("They are SAME_TYPE in my view.", UNDECIDED),
    ("SAME_TYPES", UNDECIDED),
    ("SAME", UNDECIDED),
    ("INDIFFERENT", UNDECIDED),
    # a base model that runs on to another example has not ended with its verdict
    ("SAME_TYPE\n\nQuestion A:\nFind x.", UNDECIDED),
    # nothing
    ("", UNDECIDED),
    (" \n\t\n", UNDECIDED),
    ("I cannot tell.", UNDECIDED),
    ("\0", UNDECIDED),
]


@pytest.mark.parametrize(("text", "verdict"), CASES)
def test_reading(text: str, verdict: SameType) -> None:
    assert read_same_type(text) is verdict


@pytest.mark.parametrize("text", ["SAME_TYPE", "DIFFERENT", "Verdict: SAME_TYPE"])
def test_a_truncated_reply_is_undecided(text: str) -> None:
    assert read_same_type(text, complete=False) is UNDECIDED


@pytest.mark.parametrize(
    "text",
    [
        "\\text{" * 20_000 + "SAME_TYPE" + "}" * 20_000,
        "*" * 100_000 + "SAME_TYPE",
        ". " * 50_000 + "x",
        "- " * 50_000,
        "1) " * 30_000,
        "final " * 20_000,
        " " * 100_000 + "answer" + " " * 100_000,
    ],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    began = time.perf_counter()
    assert read_same_type(text) is UNDECIDED
    assert time.perf_counter() - began < 1
