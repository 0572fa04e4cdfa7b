"""Where a backbone's weights lie: a shipped testbed model, a local folder, or a hub id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from selfevolve.config.names import OWN, SELF
from selfevolve.errors import UserError
from selfevolve.sampling.weights import refuse_pickled, remote_code_warning

if TYPE_CHECKING:
    from selfevolve.config import Recipe

SHIPPED = Path(__file__).parent / "testbed" / "backbones"


def resolve_backbone(name: str) -> str:
    """Return a folder or hub id that ``from_pretrained`` loads.

    Raises:
        UserError: A testbed backbone of that name is not shipped, or the folder's weights are pickled.
    """
    kind, _, model = name.partition(":")
    if kind != "testbed":
        try:
            refuse_pickled(name)
        except ValueError as error:
            raise UserError(str(error)) from None
        return name
    folder = SHIPPED / model
    if not (folder / "config.json").is_file():
        raise UserError(
            _not_shipped("a model", name),
            "choose one of these, a local folder, or a hub id; pre-train your own with "
            "python -m selfevolve.testbed.pretrain",
        )
    return str(folder)


def missing_model(key: str, name: str) -> str | None:
    """Return a line where ``name``, the value of ``key``, is plainly no model on this machine; None: it may be one.

    A hub id is not looked up: that takes a network, and loading tells it.
    """
    if name.startswith("testbed:"):
        return None if (SHIPPED / name.partition(":")[2] / "config.json").is_file() else _not_shipped(key, name)
    path = Path(name)
    if path.is_dir():
        return None if (path / "config.json").is_file() else f"{key} is {name!r}, a folder without config.json"
    local = path.is_file() or path.is_absolute() or name.startswith(("./", "../", "~")) or name.count("/") > 1
    return f"{key} is {name!r}, and there is no such folder" if local else None


def missing_models(recipe: Recipe) -> list[str]:
    """Return one line for each model of a recipe, but those of endpoints, that is plainly not there."""
    from selfevolve.config.backends import places

    named = {("backbone", recipe.backbone)}
    for place in places(recipe):
        key = {"referee": "referee_model", "boundary": "ask_e"}.get(place.role)
        if key is not None and place.backend.kind != "endpoint":
            named |= {(key, name) for name in place.models}
    return [line for key, name in sorted(named) if (line := missing_model(key, name)) is not None]


def _not_shipped(key: str, name: str) -> str:
    known = sorted(p.name for p in SHIPPED.iterdir() if (p / "config.json").is_file()) if SHIPPED.is_dir() else []
    return f"{key} is {name!r}, but the testbed ships {', '.join(known) or 'none'}"


def trust_warnings(recipe: Recipe) -> list[str]:
    """Return the warning about code from outside that the recipe lets run, as a list of one; empty: it lets none."""
    if not recipe.trust_remote_code:
        return []
    pairs = (name for pair in recipe.ask_e.pairs for name in (*pair, recipe.ask_e.cross_check))
    boundary = pairs if recipe.reward.rule == "ask_e" else ()
    named = [recipe.backbone, *filter(None, [recipe.referee_model]), *(n for n in boundary if n not in (*OWN, SELF))]
    foreign = [name for name in named if not name.startswith("testbed:")]
    return [remote_code_warning(*foreign)] if foreign else []
