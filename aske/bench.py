"""The benchmark: all pairs of a pool, n sessions an asker, and the controls that make the rate readable."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from aske import controls, truth
from aske.play import Slot
from aske.pool import SamplerOf, Samplers, load_truth, seats
from aske.run import Run, Watch, chunked, make_slots, open_folder, play_wave, to_row
from aske.settings import Bench, Entry
from aske.store import DONE, Lock, Row, complete, write_json

PARTS = {  # in this order; each writes the file of its name and returns how many rows it holds
    "same_model": controls.same_model,
    "no_probing": controls.no_probing,
    "resamples": controls.resamples,
    "shuffled": controls.shuffled,
    "difficulty": controls.difficulty,
    "truths": truth.truths,
}


def run_bench(run: Run) -> None:
    """Run a benchmark, or go on with one, until its folder is complete; see `start`."""
    done = complete(run.folder) or {}
    seconds: dict[str, float] = dict(done.get("seconds", {}))
    rows: dict[str, int] = {}
    for name, part in {"sessions": sessions, **PARTS}.items():
        began = time.perf_counter()
        rows[name] = part(run)
        if run.written[f"{name}.jsonl"]:
            seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - began, 2)
    write_json(run.folder / DONE, {"rows": rows, "seconds": seconds})


def start(bench: Bench, folder: Path, sampler_of: SamplerOf | None = None, watch: Watch | None = None) -> Run:
    """Start a benchmark in a folder, or go on with the one that is there.

    Args:
        bench: the settings.
        folder: where it is written; a folder of the same settings is gone on with.
        sampler_of: who answers for an entry; None: the models themselves, loaded when first asked.
        watch: told what happens.

    Raises:
        AskeError: the folder is in use or holds other settings; a model cannot be had; too many calls failed.
    """
    if bench.truth is not None and complete(folder) is None:  # told before the first session, not after the last
        load_truth(bench.truth)
    pack = open_folder(bench, folder)
    with Lock(folder):
        run = Run(bench, folder, pack, sampler_of or Samplers(bench.cache), watch or Watch())
        run_bench(run)
    return run


def sessions(run: Run) -> int:
    """Play every asker's sessions with all pairs; return how many there are."""
    table = run.sessions()
    labels: dict[str, Counter[str]] = {}
    for row in table.rows():
        labels.setdefault(row["asker"], Counter())[row["label"]] += 1
    slots = {asker.name: make_slots(run, asker.name, run.bench.pairs, run.bench.sessions) for asker in run.bench.askers}
    for asker in run.bench.askers:  # a model that cannot be had is told before the first session
        if any(slot.id not in table for slot in slots[asker.name]):
            seats(run.bench, asker, run.sampler_of)
    for asker in run.bench.askers:

        def make(wave: Sequence[Slot], asker: Entry = asker) -> Iterator[Row]:
            return map(to_row, play_wave(run, asker, wave, run.bench.rules.rules()))

        waves = chunked(slots[asker.name], run.bench.wave)
        name = f"sessions of {asker.name}"
        run.fill(table, waves, lambda slot: slot.id, make, labels.get(asker.name), name)
    return len(table)
