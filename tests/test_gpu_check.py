"""The script for a GPU machine, whole, on a CPU: bfloat16 against float32 on the same rollouts, and what it writes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("trl")

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "gpu_check.py"
TINY = ["--device", "cpu", "--layers", "1", "--width", "32", "--prompts", "4", "--responses", "2", "--new-tokens", "6",
        "--micro-batch", "4", "--repeats", "1"]  # fmt: skip


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], str]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("report") / "check"
    status = script().main([*TINY, "--in-process", "--out", str(out)])
    torch.set_num_threads(threads)
    return status, json.loads(out.with_suffix(".json").read_text()), out.with_suffix(".txt").read_text()


def test_bfloat16_agrees_with_float32_and_is_not_the_same(report: tuple[int, dict[str, Any], str]) -> None:
    status, found, _ = report
    assert status == 0 and found["ok"] and len(found["models"]) == 2
    for part in found["models"].values():
        measured = {(c["dtype"], c["step"], c["figure"]): c["measured"] for c in part["checks"]}
        assert len(measured) == 2 * 2 * 4 and all(c["holds"] for c in part["checks"])
        for step in (1, 2):  # other arithmetic was really used, and on a CPU float32 is the reference itself
            assert measured["bfloat16", step, "log-probability, mean difference"] > 1e-5
            assert measured["float32", step, "log-probability, mean difference"] == 0.0
        losses = part["losses"]
        assert losses["float32"] == losses["cpu float32"] and losses["float32"] != losses["bfloat16"]
        assert all(row["grad_norm"] > 0 for rows in losses.values() for row in rows)


def test_figures_of_speed_and_memory(report: tuple[int, dict[str, Any], str]) -> None:
    _, found, text = report
    for part in found["models"].values():
        for what in ("sampling", "training"):
            assert part[what]["ours_tokens_a_second"] > 0 and part[what]["bare_tokens_a_second"] > 0
        assert set(part["peak_mib"]) == {"sampling", "training", "bare"}
        assert all(value > 50 for value in part["peak_mib"].values())
    assert found["machine"]["versions"]["torch"] and found["attention"] == "sdpa"
    assert "all checks hold" in text and "bfloat16, step 2: gradient norm" in text and "NOT" not in text


def test_a_figure_outside_its_bound_is_told(report: tuple[int, dict[str, Any], str]) -> None:
    found = deepcopy(report[1])
    check = script()
    log = [{"loss": 0.1, "entropy": 2.0, "grad_norm": 1.0}] * 2
    one = {"log": log, "logps": [[-1.0, -2.0], [-1.0, -2.0]]}
    other = {"log": [log[0] | {"grad_norm": 2.0}, log[1]], "logps": [[-1.0, -2.5], [-1.0, -2.0]]}
    lines = check.compare("model", "bfloat16", other, one)
    assert [(c["step"], c["figure"].split(",")[0]) for c in lines if not c["holds"]] == [
        (1, "log-probability"),
        (1, "gradient norm"),
    ]
    assert lines[0]["measured"] == 0.25 and lines[2]["measured"] == 1.0  # half a nat over two tokens; twice the norm
    found["models"] = {"model": next(iter(found["models"].values())) | {"checks": lines}}
    assert check.table(found | {"ok": False}).count("NOT WITHIN ITS BOUND") == 2


def test_no_gpu_is_one_clear_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script().main([]) == 2
    told = capsys.readouterr().err
    assert "sees no CUDA GPU" in told and "--device cpu" in told


@pytest.mark.slow
def test_jobs_in_child_processes_give_the_same_figures(report: tuple[int, dict[str, Any], str], tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), *TINY, "--layers", "0", "--out", str(tmp_path / "check")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "check.json").read_text())["models"]["testbed:base"]
    inside = report[1]["models"]["testbed:base"]
    for name, rows in found["losses"].items():
        assert [r["loss"] for r in rows] == pytest.approx([r["loss"] for r in inside["losses"][name]], abs=1e-6)


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    assert script().main(["--layers", "0", "--out", str(tmp_path / "check")]) == 0
