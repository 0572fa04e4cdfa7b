"""YAML as recipes use it: YAML 1.2's plain scalars, duplicate keys refused, and the line of every key.

The common reader follows YAML 1.1, in which ``2e-6`` is text, ``off`` is false, ``1:30`` is 90 and ``010`` is 8.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from aske.yaml12 import resolve_scalars
from selfevolve.errors import ConfigError

KeyPath = tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's plain scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own shape)


class _Dumper(yaml.SafeDumper):
    """The safe dumper that quotes text which either `_Loader` or a reader of YAML 1.1 would take for something else."""


resolve_scalars(_Loader)
resolve_scalars(_Dumper)


def parse_value(text: str) -> Any:
    """Read one plain value as a recipe would: ``2e-6`` is a number, ``null`` is None, ``off`` is text."""
    return yaml.load(text, Loader=_Loader)


def parse_override(override: str, example: str) -> tuple[KeyPath, Any]:
    """Read ``key=value`` with a dotted key; the value is read as YAML.

    Raises:
        ConfigError: not of that form, or the value is no YAML; `example` stands in the message.
    """
    key, equals, text = override.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    where = f"override {override!r}"
    if not equals or not all(path):
        raise ConfigError(f"{where} is not of the form key=value", f"write for example {example}")
    try:
        return path, parse_value(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: the value is not readable as YAML: {error}", "quote it if it is text") from None


def read_mapping(path: Path, source: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Read a file as `parse_mapping` reads its text; `source` is its name in messages.

    Raises:
        ConfigError: it cannot be read, is no UTF-8 text, or does not fit.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read: {error}", "give a YAML file, in UTF-8") from None
    return parse_mapping(text, source)


def parse_mapping(text: str, source: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Read a recipe's text.

    Args:
        text: the YAML text.
        source: the file's name, for messages.

    Returns:
        The mapping, and the line (from 1) of every key by its path.

    Raises:
        ConfigError: not YAML, not a mapping, a key that is not text, or a key that stands twice.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
        data = parse_value(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: such as the date 2024-99-99
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        reason = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{where}: not readable as YAML: {reason}", "mend the line; see docs/recipes.md") from None
    if data is None:
        return {}, {}
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: a recipe is a mapping of keys to values, not {type(data).__name__}")
    lines: dict[KeyPath, int] = {}
    _collect_lines(node, (), lines, source)
    return data, lines


def _collect_lines(node: Any, path: KeyPath, lines: dict[KeyPath, int], source: str) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise ConfigError(f"{source}:{line}: a key must be plain text, not {getattr(key, 'value', key)!r}")
        here = (*path, key.value)
        if here in lines:
            raise ConfigError(
                f"{source}:{line}: key {'.'.join(here)!r} stands twice, first on line {lines[here]}", "keep one of them"
            )
        lines[here] = line
        _collect_lines(value, here, lines, source)


def dump_mapping(data: dict[str, Any]) -> str:
    """Write ``data`` as YAML that `parse_mapping` reads back as the same values, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
