"""Checks across settings, before any model is loaded.

A *rollout batch* is ``prompts`` inputs x ``responses`` replies; an optimiser *update* takes ``global_batch`` inputs of
it. The trainer counts sequences (replies), not inputs, and splits both over the processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfevolve.config.backends import CHANGING, READS, Backend, Place, places
from selfevolve.config.names import OWN, SELF
from selfevolve.sampling.endpoint import Endpoint

if TYPE_CHECKING:
    from selfevolve.config.schema import Recipe, TrainStage


def divisors(number: int) -> list[int]:
    """Return the divisors of ``number`` in rising order."""
    return [d for d in range(1, number + 1) if number % d == 0]


def problems(recipe: Recipe) -> list[str]:
    """Return every conflict between settings, each with the values met and what to change."""
    return [
        *_batch_problems(recipe),
        *_assessment_problems(recipe),
        *_world_problems(recipe),
        *_ask_e_problems(recipe),
        *_launcher_problems(recipe),
        *_backend_problems(recipe),
    ]


def _batch_problems(recipe: Recipe) -> list[str]:
    found = []
    stages: dict[str, TrainStage] = {"questioner": recipe.questioner, "solver": recipe.solver}
    if recipe.initialisation.enabled:
        stages["initialisation"] = recipe.initialisation
    for name, stage in stages.items():
        if stage.prompts % stage.global_batch:
            fitting = ", ".join(map(str, divisors(stage.prompts)))
            found.append(
                f"{name}.global_batch is {stage.global_batch}, which does not divide {name}.prompts = {stage.prompts}; "
                f"set it to one of {fitting}"
            )
        sequences = stage.global_batch * stage.responses
        if sequences % recipe.processes:
            found.append(
                f"{name}: an update of global_batch x responses = {stage.global_batch} x {stage.responses} = "
                f"{sequences} sequences does not divide over processes = {recipe.processes}; "
                f"use a number of processes out of {', '.join(map(str, divisors(sequences)))}, or another global_batch"
            )
    return found


def _assessment_problems(recipe: Recipe) -> list[str]:
    found = []
    low, high = recipe.assessment.share_low, recipe.assessment.share_high
    if low >= high:
        found.append(
            f"assessment.share_low is {low} and share_high is {high}: no question can be kept; "
            "share_low must be below share_high (the papers use 0.3 and 0.8)"
        )
    batch = recipe.questioner.prompts * recipe.questioner.responses
    if recipe.novelty.gate == "k_sampled" and recipe.novelty.k > batch - 1:
        found.append(
            f"novelty.k is {recipe.novelty.k}, but a questioner batch holds {batch} candidates, so {batch - 1} others; "
            "lower novelty.k or choose novelty.gate: exhaustive"
        )
    if recipe.diagnostics.sample > recipe.candidates:
        found.append(
            f"diagnostics.sample is {recipe.diagnostics.sample}, more than candidates = {recipe.candidates}; "
            "set it to 0 to judge them all"
        )
    if recipe.solver.replay > 0 and not recipe.initialisation.enabled:
        found.append(
            f"solver.replay is {recipe.solver.replay}, but initialisation.enabled is false, so there is nothing to "
            "replay; set solver.replay: 0 or enable the initialisation"
        )
    if recipe.solver.pseudo_label_weight == 0:
        found.append("solver.pseudo_label_weight is 0: the solver would learn the format only; set it above 0")
    return found


def _world_problems(recipe: Recipe) -> list[str]:
    """Check that backbone, prompts, referee and data belong to one world."""
    found = []
    real = recipe.prompts in ("standard", "plain")  # packs for real models
    if recipe.backbone.startswith("testbed:") and real:
        found.append(
            f"backbone {recipe.backbone!r} reads the testbed's control tokens only, but prompts is {recipe.prompts!r}; "
            "set prompts: testbed"
        )
    if real and recipe.referee == "oracle":
        found.append(
            f"referee is 'oracle', which knows the testbed's exercises only, but prompts is {recipe.prompts!r}; "
            "set referee: model (with referee_model) or referee: none"
        )
    if real and recipe.initialisation.enabled and recipe.initialisation.data == "testbed":
        found.append(
            "initialisation.data is 'testbed', whose questions a real model cannot learn from, but prompts is "
            f"{recipe.prompts!r}; give a path to labelled questions, or set initialisation.enabled: false and "
            "solver.replay: 0"
        )
    if recipe.initialisation.enabled and not recipe.initialisation.data:
        found.append("initialisation.data is empty; give a path to labelled questions, or 'testbed'")
    named = recipe.referee_model or recipe.backends.of("referee").model
    if recipe.referee == "model" and not named:
        found.append("referee is 'model' but referee_model is not given; name a hub id or a folder")
    if recipe.referee != "model" and recipe.referee_model:
        found.append(f"referee_model is {recipe.referee_model!r} but referee is {recipe.referee!r}; set referee: model")
    return found


def _ask_e_problems(recipe: Recipe) -> list[str]:
    a = recipe.ask_e
    if recipe.reward.rule != "ask_e":
        if a == type(a)():
            return []
        return ["ask_e is set, but reward.rule is 'solver', so it would not be read; set reward.rule: ask_e"]
    found = []
    for pair in a.pairs:
        if pair[0] == pair[1]:
            found.append(
                f"ask_e.pairs holds {list(pair)}: two copies of one solver differ by chance only; name two solvers"
            )
        elif a.cross_check in pair:
            found.append(
                f"ask_e.cross_check is {a.cross_check!r}, which also sits in the pair {list(pair)} and would agree "
                "with itself; name another solver, or 'questioner'"
            )
        if SELF in pair:
            found.append(
                f"ask_e.pairs holds {list(pair)}, but {SELF!r} can only be the cross-check; "
                f"the run's own solvers are {', '.join(OWN)}"
            )
    if len({frozenset(pair) for pair in a.pairs}) < len(a.pairs):
        found.append(
            f"ask_e.pairs names a pair twice: {[list(p) for p in a.pairs]}; the order does not matter, keep one"
        )
    names = [name for pair in a.pairs for name in pair] + [a.cross_check]
    foreign = [name for name in names if name.startswith("testbed:")]
    if recipe.prompts in ("standard", "plain") and foreign:
        found.append(
            f"ask_e names {foreign[0]!r}, which reads the testbed's control tokens only, but prompts is "
            f"{recipe.prompts!r}; name a model of that world"
        )
    if not all(name.strip() for name in names):
        own = ", ".join(OWN)
        found.append(f"ask_e.pairs holds an empty name; name {own}, 'testbed:NAME', a hub id or a folder")
    if a.prompts is not None and a.probes == 0:
        found.append(
            f"ask_e.prompts is {a.prompts!r}, but ask_e.probes is 0, so no session is played; set probes above 0"
        )
    return found


def _launcher_problems(recipe: Recipe) -> list[str]:
    found = []
    if recipe.launcher == "inline" and recipe.processes != 1:
        found.append(f"processes is {recipe.processes} but launcher is 'inline'; set launcher: accelerate")
    if recipe.launcher == "inline" and recipe.accelerate_config is not None:
        found.append(
            f"accelerate_config is {recipe.accelerate_config!r} but launcher is 'inline'; set launcher: accelerate"
        )
    if recipe.machines > 1:
        if recipe.launcher == "inline":
            found.append(f"machines is {recipe.machines} but launcher is 'inline'; set launcher: accelerate")
        if recipe.processes % recipe.machines:
            found.append(
                f"processes is {recipe.processes}, of all machines together, and does not divide over machines = "
                f"{recipe.machines}; use a multiple of {recipe.machines}"
            )
        if recipe.main_address is None:
            found.append(
                f"machines is {recipe.machines} but main_address is not given; give the address of the machine that "
                "runs `selfevolve run`, as the others reach it, or 'auto' for its host name"
            )
    elif recipe.main_address is not None:
        found.append(f"main_address is {recipe.main_address!r} but machines is 1; set machines, or leave it out")
    return found


def _backend_problems(recipe: Recipe) -> list[str]:
    """Check each entry that some role uses, and once each."""
    found = [problem for place in places(recipe) for problem in _place_problems(recipe, place)]
    return list(dict.fromkeys(found))


def _place_problems(recipe: Recipe, place: Place) -> list[str]:
    b, key = place.backend, place.key
    if b.kind == "endpoint" and place.role in CHANGING:
        return [
            f"{key}.kind is 'endpoint', but the {place.role}'s weights are new every round and an endpoint's never "
            f"change; set backends.{place.role}.kind to transformers, vllm or server"
        ]
    found = []
    if b.kind == "vllm" and recipe.processes > 1:
        found.append(
            f"{key}.kind is 'vllm', which would start an engine in each of processes = {recipe.processes}; "
            "set it to server"
        )
    if b.kind == "server" and recipe.processes > 1 and place.role in _session_roles(recipe):
        found.append(
            f"{key}.kind is 'server', but each of processes = {recipe.processes} plays sessions (ask_e.probes is "
            f"{recipe.ask_e.probes}) and would start servers of its own; set backends.{place.role}.kind to "
            "transformers, or to endpoint for models that stay as they are"
        )
    if b.kind == "endpoint" and b.model is not None and len(place.models) > 1:
        found.append(
            f"{key}.model is {b.model!r}, but ask_e.pairs names {', '.join(place.models)} there; leave it out: each "
            "is asked for by its own name"
        )
    return [*found, *backend_problems(b, key)]


def _session_roles(recipe: Recipe) -> set[str]:
    """Return the roles that every training process asks in Ask-E's sessions; empty where none are played."""
    if recipe.reward.rule != "ask_e" or not recipe.ask_e.probes:
        return set()
    names = {*(name for pair in recipe.ask_e.pairs for name in pair), recipe.ask_e.cross_check} - {SELF}
    return {"base" if name == "base" else "solver" if name in OWN else "boundary" for name in names}


def backend_problems(b: Backend, key: str) -> list[str]:
    """Return one line for each setting of a backend, which stands under ``key``, that does not fit its kind."""
    found = []
    for name, field in type(b).model_fields.items():
        if name != "kind" and name not in READS[b.kind] and getattr(b, name) != field.default:
            found.append(
                f"{key}.{name} is {getattr(b, name)!r}, but {key}.kind is {b.kind!r}, which does not read it; "
                "leave it out, or change the kind"
            )
    if b.kind == "server":
        found += _server_problems(b, key)
    if b.kind == "endpoint":
        found += _endpoint_problems(b, key)
    return found


def _server_problems(b: Backend, key: str) -> list[str]:
    found = []
    beside = [name for name in ("python", "arguments", "gpu_memory") if getattr(b, name)]
    if b.command and beside:
        found.append(
            f"{key}.command is the whole command, so {key}.{beside[0]} would not be read; write it into the command"
        )
    if b.command and not any("{port}" in word for word in b.command):
        found.append(
            f"{key}.command is {list(b.command)} and holds no {{port}}; the run chooses a free port, so let the "
            "command take it, such as [..., --port, '{port}']"
        )
    if len(b.devices) > b.replicas:
        found.append(
            f"{key}.devices names {len(b.devices)} sets of devices for replicas = {b.replicas}; give one set a "
            "replica; a set of several GPUs is one text, such as '0,1'"
        )
    return found


def _endpoint_problems(b: Backend, key: str) -> list[str]:
    if not b.base_urls:
        return [f"{key}.kind is 'endpoint' but {key}.base_urls is not given; name at least one address"]
    try:
        Endpoint(b.base_urls, b.model or "model")
    except ValueError as error:
        return [f"{key}: {error}"]
    return []
