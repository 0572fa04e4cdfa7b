"""Loading and saving a policy: what transformers would not write, and adapters that rounding must not take."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from selfevolve.sampling import user
from selfevolve.train import LoraSpec, RolloutBatch, TrainRow, TrainSpec, train
from tests.tiny_model import save_tiny

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

SPEC = TrainSpec(
    steps=1, prompts=2, responses=4, global_batch=2, kl=0.0, max_new_tokens=6, learning_rate=1e-3, device="cpu"
)
ROWS = [TrainRow(user("w1")), TrainRow(user("w2"))]


def lengths(batch: RolloutBatch) -> list[float | None]:
    return [float(len(rollout.text)) for rollout in batch.rollouts]


@pytest.mark.parametrize(
    "odd",
    [{"temperature": 0.6, "top_p": 0.9}, {"do_sample": False, "top_k": 5}, {"num_beams": 1, "early_stopping": True}],
)
def test_a_generation_config_that_cannot_be_written_costs_no_stage(tmp_path: Path, odd: dict[str, Any]) -> None:
    policy = save_tiny(tmp_path / "base", words=60, hidden=32, layers=1, spread=8.0)
    path = policy / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | odd | {"eos_token_id": [1, 7]}))
    for name, spec in {"whole": SPEC, "adapters": replace(SPEC, lora=LoraSpec(rank=2))}.items():
        made = train(policy, ROWS, lengths, spec, tmp_path / name).checkpoint
        assert json.loads((made / "generation_config.json").read_text())["eos_token_id"] == [1, 7]


def test_small_updates_of_adapters_add_up_over_stages_in_bfloat16(tmp_path: Path) -> None:
    """At 1e-6 a stage changes no weight by as much as bfloat16 can hold; the checkpoints keep it all the same."""
    from safetensors.torch import load_file

    start = save_tiny(tmp_path / "0", words=60, hidden=32, layers=1, spread=8.0)
    spec = replace(SPEC, lora=LoraSpec(rank=2), dtype="bfloat16", learning_rate=1e-6, steps=2)
    folders = [start]
    for number in (1, 2):
        folders.append(train(folders[-1], ROWS, lengths, spec, tmp_path / str(number)).checkpoint)
    weights = [load_file(folder / "model.safetensors") for folder in folders]
    names = [n for n in weights[0] if "_proj" in n]
    assert {tensor.dtype for tensor in weights[2].values()} == {torch.float32}
    for before, after in pairwise(weights):
        moved = [float((after[n] - before[n]).abs().max()) for n in names]
        assert max(moved) > 1e-10  # of 2 steps at 1e-6 times a small A
        assert all(torch.equal(after[n], before[n]) for n in weights[0] if n not in names)
    lost = [(weights[0][n].bfloat16() == weights[1][n].bfloat16()).float().mean() for n in names]
    assert min(lost) > 0.8  # share of weights that a merge in bfloat16 leaves as they were


def test_adapters_are_merged_as_peft_merges_them(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from selfevolve.train.merging import merged

    start = save_tiny(tmp_path / "base", words=60, hidden=32, layers=1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")

    def adapted(dtype: Any) -> Any:
        policy = get_peft_model(AutoModelForCausalLM.from_pretrained(start, dtype=dtype), config)
        with torch.no_grad():
            for i, (name, parameter) in enumerate(policy.named_parameters()):
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)) * 0.1)
        return policy

    exact = merged(adapted(torch.float32)).state_dict()
    found = merged(adapted(torch.bfloat16)).state_dict()
    base = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict()
    assert set(exact) == set(found) == set(base)
    for name in exact:
        torch.testing.assert_close(found[name], exact[name], rtol=0, atol=1e-6)
        assert torch.equal(found[name], base[name]) is ("q_proj" not in name and "down_proj" not in name)


def test_processes_wait_for_each_other_as_long_as_a_reward_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's own limit is 10 minutes, gloo's 30; the reward of a step on real models takes hours."""
    import socket

    from accelerate.state import AcceleratorState

    from selfevolve.train.policy import PATIENCE, join_processes

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in {**told, "MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "true"}.items():
        monkeypatch.setenv(name, str(value))
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        join_processes(SPEC)
        group = torch.distributed.distributed_c10d._get_default_group()
        assert group._get_backend(torch.device("cpu")).options._timeout == PATIENCE
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        AcceleratorState._reset_state(reset_partial_state=True)


def test_a_lone_process_that_sees_several_gpus_trains_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer would take all of them for ``nn.DataParallel``, which TRL refuses."""
    from accelerate.state import AcceleratorState

    from selfevolve.train.trl_backend import _config

    for name, stand_in in {
        "is_available": lambda: True,
        "device_count": lambda: 3,
        "set_device": lambda _: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    try:
        config = _config(replace(SPEC, device="auto"), 1, str(tmp_path))
        assert (config.n_gpu, config.device, config.train_batch_size) == (1, torch.device("cuda:0"), 8)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


def test_the_start_is_read_anew_for_merging_by_the_main_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selfevolve.train import policy as module

    class Process:
        """One that is not the main one."""

        is_main_process = False

        def unwrap_model(self, model: Any) -> Any:
            return model

        def wait_for_everyone(self) -> None:
            pass

    class Trainer:
        accelerator, sharding, spec = Process(), module.Sharding.NONE, replace(SPEC, lora=LoraSpec())
        model = torch.nn.Linear(2, 2)

    monkeypatch.setattr(module, "merged", lambda *_: pytest.fail("the start was read"))
    module.save_policy(Trainer(), None, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_memory_of_the_rollouts_is_given_back_before_the_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selfevolve.train import rollouts

    done: list[str] = []
    monkeypatch.setattr(rollouts, "give_memory_back", lambda: done.append("back"))

    def reward(batch: RolloutBatch) -> list[float | None]:
        done.append("reward")
        return [float(i % 2) for i in range(len(batch.rollouts))]

    policy = save_tiny(tmp_path / "base", words=60, hidden=32, layers=1, spread=8.0)
    train(policy, ROWS, reward, SPEC, tmp_path / "out")
    assert done == ["back", "reward"]
