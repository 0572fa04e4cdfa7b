"""Where the tables of cases lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[1] / "cases" / "answers.jsonl"
SHARED = Path(__file__).resolve().parents[3] / "shared"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of shared data beside the checkout; skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    return SHARED


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``pair`` or ``reply`` once a row of the table."""
    rows = read_rows(CASES)
    for name, op in (("pair", "equivalent"), ("reply", "extract")):
        if name in metafunc.fixturenames:
            chosen = [row for row in rows if row["op"] == op]
            ids = [f"{k}-{row['kind'].replace(' ', '-')}" for k, row in enumerate(chosen)]
            metafunc.parametrize(name, chosen, ids=ids)
