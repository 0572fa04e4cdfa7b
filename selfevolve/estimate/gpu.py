"""GPU time of a run's stages: what is asked and learned, through the throughput model.

The policy samples and learns in the training processes. Frozen models answer where the recipe's ``backends`` puts them:
in the run's own process (one device), on servers that the run starts (a device a replica), or at endpoints, whose time
is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from selfevolve.config import Recipe
from selfevolve.config.backends import Role
from selfevolve.config.names import OWN, SELF
from selfevolve.estimate.cost import PROMPT, Asked, Estimate, StageCost
from selfevolve.estimate.devices import Device
from selfevolve.estimate.memory import (
    frozen_models,
    memory_table,
    number_bytes,
    rows_that_fit,
)
from selfevolve.estimate.shapes import Shape, shape_of
from selfevolve.estimate.throughput import (
    Profile,
    decode_seconds,
    learn_seconds,
    passes_of,
    prefill_seconds,
    profile,
    update_seconds,
)

ENGINE_ROWS = 256  # rows that vLLM decodes together by default


@dataclass(frozen=True)
class StageTime:
    """Time of one stage of one round."""

    stage: str
    sampling: float  # seconds of one device, or of several summed
    learning: float  # likewise
    elapsed: float  # seconds on the clock


@dataclass(frozen=True)
class GpuTime:
    """Time of a run on devices of one kind."""

    device: Device
    devices: int
    once: tuple[StageTime, ...]
    a_round: tuple[StageTime, ...]
    rounds: int
    outside: bool  # some replies come from endpoints and are not counted

    @property
    def busy(self) -> float:
        """Device seconds of the whole run."""
        once = sum(s.sampling + s.learning for s in self.once)
        return once + self.rounds * sum(s.sampling + s.learning for s in self.a_round)

    @property
    def elapsed(self) -> float:
        """Seconds of the whole run on the clock."""
        return sum(s.elapsed for s in self.once) + self.rounds * sum(s.elapsed for s in self.a_round)


@dataclass(frozen=True)
class _Seat:
    """Where the replies of a role come from."""

    shape: Shape
    profile: Profile
    rows: int  # decoded together on a device
    workers: int  # devices at work; 0: an endpoint


def gpu_time(recipe: Recipe, cost: Estimate, device: Device, devices: int) -> GpuTime:
    """Return the time of a run on ``devices`` devices.

    Raises:
        UnknownShape: the shape of one of the recipe's models is not known.
    """
    seats: dict[str, _Seat] = {}

    def seat(role: str) -> _Seat:
        if role not in seats:
            seats[role] = _seat(recipe, role, device, devices)
        return seats[role]

    def time(stage: StageCost) -> StageTime:
        sampling = elapsed = 0.0
        for asked in stage.asked:
            place = seat(asked.role)
            busy = _asked_seconds(asked, place, cost.fill)
            sampling += busy
            elapsed += busy / max(place.workers, 1)
        learning = _learned_seconds(recipe, stage, seat("policy"), cost.fill)
        return StageTime(stage.stage, sampling, learning, elapsed + learning / seat("policy").workers)

    once, a_round = tuple(map(time, cost.once)), tuple(map(time, cost.a_round))
    return GpuTime(device, devices, once, a_round, cost.rounds, any(not s.workers for s in seats.values()))


def _asked_seconds(asked: Asked, seat: _Seat, fill: float) -> float:
    if not seat.workers:
        return 0.0
    replies, prompts = round(asked.share * asked.replies), round(asked.share * asked.prompts)
    each = -(-replies // seat.workers)  # of one device
    decoding = decode_seconds(seat.shape, seat.profile, each, PROMPT, fill * asked.limit, asked.limit, seat.rows)
    return seat.workers * decoding + prefill_seconds(seat.shape, seat.profile, prompts, PROMPT)


def _learned_seconds(recipe: Recipe, stage: StageCost, seat: _Seat, fill: float) -> float:
    learned = stage.learned
    if learned is None:
        return 0.0
    passes = passes_of(recipe.lora is not None, learned.kl, learned.updates_a_batch, recipe.gradient_checkpointing)
    trained = seat.shape.parameters if recipe.lora is None else seat.shape.lora(recipe.lora.rank)
    over = learn_seconds(seat.shape, seat.profile, learned.sequences, PROMPT, fill * learned.limit, passes)
    return over + update_seconds(seat.profile, trained, learned.updates) * seat.workers


def _seat(recipe: Recipe, role: str, device: Device, devices: int) -> _Seat:
    shape = shape_of(recipe.backbone)
    numbers, memory = number_bytes(recipe), device.memory * 1e9
    if role == "policy":
        [own] = [m for m in memory_table(recipe, shape) if m.own]
        fit = rows_that_fit(recipe, shape, memory, own.kept)
        return _Seat(shape, profile(device, numbers, engine=False), _rows(recipe, fit), min(recipe.processes, devices))
    if role == "referee":
        shape = shape_of(recipe.referee_model or recipe.backbone)
    if role == "boundary":
        names = {name for pair in recipe.ask_e.pairs for name in (*pair, recipe.ask_e.cross_check)}
        others = [shape_of(name) for name in names if name not in (*OWN, SELF)]
        shape = max([shape, *others], key=lambda s: s.parameters)
        role = "boundary" if others else "solver"
    place = recipe.backends.of(_ROLES[role])
    engine = place.kind != "transformers"
    models = 1 if place.kind == "server" else max(1, frozen_models(recipe))
    fit = rows_that_fit(recipe, shape, memory, models * numbers * shape.parameters)
    rows, workers = _rows(recipe, fit), 1
    if place.kind == "vllm":
        rows = max(1, min(ENGINE_ROWS, fit or ENGINE_ROWS))
    if place.kind == "server":
        workers = place.replicas
        rows = max(1, min(ENGINE_ROWS, place.concurrency // workers, fit or ENGINE_ROWS))
    if place.kind == "endpoint":
        workers = 0
    return _Seat(shape, profile(device, numbers, engine), rows, workers)


_ROLES: dict[str, Role] = {
    "questioner": "questioner",
    "solver": "solver",
    "base": "base",
    "referee": "referee",
    "boundary": "boundary",
}


def _rows(recipe: Recipe, fit: int) -> int:
    """Return the rows of an in-process batch; where not one fits, the recipe's: the memory table says so."""
    return min(recipe.generation.batch, fit) if fit else recipe.generation.batch
