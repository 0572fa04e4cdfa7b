"""The command, from its arguments to its exit status."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from bench_helpers import World, entry, lines, settings

import aske.bench
import aske.regrade
from aske.cli import main

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sampling"))
from fake_server import FakeServer, Fault, Faults

HEAVY = ("torch", "transformers", "numpy", "scipy", "httpx", "pydantic", "rich", "sympy")


@pytest.fixture
def world(monkeypatch):
    """Put scripted seats in place of models."""
    found = World()
    for module in (aske.bench, aske.regrade):
        monkeypatch.setattr(module, "Samplers", lambda cache: found)
    return found


@pytest.fixture
def config(tmp_path):
    data = settings().model_dump(mode="json", exclude_unset=True)
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


@pytest.mark.parametrize("command", [["--help"], ["bench", "--help"], ["report", "--help"]])
def test_help_loads_nothing_heavy(command):
    code = (
        "import sys, contextlib, io\nfrom aske.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(sys.argv[1:])\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_check_counts_and_starts_nothing(config, world, tmp_path, capsys):
    assert main(["check", config, "sessions=2", "--tokens-per-second", "1000"]) == 0
    out = capsys.readouterr().out
    assert "2 askers, 3 solvers, 3 pairs" in out
    assert out.splitlines()[3].split() == ["sessions", "12", "132", f"{12 * (3 * 2048 + 8 * 4096):,}"]
    assert "minutes at 1000" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bench.yaml"]


def test_an_asker_that_nothing_can_be_said_of_is_told(config, world, tmp_path, capsys):
    assert main(["bench", config, "sessions=1", "askers.first.context=2500", "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr()
    assert "first: ungradable 3" in told.out
    assert "warning: no session of first can be graded (context_exhausted 3)" in told.err
    assert "no session of second" not in told.err


def test_bench_resume_replay_regrade(config, world, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["bench", config, "sessions=2", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "is complete" in shown.out and "warning" not in shown.err
    told = [line for line in shown.out.splitlines() if line.startswith(("first: ", "second: "))]
    assert [sum(int(part.split()[-1]) for part in line.split(": ")[1].split(", ")) for line in told] == [6, 6]
    assert "sessions of first: 5 of 6" in shown.err
    assert len(lines(out, "sessions.jsonl")) == 12

    (out / "truths.jsonl").unlink()
    assert main(["resume", str(out)]) == 0
    assert lines(out, "truths.jsonl")
    assert main(["bench", config, "sessions=2", "--out", str(out)]) == 0
    assert "0 rows were written now" in capsys.readouterr().out

    assert main(["replay", str(out)]) == 0
    assert "0 of 32 sessions differ from their records" in capsys.readouterr().out
    assert main(["replay", str(out), "--truncated", "wrong", "--checks", "1"]) == 0

    assert main(["regrade", str(out), "--cross-check", "weak", "--name", "weak"]) == 0
    assert "labels differ" in capsys.readouterr().out
    assert len(lines(out, "regrade-weak.jsonl")) == 12


def test_replay_fails_where_a_label_differs(config, world, tmp_path, capsys):
    out = tmp_path / "run"
    main(["bench", config, "sessions=1", "--out", str(out)])
    rows = lines(out, "sessions.jsonl")
    rows[0]["label"] = "too_hard" if rows[0]["label"] != "too_hard" else "calibrated"
    (out / "sessions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["replay", str(out)]) == 1
    shown = capsys.readouterr().out
    assert "1 of" in shown
    assert rows[0]["id"] in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "none.yaml", "--out", "x"], "no configuration 'none.yaml'"),
        (["check", "{config}", "sesions=1"], "did you mean 'sessions'?"),
        (["resume", "{out}"], "is no benchmark"),
        (["replay", "{out}"], "is no benchmark"),
        (["replay", "{out}", "--checks", "0"], "--checks is 0"),
        (["regrade", "{out}", "--cross-check", "weak", "--name", "n"], "is no benchmark"),
        (["check", "{config}", "prompts=none"], "prompts is 'none'"),
        (["check", "{config}", "truth=nowhere:oracle"], "truth is 'nowhere:oracle'"),
        (["check", "{config}", "--tokens-per-second", "0"], "--tokens-per-second is 0.0"),
        (["check", "{config}", "--tokens-per-second", "nan"], "--tokens-per-second is nan"),
        (["check", "{config}", "sessions=!!int x"], "is no YAML"),
        (["check", "{config}", "name=!!timestamp 2024-99-99"], "is no YAML"),
        (["check", "{config}", "askers.0.model=/no/folder"], "model is '/no/folder', and there is no such folder"),
        (["check", "{config}", "askers.0.model=package:nowhere/x"], "no package 'nowhere'"),
        (["check", "{config}", "askers.0.backend=http", "askers.0.base_urls=[here]"], "base_urls holds 'here'"),
        (["bench", "{config}", "truth=nowhere:oracle", "--out", "{out}"], "truth is 'nowhere:oracle'"),
        (["bench", "{config}", "--out", "/dev/null/x"], "/dev/null/x: Not a directory"),
    ],
)
def test_mistakes_are_told_without_a_traceback(config, tmp_path, capsys, arguments, message):
    filled = [a.format(config=config, out=tmp_path / "none") for a in arguments]
    assert main(filled) == 1
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.startswith("aske: error: ")
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: " + b"[" * 3000, b"name: !!int x", b"a: 1\na: 2\n"])
def test_a_file_that_is_no_yaml_is_told(tmp_path, capsys, content):
    (tmp_path / "c.yaml").write_bytes(content)
    assert main(["check", str(tmp_path / "c.yaml")]) == 1
    assert capsys.readouterr().err.startswith(f"aske: error: {tmp_path / 'c.yaml'}")


def test_a_row_that_is_not_whole_is_told_with_its_place(config, world, tmp_path, capsys):
    out = tmp_path / "run"
    main(["bench", config, "sessions=1", "--out", str(out)])
    (out / "sessions.jsonl").write_text("{}\n")
    for command in ("resume", "replay"):
        assert main([command, str(out)]) == 1
        shown = capsys.readouterr().err
        assert "sessions.jsonl: row 1 is not whole" in shown and "Traceback" not in shown


def test_overrides_are_not_said_to_be_required(capsys):
    with pytest.raises(SystemExit):
        main(["check"])
    assert capsys.readouterr().err.endswith("the following arguments are required: CONFIG\n")


def test_an_interrupt_is_clean_and_can_be_gone_on_from(config, world, tmp_path, capsys):
    def interrupt() -> None:
        raise KeyboardInterrupt

    world.before_call(40, interrupt)
    out = tmp_path / "run"
    assert main(["bench", config, "--out", str(out)]) == 130
    assert "aske resume" in capsys.readouterr().err
    assert not (out / "DONE.json").exists()
    assert main(["resume", str(out)]) == 0
    assert (out / "DONE.json").exists()
    assert len(lines(out, "sessions.jsonl")) == 24


def test_bars_on_a_terminal(monkeypatch):
    """Bars are drawn where stderr is a terminal; here one is pretended."""
    from collections import Counter

    from aske.progress import Display

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Display() as display:
        assert display.live
        display.part("sessions of a", 2, 4, Counter(calibrated=2))
        display.doing("asker, turn 1", 0, 2)
        display.wave(4, Counter(too_easy=1, ungradable=1), 1234)
        task = display.progress.tasks[0]
    assert (task.completed, task.total) == (4, 4)
    assert task.fields["note"] == "1,234 tokens; 2 calibrated, 1 too easy, 1 ungradable"


def test_lines_where_there_is_no_terminal(monkeypatch, capsys):
    from collections import Counter

    from aske import progress

    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with progress.Display() as display:
        assert not display.live
        display.part("sessions of a", 0, 4, Counter())
        for clock[0], turn in ((30.0, 1), (61.0, 2), (90.0, 3), (122.0, 4)):
            display.doing(f"asker, turn {turn}", turn - 1, 4)
        clock[0] = 150.0
        display.wave(4, Counter(calibrated=4), 1234)
    assert capsys.readouterr().err.splitlines() == [
        "sessions of a: asker, turn 2, 1 of 4 of this wave over",
        "sessions of a: asker, turn 4, 3 of 4 of this wave over",
        "sessions of a: 4 of 4, 1,234 tokens; 4 calibrated, 150 s",
    ]


def test_ctrl_c_does_not_wait_for_silent_servers(tmp_path):
    """The asker's server answers; the solvers' says nothing for three minutes."""
    with FakeServer(ask) as good, FakeServer(faults=Faults(rate=1.0, kinds=(Fault.HANG,), hang_seconds=180)) as silent:

        def http(name, server):
            return entry(name, backend="http", base_urls=list(server.urls)) | {"model": server.model}

        data = {"askers": [http("asker", good)], "pool": {"solvers": [http("a", silent), http("b", silent)]}}
        path = tmp_path / "bench.yaml"
        path.write_text(yaml.safe_dump({**data, "cross_check": "asker", "rules": {"probes": 1}}))
        # a process that was started in the background ignores the signal unless told otherwise
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from aske.cli import main; sys.exit(main(sys.argv[1:]))"
        )
        command = [sys.executable, "-c", code, "bench", str(path), "--out", str(tmp_path / "run")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            try:
                while not silent.stats.get("requests"):
                    assert child.poll() is None
                    time.sleep(0.05)
                child.send_signal(signal.SIGINT)
                _, told = child.communicate(timeout=90)  # a busy machine is slow to end a process
            finally:
                child.kill()
    assert child.returncode == 130
    assert "aske resume" in told
    assert "Traceback" not in told


def ask(body, index):
    return "#Reasoning#\nr\n#Draft#\nd \\boxed{1}\n#Question#\nWhat is 1 + 2?"


@pytest.mark.parametrize("arguments", [["replay", "x", "a=1"], ["check", "c", "--nothing"], ["bench", "c"], []])
def test_usage(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_resume_may_change_how_hard_endpoints_are_used_and_nothing_else(config, world, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["bench", config, "--out", str(out), "sessions=1"]) == 0
    assert main(["resume", str(out), "askers.first.limits.concurrency=2"]) == 0
    assert main(["resume", str(out), "seed=3"]) == 1
    assert "seed: 0 -> 3" in capsys.readouterr().err


def test_real_models_from_the_command(tmp_path, capsys):
    """The testbed's solvers, with one of them as asker: it writes no sessions, and everything goes its way."""
    out = tmp_path / "run"
    base = "package:selfevolve.testbed/backbones/base"
    arguments = ["bench", "testbed", f"askers.asker.model={base}", "sessions=1", "rules.probes=1", "--out", str(out),
                 "controls.same_model=1", "controls.no_probing=3", "controls.resamples=2"]  # fmt: skip
    assert main(arguments) == 0
    assert len(lines(out, "sessions.jsonl")) == 15
    assert main(["replay", str(out)]) == 0
    assert "0 of 24 sessions differ" in capsys.readouterr().out


def test_entry_of_a_command(tmp_path):
    """`python -m aske.cli` and the installed command are one."""
    done = subprocess.run([sys.executable, "-m", "aske.cli", "check", "testbed"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "1 askers, 6 solvers, 15 pairs" in done.stdout
    assert entry("x")["name"] == "x"
