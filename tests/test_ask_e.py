"""Ask-E's reward inside the loop, on scripted replies, with every number worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aske.labels import Label
from aske.reward import Memory, RewardSettings, unit_rows
from novelty import KSampledGate, SameType
from selfevolve import asker_evaluation
from selfevolve.answers import Equivalence
from selfevolve.ask_e import AskEJudge, Table
from selfevolve.assess import AssessmentSettings, Assessor
from selfevolve.embed import HashedNgrams, load_embedder
from selfevolve.prompts import STANDARD
from selfevolve.questions import read_candidate
from selfevolve.records import Assessed, Candidate, Decision
from selfevolve.rewards import AskERule, Flag, Measured, RewardName, ask_e, reward_rule, total
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampler, Sampling, ScriptedSampler
from validity import ValidityDecision

CUT = Reply("so far", FinishReason.LENGTH, 1, 9)
BROKEN = Reply("", FinishReason.ERROR, error="no route")
# question -> validity replies, base's answer, current's, cross-checks; None: ends without an answer
WORLD: dict[str, tuple[list[str], Any, Any, list[Any]]] = {
    "split": (["1", "1", "INVALID"], "3", "7", ["7", "7", "7"]),
    "easy": (["1", "1", "1"], "7", "14/2", ["7", "7", "7"]),
    "hard": (["1", "1", "1"], "3", None, ["7", "7", "7"]),
    "silent": (["1", "1", "1"], "3", "7", [None, "7", "7"]),
    "wavers": (["1", "1", "1"], "3", "7", ["7", "8", "7"]),
    "cut": (["1", "1", "1"], CUT, "7", ["7", "7", "7"]),
    "down": (["1", "1", "1"], "3", "7", [BROKEN, "7", "7"]),
    "flawed": (["INVALID", "INVALID", "1"], "3", "7", ["7", "7", "7"]),
}


def question_of(prompt: Prompt) -> str:
    return next(q for q in WORLD if f"<{q}>" in prompt[-1].content)


def said(answer: Any) -> str | Reply:
    if isinstance(answer, Reply):
        return answer
    return "I do not know." if answer is None else f"<think>hm</think>\\boxed{{{answer}}}"


def player(column: int, name: str) -> ScriptedSampler:
    def script(prompt: Prompt, index: int) -> str | Reply:
        cell = WORLD[question_of(prompt)][column]
        return said(cell[index] if isinstance(cell, list) else cell)

    return ScriptedSampler(script, name)


def embed(questions: Any) -> Any:
    """Every question along the first axis, but "easy", which lies across it."""
    return np.array([[0.0, 2.0] if "easy" in q else [2.0, 0.0] for q in questions])


class Seated:
    """An assessor with Ask-E's judge, and the samplers that it asks."""

    def __init__(self, rule: AskERule, checks: int = 1, gate: bool = False, **changes: Any) -> None:
        self.base, self.current, self.checker = player(1, "base"), player(2, "current"), player(3, "checker")
        table = Table(
            (("base", "current"),),
            {"base": self.base, "current": self.current},
            Sampling(temperature=0.7, max_tokens=50),
            checks=checks,
        )
        self.judge = AskEJudge(table, STANDARD.solve, 4, self.checker, RewardSettings(alpha=0.0))
        self.judge = replace(self.judge, **changes)
        settings = AssessmentSettings(
            votes=3, solutions=4, share_low=0.3, share_high=0.8, denominator="answered", min_answered=0.5,
            min_answered_votes=0.5, sampling=Sampling(max_tokens=50),
        )  # fmt: skip
        self.assessor = Assessor(
            STANDARD, self.current, settings, rule, player(0, "votes") if rule.validity_gate else None,
            KSampledGate(8) if gate else None, Same() if gate else None, self.judge,
        )  # fmt: skip

    def assess(self, *names: str | None, **given: Any) -> list[Assessed]:
        return self.assessor.assess(batch(*names), seed=5, rewarded=True, **given)


class Same:
    """Calls all questions the same exercise, but "easy"."""

    def same_type(self, pairs: Sequence[tuple[str, str]]) -> list[SameType]:
        return [SameType.DIFFERENT if "<easy>" in p else SameType.SAME for p in pairs]


def batch(*names: str | None) -> list[Candidate]:
    replies = ["no block" if q is None else f"<question><{q}></question>\\boxed{{0}}" for q in names]
    return [read_candidate(1, "questioner", 1, i, text, "stop") for i, text in enumerate(replies)]


PLAIN = AskERule(validity_gate=False, novelty_gate=False)


@pytest.mark.parametrize(
    ("question", "label", "decision", "reward"),
    [
        ("split", Label.CALIBRATED, Decision.CALIBRATED, 1.0),
        ("easy", Label.TOO_EASY, Decision.TOO_EASY, 0.2),  # 14/2 is 7
        ("hard", Label.TOO_HARD, Decision.TOO_HARD, -0.2),  # no answer is a wrong one
        ("silent", Label.BAD_CROSS_CHECK, Decision.BAD_CROSS_CHECK, 0.0),
        ("wavers", Label.CALIBRATED, Decision.CALIBRATED, 1.0),  # one check cannot disagree
        ("cut", Label.UNGRADABLE, Decision.UNGRADABLE, None),
        ("down", Label.UNGRADABLE, Decision.UNGRADABLE, None),
    ],
)
def test_label_decision_and_reward(question: str, label: Label, decision: Decision, reward: float | None) -> None:
    [one] = Seated(PLAIN).assess(question)
    assert one.ask_e is not None and one.ask_e.grade.label is label
    assert one.decision is decision, one.reason
    assert (None if one.reward is None else one.reward.total) == reward
    assert one.solutions is None  # nothing is asked of one solver ten times


def test_three_checks_must_agree() -> None:
    wavers, split = Seated(PLAIN, checks=3).assess("wavers", "split")
    assert wavers.reward is not None and wavers.reward.total == 0.0
    assert wavers.decision is Decision.BAD_CROSS_CHECK
    assert split.reward is not None and split.reward.total == 1.0


def test_one_check_is_greedy_and_three_are_drawn() -> None:
    seats = Seated(PLAIN), Seated(PLAIN, checks=3)
    for seat in seats:
        seat.assess("split")
    [(_, one)], [(_, three)] = seats[0].checker.calls, seats[1].checker.calls
    assert (one.n, one.temperature, three.n, three.temperature) == (1, 0.0, 3, 0.7)
    [(_, boundary)] = seats[0].base.calls
    assert (boundary.n, boundary.temperature) == (1, 0.7)


def test_the_record_holds_the_game() -> None:
    split, flawed = Seated(AskERule(novelty_gate=False)).assess("split", "flawed")
    row = split.to_json()["ask_e"]
    assert (row["pair"], row["label"], row["answer"]) == (["base", "current"], "calibrated", "7")
    assert (row["marks"], row["answers"]) == (["wrong", "right"], ["3", "7"])
    assert [r["text"] for r in row["boundary"]] == [said("3"), said("7")] and len(row["checks"]) == 1
    assert flawed.to_json()["ask_e"] is None


def test_other_rewards_leave_no_ask_e_in_the_record() -> None:
    rows = Seated(PLAIN).assessor.assess(batch("split", None), seed=5, rewarded=False)
    assert all("ask_e" not in a.to_json() and a.reward is None for a in rows)
    assert [a.decision for a in rows] == [Decision.TOO_EASY, Decision.MALFORMED]  # by the solver's four answers of 7


def test_an_invalid_question_reaches_no_solver_and_its_gate_value_is_the_reward() -> None:
    seats = Seated(AskERule(novelty_gate=False))
    flawed, split = seats.assess("flawed", "split")
    assert flawed.reward is not None and flawed.reward.total == pytest.approx(1 / 2 - 2 / 3)
    assert flawed.decision is Decision.INVALID and flawed.ask_e is None
    assert split.reward is not None and split.reward.total == 1.0
    for sampler in (seats.base, seats.current, seats.checker):
        assert [question_of(p) for prompts, _ in sampler.calls for p in prompts] == ["split"]


def test_a_malformed_candidate_earns_minus_one_under_its_label() -> None:
    [one] = Seated(PLAIN).assess(None)
    assert one.reward is not None and one.reward.total == -1.0
    assert one.ask_e is not None and one.ask_e.grade.label is Label.NO_QUESTION and one.decision is Decision.MALFORMED


def test_a_repetition_loses_what_it_earns_and_never_a_loss() -> None:
    seats = Seated(AskERule(validity_gate=False), gate=True, settings=RewardSettings(), memory=Memory(), embed=embed)
    split, easy, hard, cut = seats.assess("split", "easy", "hard", "cut")
    assert [a.novelty.decision.value if a.novelty else None for a in (split, easy, hard, cut)] == [
        "repeated",
        "novel",
        "repeated",
        None,
    ]
    assert split.reward is not None and easy.reward is not None and hard.reward is not None
    assert (split.reward.total, split.reward.terms["calibration"], split.reward.terms["diversity"]) == (0.0, 1.0, 0.0)
    assert easy.reward.total == pytest.approx(0.4)  # 0.2, and as much for being new to an empty memory
    assert hard.reward.total == -0.2  # not 0
    assert cut.reward is None


def test_diversity_is_measured_against_the_memory_before_the_batch() -> None:
    memory = Memory()
    memory.add(["old"], unit_rows(embed(["old"])))
    seats = Seated(PLAIN, settings=RewardSettings(alpha=0.5), memory=memory, embed=embed)
    split, easy, hard, cut, again = seats.assess("split", "easy", "hard", "cut", "split")
    rewards = [a.reward.total if a.reward else None for a in (split, easy, hard, cut, again)]
    # "old" lies along the first axis: cosine 1 to all but "easy", which earns 0.2 + 0.2 * 0.5 * (1 - 0)
    assert rewards == pytest.approx([1.0, 0.3, -0.2, None, 1.0])
    assert memory.questions == [
        "old",
        "<split>",
        "<easy>",
        "<hard>",
        "<split>",
    ]  # in order, the ungradable one left out


def test_the_questioners_own_checks_are_handed_in() -> None:
    seats = Seated(PLAIN, cross_check=None)
    own = {0: [Reply("\\boxed{3}", FinishReason.STOP, 1, 5)], 2: [Reply("\\boxed{7}", FinishReason.STOP, 1, 5)]}
    first, malformed, second = seats.assess("split", None, "easy", checks=own)
    assert first.ask_e is not None and [m.value for m in first.ask_e.grade.marks] == ["right", "wrong"]
    assert second.ask_e is not None and second.ask_e.grade.label is Label.TOO_EASY
    assert malformed.decision is Decision.MALFORMED
    assert seats.assessor.usage.tokens["cross_check"] == 10 and seats.assessor.usage.replies["boundary"] == 4
    with pytest.raises(ValueError, match="pass checks="):
        seats.assess("split")


def test_a_group_faces_one_pair_and_groups_differ() -> None:
    names = [f"s{i}" for i in range(6)]
    pairs = tuple(itertools.combinations(names, 2))
    table = Table(pairs, {n: player(1, n) for n in names}, Sampling())
    judge = AskEJudge(table, STANDARD.solve, 4, None)
    drawn = [judge.pair(3, place) for place in range(400)]
    assert all(len(set(drawn[i : i + 4])) == 1 for i in range(0, 400, 4))
    assert len(set(drawn)) == len(pairs)  # 100 groups meet all 15 pairs
    assert [judge.pair(4, place) for place in range(400)] != drawn


def test_two_names_for_one_checkpoint_draw_apart() -> None:
    class Noted(ScriptedSampler):
        def __init__(self) -> None:
            super().__init__(lambda prompt, i: "\\boxed{1}")
            self.keys: list[list[int]] = []

        def sample_keyed(self, prompts: Any, sampling: Sampling, keys: Any) -> list[list[Reply]]:
            self.keys.append(list(keys))
            return self.sample(prompts, sampling)

    one = Noted()
    table = Table((("base", "current"),), {"base": one, "current": one}, Sampling(), {"base": "w", "current": "w"})
    assert table.same_weights(("base", "current"))
    assert not replace(table, weights={"base": "w", "current": "v"}).same_weights(("base", "current"))
    prompts = {3: STANDARD.solve("q"), 9: STANDARD.solve("r")}
    found = table.boundary(prompts, dict.fromkeys(prompts, ("base", "current")), 1)
    assert set(found) == {3, 9}
    assert one.keys == [[3, 9], [3, 9]]  # draws hang on the candidates' places
    assert one.calls[0][1].seed != one.calls[1][1].seed


def test_a_sampler_without_keys_is_asked_once_a_solver() -> None:
    class Plain:
        name = "plain"

        def __init__(self) -> None:
            self.asked: list[int] = []

        def sample(self, prompts: Any, sampling: Sampling) -> list[list[Reply]]:
            self.asked.append(len(prompts))
            return [[Reply("\\boxed{1}", FinishReason.STOP)]] * len(prompts)

    a, b, c = Plain(), Plain(), Plain()
    samplers: dict[str, Sampler] = {"a": a, "b": b, "c": c}
    table = Table((("a", "b"), ("b", "c")), samplers, Sampling())
    prompts = {i: STANDARD.solve(str(i)) for i in range(5)}
    table.boundary(prompts, {i: ("a", "b") if i < 2 else ("b", "c") for i in prompts}, 0)
    assert (a.asked, b.asked, c.asked) == ([2], [5], [3])


# ---------------------------------------------------------------- the rule


def measured(**changes: Any) -> Measured:
    found = Measured(
        parsed=True, g_valid=0.1, validity_decision=ValidityDecision.VALID, novel=True, cluster_size=5, batch=100,
        calibration=1.0, diversity=0.25, malformed_turns=0.0,
    )  # fmt: skip
    return replace(found, **changes)


def reward_of(rule: AskERule, m: Measured) -> float | None:
    found = rule(m)
    return None if found is None else found.total


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1.25),
        ({"novel": False}, 0.0),  # a repetition earns no diversity either
        ({"novel": None}, 1.25),
        ({"calibration": 0.2, "diversity": 0.05}, 0.25),
        ({"calibration": -0.2, "diversity": 0.0}, -0.2),
        ({"calibration": -0.2, "diversity": 0.0, "novel": False}, -0.2),
        ({"calibration": 0.0, "diversity": 0.0}, 0.0),
        ({"calibration": None}, None),
        ({"g_valid": -0.3, "validity_decision": ValidityDecision.INVALID}, -0.3),
        ({"g_valid": -0.3, "validity_decision": ValidityDecision.INVALID, "calibration": None}, -0.3),
        ({"g_valid": None, "validity_decision": ValidityDecision.UNDECIDED}, 0.0),
        ({"parsed": False}, -1.0),
    ],
)
def test_the_rule_by_hand(changes: dict[str, Any], expected: float | None) -> None:
    assert reward_of(ask_e, measured(**changes)) == (None if expected is None else pytest.approx(expected))


def test_the_repetition_term_stays_with_any_gate() -> None:
    rule = AskERule(repetition=True)
    assert reward_of(rule, measured()) == pytest.approx(1.25 - 0.05)
    assert reward_of(rule, measured(novel=False)) == pytest.approx(-0.05)
    with pytest.raises(ValueError, match="cluster the whole batch first"):
        rule(measured(cluster_size=None))


def test_sessions_pay_a_malformed_turn_and_no_more() -> None:
    rule = AskERule(sessions=True)
    assert reward_of(rule, measured(malformed_turns=-0.1)) == pytest.approx(1.15)
    assert reward_of(rule, measured(parsed=False, calibration=0.0, diversity=0.0, malformed_turns=-0.2)) == -0.2
    assert reward_of(rule, measured(parsed=False, calibration=None)) is None  # no room for a turn: masked


def test_flags_and_needs() -> None:
    reward = ask_e(measured(novel=None))
    assert reward is not None and reward.flags == (Flag.NOVELTY_UNDECIDED,)
    undecided = ask_e(measured(g_valid=None, validity_decision=ValidityDecision.UNDECIDED))
    assert undecided is not None and undecided.flags == (Flag.VALIDITY_UNDECIDED,)
    with pytest.raises(ValueError, match="ask for votes first"):
        ask_e(measured(validity_decision=None))
    assert reward_of(AskERule(validity_gate=False), measured(validity_decision=None, g_valid=None)) == 1.25
    assert reward_rule("ask_e") is ask_e and reward_rule(RewardName.ASK_E) is ask_e


def test_the_total_follows_from_the_terms() -> None:
    for calibration, novel, gates in itertools.product((1.0, 0.2, -0.2, 0.0), (True, False, None), (True, False)):
        rule = AskERule(repetition=True, validity_gate=gates, novelty_gate=gates)
        reward = rule(measured(calibration=calibration, novel=novel, diversity=max(0.0, calibration) / 2))
        assert reward is not None
        t = reward.terms
        kept = t["calibration"] if t["calibration"] < 0 else t["calibration"] * t["novelty"]
        assert reward.total == pytest.approx(t["format"] + t["validity"] + kept + t["diversity"] + t["repetition"])
        assert reward.total == total(t)


# ---------------------------------------------------------------- the embedder


def test_ngrams_know_an_exercise_by_its_words() -> None:
    made = load_embedder("ngrams")
    one, other, far = unit_rows(made(["what is 3 + 4?", "What is 17 + 250?", "a box holds eggs."]))
    assert one @ other == pytest.approx(1.0)  # other numbers, the same exercise
    assert abs(one @ far) < 0.3
    assert HashedNgrams(longest=2).grams("what is 31?") == ["what", "is", "#", "?", "what is", "is #", "# ?"]


def test_ngrams_are_the_same_everywhere_and_row_by_row() -> None:
    made = HashedNgrams(dimension=8, longest=1)
    assert made(["what is"]).tolist() == (made(["what"]) + made(["is"])).tolist()
    assert made(["what"]).tolist() == FIXED
    assert HashedNgrams()([]).shape == (0, 512)


FIXED = [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]  # on any machine: a memory's vectors are made anew on resume


def test_a_cross_check_that_cannot_be_compared_is_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (asker_evaluation.agrees("7", "14/2"), asker_evaluation.agrees("7", "8")) == (True, False)
    monkeypatch.setattr(asker_evaluation, "compare", lambda true, given: Equivalence.UNDECIDED)
    assert asker_evaluation.agrees("7", "8") is None
