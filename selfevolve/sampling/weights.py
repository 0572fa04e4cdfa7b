"""What may be loaded: weights in safetensors only, and code from a model's repository only with a word of warning.

Ground floor: imports nothing of ours. A pickled file (``*.bin``, ``*.pt``) can run any code when it is read, so none is
ever opened: ``from_pretrained`` is called with ``use_safetensors=True`` throughout, and a local folder that holds
nothing else is refused before.
"""

from __future__ import annotations

import logging
from pathlib import Path

logger = logging.getLogger(__name__)

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")  # what torch.load reads
_told: set[str] = set()  # models that this process has named in a warning


def refuse_pickled(model: str | Path) -> None:
    """Refuse a local folder whose weights are pickled; a hub id passes, and is held to safetensors when it is loaded.

    Raises:
        ValueError: the folder holds no safetensors but pickled files.
    """
    folder = Path(model)
    if not folder.is_dir() or any(folder.glob("*.safetensors")):
        return
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled:
        raise ValueError(
            f"{folder} holds its weights in {pickled[0]}, a pickled file, which can run code when it is read; only "
            "safetensors are loaded. If you trust its source, load it with transformers elsewhere and write it anew: "
            "model.save_pretrained(FOLDER) makes model.safetensors"
        )


def remote_code_warning(*models: str) -> str:
    """Return what a user should know before code from these models' repositories runs."""
    return (
        f"trust_remote_code is true: code that comes with {', '.join(dict.fromkeys(models))} will run on this machine "
        "with your rights; read it first, or set trust_remote_code to false"
    )


def warn_remote_code(model: str | Path) -> None:
    """Log the warning about a model, once a process."""
    if str(model) not in _told:
        _told.add(str(model))
        logger.warning("%s", remote_code_warning(str(model)))
