"""Read a run folder for a report: tolerant, since a report is also made of a run that has not ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from selfevolve.errors import UserError
from selfevolve.report.figures import count, number

STAGES = ("questioner", "candidates", "assessment", "data", "solver", "diagnostics")
ASSESSED_STAGES = ("questioner", "assessment")  # the stages whose records are assessed questions


@dataclass(frozen=True)
class RunView:
    """What a report says of a run as a whole."""

    path: Path
    name: str  # the folder's name
    recipe: str
    backbone: str
    seed: str  # "not recorded" where the configuration has none
    planned: int | None  # rounds asked for
    referee: str | None  # "oracle", a model's name, or None where nothing knew the truth
    window: tuple[float, float]  # shares that are kept
    config: dict[str, Any]
    metrics: list[dict[str, Any]]  # by round; round 0 is the evaluation at the start, where the run has it
    unfinished: str | None  # where the run stands, or None when all rounds are there
    notes: tuple[str, ...] = field(default=())  # what could not be read
    changes: tuple[str, ...] = field(default=())  # settings of the machinery that changed as the run went on

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The metrics of the real rounds, without the start."""
        return [item for item in self.metrics if item["round"] > 0]


def read_lines(path: Path, notes: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file; a line that is torn or no object is left out and noted.

    Unlike the run's own reader this one mends nothing, since the run may be at work, and holds one line at a time.
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for place, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                item = json.loads(line)
            except ValueError:
                item = None
            if isinstance(item, dict):
                yield item
            elif notes is not None:
                notes.append(f"{path.name}, line {place}: no JSON object; the line is left out")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one where there is none."""
    try:
        item = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return item if isinstance(item, dict) else {}


def read_config(folder: Path, notes: list[str]) -> dict[str, Any]:
    """Return the run's resolved configuration, empty with a note where it cannot be read."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as problem:
        notes.append(f"config.yaml cannot be read: {problem}")
        return {}
    if not isinstance(config, dict):
        notes.append("config.yaml holds no settings")
        return {}
    return config


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested configuration as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def round_folders(folder: Path) -> list[tuple[int, Path]]:
    """Return the run's round folders with their numbers, in order."""
    home = folder / "rounds"
    found = [item for item in home.iterdir() if item.is_dir() and item.name.isdigit()] if home.is_dir() else []
    return sorted((int(item.name), item) for item in found)


def read_metrics(folder: Path, notes: list[str]) -> list[dict[str, Any]]:
    """Return one object a round: metrics.jsonl, and the rounds' own metrics.json where that file lacks them.

    Round 0 is the state before round 1, which the initialisation measured.
    """
    rounds: dict[int, dict[str, Any]] = {}
    for item in read_lines(folder / "metrics.jsonl", notes):
        place = count(item.get("round"))
        if place is not None:
            rounds[place] = item | {"round": place}
    for place, home in round_folders(folder):
        own = read_object(home / "diagnostics" / "metrics.json")
        if own and place not in rounds:
            rounds[place] = own | {"round": place}
    start = read_object(folder / "initialisation" / "start.json")
    if start:
        rounds.setdefault(0, start | {"round": 0})
    return [rounds[place] for place in sorted(rounds)]


def iter_assessed(folder: Path, stage: str, notes: list[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (round, record) for every assessed question of a stage, in the order of the run."""
    for place, home in round_folders(folder):
        for record in read_lines(home / stage / "assessed.jsonl", notes):
            yield place, record


def read_truths(folder: Path, notes: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return what the referee said of the questions, by the question's id."""
    truths: dict[str, dict[str, Any]] = {}
    for _, home in round_folders(folder):
        for item in read_lines(home / "diagnostics" / "truths.jsonl", notes):
            if isinstance(item.get("truth"), dict):
                truths[str(item.get("id"))] = item["truth"]
    return truths


def find_referee(folder: Path, metrics: list[dict[str, Any]]) -> str | None:
    """Return who judged the truth: as the rounds name it, else as the first record that has a truth does."""
    named = [item["referee"] for item in metrics if "referee" in item]
    if named:
        return next((str(name) for name in named if name), None)
    truths = list(read_truths(folder).values())
    for stage in ASSESSED_STAGES:
        truths += [
            record["truth"] for _, record in iter_assessed(folder, stage) if isinstance(record.get("truth"), dict)
        ]
    return next((str(truth["source"]) for truth in truths if truth.get("source")), None)


def find_window(config: Mapping[str, Any]) -> tuple[float, float]:
    """Return the window of shares that are kept, from the configuration; [0.3, 0.8] as in R-Quest without one."""
    section = config.get("assessment")
    settings = section if isinstance(section, Mapping) else {}
    low, high = number(settings.get("share_low")), number(settings.get("share_high"))
    return (0.3 if low is None else low), (0.8 if high is None else high)


def describe_backbone(value: object) -> str:
    """Return a short name of the backbone: `testbed:NAME` or a hub id as it is, a folder by its last part."""
    if not value:
        return "not recorded"
    text = str(value)
    local = text.startswith(("/", ".", "~")) or text.count("/") > 1
    return Path(text).name if local else text


def find_progress(folder: Path, planned: int | None, done: int) -> str | None:
    """Say where an unfinished run stands, or return None when every round is there."""
    if planned is not None and done >= planned:
        return None
    asked = "?" if planned is None else str(planned)
    for place, home in reversed(round_folders(folder)):
        if place <= done:
            break
        complete = [stage for stage in STAGES if (home / stage / "DONE.json").is_file()]
        last = f"its last complete stage is {complete[-1]}" if complete else "no stage of it is complete"
        return f"{done} of {asked} rounds are complete. Round {place} has begun; {last}."
    return None if planned is None and done else f"{done} of {asked} rounds are complete."


def load_run(path: str | Path) -> RunView:
    """Read what a report needs of a run folder.

    Raises:
        UserError: if ``path`` is no run folder.
    """
    folder = Path(path)
    if not (folder / "config.yaml").is_file() and not (folder / "metrics.jsonl").is_file():
        raise UserError(
            f"{folder} is no run folder: it has neither config.yaml nor metrics.jsonl",
            "give the folder that `selfevolve run` printed",
        )
    notes: list[str] = []
    config = read_config(folder, notes)
    metrics = read_metrics(folder, notes)
    changes = tuple(
        f"{line} ({str(row.get('at', ''))[:10]})"
        for row in read_lines(folder / "changes.jsonl", notes)
        for line in row.get("changed", ())
    )
    planned = count(config.get("rounds"))
    done = sum(item["round"] > 0 for item in metrics)
    return RunView(
        path=folder,
        name=folder.resolve().name,
        recipe=str(config.get("name") or "unnamed recipe"),
        backbone=describe_backbone(config.get("backbone")),
        seed=str(config["seed"]) if config.get("seed") is not None else "not recorded",
        planned=planned,
        referee=find_referee(folder, metrics),
        window=find_window(config),
        config=config,
        metrics=metrics,
        unfinished=find_progress(folder, planned, done),
        notes=tuple(notes),
        changes=changes,
    )
