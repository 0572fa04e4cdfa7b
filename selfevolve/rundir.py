"""The run folder: settings, records and checkpoints of a run. A kill at any moment loses one stage at most.

docs/design/architecture.md shows the layout. A stage writes into ``STAGE.partial``; then come ``DONE.json`` and the
rename to ``STAGE``. So a folder without the suffix is complete. ``DONE.json`` holds the size of every file, so a file
that was cut or deleted later is noticed when it is read.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from selfevolve.config import Recipe, changed_machinery, config_hash, differences, dump, recipe_from_text
from selfevolve.environment import code_diff, environment
from selfevolve.errors import ConfigChangedError, DamagedFileError, RunFolderError
from selfevolve.jsonl import (
    JsonlWriter,
    Row,
    disk_full_is_clear,
    last_rows,
    read_jsonl,
    sync_folder,
    sync_tree,
    write_json,
    write_jsonl,
    write_text,
)
from selfevolve.runlock import RunLock, holds_lock

__all__ = ["STAGES", "JsonlWriter", "RunDir", "Stage", "last_rows", "read_jsonl", "write_json", "write_jsonl"]

INITIALISATION = "initialisation"  # the one stage outside a round; its round is 0
STAGES = ("questioner", "candidates", "assessment", "data", "solver", "diagnostics")  # of a round, in order
DONE = "DONE.json"
BEGINNINGS = ("run.lock", "environment.json", "code.diff", "config.yaml")  # all that a killed `create` can leave
CHANGES = "changes.jsonl"  # settings of the machinery that changed when the run went on
PARTIAL = ".partial"
SAVEPOINT = ".savepoint"  # beside a training stage's folder while it is at work
CHECKPOINT = "checkpoint"
WEIGHTS = ("*.safetensors", "*.bin")


class Stage:
    """A stage at work: a folder to write into, made complete at the end of its ``with`` block.

    Leaving the block by an exception, or by a kill, leaves the folder with its ``.partial`` suffix; the next start of
    the stage throws it away. What a training stage saved in between stands beside it, with all that it goes on from.
    """

    def __init__(self, run: RunDir, round: int, name: str, final: Path) -> None:
        """Make the empty ``.partial`` folder."""
        self.run = run
        self.round = round  # from 1; 0 is the initialisation
        self.name = name
        self.final = final  # where the folder stands once it is complete
        self.path = final.with_name(final.name + PARTIAL)  # write here
        self.counts: dict[str, Any] = {}  # for DONE.json: what the stage made, by name
        if self.path.exists():
            shutil.rmtree(self.path)
        with disk_full_is_clear(self.path):
            self.path.mkdir(parents=True)
        self._started = time.monotonic()

    def write_jsonl(self, file: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """Write rows to ``file`` of this stage; the number of rows also goes to `counts` under the file's stem."""
        number = write_jsonl(self.path / file, rows)
        self.counts[Path(file).stem] = number
        return number

    def write_json(self, file: str, value: Any) -> None:
        """Write one JSON value to ``file`` of this stage."""
        write_json(self.path / file, value)

    def __enter__(self) -> Self:
        """Return the stage."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Complete the stage, unless the block failed."""
        if kind is None:
            self._complete()
        elif error is not None:
            with disk_full_is_clear(self.path):
                raise error

    def _complete(self) -> None:
        paths = [p for p in sorted(self.path.rglob("*")) if p.is_file()]
        files = {p.relative_to(self.path).as_posix(): p.stat().st_size for p in paths}
        for name, size in files.items():
            if size == 0 and Path(name).suffix in (".safetensors", ".bin", ".json"):
                raise DamagedFileError(
                    f"stage {self.name}: {self.path / name} was written with 0 bytes",
                    "look for a full disk, then resume: the stage is made anew",
                )
        with disk_full_is_clear(self.path):
            sync_tree(self.path)
            done = {
                "stage": self.name,
                "round": self.round,
                "config_hash": self.run.hash,
                "seconds": round(time.monotonic() - self._started, 3),
                "counts": self.counts,
                "files": files,
            }
            write_json(self.path / DONE, done)
            sync_folder(self.path)
            self.path.rename(self.final)
            sync_folder(self.final.parent)
        shutil.rmtree(self.run.savepoint(self.round, self.name), ignore_errors=True)
        if self.name == STAGES[-1]:
            self.run.rebuild_metrics()


class RunDir:
    """A run folder on disk; make one with `create` or `open`."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        """Take the parts as they are; `create` and `open` do the checking."""
        self.path = path
        self.made = recipe  # what the run was made with
        self.recipe = recipe  # the same, with later changes of the machinery
        self.hash = config_hash(recipe)

    @classmethod
    def create(cls, path: str | Path, recipe: Recipe) -> RunDir:
        """Make a new run folder: resolved config, versions, code diff.

        Raises:
            ConfigChangedError: a run with another config stands there; the difference is shown key by key.
            RunFolderError: a run with this config, or something else, stands there.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"{path} is a file; a run needs a folder", "choose another --out")
        if (path / "config.yaml").is_file():
            old = cls.open(path)
            old.require(recipe)
            raise RunFolderError(
                f"{path} already holds this run, {old.rounds_done()} of {recipe.rounds} rounds done",
                f"go on with `selfevolve resume {path}`, or choose another --out",
            )
        if path.is_dir() and any(p.name.removesuffix(".tmp") not in BEGINNINGS for p in path.iterdir()):
            raise RunFolderError(f"{path} is not empty and holds no run", "choose another --out")
        with disk_full_is_clear(path):
            path.mkdir(parents=True, exist_ok=True)
        facts = environment() | {"config_hash": config_hash(recipe), "config": recipe.model_dump(mode="json")}
        write_json(path / "environment.json", facts)
        diff = code_diff()
        if diff is not None:
            write_text(path / "code.diff", diff)
        # last: a folder with this file is a run
        write_text(path / "config.yaml", dump(recipe))
        return cls(path, recipe)

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """Open a run folder.

        Raises:
            RunFolderError: no run is there.
            ConfigChangedError: ``config.yaml`` is not what the run was made with; the difference is shown key by key.
        """
        path = Path(path)
        config = path / "config.yaml"
        if not config.is_file():
            what = "holds no config.yaml" if path.is_dir() else "does not exist"
            raise RunFolderError(f"{path} is no run folder: it {what}", "start one with `selfevolve run RECIPE`")
        try:
            text = config.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DamagedFileError(f"{config} is no UTF-8 text: {error}", "restore the file from a backup") from None
        recipe = recipe_from_text(text, str(config))
        facts = path / "environment.json"
        made_with = _read_json(facts).get("config")
        if made_with is None:
            raise DamagedFileError(f"{facts} does not hold the config", "restore the file from a backup")
        run = cls(path, Recipe.model_validate(made_with))
        run.require(recipe)
        for row in run.changes():
            run.recipe = changed_machinery(run.recipe, row["overrides"])
        return run

    def changes(self) -> list[Row]:
        """Return the changes of the machinery so far: ``at``, ``overrides``, and ``changed``, a line a key."""
        file = self.path / CHANGES
        return read_jsonl(file) if file.is_file() else []

    def change(self, overrides: Sequence[str]) -> None:
        """Change settings of the machinery from here on; the caller holds the lock.

        Raises:
            ConfigError: an override of a setting that decides what the run computes, or one that does not fit.
        """
        recipe = changed_machinery(self.recipe, overrides)
        if changed := differences(self.recipe, recipe):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            row = {"at": now, "overrides": list(overrides), "changed": changed}
            write_jsonl(self.path / CHANGES, [*self.changes(), row])
        self.recipe = recipe

    def require(self, recipe: Recipe) -> None:
        """Raise `ConfigChangedError`, with the difference, unless the run was made with ``recipe``'s settings."""
        if changed := differences(self.made, recipe):
            table = "".join(f"\n  {line}" for line in changed)
            raise ConfigChangedError(
                f"{self.path} was made with another config (as made -> as asked):{table}",
                "put the values back to go on with this run, or start a new one with another --out; settings that "
                "decide how fast and where it runs can be given to `selfevolve resume RUN key=value`",
            )

    def lock(self) -> RunLock:
        """Take the run's lock, for a ``with`` block, and bring ``metrics.jsonl`` up to date after a kill.

        Raises:
            RunBusyError: a live process holds it.
        """
        lock = RunLock(self.path / "run.lock")
        try:
            self.rebuild_metrics()
        except BaseException:
            lock.release()
            raise
        return lock

    def stage(self, round: int, name: str) -> Stage | None:
        """Begin a stage; None when it is already complete. The lock must be held.

        Args:
            round: from 1; 0 for ``initialisation``.
            name: one of `STAGES`, or ``initialisation``.

        Raises:
            ConfigChangedError: the stage is complete, but under another config.
        """
        final = self.folder(round, name)
        if final.is_dir():
            if self.done(round, name)["config_hash"] != self.hash:
                raise ConfigChangedError(
                    f"{final} was made under another config than {self.path / 'config.yaml'}",
                    f"delete {final} and what came after it, or start a new run",
                )
            return None
        if not holds_lock(self.path / "run.lock"):
            raise RuntimeError(f"stage {name} needs the run's lock: call it within `with run.lock():`")
        return Stage(self, round, name, final)

    def folder(self, round: int, name: str) -> Path:
        """Return where a stage's folder stands once it is complete; round 0 has initialisation and diagnostics."""
        if name == INITIALISATION and round == 0:
            return self.path / INITIALISATION
        if name not in STAGES or round < 0 or (round == 0 and name != STAGES[-1]):
            raise ValueError(
                f"no stage {name!r} in round {round}; a round has {', '.join(STAGES)}, "
                f"and round 0 has {INITIALISATION} and {STAGES[-1]}"
            )
        return self.path / "rounds" / f"{round:02d}" / name

    def savepoint(self, round: int, name: str) -> Path:
        """Return where a training stage is saved in between; every process of every machine finds it there."""
        return self.folder(round, name).with_name(name + SAVEPOINT)

    def is_done(self, round: int, name: str) -> bool:
        """Return True when the stage is complete."""
        return (self.folder(round, name) / DONE).is_file()

    def done(self, round: int, name: str) -> dict[str, Any]:
        """Return a complete stage's ``DONE.json``: config hash, seconds, counts, and the size of each file in bytes.

        Raises:
            DamagedFileError: it is missing or not whole.
        """
        return _read_json(self.folder(round, name) / DONE)

    def rounds_done(self) -> int:
        """Return how many rounds are complete, counted from round 1 without a gap."""
        number = 0
        while self.is_done(number + 1, STAGES[-1]):
            number += 1
        return number

    def file(self, round: int, stage: str, name: str) -> Path:
        """Return the path of a file, or folder, of a complete stage, after a check against ``DONE.json``.

        Raises:
            DamagedFileError: missing, or not of the recorded size; the message says what to delete.
        """
        folder = self.folder(round, stage)
        sizes: dict[str, int] = self.done(round, stage)["files"]
        wanted = {n: size for n, size in sizes.items() if n == name or n.startswith(f"{name}/")}
        if not wanted:
            raise self._damaged(round, stage, f"{folder / name} was never written")
        for file, size in wanted.items():
            path = folder / file
            if not path.is_file():
                raise self._damaged(round, stage, f"{path} is missing ({size} bytes were written)")
            if path.stat().st_size != size:
                raise self._damaged(round, stage, f"{path} has {path.stat().st_size} bytes, but {size} were written")
        return folder / name

    def checkpoint(self, round: int, stage: str) -> Path:
        """Return a complete stage's checkpoint folder, after a check that its weights are all there.

        Raises:
            DamagedFileError: missing, empty or cut; the message says what to delete.
            RunFolderError: removed by `remove_old_checkpoints`.
        """
        keep = self.recipe.keep_checkpoints
        if keep and 0 < round <= self.rounds_done() - keep and not (self.folder(round, stage) / CHECKPOINT).is_dir():
            raise RunFolderError(
                f"{self.folder(round, stage) / CHECKPOINT} was removed: keep_checkpoints is {keep}",
                "use a later round's; `selfevolve resume RUN keep_checkpoints=null` keeps those that are still to come",
            )
        path = self.file(round, stage, CHECKPOINT)
        if not any(found for pattern in WEIGHTS for found in path.glob(pattern)):
            raise self._damaged(round, stage, f"{path} holds no weights ({' or '.join(WEIGHTS)})")
        return path

    def remove_old_checkpoints(self) -> None:
        """Remove the weights of rounds that lie more than ``keep_checkpoints`` complete rounds back; records stay.

        The initialisation's stay: the frozen judge and Ask-E's solver ``initial`` are read from there.
        """
        if self.recipe.keep_checkpoints is None:
            return
        for number in range(1, self.rounds_done() - self.recipe.keep_checkpoints + 1):
            for stage in ("questioner", "solver"):
                folder = self.folder(number, stage) / CHECKPOINT
                if folder.is_dir():
                    shutil.rmtree(folder)

    def read(self, round: int, stage: str, file: str) -> Any:
        """Return a file of a complete stage: the list of rows of ``*.jsonl``, or the value of ``*.json``.

        Raises:
            DamagedFileError: missing, cut, or torn.
        """
        # A torn last line is repairable, so rows are read before sizes are compared.
        path = self.folder(round, stage) / file
        if path.suffix == ".jsonl":
            if not path.is_file():
                raise self._damaged(round, stage, f"{path} is missing")
            rows: list[Row] = read_jsonl(path)
            expected = self.done(round, stage)["counts"].get(path.stem)
            if isinstance(expected, int) and expected != len(rows):
                raise self._damaged(round, stage, f"{path} has {len(rows)} whole rows, but {expected} were written")
            return rows
        return _read_json(self.file(round, stage, file))

    def rebuild_metrics(self) -> list[Row]:
        """Write ``metrics.jsonl`` anew from the rounds' own metrics; return its rows, one a round."""
        rows = self.metrics()
        write_jsonl(self.path / "metrics.jsonl", rows)
        return rows

    def metrics(self) -> list[Row]:
        """Return one object a complete round, in order; first round 0, the state at the start, if it was measured."""
        rounds = [0] if self.is_done(0, STAGES[-1]) else []
        rounds += range(1, self.rounds_done() + 1)
        return [self.read(number, STAGES[-1], "metrics.json") for number in rounds]

    def note_progress(self, round: int, stage: str, done: int, total: int) -> None:
        """Say how far a stage is, in steps, for whoever watches; ``progress.json`` is no record and may be lost."""
        progress = {"round": round, "rounds": self.recipe.rounds, "stage": stage, "done": done, "total": total}
        write_json(self.path / "progress.json", progress)

    def _damaged(self, round: int, stage: str, what: str) -> DamagedFileError:
        folder = self.folder(round, stage)
        return DamagedFileError(
            what,
            f"restore it, or delete {folder} and every later stage and resume: they are made anew, earlier stages stay",
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedFileError(
            f"{path} is missing", f"restore it, or delete {path.parent} and resume: the stage is made anew"
        ) from None
    except ValueError as error:
        size = path.stat().st_size
        raise DamagedFileError(
            f"{path} ({size} bytes) is no whole JSON: {error}",
            f"restore it, or delete {path.parent} and resume: the stage is made anew",
        ) from None
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path} holds {type(value).__name__} instead of a JSON object", "restore it")
    return value
