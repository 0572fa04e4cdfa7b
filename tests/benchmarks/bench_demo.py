"""How long the demo's two runs take side by side, and which share of a round is spent inside the models.

    python tests/benchmarks/bench_demo.py [--rounds 10]

Prints one JSON line last: ``ratio`` is minutes over the limit of ten minutes for ten rounds (scaled to the rounds run).
The machine should be idle; a shared one proves nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from selfevolve.demo import RECIPES, demo
from selfevolve.rundir import STAGES, RunDir

LIMIT_MINUTES = 10.0
FULL_ROUNDS = 10


def shares(folder: Path) -> dict[str, Any]:
    """Return seconds by stage over a run, and the share of its training stages inside model and reward."""
    run = RunDir.open(folder)
    seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
    model = reward = training = 0.0
    for number in range(1, run.rounds_done() + 1):
        for stage in STAGES:
            done = run.done(number, stage)
            seconds[stage] += done["seconds"]
            if "seconds_in_model" in done["counts"]:
                training += done["seconds"]
                model += done["counts"]["seconds_in_model"]
                reward += done["counts"]["seconds_in_reward"]
    return {
        "seconds_by_stage": {k: round(v, 1) for k, v in seconds.items()},
        "training_in_model": round(model / training, 3),
        "training_in_reward": round(reward / training, 3),
    }


def main() -> None:
    """Run the demo in a temporary folder and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=FULL_ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        started = time.monotonic()
        demo(Path(scratch), [f"rounds={rounds}"])
        minutes = (time.monotonic() - started) / 60
        runs = {name: shares(Path(scratch) / name.rpartition("/")[2]) for name in RECIPES}
    scaled = minutes * FULL_ROUNDS / rounds
    print(
        json.dumps(
            {
                "benchmark": "demo",
                "rounds": rounds,
                "minutes": round(minutes, 2),
                "ratio": round(scaled / LIMIT_MINUTES, 3),
                "reference": "the limit of 10 minutes for ten rounds of both recipes on two idle cores",
                "runs": runs,
            }
        )
    )


if __name__ == "__main__":
    main()
