"""Writing files whole or not at all, and numbers as text."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aske.statistics import Estimate, Rate

MINUS, DASH = "\u2212", "\u2013"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_text(path: Path, text: str) -> Path:
    """Write a text; what UTF-8 cannot hold (lone surrogates) becomes a question mark."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    os.replace(partial, path)
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write a JSON value, in ASCII, so that any text survives."""
    return write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write a table; None is an empty cell, and a text that a spreadsheet would run gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return write_text(path, out.getvalue())


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        value = value.replace("\x00", "")
        if value.startswith(_FORMULA) and not _is_number(value):
            return "'" + value
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------ numbers


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share."""
    return DASH if value is None else f"{100 * value:.{digits}f}%".replace("-", MINUS)


def points(value: float | None, sign: bool = True) -> str:
    """Write a difference of shares in percentage points."""
    if value is None:
        return DASH
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return (text if float(text) else "0.0").replace("-", MINUS)


def interval(low: float | None, high: float | None, signed: bool = False) -> str:
    """Write an interval; empty where there is none."""
    if low is None or high is None:
        return ""
    if signed:
        return f"{points(low)} to {points(high)}"
    return f"{100 * low:.1f}{DASH}{100 * high:.1f}%".replace("-", MINUS)


def p_value(value: float | None) -> str:
    """Write a p-value."""
    if value is None:
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.001 else f"{value:.3f}"


def count(value: float | None) -> str:
    """Write a count with thousands."""
    return DASH if value is None else f"{value:,.0f}"


def said(found: Rate | Estimate | None, signed: bool = False) -> str:
    """Write a number with its interval and denominator in one line, for tooltips."""
    if found is None or found.value is None:
        return "not known"
    value = f"{points(found.value)} points" if signed else percent(found.value)
    ends = interval(found.low, found.high, signed)
    return f"{value}{f' ({ends})' if ends else ''}, n {found.n}"
