"""The policy of a stage: loading, adapters, and whether anything was learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from selfevolve.train.spec import TrainingError, TrainSpec


def on_cpu(spec: TrainSpec) -> bool:
    """Return whether the stage runs on a CPU."""
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("device is cuda, and torch sees no GPU", "Set device to auto or cpu.")
    return spec.device == "cpu" or not torch.cuda.is_available()


def load_policy(policy_path: Path, spec: TrainSpec) -> Any:
    """Load the policy in float32; under adapters the frozen weights take the dtype of the arithmetic.

    Updates of 1e-6 vanish in bfloat16 weights, so weights that are trained stay in float32.
    """
    dtype = getattr(torch, spec.dtype) if spec.lora is not None else torch.float32
    return AutoModelForCausalLM.from_pretrained(str(policy_path), dtype=dtype, trust_remote_code=spec.trust_remote_code)


def adapters(spec: TrainSpec) -> Any:
    """Return PEFT's configuration of the adapters, or None."""
    if spec.lora is None:
        return None
    from peft import LoraConfig

    targets = spec.lora.targets if isinstance(spec.lora.targets, str) else list(spec.lora.targets)
    return LoraConfig(
        r=spec.lora.rank, lora_alpha=spec.lora.alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )


def fingerprint(model: Any) -> list[tuple[float, float]]:
    """Return two sums over each trainable tensor: equal before and after training means that nothing was learned."""
    sums = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            wide = parameter.detach().double()
            sums.append((float(wide.sum()), float((wide * wide).sum())))
    return sums
