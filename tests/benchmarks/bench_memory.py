"""Memory and open files over many rounds in one process: what fifty tiny rounds leave behind.

    python tests/benchmarks/bench_memory.py [--rounds 50] [--every 5] [--recipe testbed/r_quest]

Tiny rounds of a testbed recipe are played as `selfevolve run` plays them. After every fifth: resident memory, live Python
objects and open file descriptors. The figures of growth are slopes of a straight line through the second half, when caches
and the allocator are warm; ``ratio`` is resident memory at the end over that at half time. Linux only (/proc).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from selfevolve import evolve
from selfevolve.config import load_recipe
from selfevolve.testbed import exam
from tests.benchmarks.pairs import resident_mib

# Step sizes near 0: no weight moves far in fifty rounds, so the last round does what the first did.
TINY = [
    "initialisation.steps=1", "initialisation.prompts=8", "initialisation.global_batch=8", "initialisation.responses=4",
    "questioner.steps=1", "questioner.prompts=4", "questioner.global_batch=4", "questioner.learning_rate=1e-6",
    "candidates=16", "assessment.validity.votes=3", "assessment.solutions=4", "assessment.share_low=0.0",
    "assessment.share_high=1.0", "novelty.k=2", "solver.steps=1", "solver.prompts=8", "solver.global_batch=8",
    "solver.responses=4", "solver.learning_rate=1e-6", "diagnostics.heldout=4", "diagnostics.solver_samples=1",
    "monitor.min_kept=1", "monitor.stop=false", "generation.batch=128", "generation.max_new_tokens.solution=40",
]  # fmt: skip


def state(round: int) -> dict[str, Any]:
    """Return what the process holds after a round."""
    gc.collect()
    return {
        "round": round,
        "resident_mib": round_to(resident_mib()),
        "objects": len(gc.get_objects()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "cpu_seconds": round_to(time.process_time()),
    }


def round_to(value: float) -> float:
    """Return a figure that is worth reading."""
    return int(value * 10) / 10


def slope(rows: list[dict[str, Any]], name: str) -> float:
    """Return the growth a round of a figure over the second half, by least squares."""
    half = rows[len(rows) // 2 - 1 :]
    return float(np.polyfit([row["round"] for row in half], [row[name] for row in half], 1)[0])


def main() -> None:
    """Play the rounds and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--recipe", default="testbed/r_quest")
    o = parser.parse_args()
    torch.set_num_threads(1)
    recipe = load_recipe(o.recipe, [f"rounds={o.rounds}", *TINY])
    rows: list[dict[str, Any]] = []
    play = evolve.play_round

    def playing(ctx: Any) -> dict[str, Any]:
        metrics = play(ctx)
        if ctx.round % o.every == 0:
            rows.append(state(ctx.round))
            print(rows[-1], flush=True)
        return metrics

    evolve.play_round = playing
    whole = exam.exam()
    exam.exam = lambda: whole[:8]  # type: ignore[assignment, misc]  # 384 questions would be most of a tiny round
    with tempfile.TemporaryDirectory() as folder:
        evolve.run(recipe, Path(folder) / "run")
    half = rows[len(rows) // 2 - 1]
    print(
        json.dumps(
            {
                "benchmark": "memory", "reference": f"the same process after round {half['round']}",
                "ratio": round(rows[-1]["resident_mib"] / half["resident_mib"], 4), "rounds": o.rounds,
                "recipe": o.recipe, "mib_a_round": round(slope(rows, "resident_mib"), 3),
                "objects_a_round": round(slope(rows, "objects"), 1),
                "descriptors_a_round": round(slope(rows, "descriptors"), 2), "states": rows,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
