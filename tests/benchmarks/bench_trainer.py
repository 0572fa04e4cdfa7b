"""Where the time of a GRPO step goes: the share inside the model, on tiny models. CPU seconds, one thread.

    python tests/benchmarks/bench_trainer.py [--steps 4]

Two stages of the testbed's size on a random model (width 96, three layers): a questioner step, 32 x 4 completions of
one short prompt, and a solver step, 32 x 5 completions of 32 prompts; four updates each. Inside the model: sampling,
forward passes (old policy, reference, new policy), backward passes, the optimiser. The last line is one JSON object;
its ``share`` is the smaller share of the two stages' steps, and ``stage_share`` counts loading and saving as well.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from selfevolve.sampling import user
from selfevolve.train import RolloutBatch, TrainRow, TrainSpec
from tests.tiny_model import save_tiny


def reward(batch: RolloutBatch) -> list[float | None]:
    """Cost nearly nothing."""
    return [float(len(rollout.text) % 2) for rollout in batch.rollouts]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    from selfevolve.train import rollouts, trl_backend

    result: dict[str, Any] = {"import_seconds": round(time.process_time() - start, 2)}
    rollouts.perf_counter = time.process_time  # the clock counts CPU seconds: other work on the machine plays no part
    trl_backend.perf_counter = time.process_time
    rng = random.Random(0)
    rows = [TrainRow(user(" ".join(f"w{rng.randrange(392)}" for _ in range(rng.randint(15, 60))))) for _ in range(200)]
    common = {"steps": options.steps, "prompts": 32, "global_batch": 8, "learning_rate": 1e-4, "device": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        policy = save_tiny(Path(folder) / "policy", spread=25.0)
        for name, used, settings in (
            (
                "questioner",
                [TrainRow(user("w1 w2 w3 w4 w5"))],
                {"responses": 4, "micro_batch": 32, "max_new_tokens": 40},
            ),
            ("solver", rows, {"responses": 5, "micro_batch": 40, "max_new_tokens": 24}),
        ):
            spec = TrainSpec(**common, **settings, top_p=0.99)  # type: ignore[arg-type]
            done = trl_backend.train(policy, used, reward, spec, Path(folder) / name)
            inside = sum(row.seconds_model for row in done.log)
            steps = sum(row.seconds - row.seconds_reward for row in done.log)
            result[name] = {
                "share": round(inside / steps, 3),
                "stage_share": round(inside / (done.seconds - done.seconds_in_reward), 3),
                "seconds_a_step": round(steps / options.steps, 3),
                "parts_a_step": {part: round(value / options.steps, 3) for part, value in done.parts.items()},
                "new_tokens_a_step": done.tokens // options.steps,
                "outside_steps_seconds": round(done.seconds - sum(row.seconds for row in done.log), 3),
            }
            print(f"{name}: {result[name]}", flush=True)
    for key in ("share", "stage_share"):
        result[key] = min(result["questioner"][key], result["solver"][key])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
