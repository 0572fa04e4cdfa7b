"""The initialisation set: deduplicated, the same number from each round, split, labelled, kept on disk."""

import json
from collections import Counter
from pathlib import Path

import pytest

from validity import (
    INVALID,
    InitialisationExample,
    Label,
    Split,
    build_initialisation_set,
    read_examples,
    write_examples,
)
from validity.initialisation import deduplicate, normalise


def label(question: str) -> Label | None:
    number = int(question.split()[-1])
    if number % 10 == 9:
        return None
    return Label(INVALID, "contradiction") if number % 2 else Label(str(number))


def rounds(count: int, size: int) -> dict[int, list[str]]:
    return {r: [f"Question number {1000 * r + i}" for i in range(size)] for r in range(1, count + 1)}


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Find $x$ if $2x=8$.", r"Find \(x\)  if \( 2x = 8 \) .", True),
        (r"Compute $\dfrac{1}{2}+\dfrac{1}{3}$.", r"Compute $\frac{1}{2} + \frac{1}{3}$.", True),
        ("Find $x$ if $2x=8$.", "Find $x$ if $2x=18$.", False),
        ("What is 12 plus 3?", "What is 1 2 plus 3?", False),
        ("Add 1\tand\n2.", " Add 1 and 2. ", True),
        ("Find n.", "Find N.", False),
        ("x - 1", "x \N{MINUS SIGN} 1", True),
        ("Compute 3\N{SUPERSCRIPT TWO}.", "Compute 32.", False),
    ],
)
def test_what_counts_as_the_same_text(first: str, second: str, same: bool) -> None:
    assert (normalise(first) == normalise(second)) is same


def test_duplicates_within_and_across_rounds_go_to_the_lowest_round() -> None:
    found = deduplicate({2: ["b", "c", "c "], 1: ["a", "b", " a", ""]})
    assert found == {1: ["a", "b"], 2: ["c"]}


def test_same_number_from_each_round_and_split() -> None:
    built = build_initialisation_set(rounds(5, 100), lambda q: Label(q), train=40, held_out=6, seed=3)
    assert Counter((e.round, e.split) for e in built.examples) == {
        (r, s): n for r in range(1, 6) for s, n in ((Split.TRAIN, 40), (Split.HELD_OUT, 6))
    }
    assert len({e.question for e in built.examples}) == 230
    assert all(int(e.question.split()[-1]) // 1000 == e.round for e in built.examples)
    assert len(built.split(Split.HELD_OUT)) == 30
    assert (built.duplicates, built.unlabelled) == (0, 0)


def test_default_sizes_are_the_papers() -> None:
    built = build_initialisation_set(rounds(5, 470), lambda q: Label(q))
    assert (len(built.split(Split.TRAIN)), len(built.split(Split.HELD_OUT))) == (2000, 300)


def test_labels_and_what_is_dropped() -> None:
    built = build_initialisation_set(rounds(2, 100), label, train=90, held_out=10)
    assert len(built.examples) == 180
    assert built.unlabelled == 20
    for example in built.examples:
        number = int(example.question.split()[-1])
        assert example.valid == (number % 2 == 0)
        assert example.answer == (str(number) if example.valid else "INVALID")
        assert example.error_type == (None if example.valid else "contradiction")


def test_draws_depend_on_seed_and_round_only() -> None:
    def drawn(questions: dict[int, list[str]], seed: int) -> list[str]:
        built = build_initialisation_set(questions, lambda q: Label(q), train=8, held_out=2, seed=seed)
        return [e.question for e in built.examples if e.round == 2]

    both = rounds(2, 100)
    assert drawn(both, 1) == drawn(both, 1)
    assert drawn(both, 1) != drawn(both, 2)
    assert drawn({2: both[2]}, 1) == drawn(both, 1)


def test_a_round_with_too_few_is_named_before_anything_is_labelled() -> None:
    questions = {1: [f"q {i}" for i in range(20)], 2: [f"q {i}" for i in range(15, 25)]}  # 5 of round 2 are new

    def never(question: str) -> Label:
        raise AssertionError(question)

    with pytest.raises(ValueError, match=r"round 2 has 5 distinct .* 6 a round .* at most 5"):
        build_initialisation_set(questions, never, train=4, held_out=2)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="train is 0 and held_out 0"):
        build_initialisation_set(rounds(1, 5), label, train=0, held_out=0)
    with pytest.raises(ValueError, match="no rounds"):
        build_initialisation_set({}, label)
    with pytest.raises(ValueError, match=r"label of 'Question number 100.' is blank"):
        build_initialisation_set(rounds(1, 5), lambda q: Label(" "), train=1, held_out=0)


def test_jsonl_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    examples = [
        InitialisationExample("Größe\n{x}?", r"\frac{1}{2}", None, 1, Split.TRAIN),
        InitialisationExample("x = x + 1?", INVALID, "no_solution", 2, Split.HELD_OUT),
    ]
    write_examples(path, examples)
    assert read_examples(path) == examples
    assert [p.name for p in tmp_path.iterdir()] == ["data.jsonl"]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"question": "q"}',
        '{"question": "q", "answer": "1", "error_type": null, "round": 1, "split": "test"}',
        '{"question": "q", "answer": ["1"], "error_type": null, "round": 1, "split": "train"}',
        '{"question": "q", "answer": true, "error_type": null, "round": 1, "split": "train"}',
        '{"question": 7, "answer": "1", "error_type": null, "round": 1, "split": "train"}',
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "data.jsonl"
    write_examples(path, [InitialisationExample("q", "1", None, 1, Split.TRAIN)])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match="line 2"):
        read_examples(path)


def test_rows_without_an_answer_to_check_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data.jsonl"
    base = {"question": "q", "answer": "12", "error_type": None, "round": 1, "split": "train"}
    kept = [{}, {"answer": 12}, {"answer": 0.5}, {"answer": "0"}, {"answer": "no solution"}]
    kept += [{"answer": INVALID}, {"answer": INVALID, "error_type": "contradiction"}]
    dropped = [{"answer": a} for a in ("proof", "Proof.", "notfound", "not_found", "None", "", "  ", None)]
    dropped += [{"question": " "}, {"question": None}, {"error_type": "proof"}]
    path.write_text("".join(json.dumps(base | change) + "\n" for change in [*kept, *dropped]))
    found = read_examples(path)
    assert [e.answer for e in found] == ["12", "12", "0.5", "0", "no solution", INVALID, INVALID]
    assert f"{len(dropped)} of {len(kept) + len(dropped)} rows left out" in caplog.text
    assert "3 with no answer" in caplog.text and "2 with the answer 'proof'" in caplog.text


def test_a_file_is_parted_at_line_feeds_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "data.jsonl"
    examples = [
        InitialisationExample(f"one{mark}two", "1", None, 1, Split.TRAIN) for mark in "\u2028\u2029\x85\x0c\x1c"
    ]
    write_examples(path, examples)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n\n"))  # as an editor may leave it
    assert read_examples(path) == examples
    assert not caplog.records
