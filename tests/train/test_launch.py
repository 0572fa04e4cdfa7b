"""Child processes: the command line, failures, and one real step on two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from selfevolve.train.launch import LaunchError, Meeting, command, environment, launch


def test_command_never_asks_for_cpu_mode_by_flag() -> None:
    line = command(["some.module", "a"], 2, None, cpu=True)
    assert "--cpu" not in line and "--multi_gpu" in line
    assert line[-3:] == ["-m", "some.module", "a"]
    assert line[line.index("--num_processes") + 1] == "2"
    assert "--multi_gpu" not in command(["m"], 1, None, cpu=True)
    assert "--config_file" in command(["m"], 2, Path("x.yaml"), cpu=False)


def test_command_of_one_of_several_machines() -> None:
    met = Meeting(2, 1, "10.0.0.1", 29400, lambda: None)
    line = command(["m"], 8, Path("two_nodes.yaml"), cpu=False, meeting=met)
    options = dict(pairwise(line))
    wanted = {
        "--num_processes": "8", "--num_machines": "2", "--machine_rank": "1", "--main_process_ip": "10.0.0.1",
        "--main_process_port": "29400", "--config_file": "two_nodes.yaml",
        "--deepspeed_multinode_launcher": "standard",
    }  # fmt: skip
    assert {name: options[name] for name in wanted} == wanted
    assert "--multi_gpu" not in line and "--multi_gpu" in command(["m"], 2, None, cpu=True, meeting=met)


@pytest.mark.parametrize("rank", [0, 1])
def test_accelerate_reads_the_config_of_two_machines_as_it_is_meant(rank: int) -> None:
    """Up to the start of processes: each machine starts its share, and all meet at the address that we gave."""
    from accelerate.commands import launch as accelerate_launch
    from accelerate.utils.launch import prepare_multi_gpu_env

    from selfevolve.config import recipes_folder

    config = recipes_folder() / "accelerate" / "two_nodes.yaml"
    line = command(["m"], 8, config, cpu=False, meeting=Meeting(2, rank, "127.0.0.1", 29437, lambda: None))
    options = accelerate_launch.launch_command_parser().parse_args(line[3:])
    found, _, _ = accelerate_launch._validate_launch_command(options)
    prepare_multi_gpu_env(found)
    assert (found.nnodes, found.nproc_per_node, found.node_rank) == ("2", "4", rank)
    assert found.rdzv_endpoint == "127.0.0.1:29437"
    assert (found.multi_gpu, found.mixed_precision, found.rdzv_backend) == (True, "bf16", "static")


def test_environment() -> None:
    assert environment(2, True, {})["ACCELERATE_USE_CPU"] == "true"
    assert "ACCELERATE_USE_CPU" not in environment(2, False, {})
    assert environment(2, True, {"OMP_NUM_THREADS": "7"})["OMP_NUM_THREADS"] == "7"


def test_a_worker_whose_run_is_gone_does_not_start() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    line = [sys.executable, "-c", "from selfevolve.train.launch import die_with_parent as d; d(); print('up')"]
    for starter, status in ((gone.pid, 1), (os.getpid(), 0)):
        done = subprocess.run(
            line, env={**os.environ, "SELFEVOLVE_STARTED_BY": str(starter)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == status and ("up" in done.stdout) is (status == 0)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="at least 1"):
        launch(["m"], 0)
    with pytest.raises(LaunchError, match="does not exist"):
        launch(["m"], 1, Path("no-such.yaml"))


@pytest.mark.slow
def test_a_file_of_one_process_does_not_make_one_of_several() -> None:
    from accelerate.commands import launch as accelerate_launch

    from selfevolve.config import recipes_folder

    config = recipes_folder() / "accelerate" / "single_gpu.yaml"
    line = command(["m"], 3, config, cpu=False)
    options = accelerate_launch.launch_command_parser().parse_args(line[3:])
    found, _, _ = accelerate_launch._validate_launch_command(options)
    assert (found.multi_gpu, found.num_processes) == (True, 3)
    assert "--multi_gpu" not in command(["m"], 1, config, cpu=False)
    assert "--multi_gpu" not in command(["m"], 3, config.with_name("fsdp2.yaml"), cpu=False)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(LaunchError, match=r"3 training processes .* torch sees 2"):
        launch(["m"], 3)
    with pytest.raises(LaunchError, match="3 training processes"):  # of six, on two machines
        launch(["m"], 6, meeting=Meeting(2, 0, "127.0.0.1", 29400, lambda: None))


def test_failure_shows_the_last_lines() -> None:
    lines: list[str] = []
    with pytest.raises(LaunchError, match="No module named"):
        launch(["selfevolve.no_such_module"], 1, cpu=True, echo=lines.append)
    assert any("No module named" in line for line in lines)


@pytest.mark.slow
def test_two_processes_reward_the_whole_batch_once_and_agree(tmp_path: Path) -> None:
    from tests.tiny_model import save_tiny

    save_tiny(tmp_path / "policy", words=60, hidden=32, layers=2, spread=8.0)
    seen: dict[int, list[dict[str, object]]] = {}
    for processes in (2, 1):
        launch(["tests.train.two_process_stage", str(tmp_path), "train"], processes, cpu=True, echo=lambda _: None)
        seen[processes] = [json.loads((tmp_path / f"rank-{i}.json").read_text()) for i in range(processes)]
    first, second = seen[2]
    assert first["count"] == second["count"] == 2
    assert second["calls"] == [] and [len(texts) for texts in first["calls"]] == [12]  # type: ignore[union-attr, attr-defined]
    assert first["digest"] == second["digest"]
    assert first["reward"] == second["reward"]
    assert seen[1][0]["calls"] == first["calls"]  # the completions do not depend on the number of processes
    assert (tmp_path / "out-2" / "model.safetensors").is_file()


@pytest.mark.slow
def test_two_processes_hold_the_conversations_that_one_would(tmp_path: Path) -> None:
    from tests.tiny_model import save_tiny

    save_tiny(tmp_path / "policy", words=60, hidden=32, layers=2, spread=8.0)
    seen: dict[int, list[dict[str, Any]]] = {}
    for processes in (2, 1):
        launch(["tests.train.two_process_stage", str(tmp_path), "talk"], processes, cpu=True, echo=lambda _: None)
        seen[processes] = [json.loads((tmp_path / f"rank-{i}.json").read_text()) for i in range(processes)]
    first, second = seen[2]
    assert (first["places"], second["places"]) == ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11])  # each its own
    assert len(first["calls"]) == 1 and second["calls"] == []  # the reward of all, once
    assert [place for place, _ in first["calls"][0]] == list(range(12))
    assert first["calls"] == seen[1][0]["calls"]
    assert first["digest"] == second["digest"]
    for got in (second, seen[1][0]):
        assert got["facts"][:3] == first["facts"][:3] and got["reward"] == first["reward"]
        assert got["facts"][3] == pytest.approx(first["facts"][3], rel=1e-3)  # the same gradient


@pytest.mark.slow
def test_a_world_that_fails_on_one_process_ends_all(tmp_path: Path) -> None:
    from tests.tiny_model import save_tiny

    save_tiny(tmp_path / "policy", words=60, hidden=32, layers=2)
    lines: list[str] = []
    with pytest.raises(LaunchError):
        launch(["tests.train.two_process_stage", str(tmp_path), "broken"], 2, cpu=True, echo=lines.append)
    assert any("RuntimeError: the solver is gone" in line for line in lines)
    assert not (tmp_path / "out-2").exists()


@pytest.mark.slow
def test_a_failing_reward_ends_all_processes(tmp_path: Path) -> None:
    from tests.tiny_model import save_tiny

    save_tiny(tmp_path / "policy", words=60, hidden=32, layers=2)
    with pytest.raises(LaunchError):
        launch(["tests.train.two_process_stage", str(tmp_path), "fail"], 2, cpu=True, echo=lambda _: None)
    assert not (tmp_path / "out-2").exists()


def test_python_is_this_one() -> None:
    assert command(["m"], 1, None, cpu=True)[0] == sys.executable
