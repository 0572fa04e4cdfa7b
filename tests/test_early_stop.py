"""Early stop: the same decisions, rewards and kept sets as the full assessment, for fewer replies."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from novelty import KSampledGate, ModelJudge, NoveltyGate
from selfevolve.assess import AssessmentSettings, Assessor
from selfevolve.backbones import resolve_backbone
from selfevolve.prompts import TESTBED
from selfevolve.questions import read_candidate
from selfevolve.records import Assessed, Candidate, Decision
from selfevolve.rewards import RewardRule, r_quest, r_zero_code
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampler, Sampling, ScriptedSampler

SETTINGS = AssessmentSettings(
    votes=9, solutions=10, share_low=0.3, share_high=0.8, denominator="answered", min_answered=0.5,
    min_answered_votes=0.5, sampling=Sampling(max_tokens=72, top_k=40),
)  # fmt: skip


def world(seed: int) -> ScriptedSampler:
    """Return a model whose replies are fixed by prompt and sample index: answers, refusals, cut-off and blank ones."""

    def script(prompt: Prompt, index: int) -> str | Reply:
        text = prompt[-1].content
        rng = random.Random(f"{seed} {text} {index}")
        if text.startswith("<judge>"):
            return "SAME_TYPE" if random.Random(f"{seed} {text}").random() < 0.2 else "DIFFERENT"
        lean = random.Random(f"{seed} {text}")
        cut, bad = lean.choice((0.0, 0.1, 0.5)), lean.choice((0.0, 0.3, 0.5, 0.7, 1.0))
        if rng.random() < cut:
            return Reply("so far", FinishReason.LENGTH)
        if text.startswith("<check>") and rng.random() < bad:
            return "\\boxed{ INVALID}"
        return f"\\boxed{{ {rng.choice((1, 1, 1, 2, 3, 4)) if rng.random() < 0.9 else ''}}}"

    return ScriptedSampler(script)


def candidates(count: int) -> list[Candidate]:
    texts = ["no question" if i % 11 == 7 else f"<question> q {i}</question>\\boxed{{ 1}}" for i in range(count)]
    return [read_candidate(1, "questioner", 1, i, text, "stop") for i, text in enumerate(texts)]


def assess(
    model: Sampler, batch: list[Candidate], rule: RewardRule, early: bool, rewarded: bool, **settings: Any
) -> tuple[list[Assessed], dict[str, int]]:
    gate: NoveltyGate | None = KSampledGate(4) if rule.novelty_gate else None
    judge = ModelJudge(model, TESTBED.same_type, Sampling(max_tokens=4, seed=5)) if gate else None
    made = Assessor(
        TESTBED, model, replace(SETTINGS, early_stop=early, **settings), rule,
        model if rule.validity_gate else None, gate, judge,
    )  # fmt: skip
    return made.assess(batch, seed=3, rewarded=rewarded), made.usage.replies


def outcome(found: list[Assessed], rewarded: bool) -> list[Any]:
    """Return what an assessment decides: rewards in the questioner's stage, kept labels in the solver's."""
    if rewarded:
        return [None if a.reward is None else (a.reward.total, a.reward.terms["validity"]) for a in found]
    return [
        (a.decision, a.solutions.vote.answer if a.solutions else None, a.solutions.vote.share if a.solutions else None)
        for a in found
    ]


@pytest.mark.parametrize("rewarded", [True, False])
@pytest.mark.parametrize(
    "rule", [r_quest, replace(r_quest, novelty_gate=False), replace(r_zero_code, novelty_gate=True)]
)
@pytest.mark.parametrize("denominator", ["answered", "asked"])
def test_same_outcomes_in_scripted_worlds(rule: RewardRule, rewarded: bool, denominator: str) -> None:
    settings = {"denominator": denominator, "bleu_threshold": 0.5 if rule.repetition else None}
    for seed in range(4):
        full, asked = assess(world(seed), candidates(60), rule, False, rewarded, **settings)
        short, fewer = assess(world(seed), candidates(60), rule, True, rewarded, **settings)
        assert outcome(full, rewarded) == outcome(short, rewarded)
        assert sum(fewer.values()) < sum(asked.values()) or not rule.validity_gate


def test_a_floor_or_a_repetition_term_needs_the_solutions_of_repeated_questions() -> None:
    for rule in (replace(r_quest, floor=0.1), replace(r_quest, repetition=True)):
        found, _ = assess(world(0), candidates(40), rule, True, True, bleu_threshold=0.5)
        assert not [a for a in found if a.decision is Decision.REPEATED]


def test_an_invalid_question_is_asked_all_votes_where_its_share_is_the_reward() -> None:
    rewarded, _ = assess(world(1), candidates(60), r_quest, True, True)
    filtered, _ = assess(world(1), candidates(60), r_quest, True, False)
    asked = [a.validity.vote.asked for a in rewarded if a.decision is Decision.INVALID and a.validity]
    stopped = [a.validity.vote.asked for a in filtered if a.decision is Decision.INVALID and a.validity]
    assert asked and set(asked) == {9}
    assert len(stopped) == len(asked) and min(stopped) == 5


def test_same_outcomes_with_a_model() -> None:
    pytest.importorskip("torch")
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    model = TransformersSampler(resolve_backbone("testbed:base"), name="base")
    replies = model.sample([TESTBED.ask()], Sampling(48, max_tokens=56, seed=2))[0]
    batch = [read_candidate(1, "questioner", 1, i, r.text, r.finish_reason.value) for i, r in enumerate(replies)]
    for rewarded in (True, False):
        full, asked = assess(model, batch, r_quest, False, rewarded)
        short, fewer = assess(model, batch, r_quest, True, rewarded)
        assert outcome(full, rewarded) == outcome(short, rewarded)
        assert sum(fewer.values()) < 0.9 * sum(asked.values())
