"""Memory of a training process and disk of a run, in bytes, from a recipe and the backbone's shape.

Trained weights are float32, with a gradient and AdamW's two moments of the same type: 16 bytes a weight (Rajbhandari et
al. 2020, section 3.1, without the half-precision copies, which here are autocast's). Sharding divides what is trained,
and its reference, by the processes, and adds one whole copy that samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from selfevolve.config import Lora, Recipe, accelerate_config_path
from selfevolve.config.backends import Backend, Role
from selfevolve.errors import UserError
from selfevolve.estimate.cost import PROMPT
from selfevolve.estimate.shapes import Shape

ENGINE_SHARE = 0.92  # of a device's memory that vLLM takes where `gpu_memory` is not given
USABLE = 0.9  # of a device's memory; the rest is the driver's, the libraries' and lost between blocks
_TILE = (4096, 32_768)  # tokens and words of the logits that TRL computes at once
_TEXT = 4.0  # bytes of text a token
_RECORD = 1_000.0  # bytes of an assessed question's record beside its replies


@dataclass(frozen=True)
class Memory:
    """What one training process holds, in bytes."""

    title: str
    own: bool  # as the recipe has it
    weights: float  # trained and frozen ones of the policy, and their half-precision copies
    gradients: float
    optimiser: float
    reference: float  # of the KL term; under adapters the policy without them
    copy: float  # whole policy that samples, beside sharded weights
    activations: float  # of a micro batch of full length, logits included
    frozen: float  # other models on the process's device: in it, or on servers without devices of their own
    cache: float  # keys and values of a batch whose replies all reach the limit, and its logits

    @property
    def kept(self) -> float:
        """Held throughout the stage."""
        return self.weights + self.gradients + self.optimiser + self.reference + self.copy + self.frozen

    @property
    def peak(self) -> float:
        """While learning or while sampling, whichever is more."""
        return self.kept + max(self.activations, self.cache)


def number_bytes(recipe: Recipe) -> int:
    """Return the bytes of a number of the recipe's arithmetic."""
    return 2 if recipe.dtype == "bfloat16" else 4


def row_bytes(recipe: Recipe, shape: Shape) -> float:
    """Return what one row of a decoding batch takes at its limit: keys, values, logits in three float32 copies."""
    limits = recipe.generation.max_new_tokens
    length = PROMPT + max(limits.question, limits.solution)
    return float(length * shape.cache_bytes(number_bytes(recipe)) + 12 * shape.vocab)


def frozen_places(recipe: Recipe) -> list[Backend]:
    """Return where each frozen model lives that is asked while the questioner is trained."""
    judge = recipe.assessment.validity.judge
    if recipe.reward.rule == "ask_e":
        names = {name for pair in recipe.ask_e.pairs for name in (*pair, recipe.ask_e.cross_check)} - {"questioner"}
        names |= {"current"} if judge == "current" else set()
    else:
        names = {"current"}
    names |= {"initial"} if judge == "frozen" else set()
    names |= {"base"} if recipe.novelty.gate != "none" else set()
    roles: dict[str, Role] = {"base": "base", "current": "solver", "initial": "solver", "previous": "solver"}
    return [recipe.backends.of(roles.get(name, "boundary")) for name in sorted(names)]


def frozen_models(recipe: Recipe) -> int:
    """Return how many frozen models a process holds while the questioner is trained, at most."""
    return sum(place.kind in ("transformers", "vllm") for place in frozen_places(recipe))


def frozen_bytes(recipe: Recipe, shape: Shape, device: float | None) -> float:
    """Return what frozen models take of the memory of the main process's device while the questioner is trained.

    vLLM takes its share of the device whatever the model is, in this process as on a server; a server without devices
    of its own starts on this one. Without the device's memory an engine counts as its weights, and a server as nothing.
    """
    weights = float(number_bytes(recipe) * shape.parameters)
    total = 0.0
    for place in frozen_places(recipe):
        share = None if device is None else device * (place.gpu_memory or ENGINE_SHARE)
        if place.kind == "transformers" or (place.kind == "vllm" and share is None):
            total += weights
        elif place.kind == "vllm" and share is not None:
            total += share
        elif place.kind == "server" and not place.devices and not place.command and share is not None:
            total += place.replicas * share
    return total


def sharded(recipe: Recipe) -> bool:
    """Return whether the recipe's accelerate config shards the weights over several processes."""
    try:
        path = accelerate_config_path(recipe)
    except UserError:  # told by `missing_files`
        return False
    if path is None or recipe.processes == 1:
        return False
    config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    deepspeed = config.get("deepspeed_config") or {}
    return config.get("distributed_type") == "FSDP" or deepspeed.get("zero_stage") == 3


def memory_table(recipe: Recipe, shape: Shape, device: float | None = None) -> list[Memory]:
    """Return the memory of a process: full weights, adapters, weights sharded over the recipe's processes.

    Args:
        recipe: the run.
        shape: of its backbone.
        device: memory of the device in bytes, of which engines take a share; None: they count as their weights.
    """
    own = (recipe.lora is not None, sharded(recipe))
    shards, frozen = recipe.processes, frozen_bytes(recipe, shape, device)
    found = [
        _memory(recipe, shape, "full, whole in each", None, 1, frozen, own == (False, False)),
        _memory(recipe, shape, "LoRA", recipe.lora or Lora(), 1, frozen, own == (True, False)),
    ]
    if shards > 1:
        found.append(_memory(recipe, shape, f"full, sharded over {shards}", None, shards, frozen, own == (False, True)))
    if own == (True, True):
        found.append(_memory(recipe, shape, f"LoRA, sharded over {shards}", recipe.lora, shards, frozen, True))
    return found


def _memory(
    recipe: Recipe, shape: Shape, title: str, lora: Lora | None, shards: int, frozen: float, own: bool
) -> Memory:
    b, n = number_bytes(recipe), shape.parameters
    half = 2.0 * n if recipe.dtype == "bfloat16" else 0.0  # autocast keeps a step's half-precision weights
    trained = float(n) if lora is None else float(shape.lora(lora.rank))
    kl = max(stage.kl for stage in (recipe.initialisation, recipe.questioner, recipe.solver)) > 0
    weights = 4.0 * n / shards if lora is None else b * n / shards + 4.0 * trained
    if shards > 1:
        weights += 4.0 * (shape.layer + shape.head)  # a layer and the head are gathered where they are used
    elif lora is None:
        weights += half
    return Memory(
        title,
        own,
        weights=weights,
        gradients=4.0 * trained / shards,
        optimiser=8.0 * trained / shards,
        reference=4.0 * n / shards if kl and lora is None else 0.0,
        copy=float(b * n) if shards > 1 else 0.0,
        activations=activations(recipe, shape),
        frozen=frozen,
        cache=recipe.generation.batch * row_bytes(recipe, shape),
    )


def activations(recipe: Recipe, shape: Shape) -> float:
    """Return what a micro batch of full length keeps for its backward pass, and a tile of its logits.

    A layer keeps, in numbers a token: 10 of the width (two norms, of which two steps each in float32; residuals), 4 of
    the queries and 6 of keys and values (before and after norm and rotation), and 4 of the MLP's width.
    """
    limits = recipe.generation.max_new_tokens
    tokens = recipe.micro_batch * (PROMPT + max(limits.question, limits.solution))
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = float(number_bytes(recipe) * (10 * shape.hidden + 4 * query + 6 * kv + 4 * shape.intermediate) * tokens)
    tile = 8.0 * min(tokens, _TILE[0]) * min(shape.vocab, _TILE[1])
    if recipe.gradient_checkpointing:
        return shape.layers * number_bytes(recipe) * shape.hidden * float(tokens) + layer + tile
    return shape.layers * layer + tile


def rows_that_fit(recipe: Recipe, shape: Shape, memory: float, kept: float) -> int:
    """Return the rows of a decoding batch that fit into ``memory`` beside ``kept``, all at their limit; 0: none."""
    return max(0, int((USABLE * memory - kept) // row_bytes(recipe, shape)))


@dataclass(frozen=True)
class Disk:
    """What a run has on disk when that is most, in bytes."""

    checkpoint: float
    checkpoints: int  # one of the initialisation, two a round that is kept and two of the round at work
    records: float  # of all rounds
    savepoints: (
        float  # two, of float32 weights that are trained and AdamW's moments: the old goes after the new is whole
    )

    @property
    def total(self) -> float:
        """All of it."""
        return self.checkpoint * self.checkpoints + self.records + self.savepoints


def disk(recipe: Recipe, shape: Shape, fill: float) -> Disk:
    """Return the disk of a whole run; checkpoints are float32, so that small updates add up from round to round."""
    limits, steps = recipe.generation.max_new_tokens, recipe.questioner
    written = steps.steps * steps.prompts * steps.responses
    questions = written + recipe.candidates
    keep = recipe.keep_checkpoints
    rounds = recipe.rounds if keep is None else min(recipe.rounds, keep + 1)
    a = recipe.assessment
    replies = a.solutions + (0 if a.validity.judge == "off" else a.validity.votes)
    trained = shape.parameters if recipe.lora is None else shape.lora(recipe.lora.rank)
    text = fill * _TEXT * questions * (limits.question + replies * limits.solution)
    return Disk(
        checkpoint=4.0 * shape.parameters,
        checkpoints=int(recipe.initialisation.enabled) + 2 * rounds,
        records=recipe.rounds * (text + _RECORD * questions),
        savepoints=2 * 12.0 * trained if recipe.save_minutes else 0.0,
    )
