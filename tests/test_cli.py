"""The command: what it prints, how it exits, and that it is light."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from selfevolve import cli, demo
from selfevolve.config import list_recipes, load_recipe
from selfevolve.errors import UserError
from selfevolve.rundir import STAGES, RunDir

ROOT = Path(__file__).resolve().parents[1]
QUEST = load_recipe("testbed/r_quest")


def command(*words: str, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "selfevolve", *words], cwd=ROOT, capture_output=True, text=True, **more
    )


# -- light


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys\nfrom selfevolve.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit as end: assert end.code == 0\n"
        "print([m for m in ('torch', 'transformers', 'trl', 'vllm', 'numpy', 'pydantic') if m in sys.modules])"
    )
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - started)
        assert done.stdout.splitlines()[-1] == "[]"
    for name in ("run", "resume", "check", "report", "compare", "recipes", "demo"):
        assert f"\n    {name} " in done.stdout
    assert min(seconds) < 0.5


def test_check_loads_no_torch():
    code = (
        "import sys\nfrom selfevolve.cli import main\n"
        "assert main(['check', 'testbed/r_quest']) == 0 and main(['recipes']) == 0\n"
        "print([m for m in ('torch', 'transformers', 'trl', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# -- exit status and messages


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check", "testbed/nowhere"], "no recipe 'testbed/nowhere'"),
        (["check", "testbed/r_quest", "solver.stepz=1"], "unknown key 'solver.stepz'"),
        (["check", "testbed/r_quest", "--tokens-per-second", "0"], "must be above 0"),
        (["check", "testbed/r_quest", "--fill", "1.5"], "the fill is 1.5"),
        (["check", "testbed/r_quest", "--devices", "0"], "--devices is 0"),
        (["check", "testbed/r_quest", "--device", "h10"], "did you mean h100?"),
        (["run", "testbed/r_quest", "solver.learning_rate=fast"], "solver.learning_rate is 'fast'"),
        (["run", "qwen3-4b-base/r_quest"], "initialisation.data is 'initialisation.jsonl'"),
        (["resume", "nowhere"], "nowhere is no run folder"),
        (["report", "nowhere"], "nowhere is no run folder"),
        (["compare", "nowhere"], "compare got one run"),
        (["compare", "nowhere", "neither"], "nowhere is no run folder"),
        (["demo", "rounds=0", "--out", "OUT"], "rounds is 0"),
        (["check", "testbed/r_quest", "base=testbed/k16"], "a base is named in a file"),
        (["check", "testbed/r_quest", "--fill", "0.5", "solver.stepz=1"], "unknown key 'solver.stepz'"),
        (["run", "testbed/r_quest", "backbone=/no/folder"], "backbone is '/no/folder', and there is no such folder"),
        (["run", "testbed/r_quest", "backbone=./"], "backbone is './', a folder without config.json"),
        (["run", "testbed/r_quest", "referee=model", "referee_model=/no"], "referee_model is '/no', and there is no"),
        (["run", "testbed/r_quest", "--out", "/dev/null/x"], "/dev/null/x: Not a directory"),
        (["train-asker", "aske/testbed-train", "backbone=/no/folder"], "model is '/no/folder', and there is no such"),
        (["train-asker", "aske/testbed-train", "solvers.base=testbed:none"], "solvers.base is 'testbed:none'"),
        (["train-asker", "aske/testbed-train", "prompts=nowhere"], "prompts is 'nowhere'"),
        (["train-asker", "aske/testbed-train", "steps=[1"], "override 'steps=[1': the value is not readable"),
        (["train-asker", "aske/testbed-train", "reward.alfa=1"], "did you mean 'reward.alpha'?"),
    ],
)
def test_a_user_s_mistake_is_told_in_a_line_with_a_remedy(words, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main([str(tmp_path) if w == "OUT" else w for w in words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("selfevolve: error: ") and told in error and "Traceback" not in error


def test_exit_status_of_the_process():
    done = command("check", "k16")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "  -> did you mean octothinker-3b/k16 or qwen3-4b-base/k16 or testbed/k16?"
    assert command().returncode == 2
    assert command("evolve").returncode == 2


def test_an_interrupt_is_told(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_recipes", interrupted)
    assert cli.main(["recipes"]) == 130
    assert "selfevolve resume RUN" in capsys.readouterr().err


def test_a_model_that_cannot_be_had_is_told(monkeypatch, capsys):
    def absent(*_):
        raise OSError("We couldn't connect to the hub")  # as transformers does, without a number

    monkeypatch.setattr(cli, "_recipes", absent)
    assert cli.main(["recipes"]) == 1
    assert "a hub id that is cached" in capsys.readouterr().err


def test_overrides_may_stand_behind_an_option(capsys):
    assert cli.main(["check", "testbed/r_quest", "--fill", "0.5", "seed=7"]) == 0
    assert "seed: 7" in capsys.readouterr().out
    for words in (["recipes", "seed=7"], ["check", "testbed/r_quest", "--fill", "0.5", "word"]):
        with pytest.raises(SystemExit):
            cli.main(words)
    with pytest.raises(SystemExit):
        cli.main(["check"])
    assert capsys.readouterr().err.endswith("the following arguments are required: RECIPE\n")


@pytest.mark.parametrize("command", ["check", "train-asker"])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"name: !!int x", b"name: !!timestamp 2024-99-99"])
def test_a_file_that_is_no_yaml_is_told(tmp_path, capsys, command, content):
    (tmp_path / "r.yaml").write_bytes(content)
    assert cli.main([command, str(tmp_path / "r.yaml")]) == 1
    assert "r.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"question": "q"}\n', b"no JSON\n"])
def test_a_wrong_file_of_labelled_questions_is_told(tmp_path, content):
    from selfevolve.stages.initialisation import read_initialisation_data

    (tmp_path / "d.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"initialisation\.data is .*d\.jsonl"):
        read_initialisation_data(str(tmp_path / "d.jsonl"))


def test_a_defect_is_not_hidden(monkeypatch):
    def broken(*_):
        raise ValueError("a defect")

    monkeypatch.setattr(cli, "_recipes", broken)
    with pytest.raises(ValueError, match="a defect"):
        cli.main(["recipes"])


def test_a_reader_that_leaves_is_no_defect():
    pipe = f"{sys.executable} -m selfevolve check testbed/r_quest | head -n 1"
    done = subprocess.run(["bash", "-c", pipe], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


# -- subcommands


def test_recipes_lists_names_with_descriptions(capsys):
    assert cli.main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list_recipes())
    assert any(line.split()[0] == "testbed/r_quest" and "validity gate" in line for line in lines)


def test_run_and_resume_call_the_loop(monkeypatch, tmp_path):
    calls = []
    loop = SimpleNamespace(
        run=lambda recipe, out: calls.append((recipe, out)),
        resume=lambda path, overrides: calls.append(("resume", path, overrides)),
    )
    monkeypatch.setitem(sys.modules, "selfevolve.evolve", loop)
    monkeypatch.setattr("selfevolve.evolve", loop, raising=False)
    assert cli.main(["run", "testbed/k16", "seed=3", "rounds=2"]) == 0
    recipe, out = calls.pop()
    assert (recipe.seed, recipe.rounds, recipe.novelty.k, out) == (3, 2, 16, Path("runs/testbed-k16-s3"))
    assert cli.main(["run", "testbed/k16", "--out", "x"]) == 0
    assert calls.pop()[1] == Path("x")
    run = RunDir.create(tmp_path / "run", QUEST)
    assert cli.main(["resume", str(run.path)]) == 0
    assert calls.pop() == ("resume", run.path, [])
    assert cli.main(["resume", str(run.path), "micro_batch=1"]) == 0
    assert calls.pop() == ("resume", run.path, ["micro_batch=1"])


def test_report_and_compare_call_the_writers(monkeypatch, tmp_path, capsys):
    writers = SimpleNamespace(
        write_report=lambda run: (run / "report.html", run / "report.md"),
        write_comparison=lambda runs, out: Path(f"{len(runs)}-{out}"),
    )
    monkeypatch.setitem(sys.modules, "selfevolve.report", writers)
    for name in ("a", "b"):
        (tmp_path / name / "rounds").mkdir(parents=True)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert cli.main(["report", a]) == 0
    assert capsys.readouterr().out == f"{a}/report.html\n{a}/report.md\n"
    assert cli.main(["compare", a, b, "--out", "page.html"]) == 0
    assert capsys.readouterr().out == "2-page.html\n"


def test_check_shows_the_resolved_recipe_and_its_cost(capsys):
    assert cli.main(["check", "testbed/r_quest", "solver.steps=9", "--tokens-per-second", "1000"]) == 0
    out = capsys.readouterr().out
    assert "\n  steps: 9\n" in out and "config hash " in out and "1,000 new tokens a second" in out
    assert cli.main(["check", "qwen3-4b-base/r_quest", "--device", "A100-80", "--devices", "8", "--fill", "0.2"]) == 0
    told = capsys.readouterr()
    assert "before it can run: initialisation.data" in told.err and "warning" not in told.err
    assert "GPU time on 8 x A100 SXM, 80 GB" in told.out and "fill 20% of their limit" in told.out


def test_check_takes_the_settings_of_an_askers_training(capsys, tmp_path):
    assert cli.main(["check", "aske/testbed-train", "steps=7"]) == 0
    shown = capsys.readouterr().out
    assert "steps: 7" in shown and "cross-checks" in shown and "whole run" in shown
    assert cli.main(["check", "aske/testbed-train", "steps=0"]) == 1
    assert "steps is 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("aske/testbed-train", "selfevolve train-asker aske/testbed-train"),
        ("recipes/aske/example-train.yaml", "selfevolve train-asker aske/example-train.yaml"),
        ("aske/testbed", "aske bench aske/testbed"),
    ],
)
def test_settings_of_another_command_are_named(capsys, name, command):
    assert cli.main(["run", name]) == 1
    told = capsys.readouterr().err
    assert f"start it with `{command}`" in told and "no recipe" in told


def test_check_and_run_warn_of_foreign_code(capsys, monkeypatch, tmp_path):
    data = tmp_path / "data.jsonl"
    data.touch()
    words = ["qwen3-4b-base/r_quest", "trust_remote_code=true", f"initialisation.data={data}"]
    monkeypatch.setitem(sys.modules, "selfevolve.evolve", SimpleNamespace(run=lambda recipe, out: None))
    monkeypatch.setattr("selfevolve.evolve", sys.modules["selfevolve.evolve"], raising=False)
    for command in ("check", "run"):
        assert cli.main([command, *words]) == 0
        error = capsys.readouterr().err
        assert error.count("warning: trust_remote_code is true: code that comes with Qwen/Qwen3-4B-Base will run") == 1


# -- the demo


def complete(run: RunDir, round: int, name: str) -> None:
    with run.lock():
        stage = run.stage(round, name)
        assert stage is not None
        with stage:
            if name == "diagnostics":
                stage.write_json("metrics.json", {"round": round})


def test_progress_counts_complete_stages_and_steps(tmp_path):
    recipe = load_recipe("testbed/r_quest", ["rounds=2"])  # 1 + 2 x 6 stages
    assert demo.progress(tmp_path / "run", recipe) == demo.Progress(0.0, 0, "")
    run = RunDir.create(tmp_path / "run", recipe)
    assert demo.progress(run.path, recipe) == demo.Progress(0.0, 0, "initialisation")
    complete(run, 0, "initialisation")
    complete(run, 1, "questioner")
    assert demo.progress(run.path, recipe) == demo.Progress(2 / 13, 1, "candidates")
    run.note_progress(1, "candidates", 3, 6)
    assert demo.progress(run.path, recipe) == demo.Progress(2.5 / 13, 1, "candidates")
    run.note_progress(1, "questioner", 3, 6)  # of a stage that is over
    assert demo.progress(run.path, recipe) == demo.Progress(2 / 13, 1, "candidates")
    (run.path / "progress.json").write_text("{")
    assert demo.progress(run.path, recipe) == demo.Progress(2 / 13, 1, "candidates")
    for round, name in [(1, s) for s in STAGES[1:]] + [(2, s) for s in STAGES]:
        complete(run, round, name)
    assert demo.progress(run.path, recipe) == demo.Progress(1.0, 2, "diagnostics")


FAKE = """
import sys
sys.path.insert(0, {root!r})
from selfevolve.config import load_recipe
from selfevolve.rundir import STAGES, RunDir
print("log line")
if {fail!r} in sys.argv[2]:
    raise SystemExit("no luck today")
words = sys.argv[2:]
if sys.argv[1] == "run":
    out = words[words.index("--out") + 1]
    run = RunDir.create(out, load_recipe(words[0], words[1:words.index("--out")]))
else:
    run = RunDir.open(words[0])
with run.lock():
    for round in range(1, run.recipe.rounds + 1):
        for name in STAGES:
            stage = run.stage(round, name)
            if stage:
                with stage:
                    if name == "diagnostics":
                        stage.write_json("metrics.json", {{"round": round, "kept": 41 + round}})
"""


def fake_selfevolve(monkeypatch, tmp_path: Path, fail: str = "nothing") -> list:
    """Let the demo start a stand-in for the command, and take the pages it asks for."""
    script = tmp_path / "selfevolve.py"
    script.write_text(FAKE.format(root=str(ROOT), fail=fail))
    started = []
    real = subprocess.Popen

    def popen(words, **more):
        assert words[1:3] == ["-m", "selfevolve"] and more["env"]["OMP_NUM_THREADS"] == "1"
        started.append(words[3:])
        return real([words[0], str(script), *words[3:]], **more)

    monkeypatch.setattr(demo.subprocess, "Popen", popen)
    pages = SimpleNamespace(
        write_report=lambda run: (run / "report.html", None),
        write_comparison=lambda runs, out: out,
        round_table=lambda rows: "\n".join(f"row {row['round']}: {row['kept']}" for row in rows),
    )
    monkeypatch.setitem(sys.modules, "selfevolve.report", pages)
    return started


def test_demo_runs_both_and_goes_on_when_asked_again(monkeypatch, tmp_path, capsys):
    started = fake_selfevolve(monkeypatch, tmp_path)
    out = tmp_path / "demo"
    assert demo.demo(out, ["rounds=2"]) == 0
    told = capsys.readouterr().out
    assert [words[:2] for words in started] == [["run", "testbed/r_quest"], ["run", "testbed/r_zero_code"]]
    assert told.count("row 1: 42\nrow 2: 43\n") == 2 and f"comparison  {out / 'comparison.html'}" in told
    assert (out / "r_quest.log").read_text() == "log line\n"
    assert len(RunDir.open(out / "r_zero_code").metrics()) == 2
    assert demo.demo(out, ["rounds=2"]) == 0
    assert [words[0] for words in started[2:]] == ["resume", "resume"]
    with pytest.raises(UserError, match=r"rounds: 2 -> 3"):
        demo.demo(out, ["rounds=3"])
    assert len(started) == 4


def test_demo_tells_why_a_run_failed(monkeypatch, tmp_path):
    fake_selfevolve(monkeypatch, tmp_path, fail="r_zero_code")
    with pytest.raises(UserError, match=r"testbed/r_zero_code ended with status 1(.|\n)*\| no luck today"):
        demo.demo(tmp_path / "demo", ["rounds=1"])


# -- the installed command


def test_the_console_script_is_declared():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["selfevolve"] == "selfevolve.cli:main"
    assert project["version"] == __import__("selfevolve").__version__


def test_constraints_pin_what_the_project_depends_on():
    import re
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    }
    assert [w for w in wanted if re.split(r"[<>=]", w)[0].lower() not in pinned] == []


@pytest.mark.slow
def test_an_installed_copy_finds_its_recipes(tmp_path):
    """Build the wheel and use it from elsewhere: recipes and data files are in it."""
    work = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    install = [
        *("-m", "pip", "install", "-qq", "--no-deps", "--no-build-isolation", "--target"),
        str(tmp_path / "site"),
    ]
    subprocess.run([sys.executable, *install, str(ROOT)], check=True, cwd=tmp_path)
    where = (
        "import json, selfevolve as s, selfevolve.config as c; print(json.dumps([s.__file__, str(c.recipes_folder())]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env=work, capture_output=True, text=True, check=True
    )
    assert all(path.startswith(str(tmp_path / "site")) for path in json.loads(done.stdout))
    done = subprocess.run(
        [sys.executable, "-m", "selfevolve", "recipes"],
        cwd=tmp_path,
        env=work,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == [name for name, _ in list_recipes()]
    installed = {p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*") if p.is_file()}
    for folder in ("selfevolve", "validity", "novelty"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".pyc", ".png") and "__pycache__" not in path.parts:
                assert path.relative_to(ROOT).as_posix() in installed


def test_train_asker_reads_the_settings_before_the_slow_imports(monkeypatch, tmp_path, capsys):
    calls = []
    monkeypatch.setitem(
        sys.modules,
        "selfevolve.asker_training",
        SimpleNamespace(train_asker=lambda settings, out: calls.append((settings.steps, out))),
    )
    assert cli.main(["train-asker", "aske/testbed-train", "steps=2", "--out", str(tmp_path / "a")]) == 0
    assert calls == [(2, tmp_path / "a")]
    assert cli.main(["train-asker", "aske/testbed-train", "cross_check=nobody"]) == 1
    assert "must be one of policy, initial" in capsys.readouterr().err and len(calls) == 1
