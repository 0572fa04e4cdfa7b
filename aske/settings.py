"""The settings of a benchmark: askers, pool, cross-check, rules, controls; read from YAML, overridden, written back.

Nothing heavy is imported here: a configuration is checked before any model is loaded.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from aske.errors import AskeError
from aske.game import Rules
from aske.yaml12 import parse_yaml
from selfevolve.sampling import Sampling

_Model = TypeVar("_Model", bound=BaseModel)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Section(BaseModel):
    """Settings that refuse an unknown key and name the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                    hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(cls.model_fields)}"
                    raise ValueError(f"unknown key {key!r}; {hint}")
        return data


class SamplingSettings(Section):
    """How replies are drawn; a key that is left out takes the seat's value."""

    temperature: float | None = Field(default=None, ge=0)  # 0: greedy
    top_p: float | None = Field(default=None, gt=0, le=1)  # 1: off
    top_k: int | None = Field(default=None, ge=0)  # 0: off
    max_tokens: int | None = Field(default=None, ge=1)  # new tokens a reply, at most

    def over(self, other: SamplingSettings) -> SamplingSettings:
        """Return these settings, with gaps filled from others."""
        return SamplingSettings(**{**other.model_dump(exclude_none=True), **self.model_dump(exclude_none=True)})

    def sampling(self) -> Sampling:
        """Return the record that samplers take; n and seed are set for each call."""
        return Sampling(**self.model_dump(exclude_none=True))


_SEATS = {
    "asker": SamplingSettings(temperature=1.0, max_tokens=2048),
    "boundary": SamplingSettings(temperature=0.7, max_tokens=4096),
    "cross_check": SamplingSettings(temperature=0.7, max_tokens=4096),
}


class BudgetSettings(Section):
    """What may be spent at an endpoint in one process; None: no bound."""

    requests: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)


class Limits(Section):
    """How hard an endpoint is used; entries with the same addresses share one limiter."""

    concurrency: int = Field(default=64, ge=1)  # requests under way at once
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    deadline: float = Field(
        default=1800.0, gt=0, allow_inf_nan=False
    )  # seconds for one prompt, retries and pauses included
    silence: float = Field(
        default=300.0, gt=0, allow_inf_nan=False
    )  # seconds of a silent server before an attempt is given up
    retries: int = Field(default=6, ge=0)  # failed requests in a row that are tried again
    budget: BudgetSettings = BudgetSettings()


class Entry(Section):
    """A model that sits in some seat."""

    name: str  # in records and reports
    backend: Literal["transformers", "vllm", "http"] = "transformers"
    model: str  # hub id, folder, "package:PACKAGE/FOLDER" inside an installed package, or the server's name of it
    sampling: SamplingSettings = SamplingSettings()
    limits: Limits = Limits()  # http only
    base_urls: tuple[str, ...] = ()  # http only: addresses of one model, such as http://127.0.0.1:8000/v1
    api: Literal["chat", "completions"] = "chat"  # http only: "completions" for base models without a template
    api_key_env: str | None = None  # http only: the NAME of the variable that holds the key
    extra_body: dict[str, Any] = {}  # http only: further fields of each request
    choices: int | None = Field(default=None, ge=1)  # http only: replies asked for in one request; 1 for llama.cpp
    batch: int = Field(default=512, ge=1)  # transformers only: replies decoded at once
    engine: dict[str, Any] = {}  # vllm only: arguments of vllm.LLM, such as gpu_memory_utilization or max_model_len
    context: int | None = Field(
        default=None, ge=1
    )  # asker only: positions of its context; None: what the backend tells
    ability: float | None = None  # any number, higher is stronger; orders a pair in the analysis of direction

    @model_validator(mode="after")
    def _consistent(self) -> Entry:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}; letters, digits, '.', '_' and '-' are allowed")
        if self.backend == "http" and not self.base_urls:
            raise ValueError(f"{self.name}: backend is http, but base_urls is empty; give the server's address")
        if self.backend != "http" and (self.base_urls or self.api_key_env):
            raise ValueError(f"{self.name}: base_urls and api_key_env need backend: http, not {self.backend}")
        if self.backend != "vllm" and self.engine:
            raise ValueError(f"{self.name}: engine needs backend: vllm, not {self.backend}")
        return self


class Pool(Section):
    """The solvers of the benchmark."""

    solvers: tuple[Entry, ...]

    @field_validator("solvers")
    @classmethod
    def _distinct(cls, solvers: tuple[Entry, ...]) -> tuple[Entry, ...]:
        if len(solvers) < 2:
            raise ValueError(f"the pool holds {len(solvers)} solvers; a pair needs 2")
        _refuse_twice([s.name for s in solvers], "solvers")
        return solvers


class SeatSamplings(Section):
    """How each kind of seat is sampled; an entry's own `sampling` goes before."""

    asker: SamplingSettings = SamplingSettings()
    boundary: SamplingSettings = SamplingSettings()
    cross_check: SamplingSettings = SamplingSettings()

    @model_validator(mode="after")
    def _filled(self) -> SeatSamplings:
        for seat, values in _SEATS.items():
            object.__setattr__(self, seat, getattr(self, seat).over(values))
        return self


class RulesSettings(Section):
    """Probes, cross-checks and cuts; see `aske.game.Rules`."""

    probes: int = Field(default=4, ge=0)
    checks: int = Field(default=3, ge=1)
    question_words: int = Field(default=200, ge=1)
    reply_chars: int = Field(default=2000, ge=1)

    def rules(self) -> Rules:
        """Return the record that the game takes."""
        return Rules(**self.model_dump())


class Controls(Section):
    """What is measured beside the sessions; 0 or false leaves a control out."""

    resamples: int = Field(default=8, ge=0)  # m: further replies of each boundary solver to each final question
    shuffled: bool = True  # m replies of the solvers of another pair to each final question
    difficulty: int = Field(default=1, ge=0)  # replies of each other solver of the pool to each final question
    same_model: int = Field(default=10, ge=0)  # sessions an asker and solver with the pair (x, x)
    no_probing: int = Field(default=50, ge=0)  # questions an asker without probes, put to the whole pool


class Bench(Section):
    """The whole benchmark."""

    name: str = "aske"
    description: str = ""
    askers: tuple[Entry, ...]
    pool: Pool
    cross_check: str | Entry  # a name in the pool or of an asker, or an entry
    prompts: str = "standard"  # a shipped pack or a YAML file
    rules: RulesSettings = RulesSettings()
    samplings: SeatSamplings = SeatSamplings()
    sessions: int = Field(default=10, ge=1)  # an asker and pair
    seed: int = 0
    wave: int = Field(default=512, ge=1)  # sessions played side by side; written to the disk together
    controls: Controls = Controls()
    truth: str | None = None  # "MODULE:FUNCTION": a question -> an object with `valid` and `answer`
    cache: str | None = None  # http only: a file that keeps replies, so that a wave played again is not paid for again
    stop_at_failures: float = Field(
        default=0.5, gt=0, le=1
    )  # share of failed calls in a wave at which the benchmark stops

    @model_validator(mode="after")
    def _consistent(self) -> Bench:
        if not self.askers:
            raise ValueError("askers is empty; name at least one")
        _refuse_twice([a.name for a in self.askers], "askers")
        self.cross_checker()
        return self

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All unordered pairs of the pool, in its order."""
        return list(combinations(self.solvers, 2))

    @property
    def solvers(self) -> dict[str, Entry]:
        """The pool by name."""
        return {s.name: s for s in self.pool.solvers}

    def cross_checker(self) -> Entry:
        """Return the cross-check's entry."""
        return self.entry(self.cross_check)

    def entry(self, given: str | Entry) -> Entry:
        """Return an entry, or the solver or asker of that name."""
        if isinstance(given, Entry):
            return given
        known = {a.name: a for a in self.askers} | self.solvers
        if given not in known:
            raise ValueError(f"cross_check is {given!r}; it must be one of {', '.join(known)}, or an entry of its own")
        return known[given]


def _refuse_twice(names: Sequence[str], where: str) -> None:
    if twice := sorted({n for n in names if list(names).count(n) > 1}):
        raise ValueError(f"{where}: the name {twice[0]!r} stands there twice; give each its own")


# ------------------------------------------------------------ reading


def recipes_folder() -> Path | None:
    """Return the folder of the configurations that ship, in a checkout or installed."""
    checkout = Path(__file__).resolve().parents[1] / "recipes" / "aske"
    if checkout.is_dir():
        return checkout
    spec = importlib.util.find_spec("selfevolve_recipes")
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) / "aske" if places else None


def find_config(name: str) -> Path:
    """Return the file of a configuration: a path, or the name of a shipped one, such as ``testbed``.

    Raises:
        AskeError: neither.
    """
    if Path(name).is_file():
        return Path(name)
    folder = recipes_folder()
    files = sorted(folder.glob("*.yaml")) if folder else []
    shipped = {p.stem: p for p in files if not p.stem.endswith("-train")}  # those are trainings of askers
    key = name.removeprefix("recipes/").removeprefix("aske/").removesuffix(".yaml")
    if key in shipped:
        return shipped[key]
    raise AskeError(f"no configuration {name!r}: no such file, and it is none of {', '.join(shipped) or 'none'}")


def load_bench(name: str, overrides: Sequence[str] = ()) -> Bench:
    """Read a configuration, apply ``key=value`` overrides, and check it.

    ``pool`` may be a file of its own, whose path is relative to the configuration's; the same holds for ``prompts``.

    Raises:
        AskeError: with every key that is wrong.
    """
    path = find_config(name)
    data = _read_yaml(path)
    given = [_split(o) for o in overrides]
    for keys, value in given:
        if len(keys) == 1:
            data[keys[0]] = value
    pool = data.get("pool")
    if isinstance(pool, str):
        data["pool"] = _read_yaml(_beside(path, pool))
    prompts = data.get("prompts")
    if isinstance(prompts, str) and prompts.endswith((".yaml", ".yml")):
        data["prompts"] = str(_beside(path, prompts))
    for keys, value in given:
        if len(keys) > 1:
            _put(data, keys, value)
    return parse_bench(data, str(path))


def changed(bench: Bench, overrides: Sequence[str]) -> Bench:
    """Return settings with ``key=value`` overrides applied, and checked again."""
    data = bench.model_dump(mode="json")
    for keys, value in map(_split, overrides):
        _put(data, keys, value)
    return parse_bench(data, "settings")


def parse_bench(data: Mapping[str, Any], where: str) -> Bench:
    """Return checked settings; an AskeError lists what is wrong."""
    return _validated(Bench, data, where)


def load_entry(path: Path) -> Entry:
    """Read one entry from a YAML file."""
    return parse_entry(_read_yaml(path), str(path))


def parse_entry(data: Mapping[str, Any], where: str) -> Entry:
    """Return a checked entry; an AskeError lists what is wrong."""
    return _validated(Entry, data, where)


def _validated(kind: type[_Model], data: Mapping[str, Any], where: str) -> _Model:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise AskeError(f"{where}:" + "".join(f"\n  {line}" for line in _lines(error)), "Mend the keys.") from None


def _lines(error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        text = problem["msg"].removeprefix("Value error, ")
        met = "" if problem["type"] in ("value_error", "missing") else f" (it is {problem['input']!r})"
        yield f"{key}: {text}{met}" if key else f"{text}{met}"


def _beside(path: Path, name: str) -> Path:
    beside = path.parent / name
    return beside if beside.is_file() else Path(name)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise AskeError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    except yaml.YAMLError as error:
        raise AskeError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise AskeError(f"{path} holds {type(data).__name__}; a mapping of keys is expected")
    return data


def _split(override: str) -> tuple[list[str], Any]:
    key, sign, text = override.partition("=")
    if not sign or not key:
        raise AskeError(f"the override {override!r} is not key=value", "For example sessions=20 or rules.probes=3.")
    try:
        return key.split("."), parse_yaml(text)
    except yaml.YAMLError:
        raise AskeError(f"the value of the override {override!r} is no YAML") from None


def _put(data: dict[str, Any], keys: list[str], value: Any) -> None:
    at: Any = data
    for i, key in enumerate(keys[:-1]):
        at = at[_place(at, key, keys)] if isinstance(at, list) else at.setdefault(key, {})
        if not isinstance(at, dict | list):
            raise AskeError(f"{'.'.join(keys)}: {'.'.join(keys[: i + 1])} is {at!r} and has no keys")
    if isinstance(at, list):
        at[_place(at, keys[-1], keys)] = value
    else:
        at[keys[-1]] = value


def _place(items: list[Any], key: str, keys: list[str]) -> int:
    """Return the place of an item of a list, named by its number or by its `name`."""
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if key in names:
        return names.index(key)
    if key.isdecimal() and int(key) < len(items):
        return int(key)
    raise AskeError(f"{'.'.join(keys)}: {key!r} is no place or name of a list of {len(items)}")


# ------------------------------------------------------------ comparing

# How fast, not what is measured: these may change between two starts of one benchmark.
_LIMITS = r"limits\.(concurrency|requests_per_minute|tokens_per_minute|budget)(\..*)?"
_FREE = re.compile(rf"(.*\.)?({_LIMITS}|batch|engine\.gpu_memory_utilization)|cache")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return ``key: old -> new`` for every setting that differs and takes part in the results."""
    a, b = dict(_flat(old)), dict(_flat(new))
    keys = [k for k in {**a, **b} if a.get(k, "not set") != b.get(k, "not set") and not _FREE.fullmatch(k)]
    return [f"{k}: {a.get(k, 'not set')!r} -> {b.get(k, 'not set')!r}" for k in keys]


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for k, v in value.items():
            yield from _flat(v, f"{key}.{k}" if key else str(k))
    elif isinstance(value, list | tuple) and value:
        for i, v in enumerate(value):
            yield from _flat(v, f"{key}.{i}")
    else:
        yield key, value
