"""A stage for `test_launch`: one step of training under accelerate; each process writes what it saw."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfevolve.sampling import Reply, Sampler, user
from selfevolve.train import RolloutBatch, TrainRow, TrainSpec, train, train_conversations
from selfevolve.train.launch import die_with_parent


def main(folder: Path, mode: str) -> None:
    """Train one step on a policy in ``folder`` and write ``rank-N.json``.

    ``mode``: "train" and "fail" (a broken reward) on single replies, "talk" and "broken" (a world that fails on the
    last process) on conversations.
    """
    die_with_parent()
    from accelerate import PartialState

    from selfevolve.train import trl_backend
    from tests.train.worlds import Interview

    calls: list[Any] = []

    def reward(batch: RolloutBatch) -> list[float | None]:
        calls.append([rollout.text for rollout in batch.rollouts])
        if mode == "fail":
            raise RuntimeError("the reward is broken")
        return [float(len(set(rollout.text.split()))) if i else None for i, rollout in enumerate(batch.rollouts)]

    def session_reward(step: int, outcomes: Sequence[Any]) -> list[float | None]:
        calls.append(list(outcomes))
        return [float(len(set(" ".join(texts).split()))) if place else None for place, texts in outcomes]

    class World(Interview):
        def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
            if mode == "broken" and rank == PartialState().num_processes - 1:
                raise RuntimeError("the solver is gone")
            return super().answer(replies, policy)

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
        global_batch=2 if mode in ("train", "fail") else 4,  # one update: each process shuffles its own completions
        micro_batch=6,
        learning_rate=1e-3,
        max_new_tokens=8,
        loss_type="dapo" if mode in ("train", "fail") else "cispo",
        device="cpu",
    )
    rank = PartialState(cpu=True).process_index
    out = folder / f"out-{PartialState().num_processes}"
    world = World()
    if mode in ("train", "fail"):
        result = train(folder / "policy", rows, reward, spec, out)
    else:
        result = train_conversations(folder / "policy", rows, world, session_reward, spec, out)
    row = result.log[0]
    record = {
        "calls": calls,
        "digest": digests[0],
        "reward": row.reward_mean,
        "count": PartialState().num_processes,
        "places": sorted(world.replies),
        "facts": [row.turns, row.completion_tokens, row.world_tokens, row.grad_norm],
    }
    (folder / f"rank-{rank}.json").write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
