"""The run folder: whole stages or none, one process at a time, and what is told when something is damaged."""

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from selfevolve import jsonl, rundir
from selfevolve.config import load_recipe
from selfevolve.errors import (
    ConfigChangedError,
    ConfigError,
    DamagedFileError,
    DiskFullError,
    RunBusyError,
    RunFolderError,
)
from selfevolve.jsonl import JsonlWriter, last_rows, read_jsonl, write_json, write_jsonl
from selfevolve.rundir import STAGES, RunDir
from selfevolve.runlock import RunLock

ROOT = Path(__file__).resolve().parents[1]
RECIPE = load_recipe("testbed/r_quest")


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir.create(tmp_path / "run", RECIPE)


def fill(run: RunDir, round: int, name: str, **rows: int) -> None:
    """Complete one stage, with a checkpoint where the design has one."""
    stage = run.stage(round, name)
    assert stage is not None
    with stage:
        for file, number in rows.items():
            stage.write_jsonl(f"{file}.jsonl", [{"id": i} for i in range(number)])
        if name in ("questioner", "solver", "initialisation"):
            (stage.path / "checkpoint").mkdir()
            (stage.path / "checkpoint" / "model.safetensors").write_bytes(b"weights" * 10)
            (stage.path / "checkpoint" / "config.json").write_text("{}")
        if name == "diagnostics":
            stage.write_json("metrics.json", {"round": round, "kept": 10 * round})


def fill_round(run: RunDir, round: int) -> None:
    for name in STAGES:
        fill(run, round, name)


# -- a new run


def test_create_writes_what_the_run_is_made_with(run):
    assert sorted(p.name for p in run.path.iterdir() if p.name != "code.diff") == ["config.yaml", "environment.json"]
    facts = json.loads((run.path / "environment.json").read_text())
    assert facts["packages"]["pydantic"] and facts["python"] == sys.version.split()[0]
    assert facts["config_hash"] == run.hash and facts["config"]["solver"]["steps"] == RECIPE.solver.steps
    if (ROOT / ".git").is_dir():
        assert len(facts["commit"]) == 40 and (run.path / "code.diff").is_file()
    again = RunDir.open(run.path)
    assert again.recipe == RECIPE and again.hash == run.hash


def test_create_loads_no_torch(tmp_path):
    code = (
        "import sys; from selfevolve.rundir import RunDir; from selfevolve.config import load_recipe\n"
        f"RunDir.create({str(tmp_path / 'run')!r}, load_recipe('testbed/r_quest'))\n"
        "print([m for m in ('torch', 'transformers', 'trl', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_create_refuses_a_folder_in_use(run, tmp_path):
    with pytest.raises(RunFolderError, match=r"already holds this run, 0 of 10 rounds(.|\n)*selfevolve resume"):
        RunDir.create(run.path, RECIPE)
    with pytest.raises(ConfigChangedError, match=r"solver.steps: 8 -> 9"):
        RunDir.create(run.path, load_recipe("testbed/r_quest", ["solver.steps=9"]))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(RunFolderError, match="not empty and holds no run"):
        RunDir.create(tmp_path / "mine", RECIPE)
    with pytest.raises(RunFolderError, match="is a file"):
        RunDir.create(tmp_path / "mine" / "thesis.tex", RECIPE)


def test_create_goes_on_after_a_kill_in_create(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "environment.json").write_text("{")
    (folder / "config.yaml.tmp").write_text("na")
    assert RunDir.open(RunDir.create(folder, RECIPE).path).recipe == RECIPE


# -- a changed config


def test_a_changed_config_is_refused_key_by_key(run):
    config = run.path / "config.yaml"
    text = config.read_text()
    assert "seed: 0" in text and "votes: 9" in text
    config.write_text(text.replace("seed: 0", "seed: 1").replace("votes: 9", "votes: 7"))
    with pytest.raises(ConfigChangedError) as caught:
        RunDir.open(run.path)
    assert "\n  seed: 0 -> 1\n  assessment.validity.votes: 9 -> 7" in str(caught.value)
    config.write_text(text.replace("seed: 0", "sead: 0"))
    with pytest.raises(ConfigError, match=r"config.yaml:3: unknown key 'sead'"):
        RunDir.open(run.path)
    # the same settings, written otherwise, are the same config
    config.write_text(text.replace("learning_rate: 0.0001", "learning_rate: 1e-4") + "\n# a remark\n")
    assert RunDir.open(run.path).hash == run.hash


def test_the_machinery_may_change_as_the_run_goes_on(run):
    with run.lock():
        fill(run, 1, "questioner")
        run.change(["micro_batch=1", "generation.batch=32"])
        run.change(["monitor.stop=true", "micro_batch=1"])
    again = RunDir.open(run.path)
    assert (again.recipe.micro_batch, again.recipe.generation.batch, again.recipe.monitor.stop) == (1, 32, True)
    assert again.made == RECIPE and again.hash == run.hash  # stages that were made before still count
    assert again.is_done(1, "questioner")
    first, second = again.changes()
    assert first["changed"] == ["micro_batch: 256 -> 1", "generation.batch: 1024 -> 32"]
    assert second["changed"] == ["monitor.stop: false -> true"]
    with pytest.raises(RunFolderError, match="already holds this run"):
        RunDir.create(run.path, RECIPE)


@pytest.mark.parametrize("override", ["seed=1", "generation.max_new_tokens.solution=9", "solver={steps: 1}", "lora={}"])
def test_what_a_run_computes_may_not_change(run, override):
    with pytest.raises(ConfigError, match="cannot change in a run that has begun"):
        run.change([override])
    with pytest.raises(ConfigError, match="micro_batch is 0"):
        run.change(["micro_batch=0"])
    assert not run.changes() and run.recipe == RECIPE


def test_a_stage_of_another_config_is_refused(run):
    with run.lock():
        fill(run, 1, "questioner")
        other = RunDir(run.path, load_recipe("testbed/r_quest", ["seed=5"]))
        with pytest.raises(ConfigChangedError, match="made under another config"):
            other.stage(1, "questioner")


def test_open_refuses_what_is_no_run(tmp_path, run):
    with pytest.raises(RunFolderError, match="does not exist"):
        RunDir.open(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"holds no config.yaml"):
        RunDir.open(tmp_path)
    (run.path / "environment.json").unlink()
    with pytest.raises(DamagedFileError, match=r"environment.json is missing"):
        RunDir.open(run.path)


# -- stages


def test_a_stage_is_whole_or_absent(run):
    with run.lock():
        stage = run.stage(1, "candidates")
        assert stage is not None and not run.is_done(1, "candidates")
        with stage:
            assert stage.path.name == "candidates.partial"
            assert stage.write_jsonl("candidates.jsonl", [{"id": "a"}, {"id": "b", "text": "½\ud800"}]) == 2
            stage.counts["parsed"] = 1
            assert not run.folder(1, "candidates").exists()
        assert run.stage(1, "candidates") is None
        done = run.done(1, "candidates")
        assert done["counts"] == {"candidates": 2, "parsed": 1} and done["config_hash"] == run.hash
        assert done["files"] == {"candidates.jsonl": (run.folder(1, "candidates") / "candidates.jsonl").stat().st_size}
        assert run.read(1, "candidates", "candidates.jsonl") == [{"id": "a"}, {"id": "b", "text": "½\ud800"}]
        assert not stage.path.exists()


def test_a_failed_stage_is_made_anew(run):
    with run.lock():
        stage = run.stage(1, "candidates")
        with pytest.raises(KeyError), stage:
            stage.write_jsonl("candidates.jsonl", [{"id": "old"}])
            raise KeyError
        assert not run.is_done(1, "candidates")
        again = run.stage(1, "candidates")
        assert again is not None and list(again.path.iterdir()) == []


def test_stage_names_and_rounds_are_checked(run):
    assert run.folder(0, "initialisation") == run.path / "initialisation"
    assert run.folder(12, "data") == run.path / "rounds" / "12" / "data"
    for round, name in ((1, "initialisation"), (0, "data"), (1, "dato")):
        with pytest.raises(ValueError, match="no stage"):
            run.folder(round, name)


def test_a_stage_needs_the_lock(run):
    with pytest.raises(RuntimeError, match="needs the run's lock"):
        run.stage(1, "candidates")


def test_rounds_and_metrics(run):
    with run.lock():
        fill(run, 0, "initialisation")
        assert run.rounds_done() == 0 and run.metrics() == []
        fill_round(run, 1)
        fill_round(run, 2)
        fill(run, 4, "diagnostics")  # a gap: round 3 is not there
    assert run.rounds_done() == 2
    rows = [{"round": 1, "kept": 10}, {"round": 2, "kept": 20}]
    assert run.metrics() == rows and read_jsonl(run.path / "metrics.jsonl") == rows
    with run.lock():
        fill(run, 0, "diagnostics")
    assert read_jsonl(run.path / "metrics.jsonl") == [{"round": 0, "kept": 0}, *rows] and run.rounds_done() == 2


@pytest.mark.parametrize("tail", ['{"round": 1, "ke', None])
def test_metrics_are_rebuilt_from_the_rounds(run, tail):
    with run.lock():
        fill_round(run, 1)
    path = run.path / "metrics.jsonl"
    path.unlink() if tail is None else path.write_text(tail)
    with run.lock():
        assert path.read_text() == '{"round": 1, "kept": 10}\n'


# -- damage (shared case S35)


def test_a_checkpoint_with_an_empty_file_is_never_complete(run):
    with run.lock():
        fill(run, 1, "questioner")
        stage = run.stage(1, "solver")
        with pytest.raises(DamagedFileError, match=r"model.safetensors was written with 0 bytes"), stage:
            (stage.path / "checkpoint").mkdir()
            (stage.path / "checkpoint" / "model.safetensors").touch()
        assert not run.is_done(1, "solver") and run.stage(1, "solver") is not None
        assert run.checkpoint(1, "questioner").name == "checkpoint"


def test_a_damaged_checkpoint_is_named(run):
    with run.lock():
        fill(run, 1, "solver")
    weights = run.folder(1, "solver") / "checkpoint" / "model.safetensors"
    assert run.checkpoint(1, "solver") == weights.parent
    weights.write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"solver/checkpoint/model.safetensors has 0 bytes, but 70 were written"):
        run.checkpoint(1, "solver")
    weights.unlink()
    with pytest.raises(
        DamagedFileError, match=r"model.safetensors is missing(.|\n)*delete .*/rounds/01/solver and every"
    ):
        run.checkpoint(1, "solver")
    with pytest.raises(DamagedFileError, match=r"was never written"):
        run.file(1, "solver", "optimizer.pt")


def test_a_checkpoint_without_weights_is_named(run):
    with run.lock(), run.stage(1, "solver") as stage:
        (stage.path / "checkpoint").mkdir()
        (stage.path / "checkpoint" / "config.json").write_text("{}")
    with pytest.raises(DamagedFileError, match="holds no weights"):
        run.checkpoint(1, "solver")


def test_old_checkpoints_are_removed_where_the_recipe_says_so(run):
    with run.lock():
        fill(run, 0, "initialisation")
        for number in (1, 2, 3):
            fill_round(run, number)
        run.remove_old_checkpoints()
        assert run.checkpoint(1, "solver").is_dir()  # the default keeps all
        run.change(["keep_checkpoints=2"])
        fill(run, 4, "questioner")  # the round at work does not count
        run.remove_old_checkpoints()
        run.remove_old_checkpoints()  # as after a kill within
    left = sorted(str(p.parent.relative_to(run.path)) for p in run.path.rglob("checkpoint"))
    rounds = [f"rounds/{n:02d}/{stage}" for n in (2, 3) for stage in ("questioner", "solver")]
    assert left == ["initialisation", *rounds, "rounds/04/questioner"]
    with pytest.raises(RunFolderError, match=r"rounds/01/solver/checkpoint was removed: keep_checkpoints is 2"):
        run.checkpoint(1, "solver")
    shutil.rmtree(run.folder(3, "solver") / "checkpoint")  # not by us
    with pytest.raises(DamagedFileError, match=r"config.json is missing"):
        run.checkpoint(3, "solver")
    again = RunDir.open(run.path)
    with again.lock():
        assert again.stage(1, "solver") is None and len(again.metrics()) == 3  # rounds stay complete


def test_records_are_checked_against_their_count(run):
    with run.lock():
        fill(run, 1, "candidates", candidates=3)
    path = run.folder(1, "candidates") / "candidates.jsonl"
    assert len(run.read(1, "candidates", "candidates.jsonl")) == 3
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DamagedFileError, match="has 2 whole rows, but 3 were written"):
        run.read(1, "candidates", "candidates.jsonl")
    path.unlink()
    with pytest.raises(DamagedFileError, match=r"candidates.jsonl is missing"):
        run.read(1, "candidates", "candidates.jsonl")
    (run.folder(1, "candidates") / "DONE.json").write_text("{")
    with pytest.raises(DamagedFileError, match=r"DONE.json \(1 bytes\) is no whole JSON"):
        run.stage(1, "candidates")


def test_a_full_disk_is_told_and_earlier_stages_stay(run):
    with run.lock():
        fill(run, 1, "questioner")
        stage = run.stage(1, "candidates")
        assert stage is not None
        (stage.path / "candidates.jsonl.tmp").symlink_to("/dev/full")
        with pytest.raises(DiskFullError, match=r"the disk is full(.|\n)*free some space"), stage:
            stage.write_jsonl("candidates.jsonl", [{"id": i, "text": "x" * 100} for i in range(1000)])
        assert not run.is_done(1, "candidates") and run.is_done(1, "questioner")
        fill(run, 1, "candidates", candidates=3)
        assert len(run.read(1, "candidates", "candidates.jsonl")) == 3


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DiskFullError),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), DiskFullError),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), DiskFullError),
        (OSError(errno.EACCES, "Permission denied"), PermissionError),
        (RuntimeError("shape mismatch"), RuntimeError),
    ],
)
def test_a_full_disk_is_known_in_every_library_s_words(run, error, expected):
    with run.lock():
        stage = run.stage(1, "candidates")
        with pytest.raises(expected), stage:
            raise error


def test_a_full_disk_at_the_very_end_leaves_no_stage(run, monkeypatch):
    def full(path, value):
        raise OSError(errno.ENOSPC, "No space left on device")

    with run.lock():
        stage = run.stage(1, "candidates")
        monkeypatch.setattr(rundir, "write_json", full)
        with pytest.raises(DiskFullError), stage:
            pass
        assert not run.folder(1, "candidates").exists()


# -- JSON Lines (shared case S37)

TORN = '{"id":1,"ok":1}\n{"id":2,"ok":0}\n{"id":2,"ok":1}\n{"id":3,"o'


def test_a_torn_last_line_is_removed_and_told(tmp_path, caplog):
    path = tmp_path / "results.jsonl"
    path.write_text(TORN)
    with caplog.at_level(logging.WARNING):
        rows = read_jsonl(path)
    assert rows == [{"id": 1, "ok": 1}, {"id": 2, "ok": 0}, {"id": 2, "ok": 1}]
    assert f"{path}:4: torn last line (10 bytes) removed; 3 stand" in caplog.text
    assert path.read_text() == TORN[: TORN.rindex("\n") + 1]
    done = last_rows(rows, "id")
    assert done == [{"id": 1, "ok": 1}, {"id": 2, "ok": 1}]
    with path.open("a") as file:
        file.writelines(f'{{"id":{i},"ok":1}}\n' for i in (1, 2, 3, 4) if i not in {row["id"] for row in done})
    assert last_rows(read_jsonl(path), "id") == [{"id": i, "ok": 1} for i in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("text", "rows", "left"),
    [
        ("", [], ""),
        ('{"a": 1}', [{"a": 1}], '{"a": 1}\n'),  # whole, but for its line feed
        ('{"a": 1}\n\n{"a": 2}\n', [{"a": 1}, {"a": 2}], '{"a": 1}\n\n{"a": 2}\n'),
        ('{"a": 1}\n\0\0\0\0', [{"a": 1}], '{"a": 1}\n'),  # a tail of zeros, as after a power cut
        ('{"a": 1}\n{"a": "\u00bd', [{"a": 1}], '{"a": 1}\n'),
        ('{"a": 1}\n12', [{"a": 1}], '{"a": 1}\n'),  # a number can be the start of nothing of ours
        ('{"a": "x\\u2028y\u2028z"}\n', [{"a": "x\u2028y\u2028z"}], '{"a": "x\\u2028y\u2028z"}\n'),
    ],
)
def test_tails(tmp_path, text, rows, left):
    path = tmp_path / "x.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_jsonl(path) == rows
    assert path.read_text(encoding="utf-8") == left
    assert read_jsonl(path) == rows


def test_a_line_torn_within_a_character(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xc2')
    assert read_jsonl(path) == [{"a": 1}]


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a"\n{"a": 3}\n', '{"a": 1}\n{"a"\n', '{"a": 1}\n[1]\n{"a": 2}'])
def test_a_torn_middle_line_is_refused_with_its_place(tmp_path, text):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(DamagedFileError, match=rf"{path}:2: not a whole JSON object"):
        read_jsonl(path)
    assert path.read_text() == text


def test_a_writer_leaves_all_or_nothing(tmp_path):
    path = tmp_path / "x.jsonl"
    write_jsonl(path, [{"a": 1}])
    with pytest.raises(ValueError, match=r"JSON compliant"), JsonlWriter(path) as writer:
        writer.write({"a": 2})
        writer.write({"a": float("nan")})
    assert read_jsonl(path) == [{"a": 1}] and os.listdir(tmp_path) == ["x.jsonl"]
    with pytest.raises(ValueError):
        write_json(path, {"a": float("inf")})
    assert read_jsonl(path) == [{"a": 1}] and os.listdir(tmp_path) == ["x.jsonl"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DamagedFileError, match=r"x.jsonl is missing"):
        read_jsonl(tmp_path / "x.jsonl")


def test_quota_counts_as_full():
    assert jsonl.is_disk_full(OSError(errno.EDQUOT, "")) and not jsonl.is_disk_full(OSError(errno.EIO, ""))


# -- the lock

HOLD = """
import sys, time, multiprocessing
from selfevolve.runlock import RunLock
lock = RunLock(__import__("pathlib").Path(sys.argv[1]))
if len(sys.argv) > 2:
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    worker.start()
    print(worker.pid, flush=True)
else:
    print("held", flush=True)
time.sleep(60)
"""


def holder(path: Path, *more: str) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *more], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def test_a_second_process_is_refused_and_a_dead_one_s_lock_taken_over(run):
    process, _ = holder(run.path / "run.lock")
    try:
        with pytest.raises(RunBusyError, match=rf"in use by process {process.pid}\n.*wait until it ends"):
            run.lock()
    finally:
        process.kill()
        process.wait()
    with run.lock():
        assert (run.path / "run.lock").read_text() == f"{os.getpid()}\n"


def test_a_worker_that_outlives_the_run_does_not_hold_the_lock(run):
    process, worker = holder(run.path / "run.lock", "with-worker")
    try:
        process.kill()
        process.wait()
        os.kill(int(worker), 0)  # alive
        run.lock().release()
    finally:
        os.kill(int(worker), signal.SIGKILL)
        process.stdout.close()


def test_a_second_hold_in_the_same_process_is_refused(run):
    with run.lock():
        with pytest.raises(RunBusyError, match=f"process {os.getpid()}"):
            run.lock()
        with pytest.raises(RunBusyError):
            RunLock(run.path / ".." / run.path.name / "run.lock")
    with run.lock() as lock:
        lock.release()
        run.lock().release()


# -- kills

LOOP = """
import sys
from selfevolve.rundir import RunDir, STAGES
run = RunDir.open(sys.argv[1])
with run.lock():
    print("go", flush=True)
    for number in range(1, run.recipe.rounds + 1):
        for name in STAGES:
            stage = run.stage(number, name)
            if stage is None:
                continue
            with stage:
                stage.write_jsonl("rows.jsonl", [{"at": [number, name, i], "text": "x" * 500} for i in range(200)])
                if name == "diagnostics":
                    stage.write_json("metrics.json", {"round": number})
print("end", flush=True)
"""


def test_kills_at_any_moment_lose_nothing(tmp_path):
    """Kill the writer after 1, 4, 9 ... ms, then let it end: every record is there once, no partial folder is left."""
    run = RunDir.create(tmp_path / "run", load_recipe("testbed/r_quest", ["rounds=3"]))
    for kill in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(run.path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "go\n"
        try:
            process.wait(timeout=(kill + 1) ** 2 / 1000)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        process.stdout.close()
    subprocess.run([sys.executable, "-c", LOOP, str(run.path)], cwd=ROOT, check=True, capture_output=True)
    expected = RunDir.open(run.path)
    for number in range(1, 4):
        for name in STAGES:
            rows = expected.read(number, name, "rows.jsonl")
            assert [row["at"] for row in rows] == [[number, name, i] for i in range(200)]
    assert expected.metrics() == [{"round": n} for n in (1, 2, 3)]
    assert read_jsonl(run.path / "metrics.jsonl") == expected.metrics()
    assert not [p for p in run.path.rglob("*") if p.suffix in (".partial", ".tmp")]
