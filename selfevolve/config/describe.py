"""The table of all keys for docs/recipes.md; ``python -m selfevolve.config.describe`` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import BaseModel

from selfevolve.config.load import section_of
from selfevolve.config.schema import Recipe


def key_table() -> str:
    """Return every key with its default and its meaning, as a Markdown table."""
    rows = [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in _rows(Recipe(), "", set())]
    return "\n".join(["| key | default | meaning, unit and range |", "|---|---|---|", *rows])


def _rows(section: BaseModel, prefix: str, told: set[type[BaseModel]]) -> Iterator[tuple[str, str, str]]:
    """Yield key, default and meaning; a group that may be left out is told once, however many keys hold one."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        inner = section_of(field.annotation)
        if inner is None or value is None:
            yield f"{prefix}{name}", _default(value), (field.description or "").replace("|", "\\|")
        if inner is not None and not (value is None and inner in told):
            told.add(inner)
            yield from _rows(inner() if value is None else value, f"{prefix}{name}.", told)


def _default(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return json.dumps(value).replace('"', "")  # as in a recipe
        case "":
            return "(none)"
        case _:
            return str(value)


if __name__ == "__main__":
    print(key_table())
