"""One round on a real language model, where its folder is at hand: nothing in the loop leans on the testbed.

Set SELFEVOLVE_REAL_MODEL to a local folder of Qwen2.5-Coder-0.5B-Instruct (or a model of like size) to run it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from selfevolve import evolve
from selfevolve.config import load_recipe
from selfevolve.diagnostics import NothingToLearn
from selfevolve.rundir import read_jsonl

FOLDER = os.environ.get("SELFEVOLVE_REAL_MODEL", "")


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER, reason="SELFEVOLVE_REAL_MODEL names no model folder")
def test_a_round_on_a_real_model(tmp_path: Path) -> None:
    overrides = [f"backbone={FOLDER}", f"referee_model={FOLDER}", "rounds=1", "candidates=16"]
    run = tmp_path / "run"
    try:
        evolve.run(load_recipe("qwen2.5-0.5b-cpu", overrides), run)
    except NothingToLearn as error:  # so small a model may keep nothing; the loop must then say so, with its reasons
        assert "decision" in str(error)
    steps = read_jsonl(run / "rounds/01/questioner/assessed.jsonl")
    pool = read_jsonl(run / "rounds/01/assessment/assessed.jsonl")
    assert len(steps) == 8 and len(pool) == 16
    assert all(row["reward"] is not None for row in steps)
    assert any(row["question"] for row in [*steps, *pool])
