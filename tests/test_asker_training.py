"""Training of an asker on its own: settings, evaluation by hand, the audit, and a small run where the asker is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aske import Rules, load_pack
from selfevolve.ask_e import Table
from selfevolve.asker_evaluation import Exam, audit_figures, evaluate
from selfevolve.backbones import SHIPPED
from selfevolve.config.asker import backend_of, dump_asker_training, load_asker_training
from selfevolve.errors import ConfigChangedError, ConfigError, DamagedFileError, RunFolderError, UserError
from selfevolve.jsonl import read_jsonl
from selfevolve.sampling import Prompt, Sampling, ScriptedSampler
from selfevolve.testbed import oracle
from tests.sampling.fake_server import FakeServer

SHIPPED_SETTINGS = "aske/testbed-train"


def refused(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_asker_training(SHIPPED_SETTINGS, overrides)
    return str(caught.value)


def test_the_shipped_settings_survive_the_round_trip(tmp_path: Path) -> None:
    settings = load_asker_training(SHIPPED_SETTINGS, ["seed=3", "reward.alpha=0.5", "evaluation.every=5"])
    assert (settings.seed, settings.reward.alpha, settings.reward.neighbours, settings.evaluation.every) == (
        3,
        0.5,
        5,
        5,
    )
    (tmp_path / "again.yaml").write_text(dump_asker_training(settings))
    assert load_asker_training(tmp_path / "again.yaml") == settings
    assert (settings.loss, settings.ratio_max, settings.max_grad_norm, settings.kl) == ("cispo", 5.0, 1.0, 0.0)
    train, held = ({frozenset(p) for p in pairs} for pairs in (settings.train_pairs, settings.heldout_pairs))
    assert not train & held
    assert {n for p in held for n in p} <= {n for p in train for n in p}  # as the file says


def test_the_example_for_real_models_fits_together() -> None:
    settings = load_asker_training("aske/example-train")
    assert {name: backend_of(settings, name).kind for name in (*settings.solvers, "initial")} == {
        "qwen2.5-1.5b": "server", "qwen2.5-3b": "server", "qwen2.5-7b": "server", "hosted": "endpoint", "initial": "server"
    }  # fmt: skip
    assert settings.groups * settings.sessions == 256 and settings.learning_rate == 1e-6


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train_pairs=[[base, base]]", "two copies of one solver"),
        ("train_pairs=[[base, nobody]]", "'nobody', which is not in solvers: rung-1"),
        ("train_pairs=[[rung-2, base]]", "['base', 'rung-2'] is in train_pairs and in heldout_pairs"),
        ("cross_check=base", "sits in a train pair"),
        ("cross_check=nobody", "must be one of policy, initial"),
        ("evaluation.cross_check=policy", "must be one of initial"),
        ("evaluation.cross_check=base", "sits in a held-out pair"),
        ("update_groups=3", "use 1, 2, 4, 8"),
        ("solvers.policy=testbed:base", "a solver is called 'policy'"),
        ("backends.nobody={kind: vllm}", "backends names 'nobody'; it must be default, initial, or a solver: rung-1"),
        ("backends.base={kind: endpoint}", "base_urls"),
        ("solvers.default=testbed:base", "a solver is called 'default'"),
        ("stepz=3", "unknown key 'stepz'; did you mean 'steps'?"),
        ("qqqq=3", "unknown key 'qqqq'; the keys here are name, description"),
        ("evaluation.cheks=3", "did you mean 'evaluation.checks'?"),
        ("lora.rnk=3", "did you mean 'lora.rank'?"),
        ("backends.base.knd=vllm", "did you mean 'backends.base.kind'?"),
        ("ratio_max=0.2", "greater than or equal to 1"),
        ("steps", "not of the form key=value"),
    ],
)
def test_settings_that_make_no_sense_are_refused(override: str, said: str) -> None:
    assert said in refused(override)


def test_an_unknown_name_tells_what_is_shipped() -> None:
    with pytest.raises(ConfigError, match="aske/testbed-train"):
        load_asker_training("aske/nothing")


def asker(final: dict[str, str]) -> ScriptedSampler:
    """Ask `final[opening mark]`; without probes every session opens alike, so questions go in turn."""
    asked = iter(final.values())

    def script(prompt: Prompt, index: int) -> str:
        return f"#Reasoning#<change>#Draft# 1\\boxed{{ 1}}#Question# {next(asked)}"

    return ScriptedSampler(script, "asker")


def solver(answers: dict[str, list[str]]) -> ScriptedSampler:
    """Answer sample i with the i-th answer, in turn."""

    def script(prompt: Prompt, index: int) -> str:
        given = answers[prompt[-1].content.removeprefix("<solve> ")]
        return f"<think> x</think>\\boxed{{ {given[index % len(given)]}}}"

    return ScriptedSampler(script)


def test_an_evaluation_by_hand(tmp_path: Path) -> None:
    """Four sessions: split, easy, bad cross-check, and the split question again."""
    questions = {"1": "what is 3 + 4 - 2?", "2": "what is 1 + 4 - 3?", "3": "odd", "4": "what is 3 + 4 - 2?"}
    a = solver({"what is 3 + 4 - 2?": ["5", "5", "5", "8"], "what is 1 + 4 - 3?": ["2"], "odd": ["0"]})
    b = solver({"what is 3 + 4 - 2?": ["8", "8", "5", "5"], "what is 1 + 4 - 3?": ["2"], "odd": ["0"]})
    check = solver({"what is 3 + 4 - 2?": ["5"], "what is 1 + 4 - 3?": ["2"], "odd": ["0", "1", "0"]})
    exam = Exam(
        Table((("a", "b"),), {"a": a, "b": b}, Sampling(temperature=0.7)), load_pack("testbed"), Rules(probes=0), Sampling(),
        check, sessions=4, resamples=4, seed=1, oracle=True,
    )  # fmt: skip
    row: dict[str, Any] = evaluate(exam, asker(questions), 12, tmp_path / "evaluation")
    assert row["step"] == 12 and len(read_jsonl(tmp_path / "evaluation" / "step-0012.jsonl")) == 4
    assert {k: v for k, v in row["labels"].items() if v} == {"calibrated": 2, "too_easy": 1, "bad_cross_check": 1}
    assert (row["calibrated"]["value"], row["calibrated"]["n"]) == (0.5, 4)
    # fresh solutions of the split question: a right in 3 of 4, b in 2 of 4; unbiased 2k(m-k)/(m(m-1)) is 1/2 and 2/3;
    # the easy question adds 0 and so does the lost one: (7/12 + 0 + 0 + 7/12) / 4
    assert row["chance"]["copies"]["value"] == pytest.approx(7 / 24)
    # exactly one right: 3/4 * 1/2 + 1/2 * 1/4 = 1/2 on two of four
    assert row["chance"]["pair"]["value"] == pytest.approx(1 / 4)
    assert row["valid_rate"]["k"] == 3 and row["valid_rate"]["n"] == 4  # "odd" is no exercise
    assert row["cross_check_true"]["k"] == 3 and row["calibrated_and_true"]["n"] == 2
    assert row["patterns"] == 1 and row["by_pair"]["a+b"]["k"] == 2
    json.dumps(row, allow_nan=False)


def test_the_audits_figures_by_hand() -> None:
    steps = [
        [("calibrated", "calibrated"), ("calibrated", "bad_cross_check")],
        [("calibrated", "too_easy"), ("too_easy", "too_easy"), ("too_hard", "ungradable")],
    ]
    found = audit_figures(steps)
    assert (found["bad_cross_check"]["k"], found["bad_cross_check"]["n"], found["bad_cross_check"]["asked"]) == (
        1,
        4,
        5,
    )
    assert (found["still_calibrated"]["k"], found["still_calibrated"]["n"]) == (1, 3)
    assert found["table"]["calibrated -> too_easy"] == 1
    assert audit_figures([])["bad_cross_check"]["value"] is None


TINY = [
    "steps=1", "groups=2", "sessions=4", "update_groups=1", "probes=1", "evaluation.sessions=2", "evaluation.resamples=2",
    "heldout_pairs=[[rung-2, base]]", "train_pairs=[[rung-2, rung-4]]",
]  # fmt: skip


def test_damaged_files_of_a_folder_are_told(tmp_path: Path) -> None:
    from selfevolve.asker_training import train_asker

    settings = load_asker_training(SHIPPED_SETTINGS, TINY)
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        train_asker(settings, tmp_path)
    (tmp_path / "config.yaml").write_text(dump_asker_training(settings))
    for content in ('{"a": 1', "[]", ""):
        (tmp_path / "summary.json").write_text(content)
        with pytest.raises(DamagedFileError, match="it is made anew"):
            train_asker(settings, tmp_path)


def test_a_model_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    from selfevolve.asker_training import train_asker

    with pytest.raises(UserError, match=r"solvers\.rung-4 is 'a/b/c', and there is no such folder"):
        train_asker(load_asker_training(SHIPPED_SETTINGS, [*TINY, "solvers.rung-4=a/b/c"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    from selfevolve.asker_training import train_asker

    (tmp_path / "config.yaml").write_text(dump_asker_training(load_asker_training(SHIPPED_SETTINGS, TINY)))
    with pytest.raises(ConfigChangedError, match="seed: 0 -> 1"):
        train_asker(load_asker_training(SHIPPED_SETTINGS, [*TINY, "seed=1"]), tmp_path)
    (tmp_path / "config.yaml").rename(tmp_path / "other.txt")
    with pytest.raises(RunFolderError, match="holds no training"):
        train_asker(load_asker_training(SHIPPED_SETTINGS, TINY), tmp_path)


@pytest.mark.skipif(not (SHIPPED / "asker" / "config.json").is_file(), reason="the testbed's asker is not shipped here")
def test_a_tiny_training_leaves_its_records(tmp_path: Path) -> None:
    from selfevolve.asker_training import train_asker

    said: list[str] = []
    settings = load_asker_training(SHIPPED_SETTINGS, TINY)
    summary = train_asker(settings, tmp_path / "run", said.append)
    out = tmp_path / "run"
    assert [row["step"] for row in read_jsonl(out / "evaluation.jsonl")] == [0, 1]
    sessions = read_jsonl(out / "sessions.jsonl")
    assert len(sessions) == 8 and all(row["pair"] == ["rung-2", "rung-4"] for row in sessions)
    [log] = read_jsonl(out / "train_log.jsonl")
    assert sum(log["labels"].values()) == 8 and log["turns"] == 2
    scored = [row["reward"]["total"] for row in sessions if row["reward"]]
    assert log["reward_mean"] == pytest.approx(sum(scored) / len(scored))
    assert summary["after"]["step"] == 1 and (out / "checkpoint" / "config.json").is_file()
    before = sorted(p.name for p in out.iterdir())
    assert train_asker(settings, out, said.append) == summary  # a finished training is not repeated
    assert sorted(p.name for p in out.iterdir()) == before


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not k.startswith("seconds")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.skipif(not (SHIPPED / "asker" / "config.json").is_file(), reason="the testbed's asker is not shipped here")
def test_a_killed_training_goes_on_from_its_savepoint(tmp_path: Path) -> None:
    from selfevolve.asker_training import train_asker

    settings = load_asker_training(SHIPPED_SETTINGS, [*TINY, "steps=3", "evaluation.every=1", "save_minutes=0.00001"])
    whole, out = tmp_path / "whole", tmp_path / "run"
    summary = train_asker(settings, whole, lambda line: None)
    said: list[str] = []

    def progress(line: str) -> None:
        said.append(line)
        if line.startswith("step 3/3") and not any(s.startswith("going on") for s in said):
            raise Killed

    with pytest.raises(Killed):
        train_asker(settings, out, progress)
    assert (out / "savepoint" / "checkpoint-4" / "step.json").is_file()  # two updates a step
    assert len(read_jsonl(out / "sessions.jsonl")) == 3 * 8
    again = train_asker(settings, out, progress)
    assert "going on after step 2 of 3" in said and sum(s.startswith("step ") for s in said) == 4
    assert again == summary
    for name in ("memory.json", "checkpoint/model.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    for name, n in (("sessions.jsonl", 24), ("evaluation.jsonl", 4), ("train_log.jsonl", 3)):
        first, second = (without_times(read_jsonl(f / name)) for f in (whole, out))
        assert first == second and len(first) == n, name
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in whole.iterdir())


@pytest.mark.skipif(not (SHIPPED / "asker" / "config.json").is_file(), reason="the testbed's asker is not shipped here")
def test_a_solver_behind_an_endpoint(tmp_path: Path) -> None:
    from selfevolve.asker_training import train_asker

    def solve(body: dict[str, Any], index: int) -> str:
        answer = oracle(body["messages"][-1]["content"].removeprefix("<solve>")).answer
        return f"remotely \\boxed{{ {answer or 7} }}"

    with FakeServer(solve, models=("remote",)) as server:
        there = f"{{kind: endpoint, base_urls: ['{server.urls[0]}'], model: remote}}"
        settings = load_asker_training(SHIPPED_SETTINGS, [*TINY, f"backends.rung-2={there}"])
        train_asker(settings, tmp_path / "run", lambda line: None)
        assert server.stats["requests"] > 0
    rows = read_jsonl(tmp_path / "run" / "sessions.jsonl")
    said = {
        (row["pair"][0], r["text"])
        for row in rows
        for c in row["calls"]
        for r in c["replies"]
        if c["seat"] == "boundary_a"
    }
    assert said and all(who == "rung-2" and text.startswith("remotely") for who, text in said)
    others = [r["text"] for row in rows for c in row["calls"] for r in c["replies"] if c["seat"] != "boundary_a"]
    assert others and not any(text.startswith("remotely") for text in others)
    elsewhere = there.replace("model: remote", "model: another")
    wrong = load_asker_training(SHIPPED_SETTINGS, [*TINY, f"backends.rung-2={elsewhere}"])
    with pytest.raises(UserError, match="rung-2: no server answers"):
        train_asker(wrong, tmp_path / "wrong")
