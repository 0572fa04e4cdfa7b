"""The README's tree is in step with the code."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_tree_is_in_step():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_tree.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
