"""Two rounds of the testbed with Ask-E's reward, small: records, metrics, the memory across rounds, resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aske.reward import Memory, unit_rows
from selfevolve import evolve
from selfevolve.config import Recipe, load_recipe
from selfevolve.embed import HashedNgrams
from selfevolve.jsonl import read_jsonl
from selfevolve.round import TRAINING
from selfevolve.rundir import RunDir
from selfevolve.stages import Context

SMALL = [
    "rounds=2", "questioner.steps=1", "questioner.prompts=6", "questioner.global_batch=6", "candidates=24",
    "assessment.validity.votes=3", "assessment.solutions=3", "solver.steps=1", "solver.prompts=4",
    "solver.global_batch=4", "solver.responses=3", "diagnostics.heldout=4", "diagnostics.solver_samples=1",
    "monitor.min_kept=1", "generation.batch=256", "assessment.share_high=0.99",
]  # fmt: skip
LABELS = {"calibrated", "too_easy", "too_hard", "no_question", "bad_cross_check", "ungradable"}


def recipe(*overrides: str) -> Recipe:
    return load_recipe("testbed/ask_e", [*SMALL, *overrides])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evolve.run(recipe(), tmp_path_factory.mktemp("ask_e") / "run")


def questioner_rows(run: Path, number: int) -> list[dict[str, Any]]:
    return read_jsonl(run / f"rounds/{number:02d}/questioner/assessed.jsonl")


def test_every_candidate_has_its_game_in_the_record(whole: Path) -> None:
    for number in (1, 2):
        rows = questioner_rows(whole, number)
        assert len(rows) == 24 and all(row["solutions"] is None for row in rows)
        for row in rows:
            game = row["ask_e"]
            assert game["pair"] == ["base", "current"] and game["label"] in LABELS
            assert game["same_weights"] is (number == 1)  # without an initialisation the solver of round 1 is the base
            assert (row["reward"] is None) is (game["label"] == "ungradable")
            if game["label"] == "calibrated":
                assert row["reward"]["terms"]["calibration"] == 1.0 and len(game["boundary"]) == 2
    pool = read_jsonl(whole / "rounds/02/assessment/assessed.jsonl")
    assert all("ask_e" not in row for row in pool)
    assert all(row["solutions"]["asked"] == 3 for row in pool if row["question"] is not None)


def test_labels_of_a_round_stand_in_the_metrics(whole: Path) -> None:
    first, second = read_jsonl(whole / "metrics.jsonl")
    for metrics, rows in ((first, questioner_rows(whole, 1)), (second, questioner_rows(whole, 2))):
        labels = [row["ask_e"]["label"] for row in rows]
        assert metrics["ask_e_labels"] == {label: labels.count(label) for label in sorted(set(labels))}
        assert metrics["calibrated_rate"]["k"] == labels.count("calibrated")
        assert metrics["calibrated_rate"]["n"] == 24 - labels.count("ungradable")
    assert (first["same_weights_rate"]["value"], second["same_weights_rate"]["value"]) == (1.0, 0.0)


def test_the_memory_goes_on_from_round_to_round(whole: Path) -> None:
    remembered: list[str] = []
    for number in (1, 2):
        remembered += [
            row["question"]
            for row in questioner_rows(whole, number)
            if row["question"] is not None and row["ask_e"]["label"] != "ungradable"
        ]
        saved = json.loads((whole / f"rounds/{number:02d}/questioner/memory.json").read_text())
        assert saved["questions"] == remembered
    # a reward of round 2 is measured against all of round 1
    first = questioner_rows(whole, 1)
    known = [r["question"] for r in first if r["question"] is not None and r["ask_e"]["label"] != "ungradable"]
    memory, embed = Memory(), HashedNgrams()
    memory.add(known, unit_rows(embed(known)))
    earning = [r for r in questioner_rows(whole, 2) if r["ask_e"]["label"] == "too_easy"]
    assert earning
    for row in earning:
        [near] = memory.similarity(unit_rows(embed([row["question"]])), 5)
        assert row["reward"]["terms"]["diversity"] == pytest.approx(0.2 * (1 - near))


@pytest.mark.slow
def test_an_interrupted_round_resumes_to_the_same_records(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = TRAINING["questioner"]

    def torn(ctx: Context, folder: Path) -> dict[str, Any]:
        if ctx.round == 2:
            (folder / "assessed.jsonl").write_text('{"torn":')
            raise KeyboardInterrupt
        return train(ctx, folder)

    with monkeypatch.context() as patch:
        patch.setitem(TRAINING, "questioner", torn)
        with pytest.raises(KeyboardInterrupt):
            evolve.run(recipe(), tmp_path / "run")
    resumed = evolve.resume(tmp_path / "run")
    for number in (1, 2):
        assert questioner_rows(resumed, number) == questioner_rows(whole, number)
        weights = [RunDir.open(run).checkpoint(number, "questioner") / "model.safetensors" for run in (resumed, whole)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
