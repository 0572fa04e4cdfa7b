"""Entry of a training stage's child processes: ``python -m selfevolve.stage_main RUN ROUND STAGE FOLDER``.

Started under ``accelerate launch`` by `selfevolve.train.launch`. The main process writes into FOLDER, with its counts
in ``counts.json``; the others write nowhere, since records and weights are whole on the main process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

from selfevolve.errors import UserError
from selfevolve.jsonl import write_json
from selfevolve.round import COUNTS, FAILURES, TRAINING
from selfevolve.rundir import RunDir
from selfevolve.stages import Context
from selfevolve.stages.memory import out_of_memory_is_clear
from selfevolve.train.launch import die_with_parent


def main(run: str, round: str, stage: str, folder: str) -> int:
    """Run one training stage as one of its processes; return the exit status."""
    die_with_parent()
    take_own_gpu()
    main_process = os.environ.get("RANK", "0") == "0"
    opened = RunDir.open(run)

    def report(what: str, done: int, of: int) -> None:
        if main_process:
            print(f"{what} {done}/{of}", flush=True)
            opened.note_progress(int(round), what, done, of)

    ctx = Context(opened, int(round), report)
    try:
        with out_of_memory_is_clear(stage, opened.recipe, training=True):
            if main_process:
                counts = TRAINING[stage](ctx, Path(folder))
                (Path(folder) / COUNTS).write_text(json.dumps(counts), encoding="utf-8")
            else:
                with tempfile.TemporaryDirectory() as nowhere:
                    TRAINING[stage](ctx, Path(nowhere))
    except UserError as error:
        print(f"selfevolve: error: {error}", file=sys.stderr)
        _leave(Path(folder), error.message, error.remedy)
        return 1
    except Exception:
        _leave(Path(folder), f"stage {stage} failed in a child process:\n{traceback.format_exc().strip()}", "")
        raise
    return 0


def take_own_gpu() -> None:
    """Let models that are loaded before the trainer starts go to this process's GPU, and not all of them to the first.

    The choice is that of accelerate, which makes it when the trainer starts.
    """
    import torch

    local = os.environ.get("LOCAL_RANK")
    if local is not None and torch.cuda.is_available():
        torch.cuda.set_device(int(local) % torch.cuda.device_count())


def _leave(folder: Path, message: str, remedy: str) -> None:
    """Leave for the parent what went wrong; it stands above its other processes' complaints that this one is gone."""
    with suppress(OSError, UserError):
        said = {"message": message, "remedy": remedy}
        write_json(folder / FAILURES.replace("*", os.environ.get("RANK", "0")), said)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
