"""The assessment, end to end on scripted replies, with every number worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from novelty import KSampledGate, SameType
from selfevolve.assess import AssessmentSettings, Assessor
from selfevolve.prompts import STANDARD
from selfevolve.questions import read_candidate
from selfevolve.records import Candidate, Decision
from selfevolve.rewards import r_quest, r_zero_code
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling, ScriptedSampler

SETTINGS = AssessmentSettings(
    votes=3, solutions=4, share_low=0.3, share_high=0.8, denominator="answered", min_answered=0.5,
    min_answered_votes=0.5, sampling=Sampling(max_tokens=50),
)  # fmt: skip

# question -> (validity replies, solutions); a Reply stands for itself, a word for a boxed answer
CUT = Reply("so far", FinishReason.LENGTH)
WORLD: dict[str, tuple[list[str | Reply], list[str | Reply]]] = {
    "half": (["1", "2", "INVALID"], ["7", "7", "8", "9"]),
    "flawed": (["INVALID", "INVALID", "4"], ["unused"] * 4),
    "easy": (["5", "5", "5"], ["5", "5", "5", "5"]),
    "scattered": (["1", "1", "1"], ["1", "2", "3", "4"]),
    "equal values": (["1", "1", "1"], ["\\frac{1}{2}", "0.5", "2/4", "3"]),
    "cut votes": ([CUT, CUT, "1"], ["unused"] * 4),
    "cut solutions": (["1", "1", "1"], [CUT, CUT, CUT, "3"]),
    "runs on": (["1", "1", "1"], [CUT, CUT, CUT, CUT]),
    "half cut": (["1", "1", "1"], [CUT, CUT, "3", "4"]),
}


def solver(calls: list[str] | None = None) -> ScriptedSampler:
    def script(prompt: Prompt, index: int) -> str | Reply:
        text = prompt[-1].content
        checking = "INVALID" in text
        question = next(q for q in sorted(WORLD, key=len, reverse=True) if f"<{q}>" in text)
        if calls is not None:
            calls.append(f"{'check' if checking else 'solve'} {question}")
        reply = WORLD[question][0 if checking else 1][index]
        return reply if isinstance(reply, Reply) else f"<think>hm</think>\\boxed{{{reply}}}"

    return ScriptedSampler(script)


def batch(*questions: str | None) -> list[Candidate]:
    replies = ["no block" if q is None else f"<question><{q}></question>\\boxed{{0}}" for q in questions]
    return [read_candidate(1, "questioner", 1, i, text, "stop") for i, text in enumerate(replies)]


def assessor(**changes: object) -> Assessor:
    model = solver()
    made = Assessor(STANDARD, model, SETTINGS, replace(r_quest, novelty_gate=False), validity_judge=model)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("question", "decision", "reward"),
    [
        ("half", Decision.KEPT, 0.5),  # s = 2/4
        ("flawed", Decision.INVALID, 1 / 2 - 2 / 3),  # u = 2/3
        ("easy", Decision.TOO_EASY, 0.0),  # s = 1
        ("scattered", Decision.TOO_HARD, 0.25),  # s = 1/4
        ("equal values", Decision.KEPT, 0.25),  # s = 3/4: three writings of one value
        ("cut votes", Decision.UNDECIDED, 0.0),
        ("cut solutions", Decision.UNDECIDED, 0.0),
        ("runs on", Decision.NO_ANSWER, 0.0),
        ("half cut", Decision.KEPT, 0.5),  # half answered is enough; s = 1/2 of the answered
    ],
)
def test_decision_and_reward(question: str, decision: Decision, reward: float) -> None:
    [one] = assessor().assess(batch(question), seed=0, rewarded=True)
    assert one.decision is decision, one.reason
    assert one.reward is not None and one.reward.total == pytest.approx(reward)


def test_votes_stand_in_the_record_with_what_could_not_be_read() -> None:
    [half, cut] = assessor().assess(batch("half", "cut votes"), seed=0, rewarded=True)
    record = half.to_json()["validity"]
    assert record["replies"] == [f"<think>hm</think>\\boxed{{{word}}}" for word in ("1", "2")]  # two settle it
    assert record["unread"] == {} and (record["valid"], record["invalid"]) == (2, 0)
    record = cut.to_json()["validity"]
    assert record["replies"] == ["so far", "so far", "<think>hm</think>\\boxed{1}"] and record["unread"] == {
        "length": 2
    }
    assert cut.reason == "only 1 of 3 votes could be read (cut off: 2)"


def test_a_malformed_candidate_earns_minus_one_and_costs_nothing() -> None:
    made = assessor()
    [one] = made.assess(batch(None), seed=0, rewarded=True)
    assert one.decision is Decision.MALFORMED and one.reward is not None and one.reward.total == -1
    assert sum(made.usage.replies.values()) == 0


def test_a_rejected_question_is_not_solved() -> None:
    calls: list[str] = []
    model = solver(calls)
    assessor(solver=model, validity_judge=model).assess(batch("flawed", "half"), seed=0, rewarded=True)
    assert calls.count("check flawed") == 3 and calls.count("solve flawed") == 0
    assert calls.count("solve half") == 4


def test_solver_data_gets_the_same_decisions_without_reward() -> None:
    names = list(WORLD)
    rewarded = assessor().assess(batch(*names), seed=0, rewarded=True)
    plain = assessor().assess(batch(*names), seed=0, rewarded=False)
    assert [a.decision for a in plain] == [a.decision for a in rewarded]
    assert all(a.reward is None and a.novelty is None for a in plain)


def test_the_asked_denominator_lowers_the_share_of_a_question_that_runs_on() -> None:
    made = assessor(settings=replace(SETTINGS, denominator="asked"))
    [one] = made.assess(batch("half cut"), seed=0, rewarded=True)
    assert one.solutions is not None and one.solutions.vote.share == pytest.approx(0.25)


class SameWhenBothKept:
    def same_type(self, pairs: list[tuple[str, str]]) -> list[SameType]:
        same = {"<half>", "<equal values>"}
        return [SameType.SAME if set(p) <= same else SameType.DIFFERENT for p in pairs]


def test_a_bound_on_answers_is_met_exactly_where_its_product_is_rounded_up() -> None:
    # 0.28 * 25 is 7.000000000000001 in floats, and 7 of 25 are 28%
    replies = ["<think>hm</think>\\boxed{3}"] * 4 + ["<think>hm</think>\\boxed{4}"] * 3 + [CUT] * 18
    model = ScriptedSampler(lambda prompt, index: replies[index])
    made = assessor(solver=model, validity_judge=None, rule=replace(r_zero_code, repetition=False))
    made.settings = replace(SETTINGS, solutions=25, min_answered=0.28)
    [found] = made.assess(batch("half"), seed=0, rewarded=True)
    assert found.decision is Decision.KEPT
    assert found.reward is not None and found.reward.total == pytest.approx(3 / 7)


def test_novelty_is_a_factor_and_sees_the_whole_batch() -> None:
    made = assessor(rule=r_quest, novelty_gate=KSampledGate(8), novelty_judge=SameWhenBothKept())
    found = made.assess(batch("half", "flawed", "equal values", "scattered", None), seed=0, rewarded=True)
    half, flawed, equal, scattered, malformed = found
    assert half.reward is not None and half.reward.total == 0.0 and half.reward.flags == ()
    assert half.decision is Decision.REPEATED and half.solutions is None
    assert half.novelty is not None and half.novelty.match == equal.candidate.id
    assert len(half.novelty.references) == 3  # all parsed others, the rejected one included
    assert flawed.novelty is None and malformed.novelty is None
    assert scattered.reward is not None and scattered.reward.total == pytest.approx(0.25)


def test_without_early_stop_a_repeated_question_is_solved() -> None:
    settings = replace(SETTINGS, early_stop=False)
    made = assessor(rule=r_quest, settings=settings, novelty_gate=KSampledGate(8), novelty_judge=SameWhenBothKept())
    half = made.assess(batch("half", "equal values"), seed=0, rewarded=True)[0]
    assert half.decision is Decision.KEPT
    assert half.reward is not None and half.reward.total == 0.0 and half.reward.terms["uncertainty"] == 0.5


def test_the_repetition_penalty_counts_over_parsed_questions() -> None:
    settings = replace(SETTINGS, bleu_threshold=0.5)
    made = assessor(rule=r_zero_code, validity_judge=None, settings=settings)
    found = made.assess(batch("half", "half", "scattered", None), seed=0, rewarded=True)
    totals = [a.reward.total for a in found if a.reward]
    # copies: cluster of 2 among 3 parsed; min(s, 1 - s) = 1/2 and 1/4
    assert totals == pytest.approx([0.5 - 2 / 3, 0.5 - 2 / 3, 0.25 - 1 / 3, -1.0])


def test_copies_in_place_of_samples_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def drawn(same: bool) -> ScriptedSampler:
        return ScriptedSampler(lambda prompt, index: f"<think>{0 if same else index}</think>\\boxed{{5}}")

    candidates = batch(*(f"question {i}" for i in range(8)))
    for same, told in ((False, False), (True, True)):
        caplog.clear()
        made = Assessor(STANDARD, drawn(same), SETTINGS, replace(r_quest, validity_gate=False, novelty_gate=False))
        assert made.assess(candidates, seed=1, rewarded=True)[0].solutions is not None
        assert ("the 4 replies to each question are one text" in caplog.text) == told
    caplog.clear()
    greedy = replace(SETTINGS, sampling=replace(SETTINGS.sampling, temperature=0.0))
    Assessor(STANDARD, drawn(True), greedy, replace(r_quest, validity_gate=False, novelty_gate=False)).assess(
        candidates, seed=1, rewarded=True
    )
    Assessor(STANDARD, drawn(True), SETTINGS, replace(r_quest, validity_gate=False, novelty_gate=False)).assess(
        candidates[:7], seed=1, rewarded=True
    )
    assert not caplog.records
