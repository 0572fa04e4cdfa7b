"""Stages on records written by hand, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from selfevolve.config import load_recipe
from selfevolve.diagnostics import NothingToLearn
from selfevolve.records import Assessed, Candidate, Decision
from selfevolve.rundir import RunDir, read_jsonl
from selfevolve.sampling import FinishReason, Reply
from selfevolve.seeds import derive
from selfevolve.stages import Context, data
from selfevolve.stages.diagnostics import Outcome, grade
from selfevolve.stages.initialisation import validity_reward
from selfevolve.stages.questioner import refuse_all_undecided
from selfevolve.train import Rollout


def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], *overrides: str) -> Context:
    run = RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", list(overrides)))
    monkeypatch.setattr(run, "read", lambda round, stage, file: rows)
    return Context(run, 1)


def assessed(decision: str, answer: str | None = "7", number: int = 0) -> dict[str, Any]:
    solutions = {"answer": answer, "share": 0.5} if answer else None
    return {"id": f"c{number}", "question": f"q{number}", "decision": decision, "solutions": solutions}


def test_solver_data_holds_all_kept_questions_and_a_tenth_of_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [assessed("kept", str(i), i) for i in range(90)] + [assessed("too_easy", "1", 99), assessed("invalid", None)]
    counts = data(context(tmp_path, monkeypatch, rows), tmp_path)
    examples = read_jsonl(tmp_path / "examples.jsonl")
    pseudo = {e["source"]: e["answer"] for e in examples if e["kind"] == "pseudo"}
    assert pseudo == {f"c{i}": str(i) for i in range(90)}
    assert counts["replay"] == 10 and len(examples) == 100  # 10 of 100 are a tenth of the whole
    assert [e["kind"] for e in examples] != sorted(e["kind"] for e in examples)  # mixed, not appended


def test_nothing_kept_stops_with_the_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [assessed("invalid", None, i) for i in range(5)] + [assessed("too_easy", "1", 9)]
    with pytest.raises(NothingToLearn, match=r"invalid +5"):
        data(context(tmp_path, monkeypatch, rows), tmp_path)


def judged(question: str | None, decision: Decision, reason: str = "") -> Assessed:
    candidate = Candidate("c", 1, "questioner", 1, 0, "reply", "stop", question, None, None)
    return Assessed(candidate, None, None, None, None, decision, reason)


def test_cut_off_replies_are_told_of_even_where_rewards_differ(caplog: pytest.LogCaptureFixture) -> None:
    from selfevolve.stages.training import _checked
    from selfevolve.train import TrainSpec

    spec = TrainSpec(steps=1, prompts=1, responses=20, global_batch=1, max_new_tokens=256)
    scores = [0.0] * 19 + [1.0]
    assert _checked(1, scores, 19, spec) == scores
    assert "19 of 20 replies were cut off at the limit of 256 tokens" in caplog.text


def test_a_step_without_one_decided_question_stops_with_the_reasons() -> None:
    unread = judged("q", Decision.UNDECIDED, "only 0 of 3 votes could be read")
    malformed = judged(None, Decision.MALFORMED)
    refuse_all_undecided([unread, unread, judged("q", Decision.TOO_EASY)])
    refuse_all_undecided([malformed, malformed])  # nothing undecided; the check of the spread speaks of these
    with pytest.raises(NothingToLearn) as caught:
        refuse_all_undecided([malformed, unread, judged("p", Decision.UNGRADABLE, "cut off"), unread])
    said = str(caught.value)
    assert "none of the 3 questions" in said and "2          only 0 of 3 votes could be read" in said
    assert "1          cut off" in said and "request_seconds" in said


def test_seeds_differ_by_every_part_of_their_path() -> None:
    paths = [(s, r, st, i) for s in (0, 1) for r in (1, 11) for st in ("questioner", "solver") for i in (0, 1)]
    assert len({derive(*p) for p in paths}) == len(paths)
    assert derive(0, 1, "questioner", 2) == derive(0, 1, "questioner", 2)
    assert min(derive(*p) for p in paths) >= 0 and max(derive(*p) for p in paths) < 2**31


@pytest.mark.parametrize(
    ("text", "reason", "outcome"),
    [
        ("\\boxed{ 14}", FinishReason.STOP, Outcome.RIGHT),
        ("\\boxed{28/2}", FinishReason.STOP, Outcome.RIGHT),
        ("\\boxed{ 15}", FinishReason.STOP, Outcome.WRONG),
        ("fourteen", FinishReason.STOP, Outcome.WRONG),
        ("\\boxed{ 14}", FinishReason.LENGTH, Outcome.UNDECIDED),
        ("", FinishReason.ERROR, Outcome.UNDECIDED),
    ],
)
def test_grading(text: str, reason: FinishReason, outcome: Outcome) -> None:
    assert grade("14", Reply(text, reason)) is outcome


@pytest.mark.parametrize(
    ("text", "reason", "gold", "reward"),
    [
        ("\\boxed{ INVALID}", FinishReason.STOP, "INVALID", 1.0),
        ("\\boxed{ INVALID}", FinishReason.STOP, "3", -0.5),
        ("\\boxed{ 3}", FinishReason.STOP, "3", 1.0),
        ("\\boxed{ 3}", FinishReason.STOP, "INVALID", 0.0),
        ("\\boxed{ 3}", FinishReason.LENGTH, "3", -0.1),
        ("no box", FinishReason.STOP, "3", -0.1),
        ("", FinishReason.TIMEOUT, "3", None),
    ],
)
def test_the_initialisation_reward_of_a_rollout(
    text: str, reason: FinishReason, gold: str, reward: float | None
) -> None:
    assert validity_reward(Rollout(0, (), {"answer": gold}, text, reason, 5)) == reward
