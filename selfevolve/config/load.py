"""Find, merge, override, check and write recipes.

A recipe file may name another as its ``base`` and then holds only the keys that it changes. Each value remembers where
it was set (file and line, or the override), so that a message can say where to mend it.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from selfevolve.config.backends import Backends, absent
from selfevolve.config.schema import Recipe
from selfevolve.config.yaml_text import KeyPath, dump_mapping, parse_mapping, parse_override, read_mapping
from selfevolve.errors import ConfigError

Sources = dict[KeyPath, str]  # where each key was set: "FILE:LINE" or "override KEY=VALUE"

# What a recipe is called does not change what a run computes.
NOT_HASHED = ("name", "description")

# Where and how fast a run computes, not what: these, and what lies under them, may change when it goes on.
MACHINERY = (
    "generation.batch",
    "micro_batch",
    "gradient_checkpointing",
    "launcher",
    "accelerate_config",
    "processes",
    "machines",
    "main_address",
    "keep_checkpoints",
    "save_minutes",
    "backends",
    "monitor",
)

# Folders of the recipes that hold other settings: of accelerate, and of `aske` with the training of askers.
NO_RECIPES = ("accelerate/", "aske/")


def recipes_folder() -> Path:
    """Return the folder of the recipes that ship with the package, installed or in a checkout."""
    checkout = Path(__file__).resolve().parents[2] / "recipes"
    if (checkout / "testbed" / "base.yaml").is_file():
        return checkout
    spec = importlib.util.find_spec("selfevolve_recipes")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the recipes that ship with selfevolve are not installed", "install the package again")
    return Path(next(iter(spec.submodule_search_locations)))


def _shipped() -> dict[str, Path]:
    """Return the shipped recipes by name; bases are no recipes of their own."""
    folder = recipes_folder()
    names = {p.relative_to(folder).with_suffix("").as_posix(): p for p in sorted(folder.rglob("*.yaml"))}
    return {n: p for n, p in names.items() if not n.startswith(NO_RECIPES) and p.stem != "base"}


def list_recipes() -> list[tuple[str, str]]:
    """Return name and one-line description of every shipped recipe."""
    rows = []
    for name, path in _shipped().items():
        data, _ = read_mapping(path, path.name)
        rows.append((name, str(data.get("description", ""))))
    return rows


def resolve_recipe_path(name_or_path: str | Path) -> Path:
    """Return the file of a recipe: an existing path, or the name of a shipped recipe such as ``testbed/r_quest``.

    Raises:
        ConfigError: neither; the message names the nearest recipes.
    """
    text = str(name_or_path)
    path = Path(text)
    if path.is_file():
        return path
    name = text.removesuffix(".yaml").removeprefix("recipes/")
    shipped = recipes_folder() / f"{name}.yaml"
    if shipped.is_file() and not name.startswith((*NO_RECIPES, "/", "../")):
        return shipped
    other = shipped if name.startswith("aske/") and shipped.is_file() else None
    if other is not None:
        _refuse_other_kind(read_mapping(other, name)[0], text)
    names = list(_shipped())
    by_tail = [n for n in names if n.rsplit("/", 1)[-1] == name.rsplit("/", 1)[-1]]
    near = by_tail or difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the recipes are {', '.join(names)}"
    raise ConfigError(f"no recipe {text!r}, neither a file nor a shipped name", hint)


def _refuse_other_kind(data: Mapping[str, Any], name: str) -> None:
    """Raise for settings that another command takes, and name it."""
    for key, kind, command in (
        ("train_pairs", "the training of an asker", "selfevolve train-asker"),
        ("pool", "an Ask-E benchmark", "aske bench"),
    ):
        if key in data:
            raise ConfigError(
                f"{name} holds the settings of {kind}, no recipe",
                f"start it with `{command} {name.removeprefix('recipes/')}`",
            )


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe with its bases, apply overrides, and check it.

    Args:
        name_or_path: a shipped name or a file.
        overrides: texts like ``solver.learning_rate=2e-6``, applied in order.

    Raises:
        ConfigError: anything that does not fit the schema, with the place, the value met and the range.
    """
    path = resolve_recipe_path(name_or_path)
    data, sources = _read_chain(path, ())
    for override in overrides:
        _apply_override(data, sources, override)
    return _validated(data, sources)


def recipe_from_text(text: str, source: str) -> Recipe:
    """Read a whole resolved recipe, such as a run folder's ``config.yaml``; ``source`` stands in messages."""
    data, lines = parse_mapping(text, source)
    _refuse_unknown(data, lines, source)
    return _validated(data, {path: f"{source}:{line}" for path, line in lines.items()})


def changed_machinery(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """Return the recipe with overrides of `MACHINERY` applied, and checked again.

    Raises:
        ConfigError: an override of another key, which would mix two experiments in one run; or a value that does not
            fit.
    """
    data: dict[str, Any] = recipe.model_dump(mode="json")
    sources: Sources = {}
    for override in overrides:
        key = override.partition("=")[0].strip()
        _apply_override(data, sources, override)
        if not any(key == name or key.startswith(f"{name}.") for name in MACHINERY):
            raise ConfigError(
                f"{key} decides what a run computes, so it cannot change in a run that has begun",
                f"start a new run with it; what may change is {', '.join(MACHINERY)}",
            )
    return _validated(data, sources)


def accelerate_config_path(recipe: Recipe) -> Path | None:
    """Return the file of ``accelerate_config``: a path, or a name in recipes/accelerate; None when it is not given.

    Raises:
        ConfigError: there is no such file.
    """
    given = recipe.accelerate_config
    if given is None:
        return None
    folder = recipes_folder() / "accelerate"
    for path in (Path(given), folder / given, folder / f"{given}.yaml"):
        if path.is_file():
            return path
    names = ", ".join(sorted(p.name for p in folder.glob("*.yaml")))
    raise ConfigError(f"accelerate_config {given!r} is no file", f"give a path, or one of {names}")


def missing_files(recipe: Recipe) -> list[str]:
    """Return one line for each file, program or variable that the recipe names and that is not there."""
    missing = []
    data = recipe.initialisation.data
    if recipe.initialisation.enabled and data != "testbed" and not Path(data).is_file():
        missing.append(f"initialisation.data is {data!r}, and there is no such file")
    if recipe.prompts not in ("testbed", "standard", "plain") and not Path(recipe.prompts).is_file():
        missing.append(
            f"prompts is {recipe.prompts!r}, which is neither 'testbed' nor 'standard' nor 'plain' nor a file"
        )
    given = recipe.ask_e.prompts
    if given is not None and given not in ("testbed", "standard") and not Path(given).is_file():
        missing.append(f"ask_e.prompts is {given!r}, which is neither 'testbed' nor 'standard' nor a file")
    try:
        accelerate_config_path(recipe)
    except ConfigError as error:
        missing.append(f"{error.message}; {error.remedy}")
    return [*missing, *absent(recipe)]


def dump(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML, which `recipe_from_text` reads back as an equal recipe."""
    return dump_mapping(recipe.model_dump(mode="json"))


def config_hash(recipe: Recipe) -> str:
    """Return 16 hex digits that differ whenever a setting differs that the run reads.

    Name, description and `save_minutes` do not count. Without Ask-E's reward neither do `reward.rule` and `ask_e`, nor
    on one machine `machines` and `main_address`, which are then at their defaults; nor `backends` and
    `keep_checkpoints` at their defaults, nor `gradient_checkpointing` where it is off: so a run folder that was made
    before these keys existed can still be resumed.
    """
    data = recipe.model_dump(mode="json", exclude={*NOT_HASHED, "save_minutes"})
    if recipe.reward.rule == "solver":
        del data["ask_e"], data["reward"]["rule"]
    if recipe.machines == 1:
        del data["machines"], data["main_address"]
    if not recipe.gradient_checkpointing:
        del data["gradient_checkpointing"]
    if recipe.keep_checkpoints is None:
        del data["keep_checkpoints"]
    if recipe.backends == Backends():
        del data["backends"]
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def differences(old: Recipe, new: Recipe) -> list[str]:
    """Return one line for each key whose value differs, such as ``solver.steps: 8 -> 15``."""
    before = dict(_leaves(old.model_dump(mode="json", exclude=set(NOT_HASHED)), ()))
    after = dict(_leaves(new.model_dump(mode="json", exclude=set(NOT_HASHED)), ()))
    absent = "(absent)"
    keys = list(dict.fromkeys((*before, *after)))
    return [
        f"{'.'.join(key)}: {_shown(before.get(key, absent))} -> {_shown(after.get(key, absent))}"
        for key in keys
        if before.get(key, absent) != after.get(key, absent)
    ]


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _leaves(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, data


def _read_chain(path: Path, above: tuple[Path, ...]) -> tuple[dict[str, Any], Sources]:
    """Read ``path`` on top of its bases; ``above`` holds the files that led here."""
    real = path.resolve()
    if real in above:
        chain = " -> ".join(p.name for p in (*above, real))
        raise ConfigError(f"{path.name}: its bases form a circle: {chain}", "let one of them stand without a base")
    shown = _shown_path(path)
    data, lines = read_mapping(path, shown)
    _refuse_other_kind(data, shown)
    base_name = data.pop("base", None)
    lines.pop(("base",), None)
    _refuse_unknown(data, lines, shown)
    sources: Sources = {key: f"{shown}:{line}" for key, line in lines.items()}
    data.setdefault("name", _recipe_name(real))
    if base_name is None:
        return data, sources
    merged, merged_sources = _read_chain(_base_path(path, base_name, shown), (*above, real))
    # a base's description speaks of the base
    merged.pop("description", None)
    merge(merged, data)
    return merged, merged_sources | sources


def _base_path(path: Path, base_name: Any, shown: str) -> Path:
    beside = path.parent / str(base_name)
    if beside.is_file():
        return beside
    try:
        return resolve_recipe_path(str(base_name))
    except ConfigError as error:
        raise ConfigError(f"{shown}: base {base_name!r} is not found: {error.message}", error.remedy) from None


def _recipe_name(path: Path) -> str:
    folder = recipes_folder().resolve()
    return path.relative_to(folder).with_suffix("").as_posix() if path.is_relative_to(folder) else path.stem


def _shown_path(path: Path) -> str:
    folder = recipes_folder()
    return f"recipes/{path.relative_to(folder).as_posix()}" if path.is_relative_to(folder) else str(path)


def merge(into: dict[str, Any], data: Mapping[str, Any]) -> None:
    """Lay ``data`` over ``into``: mappings merge key by key, everything else replaces."""
    for key, value in data.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def _apply_override(data: dict[str, Any], sources: Sources, override: str) -> None:
    path, value = parse_override(override, "solver.learning_rate=2e-6")
    where = f"override {override!r}"
    if path == ("base",):
        raise ConfigError(f"{where}: a base is named in a file", "write a YAML file with base: and the keys to change")
    nested: dict[str, Any] = {path[-1]: value}
    for part in reversed(path[:-1]):
        nested = {part: nested}
    _refuse_unknown(nested, {}, where)
    merge(data, nested)
    sources[path] = where


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section class behind a field's type, also where null is allowed."""
    options = typing.get_args(annotation) or (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _all_keys(model: type[BaseModel], path: KeyPath = ()) -> Iterator[KeyPath]:
    for name, field in model.model_fields.items():
        yield (*path, name)
        if section := section_of(field.annotation):
            yield from _all_keys(section, (*path, name))


def _refuse_unknown(data: Mapping[str, Any], lines: Mapping[KeyPath, int], source: str) -> None:
    """Raise for the first key that the schema does not know, and name the nearest that it does."""

    def walk(part: Mapping[str, Any], model: type[BaseModel], path: KeyPath) -> None:
        for key, value in part.items():
            here = (*path, str(key))
            if key not in model.model_fields:
                where = f"{source}:{lines[here]}" if here in lines else source
                raise ConfigError(f"{where}: unknown key {'.'.join(here)!r}", _nearest(here, model))
            section = section_of(model.model_fields[key].annotation)
            if section and isinstance(value, Mapping):
                walk(value, section, here)

    walk(data, Recipe, ())


def _nearest(path: KeyPath, model: type[BaseModel]) -> str:
    """Return a hint at the key meant: one of the same section, one of this name elsewhere, or the section's keys."""
    everywhere = {"_".join(key): ".".join(key) for key in _all_keys(Recipe)}
    joined = "_".join(path)
    if joined in everywhere:
        return f"did you mean {everywhere[joined]!r}?"
    if close := difflib.get_close_matches(path[-1], model.model_fields, n=1, cutoff=0.6):
        return f"did you mean {'.'.join((*path[:-1], close[0]))!r}?"
    if elsewhere := [".".join(key) for key in _all_keys(Recipe) if key[-1] == path[-1]]:
        return f"did you mean {' or '.join(repr(k) for k in elsewhere)}?"
    if far := difflib.get_close_matches(joined, everywhere, n=1, cutoff=0.75):
        return f"did you mean {everywhere[far[0]]!r}?"
    leaves = {key[-1]: ".".join(key) for key in _all_keys(Recipe)}
    if near := difflib.get_close_matches(path[-1], leaves, n=1, cutoff=0.75):
        return f"did you mean {leaves[near[0]]!r}?"
    return f"the keys here are {', '.join(model.model_fields)}"


def _validated(data: dict[str, Any], sources: Sources) -> Recipe:
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_described(e, sources) for e in error.errors())) from None


def _described(error: Any, sources: Sources) -> str:
    """Turn one of pydantic's errors into a line: where it was set, the value met, what is expected."""
    location = tuple(str(part) for part in error["loc"])
    if not location:
        return str(error["ctx"]["error"]) if "error" in error.get("ctx", {}) else str(error["msg"])
    model: type[BaseModel] = Recipe
    known: list[str] = []
    description = ""
    for part in location:
        field = model.model_fields.get(part)
        if field is None:
            break
        known.append(part)
        description = field.description or ""
        model = section_of(field.annotation) or model
    where = next((sources[location[:n]] for n in range(len(location), 0, -1) if location[:n] in sources), "")
    prefix = f"{where}: " if where else ""
    if error["type"] == "missing":
        return f"{prefix}{'.'.join(location)} is missing (expected: {description})"
    reason = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "model_type":
        reason, description = "a group of keys is due here", ", ".join(model.model_fields)
    return f"{prefix}{'.'.join(known)} is {error['input']!r}: {reason} (expected: {description})"
