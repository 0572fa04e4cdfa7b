"""The sampler over servers of the run: start, replies, faults, restart, stop. Every server is a real process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from selfevolve.config.backends import Backend
from selfevolve.sampling import FinishReason, KeyedSampler, Sampling, sample_more, user
from selfevolve.sampling.transformers_sampler import TransformersSampler
from selfevolve.serving import ServerError, process, served
from selfevolve.serving.process import ServerProcess, command_line, server_environment
from selfevolve.serving.served import ServedSampler
from tests.serving.conftest import gone
from tests.serving.engine import Engine

PROMPTS = [user(f"w{i} w{i + 1}") for i in range(12)]
DRAW = Sampling(n=3, max_tokens=12, seed=5)

Command = Callable[..., list[str]]


@contextmanager
def serving(folder: str, words: list[str], log: Path, limit: int | None = None, **keys: Any) -> Iterator[ServedSampler]:
    backend = Backend(kind="server", command=tuple(words), **({"start_seconds": 60} | keys))
    made = ServedSampler(backend, folder, "solver", log, dtype="float32", max_prompt_tokens=limit)
    try:
        yield made
    finally:
        made.close()


def pids(faults: Path) -> list[int]:
    return [int(line) for line in (faults / "pids").read_text().split()]


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    folder = tmp_path / "faults"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def undisturbed(folders: dict[str, str], engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What servers without faults reply."""
    from tests.serving.conftest import FRONT

    words = [
        sys.executable,
        "-S",
        str(FRONT),
        "--engine",
        engine.url,
        *["--model", "{model}", "--host", "{host}", "--port", "{port}"],
    ]
    with serving(folders["chat"], words, tmp_path_factory.mktemp("undisturbed") / "log") as sampler:
        return sampler.sample(PROMPTS, DRAW)


def test_replies_are_the_model_s_and_the_servers_end(
    folders: dict[str, str], command: Command, faults: Path, tmp_path: Path
) -> None:
    inside = TransformersSampler(folders["chat"])
    greedy = Sampling(n=2, temperature=0.0, max_tokens=12)
    with serving(folders["chat"], command(faults), tmp_path / "servers" / "solver.log") as sampler:
        assert isinstance(sampler, KeyedSampler) and sampler.name == "solver"
        assert sampler.sample(PROMPTS, greedy) == inside.sample(PROMPTS, greedy)
        drawn = sampler.sample(PROMPTS, DRAW)
        assert [len(group) for group in drawn] == [3] * 12
        assert len({reply.text for group in drawn for reply in group}) > 20
        again = sample_more(sampler, PROMPTS[3:5], Sampling(n=1, first=2, max_tokens=12, seed=5), [3, 4])
        assert again == [drawn[3][2:], drawn[4][2:]]
    [pid] = pids(faults)
    assert gone(pid)
    assert (tmp_path / "servers" / "solver.log").read_text().splitlines()[1] == f"front of {folders['chat']}"


def test_a_draw_in_parts_is_the_draw_at_once(
    folders: dict[str, str], command: Command, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folders["chat"], command(), tmp_path / "log") as sampler:
        before = len(engine.bodies)
        parts = sampler.sample(PROMPTS[:1], Sampling(n=40, max_tokens=8, seed=3))
        assert sorted(body["n"] for body in engine.bodies[before:]) == [8, 16, 16]
        monkeypatch.setattr(served, "CHOICES", 64)
        assert sampler.sample(PROMPTS[:1], Sampling(n=40, max_tokens=8, seed=3)) == parts
        assert sampler.sample([], DRAW) == []


@pytest.mark.parametrize(("kind", "route"), [("chat", "/v1/chat/completions"), ("plain", "/v1/completions")])
def test_the_format_is_the_one_of_the_sampler_in_process(
    folders: dict[str, str], command: Command, engine: Engine, tmp_path: Path, kind: str, route: str, caplog: Any
) -> None:
    caplog.set_level("INFO", "selfevolve")
    inside = TransformersSampler(folders[kind])
    greedy = Sampling(temperature=0.0, max_tokens=8)
    prompts = [user("w1 w2", "w3"), user("w4")]
    with serving(folders[kind], command(), tmp_path / "log") as sampler:
        assert sampler.formatter.format is inside.format
        assert sampler.sample(prompts, greedy) == inside.sample(prompts, greedy)
    assert engine.routes[-1] == route
    assert sum("prompts in" in line and "solver" in line for line in caplog.messages) == 1


def test_a_prompt_that_is_too_long_fails_as_in_process(
    folders: dict[str, str], command: Command, tmp_path: Path
) -> None:
    inside = TransformersSampler(folders["chat"], max_prompt_tokens=3)
    prompts = [user("w1 w2 w3 w4"), user("w1"), user("")]
    greedy = Sampling(n=2, temperature=0.0, max_tokens=4)
    with serving(folders["chat"], command(), tmp_path / "log", limit=3) as sampler:
        found = sampler.sample(prompts, greedy)
    assert found == inside.sample(prompts, greedy)
    assert [group[0].finish_reason is FinishReason.ERROR for group in found] == [True, False, True]


def test_replicas_share_the_work(
    folders: dict[str, str], command: Command, engine: Engine, faults: Path, tmp_path: Path, undisturbed: Any
) -> None:
    with serving(folders["chat"], command(faults), tmp_path / "a.log", replicas=2, concurrency=4) as sampler:
        assert sampler.sample(PROMPTS, DRAW) == undisturbed
        counts = [engine.fronts[str(p.pid)] for p in sampler.processes]
        assert sum(counts) == 12 and min(counts) >= 4
    assert sorted(p.name for p in tmp_path.glob("*.log")) == ["a-1.log", "a-2.log"]
    assert all(gone(pid) for pid in pids(faults))


# ---------------------------------------------------------------- faults


def test_a_server_that_dies_at_its_start(
    folders: dict[str, str], command: Command, faults: Path, tmp_path: Path
) -> None:
    (faults / "die-at-start-1").touch()
    with (
        serving(folders["chat"], command(faults), tmp_path / "log") as sampler,
        pytest.raises(ServerError, match=r"ended before it answered \(status 1\)") as caught,
    ):
        sampler.sample(PROMPTS, DRAW)
    assert "a reason to die: no such device" in caught.value.message and "resume" in caught.value.remedy
    assert str(tmp_path / "log") in caught.value.message


def test_a_server_that_never_answers(folders: dict[str, str], command: Command, faults: Path, tmp_path: Path) -> None:
    (faults / "silent").touch()
    with (
        serving(folders["chat"], command(faults), tmp_path / "log", start_seconds=1.5) as sampler,
        pytest.raises(ServerError, match=r"start_seconds = 1.5 \(no server answers") as caught,
    ):
        sampler.sample(PROMPTS, DRAW)
    assert f"front of {folders['chat']}" in caught.value.message and "raise start_seconds" in caught.value.remedy
    assert all(gone(pid) for pid in pids(faults))


def test_a_server_of_another_model_is_told(folders: dict[str, str], command: Command, tmp_path: Path) -> None:
    words = [word.replace("{model}", "another") for word in command()]
    with (
        serving(folders["chat"], words, tmp_path / "log", start_seconds=1.5) as sampler,
        pytest.raises(ServerError, match="it serves another"),
    ):
        sampler.sample(PROMPTS, DRAW)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_server_that_dies_in_a_stage_is_restarted_and_no_reply_changes(
    folders: dict[str, str],
    command: Command,
    faults: Path,
    tmp_path: Path,
    undisturbed: Any,
    replicas: int,
    caplog: Any,
) -> None:
    (faults / "die-after-1").write_text("3")
    with serving(folders["chat"], command(faults), tmp_path / "log", replicas=replicas, concurrency=2) as sampler:
        assert sampler.sample(PROMPTS, DRAW) == undisturbed
        assert sampler.sample(PROMPTS, DRAW) == undisturbed
        assert sampler.restarts == 1 and len(pids(faults)) == replicas + 1
    assert "the server died; it is restarted once" in caplog.text
    assert all(gone(pid) for pid in pids(faults))


def test_a_server_that_dies_twice_is_an_error(
    folders: dict[str, str], command: Command, faults: Path, tmp_path: Path
) -> None:
    (faults / "die-after-1").write_text("3")
    (faults / "die-after-2").write_text("2")
    with (
        serving(folders["chat"], command(faults), tmp_path / "log", concurrency=2) as sampler,
        pytest.raises(ServerError, match=r"died again, after one restart \(status 9\)"),
    ):
        sampler.sample(PROMPTS, DRAW)
    assert len(pids(faults)) == 2 and all(gone(pid) for pid in pids(faults))


def test_a_server_that_does_not_come_back_is_an_error(
    folders: dict[str, str], command: Command, faults: Path, tmp_path: Path
) -> None:
    (faults / "die-after-1").write_text("3")
    (faults / "die-at-start-2").touch()
    with (
        serving(folders["chat"], command(faults), tmp_path / "log", concurrency=2) as sampler,
        pytest.raises(ServerError, match="after one restart") as caught,
    ):
        sampler.sample(PROMPTS, DRAW)
    assert "a reason to die: no such device" in caught.value.message


def test_a_failure_at_a_living_server_is_a_reply(
    folders: dict[str, str],
    command: Command,
    engine: Engine,
    faults: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(group: Any, members: Any) -> None:
        for one in members:
            one.answer = {"choices": []}
            one.done.set()

    monkeypatch.setattr(engine, "decode", broken)
    with serving(folders["chat"], command(faults), tmp_path / "log") as sampler:
        found = sampler.sample(PROMPTS[:2], DRAW)
    assert {reply.finish_reason for group in found for reply in group} == {FinishReason.ERROR}
    assert len(pids(faults)) == 1


def test_the_check_before_a_stage_restarts_what_does_not_answer(
    folders: dict[str, str],
    command: Command,
    faults: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Any,
) -> None:
    monkeypatch.setattr(served, "PROBE", 0.5)
    with serving(folders["chat"], command(faults), tmp_path / "log") as sampler:
        sampler.check()  # not started yet: nothing to see
        assert not (faults / "pids").exists()
        sampler.sample(PROMPTS[:1], DRAW)
        sampler.check()
        assert sampler.restarts == 0
        (faults / "deaf").touch()
        stop = ServerProcess.stop

        def stopped(self: ServerProcess) -> None:
            stop(self)
            (faults / "deaf").unlink(missing_ok=True)

        monkeypatch.setattr(ServerProcess, "stop", stopped)
        sampler.check()
        assert sampler.restarts == 1 and len(pids(faults)) == 2
        assert sampler.sample(PROMPTS, DRAW) == undisturbed


def test_a_taken_port_is_changed(
    folders: dict[str, str], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Any
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setattr(served, "PROBE", 0.2)
        free = process.free_port
        ports = iter([other.getsockname()[1]])
        monkeypatch.setattr(process, "free_port", lambda host: next(ports, None) or free(host))
        with serving(folders["chat"], command(), tmp_path / "log") as sampler:
            assert sampler.sample(PROMPTS, DRAW) == undisturbed
            assert sampler.processes[0].port != other.getsockname()[1] and sampler.restarts == 0


def test_a_program_that_is_not_there(folders: dict[str, str], tmp_path: Path) -> None:
    with (
        serving(folders["chat"], ["/nowhere/server", "{port}"], tmp_path / "log") as sampler,
        pytest.raises(ServerError, match="cannot be started"),
    ):
        sampler.start()


# ---------------------------------------------------------------- the end


def test_a_server_that_does_not_want_to_end_is_ended(
    folders: dict[str, str], command: Command, faults: Path, tmp_path: Path
) -> None:
    (faults / "stubborn").touch()
    with serving(folders["chat"], command(faults), tmp_path / "log") as sampler:
        sampler.sample(PROMPTS[:1], DRAW)
        begun = time.monotonic()
    assert 0.9 < time.monotonic() - begun < 5
    [pid] = pids(faults)
    assert gone(pid)


def test_a_killed_run_leaves_no_server(folders: dict[str, str], command: Command, faults: Path, tmp_path: Path) -> None:
    code = f"""
        import time
        from pathlib import Path
        from selfevolve.config.backends import Backend
        from selfevolve.serving.process import ServerProcess
        backend = Backend(kind="server", command={tuple(command(faults))!r})
        ServerProcess(backend, {folders["chat"]!r}, "solver", Path({str(tmp_path / "log")!r}), dtype="float32", trusted=False).start()
        print("started", flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "started\n"
        end = time.monotonic() + 10
        while not (faults / "pids").exists() and time.monotonic() < end:
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
    [pid] = pids(faults)
    assert gone(pid)


# ---------------------------------------------------------------- command and environment


def test_the_command_of_vllm() -> None:
    backend = Backend(kind="server", python="/opt/v/bin/python", gpu_memory=0.5, arguments=("--max-model-len", "4096"))
    line = "/opt/v/bin/python -m vllm.entrypoints.openai.api_server --model M --host 127.0.0.1 --port 81"
    line += " --generation-config vllm --dtype bfloat16 --load-format safetensors --gpu-memory-utilization 0.5"
    assert command_line(backend, "M", "bfloat16", 81, False) == f"{line} --max-model-len 4096".split()
    trusted = command_line(Backend(kind="server"), "M", "float32", 81, True)
    assert trusted[0] == sys.executable and "--trust-remote-code" in trusted


def test_the_environment_is_ours_without_the_launcher_s() -> None:
    base = {"PATH": "/bin", "RANK": "0", "ACCELERATE_USE_CPU": "true", "MASTER_PORT": "1", "HF_HUB_OFFLINE": "1"}
    found = server_environment(base, "2,3", "/opt/v/bin/python")
    assert found == {
        "PATH": "/opt/v/bin:/bin",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "PYTHONUNBUFFERED": "1",
    }
    assert "CUDA_VISIBLE_DEVICES" not in server_environment(base, None, None)


def test_each_replica_has_its_devices(folders: dict[str, str], command: Command, faults: Path, tmp_path: Path) -> None:
    with serving(folders["chat"], command(faults), tmp_path / "log", replicas=3, devices=("4", "5,6")) as sampler:
        assert [p.devices for p in sampler.processes] == ["4", "5,6", "4"]
    with serving(folders["chat"], command(faults), tmp_path / "log", devices=("7",)) as sampler:
        sampler.sample(PROMPTS[:1], DRAW)
    environment = json.loads((faults / "environment.json").read_text())
    assert environment["CUDA_VISIBLE_DEVICES"] == "7" and environment["HOME"] == os.environ["HOME"]


def test_an_exposed_server_is_warned_of(folders: dict[str, str], command: Command, tmp_path: Path, caplog: Any) -> None:
    with serving(folders["chat"], command(), tmp_path / "log", host="0.0.0.0") as sampler:
        sampler.sample(PROMPTS[:1], DRAW)
        assert sampler.processes[0].url.startswith("http://127.0.0.1:")
    assert "listens on 0.0.0.0, where others can reach it" in caplog.text


def test_vllm_is_told_where_the_template_ends_a_turn(folders: dict[str, str], tmp_path: Path) -> None:
    made = ServedSampler(Backend(kind="server"), folders["chat"], "solver", tmp_path / "log", dtype="float32")
    assert made._connected().endpoint.extra_body == {"return_token_ids": True}  # its template writes no such token
    made.formatter.__dict__["turn_end"] = 7
    assert made._connected().endpoint.extra_body == {"return_token_ids": True, "stop_token_ids": [7]}
    with serving(folders["chat"], ["engine"], tmp_path / "log") as other:  # another engine may refuse fields
        other.formatter.__dict__["turn_end"] = 7
        assert other._connected().endpoint.extra_body == {}
