"""Where a backbone's weights lie: a shipped testbed model, a local folder, or a hub id."""

from __future__ import annotations

from pathlib import Path

from selfevolve.errors import UserError

SHIPPED = Path(__file__).parent / "testbed" / "backbones"


def resolve_backbone(name: str) -> str:
    """Return a folder or hub id that ``from_pretrained`` loads.

    Raises:
        UserError: A testbed backbone of that name is not shipped.
    """
    kind, _, model = name.partition(":")
    if kind != "testbed":
        return name
    folder = SHIPPED / model
    if not (folder / "config.json").is_file():
        known = sorted(p.name for p in SHIPPED.iterdir() if (p / "config.json").is_file()) if SHIPPED.is_dir() else []
        raise UserError(
            f"backbone is {name!r}, but the testbed ships {', '.join(known) or 'none'}",
            "choose one of these, a local folder, or a hub id; pre-train your own with "
            "python -m selfevolve.testbed.pretrain",
        )
    return str(folder)
