"""The questioner's rewards by hand, each gate with each rule, and the solver's reward."""

import itertools
from dataclasses import replace

import pytest

from selfevolve.answers import Equivalence
from selfevolve.rewards import (
    Flag,
    Measured,
    Reward,
    RewardName,
    RewardRule,
    Uncertainty,
    r_quest,
    r_zero_code,
    r_zero_paper,
    reward_rule,
    solver_reward,
    solver_terms,
    total,
    uncertainty,
)
from validity import ValidityDecision

VALID, INVALID, UNDECIDED = ValidityDecision


def question(share: float | None = 0.6, **changes: object) -> Measured:
    """A well-formed question: 4 of 9 votes INVALID, novel, in a cluster of 5 of 100."""
    measured = Measured(
        parsed=True,
        g_valid=1 / 2 - 4 / 9,
        validity_decision=VALID,
        share=share,
        solutions_decided=True,
        novel=True,
        cluster_size=5,
        batch=100,
    )
    return replace(measured, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "peaked", "least"),
    [(0.0, 0.0, 0.0), (0.2, 0.4, 0.2), (0.3, 0.6, 0.3), (0.5, 1.0, 0.5), (0.6, 0.8, 0.4), (0.8, 0.4, 0.2), (1, 0, 0)],
)
def test_shapes_by_hand(share: float, peaked: float, least: float) -> None:
    assert uncertainty(share, Uncertainty.PEAKED) == pytest.approx(peaked)
    assert uncertainty(share, Uncertainty.MIN) == pytest.approx(least)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        uncertainty(share, Uncertainty.MIN)


@pytest.mark.parametrize(
    ("rule", "share", "size", "batch", "expected"),
    [
        (r_zero_paper, 0.6, 5, 100, 0.8 - 0.05),
        (r_zero_paper, 0.5, 1, 2048, 1 - 1 / 2048),
        (r_zero_paper, 0.9, 50, 100, 0.2 - 0.5),
        (r_zero_code, 0.6, 5, 100, 0.4 - 0.05),
        (r_zero_code, 0.5, 1, 2048, 0.5 - 1 / 2048),
        (r_zero_code, 1.0, 100, 100, -1.0),
        (r_quest, 0.6, None, None, 0.4),
        (r_quest, 0.5, None, None, 0.5),
        (r_quest, 1.0, None, None, 0.0),
    ],
)
def test_named_rules_by_hand(
    rule: RewardRule, share: float, size: int | None, batch: int | None, expected: float
) -> None:
    assert rule(question(share, cluster_size=size, batch=batch)).total == pytest.approx(expected)


def test_terms_stand_by_name() -> None:
    assert r_quest(question()).to_json() == {
        "total": 0.4,
        "terms": {"format": 0.0, "validity": 0.0, "uncertainty": 0.4, "repetition": 0.0, "novelty": 1.0},
    }
    assert r_zero_code(question()).terms["repetition"] == -0.05


def test_five_of_nine_votes_reject() -> None:
    rejected = question(g_valid=1 / 2 - 5 / 9, validity_decision=INVALID, share=None, solutions_decided=False)
    reward = r_quest(rejected)
    assert reward.total == pytest.approx(-1 / 18)
    assert reward.terms == {
        "format": 0.0,
        "validity": pytest.approx(-1 / 18),
        "uncertainty": 0.0,
        "repetition": 0.0,
        "novelty": 0.0,
    }
    assert r_quest(replace(rejected, g_valid=-0.5)).total == -0.5  # nine of nine


def test_exactly_half_passes() -> None:
    assert r_quest(question(g_valid=0.0)).total == 0.4


def test_a_repeated_question_earns_nothing_in_r_quest() -> None:
    reward = r_quest(question(novel=False))
    assert (reward.total, reward.terms["uncertainty"], reward.terms["novelty"]) == (0.0, 0.4, 0.0)
    assert reward.flags == ()


def test_undecided_novelty_counts_as_novel_and_is_flagged() -> None:
    reward = r_quest(question(novel=None))
    assert reward.total == 0.4
    assert reward.flags == (Flag.NOVELTY_UNDECIDED,)
    assert reward.to_json()["flags"] == ["novelty_undecided"]
    assert r_zero_code(question(novel=None)).flags == ()  # no novelty gate, nothing to flag


GATES = list(itertools.product([r_zero_paper, r_zero_code, r_quest], [True, False], [True, False]))


@pytest.mark.parametrize(("base", "validity_gate", "novelty_gate"), GATES)
def test_gates_compose_with_any_rule(base: RewardRule, validity_gate: bool, novelty_gate: bool) -> None:
    rule = replace(base, validity_gate=validity_gate, novelty_gate=novelty_gate)
    tent = 0.8 if rule.uncertainty is Uncertainty.PEAKED else 0.4
    penalty = 0.05 if rule.repetition else 0.0

    assert rule(question()).total == pytest.approx(tent - penalty)
    repeated = rule(question(novel=False)).total
    assert repeated == pytest.approx((0.0 if novelty_gate else tent) - penalty)  # the penalty stays
    invalid = rule(question(g_valid=-0.5, validity_decision=INVALID, novel=False)).total
    assert invalid == pytest.approx(-0.5 if validity_gate else repeated)
    assert rule(Measured(parsed=False)).total == -1.0


@pytest.mark.parametrize("rule", [r_zero_paper, r_zero_code, r_quest])
def test_undecided_solutions_earn_zero(rule: RewardRule) -> None:
    for measured in (question(solutions_decided=False), question(share=None)):
        reward = rule(measured)
        assert reward.total == 0.0
        assert reward.flags == (Flag.SOLUTIONS_UNDECIDED,)


def test_undecided_validity_earns_zero_behind_the_gate_only() -> None:
    measured = question(g_valid=None, validity_decision=UNDECIDED)
    assert r_quest(measured) == Reward(0.0, r_quest(measured).terms, (Flag.VALIDITY_UNDECIDED,))
    assert r_zero_code(measured).total == pytest.approx(0.35)
    # a gate value of an undecided vote must not slip through as a rejection
    assert r_quest(replace(measured, g_valid=-0.5)).total == 0.0


def test_what_a_rule_needs_must_be_measured() -> None:
    with pytest.raises(ValueError, match="ask for votes first"):
        r_quest(question(validity_decision=None))
    with pytest.raises(ValueError, match="cluster the whole batch first"):
        r_zero_code(question(cluster_size=None))
    with pytest.raises(ValueError, match="cluster_size is 101 and batch 100"):
        r_zero_code(question(cluster_size=101))
    assert r_quest(question(cluster_size=None, batch=None)).total == 0.4
    assert r_zero_code(question(validity_decision=None, g_valid=None)).total == pytest.approx(0.35)


def test_floor_and_malformed_value_as_in_r_zeros_paper() -> None:
    rule = replace(r_zero_paper, floor=0.0, malformed=0.0)
    low = rule(question(0.9, cluster_size=50))
    assert low.total == pytest.approx(0.0)
    assert low.terms["floor"] == pytest.approx(0.3)
    assert rule(question()).total == pytest.approx(0.75)
    assert rule(question()).terms["floor"] == 0.0
    assert rule(Measured(parsed=False)).total == 0.0


def test_total_follows_from_the_terms_everywhere() -> None:
    shares = (None, 0.0, 0.25, 0.5, 1.0)
    votes = ((0.5, VALID), (0.0, VALID), (-0.3, INVALID), (None, UNDECIDED))
    for base, validity_gate, novelty_gate in GATES:
        for floor in (None, 0.0):
            rule = replace(base, validity_gate=validity_gate, novelty_gate=novelty_gate, floor=floor)
            for share, (gate, decision), novel in itertools.product(shares, votes, (True, False, None)):
                reward = rule(question(share, g_valid=gate, validity_decision=decision, novel=novel))
                t = reward.terms
                by_formula = t["format"] + t["validity"] + t["uncertainty"] * t["novelty"] + t["repetition"]
                assert reward.total == pytest.approx(by_formula + t.get("floor", 0.0), abs=1e-15)
                assert reward.total == total(t)


def test_names() -> None:
    assert reward_rule("r_quest") is r_quest
    assert reward_rule(RewardName.R_ZERO_PAPER) is r_zero_paper
    assert reward_rule("r_zero_code") is r_zero_code
    with pytest.raises(ValueError, match=r"'r_one'.*r_zero_paper, r_zero_code, r_quest"):
        reward_rule("r_one")


BOX = r"\boxed{12}"


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        (f"<think>3 * 4</think> {BOX}", "stop", 1.0),
        (f"\n <think>3 * 4</think>So {BOX}.", "stop", 1.0),
        (BOX, "stop", 0.9),  # no reasoning
        (f"<think></think> {BOX}", "stop", 0.9),  # empty reasoning
        (f"<think> \n</think> {BOX}", "stop", 0.9),
        (f"Well. <think>3 * 4</think> {BOX}", "stop", 0.9),  # the reply does not open with its reasoning
        (r"<think>3 * 4</think> \boxed{13}", "stop", 0.1),
        (r"\boxed{13}", "stop", 0.0),
        ("<think>3 * 4</think> 12", "stop", 0.0),
        ("", "stop", 0.0),
        (f"<think>3 * 4</think> {BOX}", "length", 0.0),
        (f"<think>3 * 4</think> {BOX}", "error", None),
        (f"<think>3 * 4</think> {BOX}", "timeout", None),
    ],
)
def test_solver_reward(text: str, reason: str, expected: float | None) -> None:
    assert solver_reward(text, reason, "12") == pytest.approx(expected)


def test_undecided_agreement_is_masked() -> None:
    def undecided(gold: str, predicted: str) -> Equivalence:
        return Equivalence.UNDECIDED

    assert solver_reward(f"<think>a</think> {BOX}", "stop", "12", undecided) is None
    assert solver_terms("no box", "stop", "12", undecided) == {"agreement": 0.0, "format": 0.0}


def test_solver_reward_of_hostile_text_is_quick() -> None:
    text = "<think>" + "a </think" * 20_000 + "\\boxed{" * 20_000
    assert solver_reward(text, "stop", "12") == 0.0
