"""Out of memory, inline and in child processes: one message that names the settings to change."""

from __future__ import annotations

import gc
import json
import os
import weakref
from pathlib import Path
from typing import Any

import pytest

from selfevolve import serving, stage_main
from selfevolve.config import load_recipe
from selfevolve.errors import UserError
from selfevolve.round import TRAINING, first_failure, stage, train_stage
from selfevolve.rundir import RunDir
from selfevolve.sampling import Sampling
from selfevolve.stages import Context
from selfevolve.stages.memory import MemoryFullError, is_out_of_memory, out_of_memory_is_clear
from tests.test_run import SMALL

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free."
)
CPU = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."


def full(*_: object) -> dict[str, Any]:
    import torch

    raise torch.OutOfMemoryError(CUDA)


def test_a_training_stage_names_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAINING, "questioner", full)
    run = RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", SMALL))
    with run.lock(), pytest.raises(MemoryFullError) as caught:
        train_stage(Context(run, 1), "questioner")
    said = str(caught.value)
    assert "stage questioner ran out of memory: CUDA out of memory. Tried to allocate 2.00 GiB" in said
    for setting in (
        "micro_batch (now 256)",
        "generation.batch (now 256)",
        "lora.rank=16",
        "gradient_checkpointing=true",
    ):
        assert setting in said
    assert (tmp_path / "run/rounds/01/questioner.partial").is_dir()  # the stage is not complete


def test_only_what_is_not_in_use_is_named() -> None:
    recipe = load_recipe("testbed/r_quest", ["lora.rank=8", "gradient_checkpointing=true"])
    with pytest.raises(MemoryFullError) as caught, out_of_memory_is_clear("solver", recipe, training=True):
        full()
    assert "lora.rank" not in caught.value.remedy and "gradient" not in caught.value.remedy
    with pytest.raises(MemoryFullError) as caught, out_of_memory_is_clear("assessment", recipe):
        full()
    assert "generation.batch (now 1024)" in caught.value.remedy and "micro_batch" not in caught.value.remedy


def test_another_stage_names_the_sampling(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", SMALL))
    with run.lock(), pytest.raises(MemoryFullError, match="stage candidates ran out of memory"):
        stage(Context(run, 1), "candidates", full)


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (RuntimeError(CPU), True),
        (RuntimeError(CUDA), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError(CUDA), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, is_it: bool) -> None:
    assert is_out_of_memory(error) is is_it


def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solver: Any, rank: str) -> int:
    """Run the entry of a stage's child process here."""
    if not (tmp_path / "run").exists():
        RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", SMALL))
        (tmp_path / "stage").mkdir()
    monkeypatch.setattr(stage_main, "die_with_parent", lambda: None)
    monkeypatch.setitem(TRAINING, "solver", solver)
    monkeypatch.setenv("RANK", rank)
    return stage_main.main(str(tmp_path / "run"), "1", "solver", str(tmp_path / "stage"))


def test_a_child_s_failure_reaches_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert child(tmp_path, monkeypatch, full, "1") == 1
    assert "selfevolve: error: stage solver ran out of memory" in capsys.readouterr().err

    def follow(ctx: object, folder: Path) -> dict[str, Any]:
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(RuntimeError):
        child(tmp_path, monkeypatch, follow, "0")
    folder = tmp_path / "stage"
    assert sorted(p.name for p in folder.iterdir()) == ["failure-0.json", "failure-1.json"]
    for rank, seconds in ((1, 100), (0, 101)):  # which failed first, whatever the clock's grain
        os.utime(folder / f"failure-{rank}.json", (seconds, seconds))
    cause = first_failure(folder)
    assert isinstance(cause, UserError) and "micro_batch" in cause.remedy
    assert cause.message.startswith("stage solver ran out of memory: CUDA out of memory.")
    os.utime(folder / "failure-0.json", (99, 99))
    late = first_failure(folder)
    assert late is not None and "Traceback" in late.message and "Connection closed by peer" in late.message


def test_a_child_that_ends_well_leaves_its_counts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert child(tmp_path, monkeypatch, lambda ctx, folder: {"rows": 3}, "0") == 0
    assert {p.name: json.loads(p.read_text()) for p in (tmp_path / "stage").iterdir()} == {"counts.json": {"rows": 3}}
    assert first_failure(tmp_path / "stage") is None


def test_a_process_of_several_loads_its_models_onto_a_gpu_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen models are loaded before the trainer, and so accelerate, chooses the process's GPU."""
    import torch

    chosen: list[int] = []
    for name, stand_in in {
        "is_available": lambda: True,
        "device_count": lambda: 4,
        "set_device": chosen.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)

    def seen(ctx: object, folder: Path) -> dict[str, Any]:
        return {"gpu": list(chosen)}

    assert child(tmp_path, monkeypatch, seen, "0") == 0 and chosen == []  # a lone process keeps what it has
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert child(tmp_path, monkeypatch, seen, "0") == 0
    assert json.loads((tmp_path / "stage" / "counts.json").read_text()) == {"gpu": [3]}


@pytest.mark.parametrize(
    ("name", "given", "loaded"),
    [
        ("testbed/r_quest", [], False),  # the main process computes the reward of all
        ("testbed/ask_e", ["initialisation.enabled=false", "solver.replay=0"], False),
        ("testbed/ask_e_sessions", [], True),  # every process plays its own sessions
    ],
)
def test_only_the_main_process_holds_the_frozen_models_of_the_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: list[str], loaded: bool
) -> None:
    run = RunDir.create(tmp_path / "run", load_recipe(name, given))
    found = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        ctx = Context(run, 1)
        found[rank] = ctx.sampler(ctx.base, "base", "base")
    assert hasattr(found["0"], "model") and hasattr(found["1"], "model") is loaded
    if not loaded:
        with pytest.raises(RuntimeError, match="base lives in the main process"):
            found["1"].sample([], Sampling())


class Model:
    """Stands for a sampler, or a trainer that holds itself."""

    me: Any = None


def test_a_closed_model_is_gone_before_memory_goes_back_to_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    models = [Model(), Model()]
    seen, left = [weakref.ref(model) for model in models], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: left.append(sum(ref() is not None for ref in seen)))
    samplers: Any = models
    del models
    serving.close(samplers)
    assert left == [0] and samplers == []


def test_the_trainer_is_gone_when_its_stage_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def trained(*_: object) -> dict[str, Any]:
        trainer = Model()
        trainer.me = trainer
        made.append(weakref.ref(trainer))
        return {}

    monkeypatch.setitem(TRAINING, "solver", trained)
    run = RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", SMALL))
    gc.disable()
    try:
        with run.lock():
            train_stage(Context(run, 1), "solver")
        assert made[0]() is None
    finally:
        gc.enable()
