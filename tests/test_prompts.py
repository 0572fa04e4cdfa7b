"""Prompt packs."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfevolve.errors import UserError
from selfevolve.prompts import PLAIN, STANDARD, TESTBED, load_pack
from selfevolve.testbed import tasks


def test_the_testbed_pack_is_what_its_backbones_were_trained_on() -> None:
    a, b = "what is 1 + 2 - 3?", "x {question_b}?"
    assert TESTBED.ask()[-1].content == tasks.ask_prompt()
    assert TESTBED.solve(a)[-1].content == tasks.solve_prompt(a)
    assert TESTBED.check(a)[-1].content == tasks.check_prompt(a)
    assert TESTBED.same_type(a, b)[-1].content == tasks.judge_prompt(a, b)


def test_the_standard_pack_keeps_tags_and_verdict_words() -> None:
    ask = "\n".join(m.content for m in STANDARD.ask())
    assert "<question>" in ask and "</question>" in ask and "\\boxed{" in ask
    check = STANDARD.check("Q {x}?")[-1].content
    assert "Q {x}?" in check and "INVALID" in check and "<think>" in check
    same = STANDARD.same_type("first?", "second?")[-1].content
    assert "SAME_TYPE" in same and "DIFFERENT" in same
    assert same.index("first?") < same.index("second?")
    assert STANDARD.solve("Q?")[-1].content == "Q?" and "\\boxed{" in STANDARD.solve("Q?")[0].content


def test_the_plain_pack_asks_for_no_think_tags() -> None:
    check = PLAIN.check("Q?")[-1].content
    assert "Q?" in check and "INVALID" in check and "\\boxed{}" in check and "<think>" not in check
    assert PLAIN.ask() == STANDARD.ask() and PLAIN.solve("Q?") == STANDARD.solve("Q?")
    assert load_pack("plain") is PLAIN


def test_texts_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("solve: 'Do: {question}'\nask: Write one.\n")
    pack = load_pack(str(path))
    assert pack.name == "mine"
    assert pack.solve("1+1")[-1].content == "Do: 1+1"
    assert pack.ask()[-1].content == "Write one."
    assert pack.check("q") == STANDARD.check("q")


@pytest.mark.parametrize(
    ("text", "words"),
    [("solve: no place", "lacks the placeholder {question}"), ("sovle: x", "must map some of"), ("- a", "must map")],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=words.replace("{", r"\{").replace("}", r"\}")):
        load_pack(str(path))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError, match="none of testbed, standard, plain"):
        load_pack("standrad")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"solve: [1", "not readable as YAML"),
        (b"solve: a {question}\nsolve: b {question}\n", "stands twice"),
        (b"solve: {question}\n", "in quotes"),
        (b"ask: 2e-6\n", "ask: 2e-06"),
        (b"answer: x\n", "it holds 'answer'"),
        (b"# mine\n- x\n", "holds a list"),
        (b"ask: \xff\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_pack_is_a_clean_error(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(text)
    with pytest.raises(UserError) as raised:
        load_pack(str(path))
    assert said in str(raised.value) and "mine.yaml" in str(raised.value)
