"""The policy of a stage: loading, adapters, and saving."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import AutoModelForCausalLM, GenerationConfig

from selfevolve.sampling.weights import refuse_pickled, warn_remote_code
from selfevolve.train.merging import merged
from selfevolve.train.sharded import Sharding, WholeCopy
from selfevolve.train.spec import TrainingError, TrainSpec

# How long a process waits for the others. All wait while the main one computes a step's reward, which takes hours where
# frozen models answer; NCCL would give up after 10 minutes, and gloo after 30. The launcher sees a process that dies.
PATIENCE = timedelta(days=7)


def on_cpu(spec: TrainSpec) -> bool:
    """Return whether the stage runs on a CPU."""
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("device is cuda, and torch sees no GPU", "Set device to auto or cpu.")
    return spec.device == "cpu" or not torch.cuda.is_available()


def join_processes(spec: TrainSpec) -> PartialState:
    """Join the stage's processes, where there are several, and return which of them this one is."""
    return PartialState(cpu=on_cpu(spec), timeout=PATIENCE)


def one_gpu_a_process(config: Any) -> None:
    """Keep the trainer to this process's GPU: it takes all that a lone process sees for ``nn.DataParallel``."""
    if config.n_gpu > 1:
        config._n_gpu = 1


def load_policy(policy_path: Path, spec: TrainSpec) -> Any:
    """Load the policy in float32; under adapters the frozen weights take the dtype of the arithmetic.

    Updates of 1e-6 vanish in bfloat16 weights, so weights that are trained stay in float32.

    Raises:
        TrainingError: the folder's weights are pickled.
    """
    try:
        refuse_pickled(policy_path)
    except ValueError as error:
        raise TrainingError(str(error)) from None
    if spec.trust_remote_code:
        warn_remote_code(policy_path)
    dtype = getattr(torch, spec.dtype) if spec.lora is not None else torch.float32
    policy = AutoModelForCausalLM.from_pretrained(
        str(policy_path), dtype=dtype, trust_remote_code=spec.trust_remote_code, use_safetensors=True
    )
    make_savable(policy)
    return policy


def make_savable(policy: Any) -> None:
    """Mend a generation config that transformers loads but refuses to write, before a stage is lost at its end.

    Such as a temperature without ``do_sample``. Nothing of ours reads these settings but the end ids, which stay.
    """
    config = getattr(policy, "generation_config", None)
    if config is None:
        return
    try:
        config.validate(strict=True)
        return
    except ValueError:
        config.do_sample = True
    try:
        config.validate(strict=True)
    except ValueError:
        names = ("bos_token_id", "eos_token_id", "pad_token_id")
        policy.generation_config = GenerationConfig(**{name: getattr(config, name) for name in names})


def adapters(spec: TrainSpec) -> Any:
    """Return PEFT's configuration of the adapters, or None."""
    if spec.lora is None:
        return None
    from peft import LoraConfig

    targets = spec.lora.targets if isinstance(spec.lora.targets, str) else list(spec.lora.targets)
    return LoraConfig(
        r=spec.lora.rank, lora_alpha=spec.lora.alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )


def save_policy(trainer: Any, tokenizer: Any, out: Path) -> None:
    """Write float32 weights (adapters merged), config and tokenizer to ``out``, which appears whole or not at all."""
    accelerator = trainer.accelerator
    policy = accelerator.unwrap_model(trainer.model)
    if trainer.sharding is not Sharding.NONE:
        copy = trainer.copy or WholeCopy(policy, trainer.kind, trainer.spec, trainer.sharding, accelerator)
        policy = copy.final()
        weights = policy.state_dict()
    elif trainer.spec.lora is not None:
        if accelerator.is_main_process:  # it reads the start anew, 4 bytes a weight of host memory
            policy = merged(policy, trainer.spec.trust_remote_code)
        weights = policy.state_dict()
    else:
        weights = accelerator.get_state_dict(trainer.model_wrapped)
    if accelerator.is_main_process:
        partial = out.with_name(out.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        policy.save_pretrained(partial, state_dict=weights, safe_serialization=True)
        tokenizer.save_pretrained(partial)
        partial.rename(out)
    accelerator.wait_for_everyone()
