"""What a run was made with: package versions, machine, and the code's commit with its uncommitted changes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import selfevolve

GIT_SECONDS = 20.0  # a slower git is given up on


def environment() -> dict[str, Any]:
    """Return versions, machine and commit as JSON values; no package is imported for it."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "selfevolve": selfevolve.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "commit": _git("rev-parse", "HEAD"),
        "packages": package_versions(),
    }


def package_versions() -> dict[str, str]:
    """Return the version of every installed distribution, by name, from its metadata."""
    found = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def code_diff() -> str | None:
    """Return the code's uncommitted changes and a list of untracked files; None outside a git checkout of the code."""
    changes = _git("diff", "HEAD", "--no-color", "--no-ext-diff")
    if changes is None:
        return None
    untracked = _git("ls-files", "--others", "--exclude-standard") or ""
    return changes + "".join(f"# untracked: {name}\n" for name in untracked.splitlines())


def _git(*arguments: str) -> str | None:
    """Run git in the code's own checkout; None when there is none."""
    folder = Path(selfevolve.__file__).resolve().parents[1]
    if not (folder / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=GIT_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    text = done.stdout.decode(errors="replace")
    return text.strip() if arguments[0] == "rev-parse" else text
