"""A stage for `test_launch`: one step of training under accelerate; each process writes what it saw."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from selfevolve.sampling import user
from selfevolve.train import RolloutBatch, TrainRow, TrainSpec, train
from selfevolve.train.launch import die_with_parent


def main(folder: Path, mode: str) -> None:
    """Train one step on a policy in ``folder`` and write ``rank-N.json``."""
    die_with_parent()
    from accelerate import PartialState

    from selfevolve.train import trl_backend

    calls: list[list[str]] = []

    def reward(batch: RolloutBatch) -> list[float | None]:
        calls.append([rollout.text for rollout in batch.rollouts])
        if mode == "fail":
            raise RuntimeError("the reward is broken")
        return [float(len(set(rollout.text.split()))) if i else None for i, rollout in enumerate(batch.rollouts)]

    digests: list[str] = []
    save = trl_backend.save_policy

    def digest_then_save(trainer: object, *rest: object) -> None:
        weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()  # type: ignore[attr-defined]
        joined = b"".join(tensor.numpy().tobytes() for tensor in weights.values())
        digests.append(hashlib.sha256(joined).hexdigest())
        save(trainer, *rest)  # type: ignore[arg-type]

    trl_backend.save_policy = digest_then_save  # type: ignore[assignment]
    rows = [TrainRow(user(f"w{i} w{i + 1}")) for i in range(4)]
    spec = TrainSpec(
        steps=1,
        prompts=4,
        responses=3,
        global_batch=2,
        micro_batch=6,
        learning_rate=1e-3,
        max_new_tokens=8,
        device="cpu",
    )
    rank = PartialState(cpu=True).process_index
    result = train(folder / "policy", rows, reward, spec, folder / f"out-{PartialState().num_processes}")
    record = {
        "calls": calls,
        "digest": digests[0],
        "reward": result.log[0].reward_mean,
        "count": PartialState().num_processes,
    }
    (folder / f"rank-{rank}.json").write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
