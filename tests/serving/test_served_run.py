"""A round's models through the recipe's backends: what a Context hands out, and a whole run on servers."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from selfevolve import evolve
from selfevolve.config import Recipe, load_recipe
from selfevolve.round import initialise
from selfevolve.rundir import RunDir, read_jsonl
from selfevolve.sampling import KeyedSampler, Sampling, user
from selfevolve.serving import Elsewhere, ServerError
from selfevolve.stages import Context
from selfevolve.testbed import exam
from tests.sampling.fake_server import FakeServer
from tests.serving.conftest import gone
from tests.test_run import records, small, without_times


def on_servers(words: list[str], *overrides: str) -> Recipe:
    return small("testbed/r_quest", f"backends.default={{kind: server, command: {json.dumps(words)}}}", *overrides)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Callable[..., Context]]:
    made: list[Context] = []

    def make(recipe: Recipe) -> Context:
        made.append(Context(RunDir.create(tmp_path / f"run-{len(made)}", recipe), 1))
        return made[-1]

    yield make
    for ctx in made:
        ctx.release()


def test_roles_share_a_sampler_and_servers_stop_when_nobody_asks_again(
    context: Callable[..., Context], command: Callable[..., list[str]], folders: dict[str, str], tmp_path: Path
) -> None:
    ctx = context(on_servers(command(), "backends.default.devices=[0]", "backends.questioner.devices=[1]"))
    first: Any = ctx.sampler(folders["chat"], "solver", "solver")
    assert isinstance(first, KeyedSampler) and ctx.sampler(folders["chat"], "base", "base") is first
    third: Any = ctx.sampler(folders["plain"], "base", "base")
    other: Any = ctx.sampler(folders["plain"], "questioner", "questioner")
    assert first.processes[0].alive and other.processes[0].alive  # started before they are asked
    assert third.processes[0].pid is None  # its device is being taken by the first
    third.start()
    assert first.ready and third.processes[0].alive
    for sampler in (first, other):
        assert len(sampler.sample([user("w1")], Sampling(n=2, max_tokens=4))[0]) == 2
    assert sorted(p.name for p in (ctx.run.path / "servers").iterdir()) == [
        "r01-base.log",
        "r01-questioner.log",
        "r01-solver.log",
    ]
    kept, over = first.processes[0].pid, other.processes[0].pid
    ctx.release(keep="solver")
    assert gone(over) and first.processes[0].alive
    assert ctx.sampler(folders["chat"], "solver", "solver") is first
    ctx.release()
    assert gone(kept)
    again = ctx.sampler(folders["chat"], "solver", "solver")
    assert again is not first


def test_a_worker_process_starts_no_server(
    context: Callable[..., Context],
    command: Callable[..., list[str]],
    folders: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("RANK", "1")
    sampler: Any = context(on_servers(command())).sampler(folders["chat"], "solver", "solver")
    assert isinstance(sampler, Elsewhere) and not list(tmp_path.glob("run-*/servers/*"))


def test_an_endpoint_is_asked_before_a_stage(context: Callable[..., Context]) -> None:
    with FakeServer(models=("judge",)) as server:
        words = f"{{kind: endpoint, base_urls: [{server.url}], model: judge}}"
        ctx = context(small("testbed/r_quest", f"backends.base={words}"))
        ctx.check()
        judge = ctx.sampler(ctx.base, "base", "base")
        assert judge.sample([user("same?")], Sampling())[0][0].text.startswith("same? draw")
        wrong = context(small("testbed/r_quest", f"backends.base={words.replace('judge', 'other')}"))
        with pytest.raises(ServerError, match="it serves judge") as caught:
            wrong.check()
        assert "resume" in caught.value.remedy
    nobody = context(small("testbed/r_quest", "backends.base={kind: endpoint, base_urls: [http://127.0.0.1:9/v1]}"))
    with pytest.raises(ServerError, match=r"no server answers at http://127\.0\.0\.1:9/v1"):
        nobody.check()


def test_a_key_that_is_not_set(context: Callable[..., Context], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    words = "{kind: endpoint, base_urls: [http://127.0.0.1:9/v1], api_key_env: JUDGE_KEY}"
    with pytest.raises(ServerError, match="JUDGE_KEY is not set"):
        context(small("testbed/r_quest", f"backends.base={words}")).check()


def test_vllm_that_does_not_start_says_what_to_set(
    context: Callable[..., Context], folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> None:
        raise RuntimeError("Engine core initialization failed. See root cause above.")

    on_gpu = types.SimpleNamespace(current_platform=types.SimpleNamespace(is_cpu=lambda: False))
    vllm = types.SimpleNamespace(LLM=full, SamplingParams=None, platforms=on_gpu)
    monkeypatch.setattr("selfevolve.sampling.vllm_sampler.load_vllm", lambda: vllm)
    ctx = context(load_recipe("testbed/r_quest", ["backends.default.kind=vllm"]))
    with pytest.raises(ServerError, match="solver: vLLM did not start: Engine core") as caught:
        ctx.sampler(folders["chat"], "solver", "solver")
    assert "gpu_memory" in caught.value.remedy and "max_model_len" in caught.value.remedy


def test_an_engine_in_process_is_not_told_what_the_launcher_said(
    context: Callable[..., Context], folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process under torch's launcher (fsdp2.yaml, processes=1): the engine would wait for a store of the launcher's."""
    from tests.sampling import fake_vllm

    said = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    seen: list[dict[str, str]] = []
    vllm = fake_vllm.module(None)

    def start(**_: Any) -> Any:
        seen.append({name: os.environ[name] for name in said if name in os.environ})
        raise RuntimeError("seen enough")

    vllm.LLM = start
    monkeypatch.setattr("selfevolve.sampling.vllm_sampler.load_vllm", lambda: vllm)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ServerError):
        context(load_recipe("testbed/r_quest", ["backends.default.kind=vllm"])).sampler(
            folders["chat"], "solver", "solver"
        )
    assert seen == [{}] and all(os.environ[name] == value for name, value in said.items())


def test_vllm_that_is_not_installed(context: Callable[..., Context]) -> None:
    ctx = context(load_recipe("testbed/r_quest", ["backends.default.kind=vllm"]))
    with pytest.raises(ServerError, match="vllm is not installed; install selfevolve"):
        ctx.sampler(ctx.base, "solver", "solver")


def test_vllm_in_process_is_given_its_settings_and_shut_down(
    context: Callable[..., Context], folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from tests.sampling import fake_vllm
    from tests.tiny_model import tiny_tokenizer

    module = fake_vllm.module(tiny_tokenizer(60), 600)
    given: dict[str, Any] = {}
    ended: list[bool] = []
    inner = module.LLM

    def start(**keys: Any) -> Any:
        given.update(keys)
        engine = inner(**keys)
        engine.llm_engine.engine_core = type("Core", (), {"shutdown": lambda self: ended.append(True)})()
        return engine

    monkeypatch.setattr(module, "LLM", start)
    monkeypatch.setitem(sys.modules, "vllm", module)
    ctx = context(small("testbed/r_quest", "backends.default={kind: vllm, gpu_memory: 0.3, engine: {seed: 4}}"))
    ctx.sampler(folders["chat"], "solver", "solver").sample([user("w1")], Sampling())
    settings = {"model": folders["chat"], "dtype": "float32", "load_format": "safetensors", "seed": 4}
    assert settings.items() <= given.items() and given["gpu_memory_utilization"] == 0.3
    ctx.release()
    assert ended == [True]


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    whole = exam.exam()
    monkeypatch.setattr(exam, "exam", lambda: whole[::16])
    return "candidates=24", "questioner.prompts=4", "diagnostics.heldout=8"


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    """A server dies in the questioner's stage: start 1 is the initial evaluation's."""
    folder = tmp_path / "faults"
    folder.mkdir()
    (folder / "die-after-2").write_text("5")
    return folder


def test_a_whole_run_on_servers(
    command: Callable[..., list[str]], tmp_path: Path, fewer: tuple[str, ...], faults: Path
) -> None:
    """Greedy replies are those in process; a server that dies on the way is restarted; none is left."""
    inside = RunDir.create(tmp_path / "inside", small("testbed/r_quest", *fewer))
    with inside.lock():
        initialise(Context(inside, 0))
    path = evolve.run(on_servers(command(faults), *fewer), tmp_path / "served")
    started = [int(line) for line in (faults / "pids").read_text().split()]
    assert len(started) == 6  # initial solver; in round 1 solver (twice), base, questioner, new solver
    assert all(gone(pid) for pid in started)
    names = ["r00-solver.log", "r01-base.log", "r01-questioner.log", "r01-solver.log"]
    assert sorted(p.name for p in (path / "servers").iterdir()) == names
    here, there = (
        [row for row in read_jsonl(run / "initialisation/evaluation.jsonl") if row.get("decoding") != "sampled"]
        for run in (path, inside.path)
    )
    assert here == there and len(here) > 20
    [metrics] = read_jsonl(path / "metrics.jsonl")
    assert metrics["questions"] == 24 and metrics["kept"] > 0 and metrics["undecided_rate"]["k"] < 12


@pytest.mark.slow
def test_a_run_whose_server_died_leaves_the_records_of_one_whose_did_not(
    command: Callable[..., list[str]], tmp_path: Path, fewer: tuple[str, ...], faults: Path
) -> None:
    plain = evolve.run(on_servers(command(), *fewer), tmp_path / "plain")
    struck = evolve.run(on_servers(command(faults), *fewer), tmp_path / "struck")
    assert records(struck) == records(plain)
    assert len((faults / "pids").read_text().split()) == 6


@pytest.mark.slow
def test_two_processes_and_one_ask_the_same_of_servers(
    command: Callable[..., list[str]], tmp_path: Path, fewer: tuple[str, ...]
) -> None:
    """The main process alone starts servers, stops them at the end of its stage, and hands them no launcher's word."""
    faults = tmp_path / "faults"
    faults.mkdir()
    inline = evolve.run(on_servers(command(), *fewer), tmp_path / "one")
    shared = evolve.run(on_servers(command(faults), *fewer, "launcher=accelerate", "processes=2"), tmp_path / "two")
    name = "rounds/01/questioner/assessed.jsonl"
    assert without_times(read_jsonl(shared / name)) == without_times(read_jsonl(inline / name))
    started = [int(line) for line in (faults / "pids").read_text().split()]
    assert len(started) == 6  # solver twice: for the questioner's update, and for the assessment
    assert all(gone(pid) for pid in started)
