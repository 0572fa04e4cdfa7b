"""Settings of the training of an asker on its own, outside of any loop (Ask-E, training)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from selfevolve.config.backends import Backend
from selfevolve.config.checks import backend_problems, divisors
from selfevolve.config.load import merge, recipes_folder, section_of
from selfevolve.config.schema import (
    Count,
    CountOrZero,
    GlobalBatch,
    Kl,
    LearningRate,
    Lora,
    Responses,
    SaveMinutes,
    Section,
    Steps,
    Temperature,
    TokenLimit,
    TopP,
)
from selfevolve.config.yaml_text import dump_mapping, parse_override, read_mapping
from selfevolve.errors import ConfigError

POLICY = "policy"  # the cross-check by the asker's own current weights
INITIAL = "initial"  # the asker as it was before training
DEFAULT = "default"  # in `backends`: every solver that has no entry of its own

Pairs = Annotated[tuple[tuple[str, str], ...], Field(min_length=1)]
Term = Annotated[float, Field(ge=-10, le=10)]


class AskerReward(Section):
    """What a session earns (Ask-E, training)."""

    calibrated: Term = Field(default=1.0, description="exactly one boundary solver is right")
    too_easy: Term = Field(default=0.2, description="both are right")
    too_hard: Term = Field(default=-0.2, description="neither is right")
    malformed: Term = Field(default=-0.05, description="a malformed turn")
    alpha: Annotated[float, Field(ge=0, le=10)] = Field(default=1.0, description="weight of diversity; 0 is off")
    neighbours: Count = Field(default=5, description="nearest past questions whose cosines are averaged")
    memory: Count = Field(default=5000, description="past questions remembered")
    embedder: str = Field(default="ngrams", description="'ngrams', or a sentence-transformers model")


class AskerEvaluation(Section):
    """How the asker is measured on held-out pairs: before, after, and in between."""

    every: CountOrZero = Field(default=0, description="steps between evaluations in training; 0: before and after only")
    sessions: Count = Field(default=40, description="sessions a held-out pair")
    checks: Literal[1, 3] = Field(default=3, description="cross-checks, which must agree")
    cross_check: str = Field(
        default=INITIAL, description="who checks: 'initial' (the asker before training), or a solver; never the policy"
    )
    resamples: Annotated[int, Field(ge=2)] = Field(
        default=8, description="fresh solutions a solver and final question, for the chance line"
    )


class AskerTraining(Section):
    """All settings of an asker's training."""

    name: str = Field(default="", description="shown in the summary")
    description: str = Field(default="", description="one line on what it is for")
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(default=0, description="seed of everything drawn")
    backbone: str = Field(
        min_length=1, description="the asker: 'testbed:NAME', 'package:MODULE/FOLDER', hub id, folder"
    )
    prompts: str = Field(default="standard", description="texts of the game: 'testbed', 'standard', or a path")
    dtype: Literal["float32", "bfloat16"] = Field(default="bfloat16", description="arithmetic; float32 on CPUs")
    lora: Lora | None = Field(default=None, description="adapters, or null for full fine-tuning")

    solvers: dict[str, str] = Field(description="the pool: a name, and a model written as backbone is")
    backends: dict[str, Backend] = Field(
        default={},
        description="where solvers live, by name; 'default' for all others, 'initial' for the asker before training. "
        "An entry stands alone; without one they are in this process",
    )
    train_pairs: Pairs = Field(description="pairs of names that sessions of training are played against")
    heldout_pairs: Pairs = Field(description="pairs that training never meets")
    cross_check: str = Field(
        default=POLICY, description="whose answer counts as right: 'policy', 'initial', or a solver"
    )
    checks: Literal[1, 3] = Field(default=1, description="cross-checks: 1 greedy, or 3 drawn that must agree")
    audit: CountOrZero = Field(
        default=3, description="cross-checks more a final question, measured and rewarded nowhere; 0 is off"
    )
    probes: Annotated[int, Field(ge=0, le=10)] = Field(default=3, description="probe questions before the final one")
    solver_temperature: Temperature = 0.7
    max_turn_tokens: TokenLimit = Field(default=2048, description="new tokens of a turn of the asker, at most")
    max_solution_tokens: TokenLimit = Field(default=4096, description="new tokens of a solution, at most")

    steps: Steps = 100
    groups: Count = Field(default=16, description="groups a step; all sessions of a group face the same pair")
    sessions: Responses = 16
    update_groups: GlobalBatch = 16
    learning_rate: LearningRate = 1e-6
    kl: Kl = 0.0
    loss: Literal["cispo", "dapo", "grpo"] = Field(default="cispo", description="CISPO as in Ask-E, or the loop's")
    ratio_max: Annotated[float, Field(ge=1)] = Field(default=5.0, description="CISPO's absolute cap on the ratio")
    max_grad_norm: Annotated[float, Field(gt=0)] = Field(default=1.0, description="gradients are clipped to this norm")
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    micro_batch: Count = Field(default=8, description="sessions in one forward-backward pass, at most")
    batch: Count = Field(default=256, description="sequences decoded together")
    save_minutes: SaveMinutes = 30.0

    reward: AskerReward = Field(default=AskerReward(), description="what a session earns")
    evaluation: AskerEvaluation = Field(default=AskerEvaluation(), description="measurement on held-out pairs")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse settings that are each in range but do not fit one another."""
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Sequence[str]:
        found = []
        known = ", ".join(self.solvers)
        for key, pairs in (("train_pairs", self.train_pairs), ("heldout_pairs", self.heldout_pairs)):
            for pair in pairs:
                if unknown := [name for name in pair if name not in self.solvers]:
                    found.append(f"{key} names {unknown[0]!r}, which is not in solvers: {known}")
                elif pair[0] == pair[1]:
                    found.append(f"{key} holds {list(pair)}: two copies of one solver differ by chance only")
        shared = {frozenset(p) for p in self.train_pairs} & {frozenset(p) for p in self.heldout_pairs}
        if shared:
            found.append(f"{sorted(next(iter(shared)))} is in train_pairs and in heldout_pairs; keep it in one")
        for key, name, own in (
            ("cross_check", self.cross_check, (POLICY, INITIAL)),
            ("evaluation.cross_check", self.evaluation.cross_check, (INITIAL,)),
        ):
            if name not in (*own, *self.solvers):
                found.append(f"{key} is {name!r}; it must be one of {', '.join(own)}, or a solver: {known}")
        if any(self.cross_check in pair for pair in self.train_pairs):
            found.append(
                f"cross_check is {self.cross_check!r}, which sits in a train pair and would agree with itself; name "
                "another, or 'policy'"
            )
        if any(self.evaluation.cross_check in pair for pair in self.heldout_pairs):
            found.append(f"evaluation.cross_check is {self.evaluation.cross_check!r}, which sits in a held-out pair")
        if clash := sorted({POLICY, INITIAL} & set(self.solvers)):
            found.append(f"a solver is called {clash[0]!r}, which means the asker itself; give it another name")
        if DEFAULT in self.solvers:
            found.append("a solver is called 'default', which means all solvers in backends; give it another name")
        if strangers := [name for name in self.backends if name not in (DEFAULT, INITIAL, *self.solvers)]:
            found.append(f"backends names {strangers[0]!r}; it must be default, initial, or a solver: {known}")
        for name, backend in self.backends.items():
            found += backend_problems(backend, f"backends.{name}")
        if self.groups % self.update_groups:
            fitting = ", ".join(map(str, divisors(self.groups)))
            found.append(f"update_groups is {self.update_groups}, no divisor of groups = {self.groups}; use {fitting}")
        return found


def backend_of(settings: AskerTraining, name: str) -> Backend:
    """Return where a solver, or the asker before training, lives."""
    own = settings.backends.get(name)
    return own if own is not None else settings.backends.get(DEFAULT, Backend())


def is_asker_training(name_or_path: str | Path) -> bool:
    """Return whether a file, or a shipped name, holds the settings of an asker's training; nothing is checked."""
    path = _path_of(name_or_path)
    if not path.is_file():
        return False
    try:
        return "train_pairs" in read_mapping(path, path.name)[0]
    except ConfigError:
        return False


def _path_of(name_or_path: str | Path) -> Path:
    """Return the file, or the shipped one of that name, which may not be there."""
    path = Path(name_or_path)
    name = str(name_or_path).removesuffix(".yaml").removeprefix("recipes/")
    return path if path.is_file() else recipes_folder() / f"{name}.yaml"


def load_asker_training(name_or_path: str | Path, overrides: Sequence[str] = ()) -> AskerTraining:
    """Read the settings from a file, or from a shipped one such as ``aske/testbed-train``; overrides are key=value.

    Raises:
        ConfigError: no such file, or anything that does not fit, with the value met and what is expected.
    """
    path = _path_of(name_or_path)
    if not path.is_file():
        names = ", ".join(f"aske/{p.stem}" for p in sorted((recipes_folder() / "aske").glob("*train*.yaml")))
        raise ConfigError(f"no settings {str(name_or_path)!r}, neither a file nor a shipped name", f"shipped: {names}")
    data, _ = read_mapping(path, path.name)
    for override in overrides:
        parts, value = parse_override(override, "steps=20")
        nested: dict[str, Any] = {parts[-1]: value}
        for part in reversed(parts[:-1]):
            nested = {part: nested}
        merge(data, nested)
    return asker_training_from(data, path.name)


def asker_training_from(data: dict[str, Any], source: str) -> AskerTraining:
    """Return checked settings.

    Raises:
        ConfigError: anything that does not fit.
    """
    try:
        return AskerTraining.model_validate(data)
    except ValidationError as error:
        lines = []
        for e in error.errors():
            where = ".".join(map(str, e["loc"]))
            said = str(e["msg"]).removeprefix("Value error, ")
            if e["type"] == "extra_forbidden":
                lines.append(f"{source}: unknown key {where!r}; {_nearest([str(part) for part in e['loc']])}")
            elif e["type"] == "missing":
                lines.append(f"{source}: {where} is missing")
            else:
                lines.append(f"{source}: {where} is {e['input']!r}: {said}" if where else f"{source}: {said}")
        raise ConfigError("\n".join(lines)) from None


def _nearest(path: Sequence[str]) -> str:
    """Return a hint at the key meant by an unknown one: a near one of its section, else the section's keys."""
    section: type[BaseModel] = AskerTraining
    for part in path[:-1]:
        field = section.model_fields.get(part)
        # a name of a mapping such as backends.NAME stands between a field and its section
        section = (section_of(field.annotation) if field else None) or (Backend if path[0] == "backends" else section)
    if close := difflib.get_close_matches(path[-1], section.model_fields, n=1, cutoff=0.6):
        return f"did you mean {'.'.join((*path[:-1], close[0]))!r}?"
    return f"the keys here are {', '.join(section.model_fields)}"


def dump_asker_training(settings: AskerTraining) -> str:
    """Return the settings as YAML that `load_asker_training` reads back."""
    return dump_mapping(settings.model_dump(mode="json"))
