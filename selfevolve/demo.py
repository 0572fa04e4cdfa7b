"""R-Quest beside R-Zero on the testbed: two child processes, their progress, round tables and a comparison page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from selfevolve.config import Recipe, load_recipe
from selfevolve.errors import UserError
from selfevolve.rundir import DONE, INITIALISATION, STAGES, RunDir

RECIPES = ("testbed/r_quest", "testbed/r_zero_code")
WATCH_SECONDS = 0.5  # between two looks at the run folders
LOG_LINES = 15  # of a failed run's log that are shown


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    share: float  # of all stages, 0 to 1
    round: int  # the round at work, from 1; 0 during the initialisation
    stage: str  # the stage at work; "" when none is known


@dataclass
class _Child:
    """A run at work in a process of its own."""

    name: str  # shown
    folder: Path
    recipe: Recipe
    log: Path
    process: subprocess.Popen[bytes]


def demo(out: Path, overrides: Sequence[str] = ()) -> int:
    """Run both recipes into ``out``, or go on with them, and compare them; return 0 when both end well.

    Raises:
        UserError: a run failed; the message holds the end of its log.
    """
    out.mkdir(parents=True, exist_ok=True)
    plans = [_plan(out, name, overrides) for name in RECIPES]
    children = [_start(*plan) for plan in plans]
    started = time.monotonic()
    try:
        _watch(children)
    except BaseException:
        for child in children:
            child.process.terminate()
        for child in children:
            child.process.wait()
        raise
    print(f"both runs done in {(time.monotonic() - started) / 60:.1f} minutes\n")
    from selfevolve.report import round_table, write_comparison, write_report

    for child in children:
        print(f"{child.name}  ({child.folder})\n{round_table(RunDir.open(child.folder).metrics())}\n")
    for child in children:
        print(f"report      {write_report(child.folder)[0]}")
    print(f"comparison  {write_comparison([child.folder for child in children], out / 'comparison.html')}")
    return 0


def _plan(out: Path, name: str, overrides: Sequence[str]) -> tuple[str, Path, Recipe, list[str]]:
    """Return name, folder, recipe and the command's words for one run: a fresh start, or a resume."""
    recipe = load_recipe(name, overrides)
    folder = out / name.rsplit("/", 1)[-1]
    if (folder / "config.yaml").is_file():
        RunDir.open(folder).require(recipe)
        return name, folder, recipe, ["resume", str(folder)]
    return name, folder, recipe, ["run", name, *overrides, "--out", str(folder)]


def _start(name: str, folder: Path, recipe: Recipe, words: list[str]) -> _Child:
    log = folder.with_suffix(".log")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "selfevolve", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    return _Child(name, folder, recipe, log, process)


def _watch(children: Sequence[_Child]) -> None:
    """Show progress until every child has ended; raise as soon as one fails."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Bars(*columns) as bars:
        tasks = [bars.add_task(child.name, total=1.0, now="starting") for child in children]
        plain: list[str] = ["" for _ in children]  # the last line shown where there is no terminal
        while True:
            ended = [child.process.poll() for child in children]
            for index, child in enumerate(children):
                at = progress(child.folder, child.recipe)
                now = "done" if ended[index] == 0 else _now(at, child.recipe.rounds)
                bars.update(tasks[index], completed=at.share, now=now)
                if not bars.console.is_terminal and now != plain[index]:
                    plain[index] = now
                    print(f"{child.name:<22} {at.share:>4.0%}  {now}", flush=True)
                if ended[index]:
                    raise _failed(child)
            if all(status == 0 for status in ended):
                return
            time.sleep(WATCH_SECONDS)


def _now(at: Progress, rounds: int) -> str:
    if not at.stage:
        return "starting"
    return at.stage if at.round == 0 else f"round {at.round}/{rounds} {at.stage}"


def _failed(child: _Child) -> UserError:
    lines = child.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
    status = child.process.returncode
    return UserError(
        f"{child.name} ended with status {status}; the end of {child.log}:\n" + "\n".join(f"  | {x}" for x in lines),
        "mend the cause and type the same command again: it goes on from the last complete stage",
    )


def progress(folder: Path, recipe: Recipe) -> Progress:
    """Read from a run folder how far the run is: complete stages, and the steps of the one at work."""
    order = [(0, INITIALISATION)] if recipe.initialisation.enabled else []
    order += [(number, stage) for number in range(1, recipe.rounds + 1) for stage in STAGES]
    run = RunDir(folder, recipe)
    done = 0
    while done < len(order) and (run.folder(*order[done]) / DONE).is_file():
        done += 1
    if done == len(order):
        return Progress(1.0, recipe.rounds, STAGES[-1])
    number, stage = order[done]
    if not folder.is_dir():
        return Progress(0.0, number, "")
    return Progress((done + _steps(folder, number, stage)) / len(order), number, stage)


def _steps(folder: Path, number: int, stage: str) -> float:
    """Return the share of the stage at work that ``progress.json`` tells of; 0 where it tells nothing."""
    try:
        note = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
        if (note["round"], note["stage"]) != (number, stage):
            return 0.0
        return min(1.0, float(note["done"]) / float(note["total"]))
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return 0.0
