import itertools
import re

import pytest
from aske_helpers import DRAFT, PACK, REASONING, UNHURRIED, cut, failed, late, session, solved, stop, turn
from hypothesis import given
from hypothesis import strategies as st

from aske import AskePack, Label, Malformed, Reason, Rules, State, load_pack
from aske.game import shown
from selfevolve.sampling import FinishReason, Message, Reply

TESTBED = load_pack("testbed")
FULL = Reply("", FinishReason.ERROR, error="context_exhausted")


def text(prompt) -> str:
    return "\n".join(m.content for m in prompt)


# ------------------------------------------------------------------ the course of a session


def test_a_session_of_two_probes():
    s = session(probes=2, checks=3)
    prompts = []
    for number in (1, 2, 3):
        assert (s.state, s.left, s.final, s.final_question) == (State.ASKER, 3 - number, number == 3, None)
        s.hear_asker(stop(turn(f"What is {number}+{number}?")))
        assert (s.state, s.question, s.final) == (State.BOUNDARY, f"What is {number}+{number}?", number == 3)
        prompts.append(s.boundary_prompt())
        s.hear_boundary(stop(solved(str(2 * number))), stop(solved("0")))
    assert (s.state, s.final_question) == (State.CROSS_CHECK, "What is 3+3?")
    assert s.cross_check_prompt() == prompts[-1]
    s.hear_cross_check([stop(solved("6"))] * 3)
    assert s.over and s.result is not None and s.result.label is Label.CALIBRATED
    assert [m.role for m in s.messages] == ["system", "user", *["assistant", "user"] * 2, "assistant"]
    assert "Probes left: 1" in s.messages[3].content and "No probes are left" in s.messages[5].content


def test_without_probes_the_first_question_is_the_final_one():
    s = session(probes=0)
    assert s.final and "probe" not in text(s.asker_prompt())
    s.hear_asker(stop(turn("q1")))
    s.hear_boundary(stop(solved("1")), stop(solved("1")))
    s.hear_cross_check([stop(solved("1"))])
    assert s.result is not None and s.result.label is Label.TOO_EASY


def test_nothing_is_heard_out_of_turn():
    s = session()
    for wrong in (
        s.boundary_prompt,
        s.cross_check_prompt,
        lambda: s.hear_boundary(stop(""), stop("")),
        lambda: s.hear_cross_check([]),
    ):
        with pytest.raises(RuntimeError, match="session s waits for asker"):
            wrong()
    s.hear_asker(stop(turn("q1")))
    with pytest.raises(RuntimeError, match="waits for boundary, not for asker"):
        s.asker_prompt()
    s.end(Reason.HTTP, "gone")
    with pytest.raises(RuntimeError, match="is over"):
        s.end(Reason.TIMEOUT, "later")
    with pytest.raises(RuntimeError, match="waits for over"):
        s.hear_asker(stop(turn("q1")))
    assert s.result is not None and s.result.reason is Reason.HTTP


def test_the_number_of_cross_checks_is_the_rules():
    s = session(probes=0, checks=3)
    s.hear_asker(stop(turn("q1")))
    s.hear_boundary(stop(solved("1")), stop(solved("2")))
    with pytest.raises(ValueError, match="1 cross-checks are given; the rules ask for 3"):
        s.hear_cross_check([stop(solved("1"))])


@pytest.mark.parametrize("wrong", [{"probes": -1}, {"checks": 0}, {"question_words": 0}, {"reply_chars": 0}])
def test_rules_are_checked(wrong):
    with pytest.raises(ValueError, match="probes must be 0 or more"):
        Rules(**wrong)


# ------------------------------------------------------------------ malformed and failed turns


def test_a_probe_without_a_question_is_lost_and_said_so():
    s = session(probes=2)
    s.hear_asker(stop("I do not know what to ask."))
    assert (s.state, s.left, s.malformed) == (State.ASKER, 1, 1)
    assert s.messages[-1] == PACK.after_lost(1) and "this probe is lost. Probes left: 1" in s.messages[-1].content
    s.hear_asker(cut("#Question#\nhalf a qu"))
    assert (s.left, s.malformed, s.final) == (0, 2, True)
    assert s.messages[-1] == PACK.after_lost(0) and "No probes are left" in s.messages[-1].content


@pytest.mark.parametrize(
    ("reply", "problem"), [(stop("nothing"), "no_question"), (cut(turn("q1")), "cut_off"), (stop(""), "no_question")]
)
def test_a_final_turn_without_a_question(reply, problem):
    s = session(probes=0)
    s.hear_asker(reply)
    assert s.over and s.result is not None
    assert (s.result.label, s.malformed, s.final_question) == (Label.NO_QUESTION, 1, None)
    assert problem in s.result.detail


def test_malformed_is_counted_once_a_turn():
    """A turn that lacks reasoning, draft and box is one malformed turn, and its question still counts."""
    s = session(probes=1)
    s.hear_asker(stop("#Question#\nq1"))
    assert (s.state, s.malformed) == (State.BOUNDARY, 1)
    s.hear_boundary(stop(solved("1")), stop(solved("1")))
    s.hear_asker(stop("#Draft#\nno box\n#Question#\nq2"))
    assert s.malformed == 2 and s.turns[1].malformed is Malformed.NO_REASONING
    s.hear_boundary(stop(solved("1")), stop(solved("2")))
    s.hear_cross_check([stop(solved("1"))])
    assert s.malformed == 2 and s.result is not None and s.result.label is Label.CALIBRATED


@pytest.mark.parametrize(
    ("reply", "reason"), [(failed(), Reason.HTTP), (late(), Reason.TIMEOUT), (FULL, Reason.CONTEXT_EXHAUSTED)]
)
def test_a_failed_call_to_the_asker(reply, reason):
    s = session(probes=1)
    s.hear_asker(reply)
    assert s.over and s.result is not None and s.result.reason is reason and s.malformed == 0
    assert s.result.detail.startswith("asker, turn 1: ")


@pytest.mark.parametrize(("a", "b"), list(itertools.product(["ok", "cut", "failed", "late"], repeat=2)))
def test_solvers_that_fail_in_a_probe(a, b):
    replies = {"ok": stop(solved("1")), "cut": cut("half"), "failed": failed(), "late": late()}
    reasons = {"failed": Reason.HTTP, "late": Reason.TIMEOUT}
    s = session(probes=1)
    s.hear_asker(stop(turn("q1")))
    s.hear_boundary(replies[a], replies[b])
    first = next((x for x in (a, b) if x in reasons), None)
    if first is None:
        assert s.state is State.ASKER
        assert s.messages[-1].content.count("Final answer: none") == (a, b).count("cut")
    else:
        assert s.over and s.result is not None and s.result.reason is reasons[first]
        assert f"boundary_{'a' if a in reasons else 'b'}, probe 1" in s.result.detail


def test_a_solver_that_fails_in_the_final_turn_is_graded_with_the_cross_check():
    s = session(probes=0)
    s.hear_asker(stop(turn("q1")))
    s.hear_boundary(failed("500"), stop(solved("1")))
    assert s.state is State.CROSS_CHECK
    s.hear_cross_check([stop(solved("1"))])
    assert s.result is not None and s.result.reason is Reason.HTTP and s.result.answer == "1"


# ------------------------------------------------------------------ what the asker reads


def test_the_pair_is_shown_in_its_order_or_flipped():
    for flip in (False, True):
        s = session(probes=1, flip=flip)
        s.hear_asker(stop(turn("q1")))
        s.hear_boundary(stop(solved("1", "I am a.")), stop(solved("2", "I am b.")))
        said = s.messages[-1].content
        first, second = said.index("I am a."), said.index("I am b.")
        assert (first < second) is not flip
        assert re.search(r"Solver 1:\n" + ("I am b." if flip else "I am a."), said)


def test_the_flip_changes_no_label():
    for flip in (False, True):
        s = session(probes=0, flip=flip)
        s.hear_asker(stop(turn("q1")))
        s.hear_boundary(stop(solved("1")), stop(solved("2")))
        s.hear_cross_check([stop(solved("1"))])
        assert s.result is not None and [m.value for m in s.result.marks] == ["right", "wrong"]


@pytest.mark.parametrize(
    ("origin", "reply", "expected"),
    [
        ("summary", stop("work\nSummary: short.\n\\boxed{4}"), "short.\n\\boxed{4}\nFinal answer: 4"),
        ("last of two", stop("Summary: old. Summary: new. \\boxed{4}"), "new. \\boxed{4}\nFinal answer: 4"),
        ("capitals", stop("SUMMARY: short. \\boxed{4}"), "short. \\boxed{4}\nFinal answer: 4"),
        ("bold", stop("**Summary:** short. \\boxed{4}"), "short. \\boxed{4}\nFinal answer: 4"),
        ("no summary", stop("work \\boxed{4}"), "work \\boxed{4}\nFinal answer: 4"),
        ("thinking", stop("<think>long</think>work \\boxed{4}"), "work \\boxed{4}\nFinal answer: 4"),
        ("thinking, opened by the template", stop("long</think>work \\boxed{4}"), "work \\boxed{4}\nFinal answer: 4"),
        ("thinking never closed", stop("<think>long \\boxed{4}"), "\nFinal answer: none"),
        ("thinking opened again", stop("<think>a</think>b<think>c"), "\nFinal answer: none"),
        ("no answer", stop("I give up."), "I give up.\nFinal answer: none"),
        ("cut off", cut("work \\boxed{4}"), "work \\boxed{4}\nFinal answer: none"),
        ("nothing", stop(""), "\nFinal answer: none"),
        ("placeholders", stop("{answer} {summary} \\boxed{4}"), "{answer} {summary} \\boxed{4}\nFinal answer: 4"),
        ("unprintable", stop("a\0b\ud800 \\boxed{4}"), "ab\ufffd \\boxed{4}\nFinal answer: 4"),
    ],
)
def test_what_is_shown(origin, reply, expected):
    assert shown(reply, PACK, 2000) == expected


def test_what_is_shown_in_the_testbed():
    assert shown(stop("<think> 3 + 4 = 7 </think> \\boxed{ 7 }"), TESTBED, 2000) == "3 + 4 = 7 \\boxed{ 7}"
    assert shown(stop("\\boxed{ 7 }"), TESTBED, 2000) == " \\boxed{ 7}"
    assert shown(stop("<think> 3 + "), TESTBED, 2000) == " \\boxed{ guess}"


@pytest.mark.parametrize("limit", [1, 20, 50, 2000])
def test_the_summary_is_cut_and_the_answer_kept(limit):
    said = shown(stop("x" * 5000 + " \\boxed{123456789}"), PACK, limit)
    assert len(said) == limit
    assert said.endswith("123456789") is (limit >= len("\nFinal answer: 123456789"))
    assert len(shown(stop(solved("9" * 5000)), PACK, limit)) == limit  # the answer alone is too long


def test_a_spoken_placeholder_is_not_filled():
    s = session(probes=1)
    s.hear_asker(stop(turn("What is {shown_2} and {left}?")))
    assert text(s.boundary_prompt()).endswith("What is {shown_2} and {left}?")
    s.hear_boundary(stop("{shown_2} \\boxed{1}"), stop("{left} {probes} \\boxed{2}"))
    assert "{shown_2} \\boxed{1}" in s.messages[-1].content and "{left} {probes} \\boxed{2}" in s.messages[-1].content


# ------------------------------------------------------------------ who learns what

NAMES = ("gpt-secret-a", "gpt-secret-b")
replies = st.sampled_from(
    [stop(solved("4")), stop(solved("5")), stop("no idea"), cut("half"), stop("<think>x</think>\\boxed{4}")]
)
styles = st.sampled_from(["#{}#\n", "## {}\n", "**#{}#**\n", "# {} # "])
words = st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="#<\\`*_"), max_size=30)


@UNHURRIED
@given(
    st.lists(st.tuples(styles, words, replies, replies), min_size=3, max_size=3),
    st.booleans(),
    st.permutations([0, 1, 2]),
)
def test_privacy(turns, flip, order):
    """Reasoning and draft stay with the asker; names, marks and verdicts never come to it; solvers see one question."""
    s = session(probes=2, checks=1, flip=flip)
    for number, (style, said, a, b) in enumerate(turns):
        question = f"question{number} {said} end{number}"
        parts = [f"{REASONING} {said}", f"{DRAFT} {said} \\boxed{{{number}77}}", question]
        headed = [
            style.format(name) + part for name, part in zip(("Reasoning", "Draft", "Question"), parts, strict=True)
        ]
        prompt = text(s.asker_prompt())
        assert not [
            word
            for word in ("right", "wrong", "calibrated", "too_easy", *NAMES)
            if word in prompt.partition("Write your first probe")[2]
        ]
        s.hear_asker(stop("\n".join(headed[i] for i in order)))
        asked = s.boundary_prompt()
        assert asked == PACK.solver(question.strip())
        assert not [leak for leak in (REASONING, DRAFT, f"{number}77", f"question{number - 1} ") if leak in text(asked)]
        s.hear_boundary(a, b)
    assert s.cross_check_prompt() == asked


def test_the_asker_never_hears_of_the_verdict():
    s = session(probes=0)
    s.hear_asker(stop(turn("q1")))
    before = list(s.messages)
    s.hear_boundary(stop(solved("1", "I am gpt-secret-a.")), stop(solved("2")))
    s.hear_cross_check([stop(solved("1"))])
    assert s.messages == before


def test_a_lost_probe_tells_the_solvers_nothing():
    s = session(probes=1)
    s.hear_asker(stop(f"#Reasoning#\n{REASONING}\n#Draft#\n{DRAFT} \\boxed{{4}}"))
    assert s.state is State.ASKER
    s.hear_asker(stop(turn("q2")))
    assert s.boundary_prompt() == PACK.solver("q2")


def test_the_transcript_can_be_sent():
    s = session(probes=1)
    s.hear_asker(stop("\ud800\0" + turn("q\udfff1")))
    s.hear_boundary(stop("\ud800 \\boxed{\ud801}"), stop("\0"))
    text(s.asker_prompt()).encode("utf-8")
    assert "\0" not in text(s.asker_prompt())


def test_an_opening_of_ones_own_is_kept():
    pack = AskePack(**{**{f: getattr(PACK, f) for f in PACK.__dataclass_fields__}, "asker_system": None})
    assert [m.role for m in session(pack=pack).messages] == ["user"]
    given = [Message("user", "go")]
    assert session(messages=given).asker_prompt() == (Message("user", "go"),)
