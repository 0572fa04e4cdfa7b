"""Reading replies, voting, the gate value, the prompt."""

import pytest

from selfevolve.sampling import FinishReason, Reply, Sampling, ScriptedSampler
from validity import (
    INVALID,
    ValidityDecision,
    Verdict,
    gate_value,
    is_rejection,
    read_verdict,
    validity_prompt,
    vote_validity,
    why_unread,
)
from validity.prompts import VALIDITY_TEMPLATE

V, X, U = Verdict.VALID, Verdict.INVALID, Verdict.UNDECIDED


def stopped(text: str) -> Reply:
    return Reply(text, FinishReason.STOP)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"<think>x</think> \boxed{INVALID}", X),
        (r"<think>x</think> \boxed{ invalid }", X),
        (r"<think>x</think> \boxed{Invalid.}", X),
        (r"<think>x</think> \boxed{\text{INVALID}}", X),
        (r"<think>x</think> \boxed{\textbf{\text{Invalid}}}", X),
        (r"<think>x</think> \boxed{$\mathrm{INVALID}$}", X),
        (r"<think>x</think> \fbox{INVALID}", X),
        (r"<think>x</think> \boxed{12}", V),
        (r"<think>x</think> \boxed{INVALID question}", V),  # the word alone rejects, nothing around it
        (r"<think>x</think> \boxed{not INVALID}", V),
        (r"<think>x</think> \boxed{VALID}", V),
        (r"<think>I might say \boxed{INVALID}.</think> \boxed{12}", V),  # the final box decides
        (r"<think>x</think> The question is INVALID. \boxed{12}", V),
        (r"<think>x</think> The question is INVALID.", U),
        (r"<think>x</think> \boxed{}", U),
        (r"<think>x</think> \boxed{ }", U),
        ("", U),
    ],
)
def test_read_verdict(text: str, expected: Verdict) -> None:
    assert read_verdict(stopped(text)) is expected


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.TIMEOUT, FinishReason.ERROR])
def test_only_a_complete_reply_casts_a_vote(reason: FinishReason) -> None:
    assert read_verdict(Reply(r"<think>x</think> \boxed{INVALID}", reason)) is U
    assert read_verdict(Reply(r"<think>x</think> \boxed{12}", reason)) is U
    assert why_unread(Reply(r"<think>x</think> \boxed{12}", reason)) == reason.value


def test_why_a_complete_reply_casts_no_vote():
    assert why_unread(stopped("The question is INVALID.")) == why_unread(stopped(r"\boxed{ }")) == "no_box"
    assert why_unread(stopped(r"\boxed{12}")) is None and why_unread(stopped(r"\boxed{INVALID}")) is None


@pytest.mark.parametrize(
    "answer",
    ["", "VALID", "INVALIDS", r"\text{}", r"\frac{1}{2}", "in valid", r"\text{" * 20_000 + "INVALID" + "}" * 20_000],
)
def test_other_contents_are_no_rejection(answer: str) -> None:
    assert not is_rejection(answer)


@pytest.mark.parametrize(
    ("invalid", "valid", "undecided", "u", "decision", "gate"),
    [
        (5, 4, 0, 5 / 9, "invalid", 1 / 2 - 5 / 9),
        (4, 5, 0, 4 / 9, "valid", 1 / 2 - 4 / 9),
        (4, 4, 1, 1 / 2, "valid", 0.0),  # exactly half is not more than half
        (3, 2, 4, 3 / 5, "invalid", -0.1),  # 5 of 9 answered: enough
        (3, 1, 5, 3 / 4, "undecided", None),  # 4 of 9 answered: too few
        (9, 0, 0, 1.0, "invalid", -0.5),
        (0, 9, 0, 0.0, "valid", 0.5),
        (0, 0, 9, None, "undecided", None),
        (0, 0, 0, None, "undecided", None),
        (2, 2, 4, 1 / 2, "valid", 0.0),  # half of 8 answered: at least half
    ],
)
def test_vote_over_answered(
    invalid: int, valid: int, undecided: int, u: float | None, decision: str, gate: float | None
) -> None:
    vote = vote_validity([X] * invalid + [V] * valid + [U] * undecided)
    assert (vote.invalid, vote.valid, vote.undecided) == (invalid, valid, undecided)
    assert vote.asked == invalid + valid + undecided
    assert vote.answered == invalid + valid
    assert vote.u == pytest.approx(u)
    assert vote.decision is ValidityDecision(decision)
    assert gate_value(vote) == pytest.approx(gate)


def test_the_papers_way_divides_by_all_asked() -> None:
    replies = [X] * 4 + [V] * 1 + [U] * 4
    assert vote_validity(replies).decision is ValidityDecision.INVALID  # 4 of 5
    by_asked = vote_validity(replies, denominator="asked")
    assert by_asked.u == pytest.approx(4 / 9)
    assert by_asked.decision is ValidityDecision.VALID
    silent = vote_validity([U] * 9, denominator="asked", min_answered=0)
    assert (silent.u, silent.decision, gate_value(silent)) == (0.0, ValidityDecision.VALID, 0.5)


def test_gate_is_negative_exactly_for_invalid() -> None:
    for invalid in range(10):
        for valid in range(10 - invalid):
            vote = vote_validity([X] * invalid + [V] * valid + [U] * (9 - invalid - valid))
            gate = gate_value(vote)
            assert (gate is not None and gate < 0) == (vote.decision is ValidityDecision.INVALID)
            assert (gate is None) == (vote.decision is ValidityDecision.UNDECIDED)


def test_vote_record() -> None:
    assert vote_validity([X, X, V, V, V, V, V, V, U]).to_json() == {
        "decision": "valid",
        "invalid": 2,
        "valid": 6,
        "undecided": 1,
        "asked": 9,
        "u": 0.25,
    }


def test_vote_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"'most'.*'answered' or 'asked'"):
        vote_validity([V], denominator="most")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"1.5.*\[0, 1\]"):
        vote_validity([V], min_answered=1.5)


def test_prompt_keeps_the_question_as_it_is() -> None:
    question = r"Let $S=\{1,2\}$ and {question} stay. Find $\frac{1}{2}$."
    (message,) = validity_prompt(question)
    assert message.role == "user"
    assert message.content.startswith(f"Question: {question}\n")
    for part in ("step", "INVALID", "<think>", "</think>", r"\boxed{}", "hard"):
        assert part in message.content
    assert message.content.count(question) == 1


def test_prompt_template_needs_the_placeholder_once() -> None:
    with pytest.raises(ValueError, match="0 times"):
        validity_prompt("q", "Solve it.")
    with pytest.raises(ValueError, match="2 times"):
        validity_prompt("q", "{question} {question}")
    assert VALIDITY_TEMPLATE.count("{question}") == 1


def test_prompt_to_vote_with_a_scripted_model() -> None:
    replies = [r"<think>a</think> \boxed{INVALID}", r"<think>b</think> \boxed{3}", "no box"]
    sampler = ScriptedSampler(lambda _prompt, i: replies[i % 3])
    (drawn,) = sampler.sample([validity_prompt("What is 1 + 2?")], Sampling(n=9))
    vote = vote_validity(map(read_verdict, drawn))
    assert (vote.invalid, vote.valid, vote.undecided) == (3, 3, 3)
    assert vote.decision is ValidityDecision.VALID
    assert INVALID == "INVALID"
