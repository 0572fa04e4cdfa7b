"""Adapters into weights, without what rounding would take of them.

Weights in bfloat16 keep 8 bits: a change of less than 1/512 of a weight is lost when an adapter is added to it, and at
small learning rates that is most of a stage. So the weights that the stage began with are read once more, in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

ADAPTER = "default"  # PEFT's name of the only adapter


def merged(policy: Any, trust_remote_code: bool = False) -> Any:
    """Return the policy in float32 with its adapters in its weights.

    Args:
        policy: a PEFT model whose adapters are not merged; its base knows the folder or hub id that it was read from.
        trust_remote_code: run code that the model's repository carries.
    """
    base = policy.get_base_model()
    if base.dtype == torch.float32:
        return policy.merge_and_unload()
    unset_hf_deepspeed_config()  # else transformers would shard what this process reads alone; the stage is over
    whole = AutoModelForCausalLM.from_pretrained(
        base.config._name_or_path, dtype=torch.float32, trust_remote_code=trust_remote_code, use_safetensors=True
    )
    whole.generation_config = base.generation_config  # it can be written
    places = dict(whole.named_modules())
    with torch.no_grad():
        for name, module in base.named_modules():
            if ADAPTER in getattr(module, "lora_A", ()):
                weight = places[name].weight
                weight += module.get_delta_weight(ADAPTER).to(weight.device, torch.float32)
    return whole
