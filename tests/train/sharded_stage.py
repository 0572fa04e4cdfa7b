"""Stages for `test_sharded`: imports TRL once, then forks one or two processes a case, each of which trains.

``python -m tests.train.sharded_stage FOLDER CASE...``; a case is a JSON object, see `Case`. Each process writes
``FOLDER/NAME-RANK.json``; the trained policy lies in ``FOLDER/NAME``. Under a launcher it plays its part of one case.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfevolve.sampling import user
from selfevolve.train import LoraSpec, RolloutBatch, Savepoints, TrainRow, TrainSpec


@dataclass(frozen=True)
class Case:
    """One training."""

    name: str
    policy: str  # folder
    sharding: str = ""  # "fsdp2", "zero2" or "zero3": two processes; "": one process alone
    lora: bool = False
    rate: float = 1e-3
    kl: float = 0.05
    dtype: str = "float32"
    lean: bool = False  # only the main process reads weights (cpu_ram_efficient_loading)
    checkpointed: bool = False  # gradient checkpointing
    flat: bool = False  # no spread of rewards
    points: str = ""  # folder of savepoints beside the cases', one a step; "": none
    stop: bool = False  # it fails in its last step


ENVIRONMENT = {  # as `accelerate launch` sets it from recipes/accelerate/fsdp2.yaml and zero3.yaml
    "fsdp2": {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
    },
    "zero3": {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_DEEPSPEED_ZERO3_INIT": "true",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "auto",
        "ACCELERATE_GRADIENT_CLIPPING": "auto",
    },
}
ENVIRONMENT["zero2"] = ENVIRONMENT["zero3"] | {
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2",
    "ACCELERATE_DEEPSPEED_ZERO3_INIT": "false",
}


def held(parameter: Any) -> int:
    """Return how many values of a parameter this process holds."""
    slices = parameter.to_local() if hasattr(parameter, "to_local") else getattr(parameter, "ds_tensor", parameter)
    return int(slices.numel())


def spec_of(case: Case) -> TrainSpec:
    """Two steps of one update each, so that the processes' shuffles of their own completions play no part."""
    return TrainSpec(
        steps=2,
        prompts=4,
        responses=4,
        global_batch=4,
        micro_batch=4,
        learning_rate=case.rate,
        kl=case.kl,
        max_prompt_tokens=64,
        max_new_tokens=12,
        lora=LoraSpec(rank=4, alpha=8.0) if case.lora else None,
        device="cpu",
        dtype=case.dtype,  # type: ignore[arg-type]
        gradient_checkpointing=case.checkpointed,
    )


def play(case: Case, folder: Path, rank: int) -> None:
    """Train one case in this process and write what it saw."""
    import torch

    from selfevolve.train import sharded, trl_backend

    torch.set_num_threads(1)
    record: dict[str, Any] = {"case": asdict(case), "texts": [], "live": {}}

    def reward(batch: RolloutBatch) -> list[float | None]:
        if case.stop and batch.step == 2:
            raise RuntimeError("stopped here")
        record["texts"].append([rollout.text for rollout in batch.rollouts])
        return [0.0 if case.flat else float(len(set(rollout.text.split()))) for rollout in batch.rollouts]

    save = trl_backend.save_policy

    def look_then_save(trainer: Any, *rest: Any) -> None:
        parameters = list(trainer.model.named_parameters())
        record["sharding"] = trainer.sharding.value
        record["held"] = sum(held(p) for _, p in parameters)
        gathered = sharded.whole(parameters, trainer.sharding, trainer.accelerator.device)
        live = {name: values.clone() for name, values in gathered}
        record["all"] = sum(values.numel() for values in live.values())
        if rank == 0:
            torch.save(live, folder / f"{case.name}.pt")
        save(trainer, *rest)

    trl_backend.save_policy = look_then_save  # type: ignore[assignment]
    rows = [TrainRow(user(f"w{i} w{i + 1}")) for i in range(4)]
    points = Savepoints(folder / case.points, 1e-6) if case.points else None
    try:
        result = trl_backend.train(
            Path(case.policy), rows, reward, spec_of(case), folder / case.name, savepoints=points
        )
        record["log"] = [asdict(row) for row in result.log]
    except Exception as error:
        traceback.print_exc()
        record["error"] = f"{type(error).__name__}: {error}"
    (folder / f"{case.name}-{rank}.json").write_text(json.dumps(record), encoding="utf-8")


def deepspeed_on_cpu() -> None:
    """Do, over gloo and in place of `honour_config_on_cpu`, what accelerate does for DeepSpeed where there are GPUs."""
    import deepspeed
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    os.environ.pop("ACCELERATE_USE_CPU")
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def prepare_zero() -> None:
    """Let DeepSpeed run on a CPU without building an operator in C++ for it."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]
    sharded = importlib.import_module("selfevolve.train.sharded")
    sharded.honour_config_on_cpu = deepspeed_on_cpu  # type: ignore[attr-defined]


def fork(case: Case, folder: Path) -> None:
    """Run one case on its processes and wait for them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    children = []
    count = 2 if case.sharding else 1
    for rank in range(count):
        child = os.fork()
        if child:
            children.append(child)
            continue
        status = 1
        try:
            if case.sharding:
                world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
                os.environ.update({name: str(value) for name, value in world.items()})
                os.environ.update(ENVIRONMENT[case.sharding], MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = str(case.lean).lower()
            if case.sharding.startswith("zero"):
                prepare_zero()
            play(case, folder, rank)
            status = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    os.environ["ACCELERATE_USE_CPU"] = "true"
    for name in ("peft", "torch.distributed.fsdp", "selfevolve.train.trl_backend"):  # read once, before the forks
        importlib.import_module(name)
    if "RANK" in os.environ:  # a launcher started this process
        play(Case(**json.loads(sys.argv[2])), Path(sys.argv[1]), int(os.environ["RANK"]))
    else:
        for text in sys.argv[2:]:
            fork(Case(**json.loads(text)), Path(sys.argv[1]))
