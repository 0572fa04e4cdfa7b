"""YAML as settings use it: numbers and truth values of YAML 1.2, and no key twice.

The common reader follows YAML 1.1, in which ``2e-6`` is text, ``off`` is false and ``010`` is 8, and of a key that
stands twice it silently takes the last one.
"""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's plain scalars and unique keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own shape)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse a key that stands twice."""
        seen: dict[Any, int] = {}
        for key, _ in node.value:
            name, line = key.value if isinstance(key, yaml.ScalarNode) else str(key), key.start_mark.line + 1
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {name!r} stands twice, on lines {seen[name]} and {line}", key.start_mark
                )
            seen[name] = line
        return super().construct_mapping(node, deep)


SCALARS = (  # tag, pattern, first characters ("" is that of the empty scalar)
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
)


def resolve_scalars(reader: type[Any]) -> None:
    """Add YAML 1.2's plain scalars to a loader or dumper of PyYAML; a loader starts without resolvers of its own."""
    for tag, pattern, first in SCALARS:
        reader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)


resolve_scalars(_Loader)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: it is no YAML, or a key stands twice.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # a safe loader
    except (ValueError, RecursionError) as error:  # such as the tagged date 2024-99-99, or a thousand brackets
        raise yaml.YAMLError(str(error)) from None
