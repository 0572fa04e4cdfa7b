# ruff: noqa: RUF001
"""The majority vote."""

from __future__ import annotations

import dataclasses

import pytest

from selfevolve.answers import Vote, vote, vote_many


def test_votes_are_for_values() -> None:
    found = vote(["0.75", r"\frac{3}{4}", "2", "3/4", "6/8"])
    assert found == Vote("0.75", 0.8, 5, 5, False, (("0.75", 4), ("2", 1)))


def test_a_missing_answer_casts_no_vote() -> None:
    answers = ["", "None", None, "6", "x = 6", "none", r"\text{None}"]
    found = vote(answers)
    assert (found.answer, found.share, found.counted, found.asked) == ("6", 1.0, 2, 7)
    assert vote(answers, denominator="asked").share == pytest.approx(2 / 7)
    assert found.share_of_asked == pytest.approx(2 / 7)
    assert found.clusters == (("6", 2),)


@pytest.mark.parametrize("answers", [[], ["", None, "None"]])
def test_nothing_answered(answers: list[str | None]) -> None:
    assert vote(answers) == Vote(None, 0.0, 0, len(answers), False, ())
    assert vote(answers).share_of_asked == 0.0


def test_five_unboxed_replies_are_no_cluster() -> None:
    found = vote(["None"] * 5 + ["7"] * 5)
    assert (found.answer, found.share, found.tie) == ("7", 1.0, False)
    assert found.share_of_asked == 0.5


def test_a_tie_goes_to_the_cluster_first_reached() -> None:
    found = vote(["4", "5", "5.0", "4.0", "9"])
    assert (found.answer, found.share, found.tie) == ("4", 0.4, True)
    assert found.clusters == (("4", 2), ("5", 2), ("9", 1))
    assert vote(["5", "4", "4", "5"]).answer == "5"
    assert not vote(["5", "4", "4"]).tie


def test_clusters_by_size_then_by_first_reached() -> None:
    assert vote(["1", "2", "3", "2", "3"]).clusters == (("2", 2), ("3", 2), ("1", 1))


def test_invalid_is_an_answer() -> None:
    found = vote(["INVALID", "invalid", "3"])
    assert found.clusters == (("INVALID", 2), ("3", 1))


def test_spellings_of_one_value_share_a_cluster() -> None:
    spellings = [
        ["1024", "2^{10}", "1,024", "1024.0", r"\text{1024}", "x=1024"],
        [r"\{1,2\}", r"\{2, 1\}", "1, 2", "2,1", r"x=1 \text{ or } x=2"],
        ["-5", "−5", "x = -5"],
        [r"2\sqrt{2}", r"\sqrt{8}", r"\sqrt8"],
        ["(x+1)^2", "x^2+2x+1"],
        [r"\frac12", "50%", "0.5"],
    ]
    for same in spellings:
        assert vote(same).clusters == ((same[0], len(same)),), same


def test_huge_answers_do_not_stop_the_vote() -> None:
    found = vote(["9^{9^{9^{9}}}", "5", "9^{9^{9^{9}}}", "((9!)!)!", "5", "5"])
    assert found.answer == "5" and found.clusters[0][1] == 3


def test_clusters_do_not_depend_on_the_order_of_the_samples() -> None:
    samples = [
        "(1,3)",
        "1<x<3",
        "]1,3[",
        "5 ft 6 in",
        "66 in",
        "no solutions",
        r"\emptyset",
        "Jan 3, 2001",
        "2001-01-03",
    ]
    samples += ["0.12345678901", "0.12345678902", "2 to 7", "7 to 2", "22:00", "10 a.m."]
    for turn in range(len(samples)):
        found = vote(samples[turn:] + samples[:turn])
        assert sorted(size for _, size in found.clusters) == sorted([3, 2, 2, 2, 1, 1, 1, 1, 1, 1]), turn


def test_vote_many_and_frozen() -> None:
    votes = vote_many([["1", "1"], [None]], "asked")
    assert [v.share for v in votes] == [1.0, 0.0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        votes[0].share = 0.5  # type: ignore[misc]


def test_unknown_denominator() -> None:
    with pytest.raises(ValueError, match="'answered' or 'asked'"):
        vote(["1"], "all")  # type: ignore[arg-type]
