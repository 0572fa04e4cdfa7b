"""Loading and saving a policy: what transformers would not write, and what rounding leaves of adapters."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selfevolve.sampling import user
from selfevolve.train import LoraSpec, RolloutBatch, TrainingError, TrainRow, TrainSpec, train
from tests.tiny_model import save_tiny, tiny_model

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


def adapted(size: float) -> Any:
    """Return a tiny bfloat16 policy whose adapters change each weight by about ``size``."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    policy = get_peft_model(tiny_model(words=60, hidden=32, layers=1).to(torch.bfloat16), config)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) * size)
    return policy


def test_what_rounding_leaves_of_adapters(caplog: pytest.LogCaptureFixture) -> None:
    from selfevolve.train.merging import merged, surviving_share

    assert surviving_share(adapted(0.0)) is None
    assert surviving_share(adapted(1e-2).float()) is None
    shares = [surviving_share(adapted(size)) for size in (1e-9, 1e-4, 1e-1)]
    assert shares[0] < 0.01 and shares[0] < shares[1] < shares[2] and shares[2] == pytest.approx(1, abs=0.02)
    # the share is that of the weights as PEFT merges them
    policy = adapted(1e-4)
    share = surviving_share(policy)
    before = {name: p.detach().float() for name, p in policy.named_parameters() if "base_layer" in name}
    change = {
        n: m.get_delta_weight("default").detach().float() for n, m in policy.named_modules() if hasattr(m, "lora_A")
    }
    with caplog.at_level(logging.WARNING):
        after = {name: p.detach() for name, p in merged(policy).named_parameters()}
    assert "rounding to bfloat16 leaves" in caplog.text
    kept = total = 0.0
    for name, update in change.items():
        weight = before[f"{name}.base_layer.weight"]
        moved = after[name.removeprefix("base_model.model.") + ".weight"].float() - weight
        kept, total = kept + float((moved * update).sum()), total + float(update.square().sum())
    assert share == pytest.approx(kept / total, rel=1e-3)


def test_adapters_of_which_nothing_is_left_are_an_error() -> None:
    from selfevolve.train.merging import merged

    with pytest.raises(TrainingError, match="nothing of it is left"):
        merged(adapted(1e-14))
