"""Training with weights that are sharded over the processes: FSDP2 and DeepSpeed ZeRO-3.

A forward pass over sharded weights is a collective: every process must make it, as often as the others. Sampling cannot
keep to that, since processes decode different numbers of tokens and would wait for each other for ever. So each process
holds one more copy of the policy, whole, in the number type of the arithmetic, and samples from it alone; the trained
weights are gathered into it once a rollout step, one tensor at a time. Gathering is the only collective, and all
processes make it together, before the step's rollouts.

Under LoRA the frozen weights are gathered once, the adapters every step, and the adapters stay apart in the copy: added
to bfloat16 weights, small updates would be rounded away.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from copy import deepcopy
from enum import StrEnum
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from selfevolve.train.merging import merged
from selfevolve.train.spec import TrainingError, TrainSpec

_AUTOCAST = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}  # of DeepSpeed's configuration
_CHECKPOINTED = "_checkpoint_wrapped_module."  # part of a name under FSDP's own activation checkpointing


class Sharding(StrEnum):
    """What a process holds of the policy that is trained."""

    NONE = "none"  # all weights
    FSDP2 = "fsdp2"  # a slice of each tensor, as a `DTensor`
    ZERO = "zero"  # all weights; DeepSpeed (stages 1 and 2) keeps the optimiser's exact ones in slices
    ZERO3 = "zero3"  # a slice of each tensor, kept by DeepSpeed beside an empty parameter


def sharding_of(accelerator: Any) -> Sharding:
    """Return how a run under this accelerator shards the weights.

    Raises:
        TrainingError: FSDP of the first version, whose flat parameters this module does not read.
    """
    fsdp = getattr(accelerator.state, "fsdp_plugin", None)
    if fsdp is not None:
        if fsdp.fsdp_version != 2:
            raise TrainingError(
                f"fsdp_version is {fsdp.fsdp_version}; only version 2 is supported",
                "Set fsdp_version: 2, as in recipes/accelerate/fsdp2.yaml.",
            )
        return Sharding.FSDP2
    deepspeed = accelerator.state.deepspeed_plugin
    if deepspeed is None or deepspeed.zero_stage == 0:
        return Sharding.NONE
    return Sharding.ZERO3 if deepspeed.zero_stage == 3 else Sharding.ZERO


def honour_config_on_cpu() -> None:
    """Let accelerate shard on CPUs too, where it leaves a sharding configuration aside without a word.

    The process group is up by then. accelerate reads an FSDP configuration only where the processes are said to hold
    GPUs, though FSDP2 itself runs over gloo.

    Raises:
        TrainingError: DeepSpeed was asked for on a CPU, which accelerate does not run.
    """
    if PartialState().distributed_type is not DistributedType.MULTI_CPU:
        return
    if _asked("ACCELERATE_USE_DEEPSPEED"):
        raise TrainingError(
            "DeepSpeed was asked for on a CPU, where accelerate leaves it aside",
            "Use recipes/accelerate/fsdp2.yaml or cpu_2.yaml on CPUs.",
        )
    if _asked("ACCELERATE_USE_FSDP"):
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def settle(config: Any, spec: TrainSpec) -> None:
    """Put right what accelerate makes of a sharding configuration, before the trainer is made with ``config``."""
    honour_config_on_cpu()
    if autocast_by_deepspeed(spec):
        config.deepspeed_plugin.deepspeed_config |= _AUTOCAST


def autocast_by_deepspeed(spec: TrainSpec) -> bool:
    """Return whether DeepSpeed is to compute in bfloat16 from float32 weights, by ``torch_autocast``.

    Its ``bf16`` mode rounds the weights when a stage starts, so each round would lose small updates of the last one.
    Under adapters the weights that it rounds are frozen, and loaded in bfloat16 anyway.
    """
    return _asked("ACCELERATE_USE_DEEPSPEED") and spec.dtype == "bfloat16" and spec.lora is None


def _asked(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() == "true"


def fill_reference(accelerator: Any, reference: Any, policy: Any) -> None:
    """Give every process its slice of the KL term's reference, from the main process's policy before training.

    With ``cpu_ram_efficient_loading`` only the main process reads weights from disk, and TRL shards its reference
    without passing them on: the others would compare with a model of zeros.

    Args:
        accelerator: of the trainer.
        reference: TRL's reference model, sharded by FSDP2.
        policy: the policy as loaded, not sharded yet; the same weights as the reference's.
    """
    weights = policy.state_dict() if accelerator.is_main_process else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(reference, weights, options=options)


def first_pass(model: Any, device: Any) -> None:
    """Make a first forward pass of one token; a collective.

    In its first pass FSDP2 fixes the number type that each layer's gradients are reduced and kept in, by what is
    trainable then. TRL's first pass may be the KL reference, with the adapters switched off and so not trainable:
    under bfloat16 the gradients would have the wrong type.
    """
    with torch.no_grad():
        model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=device))


def whole(parameters: Iterable[tuple[str, Any]], sharding: Sharding, device: Any) -> Iterator[tuple[str, Tensor]]:
    """Gather parameters one at a time: (name, all of its values), on every process.

    A collective: all processes must run through it together. A tensor is valid until the next one is asked for. Weights
    that are trained come in the number type of the optimiser's own copy, where DeepSpeed keeps one beside them.

    Args:
        parameters: the sharded model's, with their names.
        sharding: how they are sharded.
        device: the processes' device for collectives; parameters may lie in host memory under offloading.
    """
    for name, parameter in parameters:
        plain = name.replace(_CHECKPOINTED, "")
        if isinstance(parameter, DTensor):
            yield plain, parameter.detach().to(device).full_tensor()
        elif sharding in (Sharding.ZERO, Sharding.ZERO3):
            yield from _from_deepspeed(plain, parameter)
        else:
            yield plain, parameter.detach()


def _from_deepspeed(name: str, parameter: Any) -> Iterator[tuple[str, Tensor]]:
    import deepspeed  # type: ignore[import-not-found, unused-ignore]
    from deepspeed.utils import safe_get_full_fp32_param  # type: ignore[import-not-found, unused-ignore]

    exact = safe_get_full_fp32_param(parameter) if parameter.requires_grad else None
    if exact is not None:
        yield name, exact.view(getattr(parameter, "ds_shape", parameter.shape))
        return
    with deepspeed.zero.GatheredParameters([parameter]):
        yield name, parameter.data


def reshard(model: Any) -> None:
    """Free what FSDP2 keeps gathered after a pass without gradient: such tensors have the arithmetic's number type."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def fingerprint(model: Any, sharding: Sharding, device: Any) -> list[tuple[float, float]]:
    """Return two sums over each trainable tensor: equal before and after training means that nothing was learned.

    A collective; all processes get the same answer.
    """
    reshard(model)
    trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
    sums = []
    for _, values in whole(trained, sharding, device):
        wide = values.double()
        sums.append((float(wide.sum()), float((wide * wide).sum())))
    return sums


class WholeCopy:
    """The policy, whole in this process and outside the training: for sampling, and for saving at the end."""

    def __init__(self, live: Any, kind: type, spec: TrainSpec, sharding: Sharding, accelerator: Any) -> None:
        """Gather every weight of the live policy; a collective.

        Args:
            live: the sharded policy (a PEFT model under LoRA).
            kind: the class of the model that it was made of, before sharding changed it.
            spec: the stage.
            sharding: how ``live`` is sharded.
            accelerator: of the trainer.
        """
        self.live, self.spec, self.sharding = live, spec, sharding
        self.accelerator, self.device = accelerator, accelerator.device
        reshard(live)
        self.model = self._empty(kind)
        self.trained = {name.replace(_CHECKPOINTED, "") for name, p in live.named_parameters() if p.requires_grad}
        weights = {
            # cloned: a gathered tensor is valid until the next one only
            name: values.to(self.device, self._dtype(name, values), copy=True)
            for name, values in whole(live.named_parameters(), sharding, self.device)
        }
        self._assign(weights)

    def _dtype(self, name: str, values: Tensor) -> torch.dtype:
        """Adapters keep their own number type; all else has the arithmetic's."""
        own = self.spec.lora is not None and name in self.trained
        return values.dtype if own else getattr(torch, self.spec.dtype)

    def _empty(self, kind: type) -> Any:
        """Return a model of the live one's shape without memory."""
        inner = self.live.get_base_model() if self.spec.lora is not None else self.live
        with torch.device("meta"):
            made = kind(deepcopy(inner.config))
        made.generation_config = deepcopy(inner.generation_config)
        if self.spec.lora is not None:
            from peft import get_peft_model

            made = get_peft_model(made, self.live.peft_config["default"], low_cpu_mem_usage=True)
        return made.eval().requires_grad_(False)

    def _assign(self, weights: dict[str, Tensor]) -> None:
        """Put whole tensors in place of the model's own, and the live model's buffers beside them."""
        self.model.load_state_dict(weights, strict=False, assign=True)
        for name, buffer in self.live.named_buffers():
            owner, _, leaf = name.replace(_CHECKPOINTED, "").rpartition(".")
            module = self.model.get_submodule(owner)
            kept = leaf not in module._non_persistent_buffers_set
            module.register_buffer(leaf, buffer.detach().to(self.device, copy=True), persistent=kept)
        self.model.tie_weights()
        self.model.requires_grad_(False)
        tensors = (*self.model.named_parameters(), *self.model.named_buffers())
        empty = [name for name, tensor in tensors if tensor.is_meta]
        if empty:
            raise TrainingError(
                f"the copy of the policy for sampling has no values for {empty[0]} ({len(empty)} tensors)",
                "Train this model with whole weights in each process (ddp.yaml).",
            )

    def refresh(self) -> None:
        """Gather the trained weights anew, in place; a collective."""
        reshard(self.live)
        mine = dict(self.model.named_parameters())
        trained = ((name, p) for name, p in self.live.named_parameters() if p.requires_grad)
        with torch.no_grad():
            for name, values in whole(trained, self.sharding, self.device):
                mine[name].copy_(values)

    def final(self) -> Any:
        """Return the policy as a model to save, on the main process: exact weights in host memory, adapters merged.

        A collective. It ends the copy's use for sampling; on the other processes the model is left as it was.
        """
        reshard(self.live)
        weights = {}
        for name, values in whole(self.live.named_parameters(), self.sharding, self.device):
            if self.accelerator.is_main_process:
                weights[name] = values.to("cpu", copy=True)
        if not self.accelerator.is_main_process:
            return self.model
        self.device = torch.device("cpu")
        self._assign(weights)
        return self.model if self.spec.lora is None else merged(self.model, self.spec.trust_remote_code)


def begin(policy: Any, kind: type, spec: TrainSpec, sharding: Sharding, accelerator: Any) -> WholeCopy | None:
    """Make ready for the first rollouts, and return the copy to sample from, or None where the live policy is whole.

    A collective, once the trainer has wrapped the policy. Arguments as those of `WholeCopy`.
    """
    if sharding is Sharding.FSDP2:
        first_pass(policy, accelerator.device)
    if sharding in (Sharding.NONE, Sharding.ZERO):
        return None
    return WholeCopy(policy, kind, spec, sharding, accelerator)
