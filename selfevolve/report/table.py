"""The round table for the terminal: one line a round, within 100 columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selfevolve.report.figures import measure, round_name

ABSENT = "-"


def _percent(item: Mapping[str, Any], key: str) -> str:
    value = measure(item, key).value
    return ABSENT if value is None else f"{100 * value:.1f}"


def _plain(item: Mapping[str, Any], key: str, digits: int) -> str:
    value = measure(item, key).value
    return ABSENT if value is None else f"{value:.{digits}f}"


def _solver(item: Mapping[str, Any]) -> str:
    pair = [_percent(item, key) for key in ("solver_accuracy", "solver_accuracy_greedy")]
    return ABSENT if pair == [ABSENT, ABSENT] else "/".join(pair)


COLUMNS: tuple[tuple[str, str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("", "round", round_name),
    ("valid", "%", lambda item: _percent(item, "valid_rate")),
    ("kept", "valid %", lambda item: _percent(item, "valid_rate_kept")),
    ("top5", "%", lambda item: _percent(item, "top5_share")),
    ("label", "acc %", lambda item: _percent(item, "pseudo_label_accuracy")),
    ("bal", "acc %", lambda item: _percent(item, "balanced_accuracy")),
    ("invalid", "recall %", lambda item: _percent(item, "invalid_recall")),
    ("solver %", "samp/greedy", _solver),
    ("", "kept", lambda item: _plain(item, "kept", 0)),
    ("mean", "reward", lambda item: _plain(item, "reward_mean", 3)),
    ("", "s", lambda item: _plain(item, "seconds", 1)),
)  # first and second line of the head, and the cell


def round_table(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return the rounds' main figures as aligned plain text; `-` is a figure that was not measured.

    Args:
        metrics: objects of metrics.jsonl, in order; round 0 is shown as "start".
    """
    cells = [[cell(item) for _, _, cell in COLUMNS] for item in metrics]
    heads = [[upper for upper, _, _ in COLUMNS], [lower for _, lower, _ in COLUMNS]]
    widths = [max(len(row[place]) for row in (*heads, *cells)) for place in range(len(COLUMNS))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in (*heads, *cells)]
    lines.insert(2, "\u2500" * len(lines[1]))
    if any(text == ABSENT for row in cells for text in row):
        lines.append(f"{ABSENT} not measured")
    return "\n".join(line.rstrip() for line in lines)
