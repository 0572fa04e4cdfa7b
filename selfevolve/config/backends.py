"""Where the frozen models of a run live: in process, on servers that the run starts, or at the user's endpoints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from selfevolve.config.names import OWN, SELF
from selfevolve.config.section import Section

if TYPE_CHECKING:
    from selfevolve.config.schema import Recipe

Role = Literal["questioner", "solver", "base", "referee", "boundary"]
Kind = Literal["transformers", "vllm", "server", "endpoint"]
ROLES: tuple[Role, ...] = get_args(Role)
CHANGING: tuple[Role, ...] = ("questioner", "solver")  # their weights are new every round

ENGINE = "vllm"  # package of the engine; looked for here, imported by its sampler alone

# which keys each kind reads, beside `kind`
SERVED = ("concurrency", "request_seconds")
READS: dict[str, tuple[str, ...]] = {
    "transformers": (),
    "vllm": ("gpu_memory", "engine"),
    "server": (
        *("python", "arguments", "command", "gpu_memory", "devices", "replicas", "host", "start_seconds"),
        *SERVED,
    ),
    "endpoint": ("base_urls", "model", "api", "api_key_env", *SERVED),
}

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Backend(Section):
    """Where a model lives; each kind reads the keys whose description names it."""

    kind: Kind = Field(
        default="transformers",
        description="'transformers' or 'vllm' in process, 'server': the run starts it, 'endpoint': it runs already",
    )
    gpu_memory: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="vllm, server: share of a GPU's memory for vLLM, in (0, 1]; null: vLLM's default"
    )
    engine: dict[str, Any] = Field(
        default={}, description="vllm: further arguments of vllm.LLM, such as {max_model_len: 8192}"
    )
    python: str | None = Field(
        default=None, description="server: interpreter that has vLLM, such as /opt/vllm/bin/python; null: this one"
    )
    arguments: tuple[str, ...] = Field(
        default=(), description="server: further arguments of vLLM's server, such as [--max-model-len, '8192']"
    )
    command: tuple[str, ...] = Field(
        default=(),
        description="server: whole command in place of vLLM's, for SGLang, llama.cpp ...; {model}, {host}, {port}, "
        "{dtype} are filled in",
    )
    devices: tuple[str, ...] = Field(
        default=(),
        description="server: CUDA_VISIBLE_DEVICES of each replica in turn, such as ['1'] or ['0,1', '2,3']; empty: "
        "as this process",
    )
    replicas: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="server: copies of the model, used evenly; 1 to 64"
    )
    host: str = Field(
        default="127.0.0.1", min_length=1, description="server: address to listen on; others than 127.0.0.1 are exposed"
    )
    start_seconds: Seconds = Field(
        default=600.0, description="server: seconds until it must answer after its start; above 0, at most 86400"
    )
    base_urls: tuple[str, ...] = Field(
        default=(), description="endpoint: addresses up to /v1; several are replicas of one model, used evenly"
    )
    model: str | None = Field(
        default=None, description="endpoint: name as the endpoint lists it; null: as the recipe names the model"
    )
    api: Literal["chat", "completions"] = Field(
        default="chat", description="endpoint: 'chat' (its chat template), or 'completions' for base models"
    )
    api_key_env: str | None = Field(
        default=None, description="endpoint: NAME of the environment variable with the key, never the key; null: none"
    )
    concurrency: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=64, description="server, endpoint: requests under way at once, over all replicas; 1 to 4096"
    )
    request_seconds: Seconds = Field(
        default=1800.0, description="server, endpoint: seconds for one prompt, retries included; at most 86400"
    )

    @field_validator("devices", "arguments", "command", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        """Take numbers in a list for their text: ``devices: [1]`` is a natural way to write it."""
        if isinstance(value, (list, tuple)):
            return tuple(str(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else v for v in value)
        return value


class Backends(Section):
    """A default, and what is different for single roles."""

    default: Backend = Field(default=Backend(), description="every role that has no entry of its own")
    questioner: Backend | None = Field(default=None, description="writes the candidates; null: as default")
    solver: Backend | None = Field(
        default=None, description="last round's solver, and the initial one: votes, solutions; null: as default"
    )
    base: Backend | None = Field(default=None, description="the backbone as same-type judge; null: as default")
    referee: Backend | None = Field(default=None, description="referee_model; null: as default")
    boundary: Backend | None = Field(
        default=None, description="Ask-E's solvers from outside of the run; null: as default"
    )

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Let a role's entry take from ``default`` what it does not say, where both are of one kind."""
        if not isinstance(data, Mapping):
            return data
        default = data.get("default")
        if not isinstance(default, Mapping):
            return data
        kind = default.get("kind", "transformers")
        merged = dict(data)
        for role in ROLES:
            given = data.get(role)
            if isinstance(given, Mapping) and given.get("kind", kind) == kind:
                merged[role] = {**default, **given}
        return merged

    def of(self, role: Role) -> Backend:
        """Return where a role's models live."""
        own: Backend | None = getattr(self, role)
        return self.default if own is None else own


@dataclass(frozen=True)
class Place:
    """One role of a recipe, and where its models live."""

    role: Role
    models: tuple[str, ...]  # as the recipe names them; empty: checkpoints of the run
    backend: Backend
    key: str  # the recipe's key that sets it: "backends.default" or "backends.ROLE"


def places(recipe: Recipe) -> list[Place]:
    """Return the roles that the recipe's run samples from, each with its models."""
    names: list[str] = []
    if recipe.reward.rule == "ask_e":
        names = list(dict.fromkeys([*(n for pair in recipe.ask_e.pairs for n in pair), recipe.ask_e.cross_check]))
    boundary = tuple(n for n in names if n not in OWN and n != SELF)
    models: dict[Role, tuple[str, ...] | None] = {
        "questioner": (),
        "solver": (),
        "base": (recipe.backbone,) if recipe.novelty.gate != "none" or "base" in names else None,
        "referee": tuple(filter(None, [recipe.referee_model])) if recipe.referee == "model" else None,
        "boundary": boundary or None,
    }
    return [
        Place(
            role,
            found,
            recipe.backends.of(role),
            f"backends.{role if getattr(recipe.backends, role) is not None else 'default'}",
        )
        for role in ROLES
        if (found := models[role]) is not None
    ]


def where(place: Place) -> str:
    """Return in words where a role's models live."""
    b = place.backend
    match b.kind:
        case "transformers":
            return "in process (transformers)"
        case "vllm":
            memory = "" if b.gpu_memory is None else f", {b.gpu_memory:g} of the GPU's memory"
            return f"in process (vLLM{memory})"
        case "server":
            what = b.command[0] if b.command else f"vLLM of {b.python or 'this environment'}"
            copies = f", {b.replicas} replicas" if b.replicas > 1 else ""
            devices = f", devices {' | '.join(b.devices)}" if b.devices else ""
            return f"server that the run starts on {b.host} ({what}{copies}{devices})"
        case "endpoint":
            name = b.model or ", ".join(place.models)
            key = f", key in {b.api_key_env}" if b.api_key_env else ""
            return f"endpoint {', '.join(b.base_urls)} ({name}, {b.api}{key})"


def table(recipe: Recipe) -> str:
    """Return where each role of a recipe lives, one line a role."""
    return "\n".join(f"{place.role:<12}{where(place)}" for place in places(recipe))


def absent(recipe: Recipe) -> list[str]:
    """Return one line for each program, package or variable that a backend needs and that is not there."""
    found = []
    for place in places(recipe):
        b = place.backend
        program = (b.command[0] if b.command else b.python) if b.kind == "server" else None
        if program is not None and shutil.which(program) is None:
            what = "command" if b.command else "python"
            found.append(f"{place.key}.{what} names {program!r}, which is no program on this machine")
        if b.kind in ("vllm", "server") and not (b.command or b.python) and find_spec(ENGINE) is None:
            other = ", or give the python of an environment that has it" if b.kind == "server" else ""
            found.append(f"{place.key}.kind is {b.kind}: vllm is not installed here; install selfevolve[vllm]{other}")
        if b.kind == "endpoint" and b.api_key_env and not os.environ.get(b.api_key_env, "").strip():
            found.append(f"{place.key}.api_key_env names {b.api_key_env}, which is not set in the environment")
    return list(dict.fromkeys(found))
