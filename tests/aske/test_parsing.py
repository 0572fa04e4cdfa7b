import time

import pytest
from aske_helpers import DRAFT, REASONING, UNHURRIED, cut, failed, late, stop, turn
from hypothesis import given
from hypothesis import strategies as st

from aske.parsing import CHARACTERS_A_WORD, Malformed, cut_words, parse_turn, printable
from selfevolve.answers import compare

FENCED = "```\n#Reasoning#\nr\n#Draft#\n\\boxed{4}\n#Question#\nWhat is 2+2?\n```"

# (origin, reply, question, draft's answer, what is malformed)
CASES = [
    ("as asked", "#Reasoning#\nr\n#Draft#\nd \\boxed{4}\n#Question#\nWhat is 2+2?", "What is 2+2?", "4", None),
    ("one line, as the testbed writes", "#Reasoning# r #Draft# \\boxed{ 4 } #Question# q + 1", "q + 1", "4", None),
    ("blanks inside", "# Reasoning #\nr\n# Draft #\n\\boxed{4}\n# Question #\nq", "q", "4", None),
    ("bold around", "**#Reasoning#**\nr\n**#Draft#**\n\\boxed{4}\n**#Question#**\nq", "q", "4", None),
    ("bold around, colon inside", "**#Reasoning#:**\nr\n**#Draft#:**\n\\boxed{4}\n**#Question#:** q", "q", "4", None),
    ("bold inside", "#**Reasoning**#\nr\n#**Draft**#\n\\boxed{4}\n#**Question**#\nq", "q", "4", None),
    ("code marks", "`#Reasoning#`\nr\n`#Draft#`\n\\boxed{4}\n`#Question#`\nq", "q", "4", None),
    ("three hashes, colon", "###Reasoning###:\nr\n###Draft###:\n\\boxed{4}\n###Question###: q", "q", "4", None),
    ("Markdown headings", "### Reasoning\nr\n### Draft\n\\boxed{4}\n### Question\nq", "q", "4", None),
    ("Markdown headings, colon", "## Reasoning:\nr\n## Draft:\n\\boxed{4}\n## Question:\nq", "q", "4", None),
    ("bold Markdown headings", "## **Reasoning**\nr\n## **Draft**\n\\boxed{4}\n## **Question**\nq", "q", "4", None),
    ("escaped by Markdown", "\\#Reasoning\\#\nr\n\\#Draft\\#\n\\boxed{4}\n\\#Question\\#\nq", "q", "4", None),
    ("capitals", "#REASONING#\nr\n#DRAFT#\n\\boxed{4}\n#QUESTION#\nq", "q", "4", None),
    ("the final turn's name", "#Reasoning#\nr\n#Draft#\n\\boxed{4}\n#Final Question#\nq", "q", "4", None),
    ("quoted", "> #Reasoning#\n> r\n> #Draft#\n> \\boxed{4}\n> #Question#\nq", "q", "4", None),
    ("Windows line ends", "#Reasoning#\r\nr\r\n#Draft#\r\n\\boxed{4}\r\n#Question#\r\nq\r\n", "q", "4", None),
    ("question first", "#Question#\nq\n#Reasoning#\nr\n#Draft#\n\\boxed{4}", "q", "4", None),
    ("draft first", "#Draft#\n\\boxed{4}\n#Question#\nq\n#Reasoning#\nr", "q", "4", None),
    ("text before", "Sure! Here it is.\n#Reasoning#\nr\n#Draft#\n\\boxed{4}\n#Question#\nq", "q", "4", None),
    ("headers named in the reasoning", "#Reasoning#\nThe #Question# must differ from the #Draft#.\n#Draft#\n\\boxed{4}\n"
     "#Question#\nq", "q", "4", None),
    ("all named in one line of reasoning", "#Reasoning# I need #Draft# and #Question# #Draft# \\boxed{4} #Question# q",
     "q", "4", None),
    ("twice, changed its mind", turn("first", "1") + "\n\nWait.\n" + turn("second", "2"), "second", "2", None),
    ("draft with its own question header", "#Reasoning#\nr\n#Draft#\n#Question#\nold\nso \\boxed{4}\n#Question#\nnew",
     "new", None, Malformed.NO_DRAFT_ANSWER),
    ("question names a section", "#Reasoning#\nr\n#Draft#\n\\boxed{4}\n#Question#\nHow many letters has #Draft#?",
     "How many letters has #Draft#?", "4", None),
    ("question with a draft of its own", "#Reasoning#\nr\n#Draft#\n\\boxed{4}\n#Question#\nq\n#Draft#\nsee \\boxed{9}",
     "q", "4", None),
    ("question first, draft names it", "#Question# q #Reasoning# r #Draft# as in #Question# it is \\boxed{4}",
     "q", None, Malformed.NO_DRAFT_ANSWER),
    ("question repeats the draft's answer", turn("What is 2+2? It is \\boxed{4}."), "What is 2+2? It is \\boxed{4}.",
     "4", None),
    ("question with a hash", turn("How many # signs does '#3#' hold?"), "How many # signs does '#3#' hold?", "4", None),
    ("header in LaTeX", "#Reasoning#\n$\\text{#Question#}$ is next\n#Draft#\n\\boxed{4}\n#Question#\nq", "q", "4", None),
    ("header in code of the draft", "#Reasoning#\nr\n#Draft#\n`print('#Question#')` \\boxed{4}\n#Question#\nq", "q", "4",
     None),
    ("all in one code block", FENCED, "What is 2+2?", "4", None),
    ("code block in the question", turn("What is printed?\n```\nprint(1)\n```"), "What is printed?\n```\nprint(1)\n```",
     "4", None),
    ("thinking before", "<think>\n#Question#\nprivate\n</think>\n" + turn("q"), "q", "4", None),
    ("thinking, opened by the template", "#Question#\nprivate\n</think>\n" + turn("q"), "q", "4", None),
    ("thinking never closed", "<think>\n" + turn("q"), None, None, Malformed.NO_QUESTION),
    ("thinking opened again", "<think>a</think>" + turn("q") + "\n<think>b", None, None, Malformed.NO_QUESTION),
    ("plays the solvers in its draft", "#Reasoning#\nr\n#Draft#\n\\boxed{4}\nFinal answer: 4\n\nSolver 1:\nIt is \\boxed{5}.\n"
     "\nSolver 2:\nIt is \\boxed{6}.\n\nNo probes are left. Write the final question, with the sections #Reasoning#, #Draft# and "
     "#Question#.", None, None, Malformed.NO_QUESTION),
    ("nothing", "", None, None, Malformed.NO_QUESTION),
    ("blanks", " \n\t ", None, None, Malformed.NO_QUESTION),
    ("no headers", "What is 2+2?", None, None, Malformed.NO_QUESTION),
    ("words without hashes", "Reasoning: r\nDraft: \\boxed{4}\nQuestion: q", None, None, Malformed.NO_QUESTION),
    ("one hash, text behind", "#Question What is 2+2?", None, None, Malformed.NO_QUESTION),
    ("another header", "#Questions#\nq", None, None, Malformed.NO_QUESTION),
    ("empty question", "#Reasoning#\nr\n#Draft#\n\\boxed{4}\n#Question#\n", None, "4", Malformed.NO_QUESTION),
    ("question of marks", "#Reasoning#\nr\n#Draft#\n\\boxed{4}\n#Question#\n---\n**", None, "4", Malformed.NO_QUESTION),
    ("question of unseen characters", "#Question#\n\u200b\0\u2060", None, None, Malformed.NO_QUESTION),
    ("only a question", "#Question#\nq", "q", None, Malformed.NO_REASONING),
    ("no draft", "#Reasoning#\nr\n#Question#\nq", "q", None, Malformed.NO_DRAFT),
    ("empty reasoning", "#Reasoning#\n#Draft#\n\\boxed{4}\n#Question#\nq", "q", "4", Malformed.NO_REASONING),
    ("no reasoning", "#Draft#\n\\boxed{4}\n#Question#\nq", "q", "4", Malformed.NO_REASONING),
    ("draft without a box", "#Reasoning#\nr\n#Draft#\nfour\n#Question#\nq", "q", None, Malformed.NO_DRAFT_ANSWER),
    ("box left open", "#Reasoning#\nr\n#Draft#\n\\boxed{4\n#Question#\nq", "q", None, Malformed.NO_DRAFT_ANSWER),
    ("empty box", "#Reasoning#\nr\n#Draft#\n\\boxed{}\n#Question#\nq", "q", None, Malformed.NO_DRAFT_ANSWER),
    ("box in the reasoning only", "#Reasoning#\n\\boxed{4}\n#Draft#\nd\n#Question#\nq", "q", None,
     Malformed.NO_DRAFT_ANSWER),
]  # fmt: skip


@pytest.mark.parametrize(("text", "question", "answer", "malformed"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_cases(text, question, answer, malformed):
    read = parse_turn(stop(text))
    assert (read.question, read.draft_answer, read.malformed, read.cut) == (question, answer, malformed, False)


def test_an_echo_of_the_instructions_is_no_question():
    """A model of 1.5B wrote what the question section shall hold in place of a question."""
    told = "#Question#\nThe problem alone, with one answer\nthat can be checked: at most 200 words.\n\nWrite now."
    for echo in (
        "The problem alone, with one answer that can be checked: at most 200 words.",
        "the problem ALONE, with one",
    ):
        read = parse_turn(stop(turn(echo)), told=told)
        assert (read.question, read.draft_answer, read.malformed) == (None, "4", Malformed.ECHO)
        assert parse_turn(stop(turn(echo))).question == echo  # nothing is known of instructions
    for question in ("Write now.", "The problem alone, with one answer that can be checked, is which?"):
        assert parse_turn(stop(turn(question)), told=told).question == question


def test_several_rounds_in_one_turn():
    """A model of 1.5B played on by itself, in a code block that it did not close: the last question is asked."""
    rounds = "```\n" + turn("What is $f(3)$?", "9") + "\n\n" + turn("What is $g(2)$?", "1") + "\n"
    assert parse_turn(stop(rounds)).question == "What is $g(2)$?"
    assert parse_turn(cut(rounds + "#Reasoning#\nIt seems")).malformed is Malformed.CUT_OFF


@pytest.mark.parametrize("reply", [cut(turn("q")), failed(), late()], ids=["length", "error", "timeout"])
def test_a_reply_that_did_not_end_by_itself_has_no_question(reply):
    read = parse_turn(reply)
    assert (read.question, read.draft_answer, read.malformed) == (None, None, Malformed.CUT_OFF)


HOSTILE = {
    "stars": "*" * 100_000,
    "hashes": "#" * 100_000,
    "hashes and blanks": "# " * 50_000,
    "blanks": " " * 100_000,
    "header and blanks": "#" + " " * 100_000 + "Question#",
    "backslashes": "\\" * 100_000,
    "escaped hashes": "\\#" * 50_000,
    "headers": "#Question#" * 10_000,
    "headers at lines": "#Reasoning#\n#Draft#\n#Question#\n" * 3000,
    "final": "# final" + " " * 50_000,
    "thoughts": "<think>" * 10_000,
    "ends of thoughts": "</think>" * 10_000,
    "open boxes": "#Draft# " + "\\boxed{" * 10_000,
    "lines": "\n" * 100_000,
    "marks": ">" * 100_000 + "#Question#q",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_are_read_at_once(text):
    start = time.process_time()
    parse_turn(stop(text))
    parse_turn(stop(turn("q") + text))
    parse_turn(stop(text + turn("q")))
    assert time.process_time() - start < 3


def test_a_question_is_cut_to_its_words():
    words = [f"w{i}" for i in range(250)]
    read = parse_turn(stop(turn("  ".join(words))))
    assert read.cut and read.malformed is None
    assert read.question == "  ".join(words[:200])
    assert parse_turn(stop(turn(" ".join(words[:200])))).cut is False
    assert parse_turn(stop(turn("one two three")), words=2).question == "one two"


def test_a_question_without_blanks_is_cut_to_characters():
    read = parse_turn(stop(turn("字" * 100_000)))
    assert read.cut and read.question == "字" * (200 * CHARACTERS_A_WORD)
    assert parse_turn(stop(turn("x" * 40)), words=2).cut is False


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("a b c", 3, ("a b c", False)),
        ("a b c", 2, ("a b", True)),
        (" a\n\nb  c ", 2, (" a\n\nb", True)),
        ("", 1, ("", False)),
        ("a b ", 2, ("a b ", False)),
    ],
)
def test_cut_words(text, limit, expected):
    assert cut_words(text, limit) == expected


def test_what_is_sent_on_can_be_sent():
    read = parse_turn(stop(turn("What\0 is\x1b 2\ud800+2?\tYes\nno")))
    assert read.question == "What is 2\ufffd+2?\tYes\nno"
    assert printable("a\r\n\tb\x7f\udfff") == "a\r\n\tb\ufffd"
    read.question.encode("utf-8")


plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="#<\\`"), max_size=40)


@UNHURRIED
@given(reasoning=plain, draft=plain, question=plain, style=st.sampled_from(["#{}#\n", "## {}\n", "**#{}#** ", "#{}# "]))
def test_private_text_never_reaches_the_question(reasoning, draft, question, style):
    names = ("Reasoning", "Draft", "Question")
    private = (f"{REASONING} {reasoning}", f"{DRAFT} {draft} \\boxed{{4}}", f"what {question} is it")
    parts = [style.format(name) + body for name, body in zip(names, private, strict=True)]
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        read = parse_turn(stop("\n".join(parts[i] for i in order)))
        assert read.question is not None and read.question.startswith("what") and read.question.endswith("is it")
        assert REASONING not in read.question and DRAFT not in read.question
        assert compare(read.draft_answer, "4").value == "same"


@UNHURRIED
@given(st.text(max_size=200))
def test_any_text_is_read(text):
    read = parse_turn(stop(text))
    assert (read.question is None) == (read.malformed is Malformed.NO_QUESTION)


@UNHURRIED
@given(
    st.lists(
        st.sampled_from(["#Reasoning#", "#Draft#", "#Question#", "\n", "x y", "\\boxed{1}", "**", "# "]), max_size=14
    )
)
def test_any_order_of_headers_is_read(parts):
    text = " ".join(parts)
    read = parse_turn(stop(text))
    assert read.question is None or read.question in text
