"""The recipe's backends: inheritance, refusals, and where `selfevolve check` says that models live."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from selfevolve.config import config_hash, dump, load_recipe, missing_files, recipe_from_text
from selfevolve.config.backends import Backend, Backends, places, table
from selfevolve.errors import ConfigError

ENDPOINT = "{kind: endpoint, base_urls: [http://127.0.0.1:9/v1], model: big}"
ASK_E = ["reward.rule=ask_e", "ask_e.pairs=[[testbed:rung-2, current]]", "ask_e.cross_check=base"]


def recipe(*overrides: str) -> Any:
    return load_recipe("testbed/r_quest", list(overrides))


def test_a_role_takes_from_the_default_what_it_does_not_say() -> None:
    b = recipe("backends.default={kind: server, devices: [1], concurrency: 8}", "backends.solver.replicas=2").backends
    assert b.of("solver") == Backend(kind="server", devices=("1",), concurrency=8, replicas=2)
    assert b.of("questioner") == Backend(kind="server", devices=("1",), concurrency=8)


def test_a_role_of_another_kind_stands_alone() -> None:
    b = recipe("backends.default={kind: server, devices: [1], concurrency: 8}", f"backends.base={ENDPOINT}").backends
    assert b.of("base") == Backend(kind="endpoint", base_urls=("http://127.0.0.1:9/v1",), model="big")
    b = recipe("backends.default.kind=vllm", "backends.default.gpu_memory=0.4", "backends.base.kind=server").backends
    assert b.of("base") == Backend(kind="server")


def test_a_resolved_recipe_reads_back_as_it_is() -> None:
    made = recipe("backends.default={kind: server, arguments: [--max-model-len, 4096]}", "backends.solver.replicas=2")
    assert recipe_from_text(dump(made), "config.yaml") == made
    assert made.backends.default.arguments == ("--max-model-len", "4096")


def test_the_hash_of_a_run_without_the_section_is_as_ever() -> None:
    assert recipe().backends == Backends()
    assert config_hash(recipe()) == config_hash(recipe("backends.default.kind=transformers"))
    assert config_hash(recipe()) != config_hash(recipe("backends.default.kind=vllm"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([f"backends.solver={ENDPOINT}"], "the solver's weights are new every round"),
        ([f"backends.questioner={ENDPOINT}"], "set backends.questioner.kind to transformers, vllm or server"),
        ([f"backends.default={ENDPOINT}"], "backends.default.kind is 'endpoint', but the questioner's weights"),
        (["backends.base.kind=endpoint"], "backends.base.base_urls is not given"),
        (["backends.base={kind: endpoint, base_urls: [http://me:key@h/v1]}"], "name the key's variable in api_key_env"),
        (["backends.base={kind: endpoint, base_urls: [localhost]}"], "an address reads like http://127.0.0.1:8000/v1"),
        (["backends.base.base_urls=[http://h/v1]"], "kind is 'transformers', which does not read it"),
        (["backends.default={kind: vllm, replicas: 2}"], "kind is 'vllm', which does not read it"),
        (["backends.default.kind=vllm", "launcher=accelerate", "processes=2"], "an engine in each of processes = 2"),
        (
            [*ASK_E, "ask_e.probes=2", "backends.base.kind=server", "launcher=accelerate", "processes=2"],
            "each of processes = 2 plays sessions (ask_e.probes is 2) and would start servers of its own",
        ),
        (["backends.default={kind: server, command: [serve]}"], "holds no {port}"),
        (["backends.default={kind: server, command: [s, '{port}'], python: p}"], "python would not be read"),
        (["backends.default={kind: server, devices: ['0', '1']}"], "2 sets of devices for replicas = 1"),
        (["backends.default.kind=hosted"], "Input should be 'transformers', 'vllm', 'server' or 'endpoint'"),
        (["backends.default.gpu_memory=1.5"], "less than or equal to 1"),
        (["backends.judge.kind=vllm"], "unknown key 'backends.judge'"),
        (["backends.default.ports=1"], "unknown key 'backends.default.ports'"),
        (
            [*ASK_E[:1], "ask_e.pairs=[[testbed:rung-2, testbed:rung-4]]", f"backends.boundary={ENDPOINT}"],
            "ask_e.pairs names testbed:rung-2, testbed:rung-4 there",
        ),
    ],
)
def test_what_does_not_fit_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recipe(*overrides)
    assert message in str(caught.value)


def test_an_entry_that_no_role_uses_is_not_judged() -> None:
    assert recipe("backends.referee.kind=endpoint").backends.of("referee").base_urls == ()


def test_an_endpoint_can_be_the_referee_without_a_referee_model() -> None:
    made = recipe("referee=model", f"backends.referee={ENDPOINT}")
    assert [place.role for place in places(made)] == ["questioner", "solver", "base", "referee"]
    with pytest.raises(ConfigError, match="referee_model is not given"):
        recipe("referee=model")


def test_places_name_the_roles_that_are_sampled_from() -> None:
    def roles(*overrides: str) -> dict[str, tuple[str, ...]]:
        return {place.role: place.models for place in places(recipe(*overrides))}

    assert roles() == {"questioner": (), "solver": (), "base": ("testbed:base",)}
    assert roles("novelty.gate=none") == {"questioner": (), "solver": ()}
    assert roles("novelty.gate=none", *ASK_E) == {
        "questioner": (),
        "solver": (),
        "base": ("testbed:base",),
        "boundary": ("testbed:rung-2",),
    }


def test_check_says_where_each_role_lives(capsys: pytest.CaptureFixture[str]) -> None:
    from selfevolve.cli import main

    words = ["backends.default={kind: server, devices: [1], replicas: 2}", "backends.questioner.kind=transformers"]
    assert main(["check", "testbed/r_quest", *words, f"backends.base={ENDPOINT}"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(
        "where frozen models live\n"
        "questioner  in process (transformers)\n"
        "solver      server that the run starts on 127.0.0.1 (vLLM of this environment, 2 replicas, devices 1)\n"
        "base        endpoint http://127.0.0.1:9/v1 (big, chat)\n"
    )
    assert table(recipe("backends.default={kind: vllm, gpu_memory: 0.3}")).splitlines()[1] == (
        "solver      in process (vLLM, 0.3 of the GPU's memory)"
    )


def test_vllm_that_is_not_installed_is_named_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from selfevolve.config import backends

    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    server = "install selfevolve[vllm], or give the python of an environment that has it"
    for given, said in (("kind: vllm", "install selfevolve[vllm]"), ("kind: server", server)):
        [line] = missing_files(recipe(f"backends.default={{{given}}}"))
        assert line == f"backends.default.{given.replace(':', ' is')}: vllm is not installed here; {said}"
    assert missing_files(recipe(f"backends.default={{kind: server, python: {sys.executable}}}")) == []
    monkeypatch.setattr(backends, "find_spec", lambda name: object())
    assert missing_files(recipe("backends.default={kind: vllm}")) == []


def test_what_is_missing_is_named_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    made = recipe(
        f"backends.default={{kind: server, python: {tmp_path}/python}}",
        f"backends.base={ENDPOINT[:-1]}, api_key_env: JUDGE_KEY}}",
    )
    assert missing_files(made) == [
        f"backends.default.python names '{tmp_path}/python', which is no program on this machine",
        "backends.base.api_key_env names JUDGE_KEY, which is not set in the environment",
    ]
    monkeypatch.setenv("JUDGE_KEY", "k")
    assert len(missing_files(made)) == 1


def test_the_examples_of_the_page_are_recipes(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text(encoding="utf-8")
    examples = [part.split("```")[0] for part in page.split("```yaml\n")[1:]]
    kinds = []
    for number, text in enumerate(examples):
        file = tmp_path / f"{number}.yaml"
        file.write_text(f"base: qwen3-4b-base/r_quest_one_gpu\n{text}", encoding="utf-8")
        kinds.append([place.backend.kind for place in places(load_recipe(file))])
    assert kinds[0] == ["vllm"] * 3 and kinds[3] == ["server", "server", "endpoint", "endpoint"]
    assert len(kinds) == 5
