"""The figures that reports show: how one is read from a round's metrics, and how it is written.

A figure that a run did not measure is shown as "not measured", never as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOT_MEASURED = "not measured"
MINUS = "\u2212"


@dataclass(frozen=True)
class Measure:
    """One figure of one round, with its interval where it has one."""

    value: float | None  # None: not measured
    low: float | None = None  # 95% interval, lower end
    high: float | None = None  # 95% interval, upper end
    k: int | None = None  # numerator, where the figure is a rate of counts
    n: int | None = None  # denominator


@dataclass(frozen=True)
class Figure:
    """What is shown of a key of metrics.jsonl."""

    key: str  # key in metrics.jsonl
    label: str  # title of a chart, head of a row
    note: str  # one line under the title: what is counted
    percent: bool = True  # a share of 1, written in per cent
    count: bool = False  # a number of things, so never below 0


VALID = Figure("valid_rate", "Question validity", "share of the parsed questions that are valid")
VALID_KEPT = Figure("valid_rate_kept", "Validity of kept questions", "share of the kept questions that are valid")
TOP5 = Figure("top5_share", "Top-five share", "share of the questions with a pattern that fall in the five commonest")
TOP5_KEPT = Figure("top5_share_kept", "Top-five share, kept", "the same over the kept questions")
LABELS = Figure("pseudo_label_accuracy", "Pseudo-label accuracy", "kept valid questions whose majority answer is right")
LABEL_RIGHT = Figure(
    "label_right_rate", "Right labels among all kept", "kept questions, valid or not, with a right label"
)
SAMPLED = Figure("solver_accuracy", "Solver accuracy, sampled", "held-out questions, at the run's temperature")
GREEDY = Figure("solver_accuracy_greedy", "Solver accuracy, greedy", "held-out questions, most likely token each time")
BALANCED = Figure(
    "balanced_accuracy", "Balanced accuracy", "mean of invalid recall and valid recall, on held-out questions"
)
INVALID_RECALL = Figure("invalid_recall", "Invalid recall", "held-out invalid questions that the solver calls INVALID")
VALID_RECALL = Figure("valid_recall", "Valid recall", "held-out valid questions that the solver does not call INVALID")
GATE_INVALID = Figure(
    "gate_invalid_recall", "Invalid recall on the pool", "invalid questions of the round that the vote rejects"
)
GATE_VALID = Figure(
    "gate_valid_recall", "Valid recall on the pool", "valid questions of the round that the vote lets pass"
)
NOVEL = Figure("novel_rate", "Novel rate", "candidates that the novelty gate lets pass, of those decided")
ANSWERED = Figure("answered_rate", "Answered", "solutions that carry an answer")
UNDECIDED = Figure("undecided_rate", "Undecided", "questions that got no decision")
MALFORMED = Figure("malformed_rate", "Malformed", "replies that hold no question in the required form")
CALIBRATED = Figure("calibrated_rate", "Calibrated", "candidates that exactly one boundary solver answers rightly")
TOO_EASY = Figure("too_easy_rate", "Too easy", "candidates that both boundary solvers answer rightly")
TOO_HARD = Figure("too_hard_rate", "Too hard", "candidates that neither boundary solver answers rightly")
REWARD = Figure("reward_mean", "Mean reward", "over all candidates of the questioner's steps", percent=False)
PATTERNS = Figure("distinct_patterns", "Distinct patterns", "patterns met at least once", percent=False, count=True)
KEPT = Figure("kept", "Kept questions", "questions that became solver data", percent=False, count=True)

TABLE = (
    VALID, VALID_KEPT, TOP5, TOP5_KEPT, LABELS, LABEL_RIGHT, SAMPLED, GREEDY, BALANCED, INVALID_RECALL, VALID_RECALL,
    GATE_INVALID, GATE_VALID, NOVEL, CALIBRATED, ANSWERED, UNDECIDED, MALFORMED,
)  # fmt: skip
HEADLINE = (VALID, TOP5, LABELS, SAMPLED)
COMPARED = (
    VALID, TOP5, LABELS, SAMPLED, GREEDY, VALID_KEPT, BALANCED, INVALID_RECALL, VALID_RECALL, PATTERNS, KEPT, REWARD,
)  # fmt: skip


def number(value: object) -> float | None:
    """Return ``value`` as a finite float, or None where it is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def count(value: object) -> int | None:
    """Return ``value`` as an int, or None where it is no number."""
    found = number(value)
    return None if found is None else round(found)


def read_measure(raw: object) -> Measure:
    """Return the measure recorded as a rate object, as a plain number, or not at all."""
    if isinstance(raw, Mapping):
        return Measure(
            number(raw.get("value")), number(raw.get("low")), number(raw.get("high")),
            count(raw.get("k")), count(raw.get("n")),
        )  # fmt: skip
    return Measure(number(raw))


def measure(metrics: Mapping[str, Any], key: str) -> Measure:
    """Return the figure ``key`` of one round; its value is None where the round does not have it."""
    return read_measure(metrics.get(key))


def has_any(metrics: Sequence[Mapping[str, Any]], *keys: str) -> bool:
    """True when at least one round measured at least one of the figures."""
    return any(measure(item, key).value is not None for item in metrics for key in keys)


def write_plain(value: float) -> str:
    """Write a number that is no share: whole numbers as such, large ones with one decimal, small ones with three."""
    digits = 0 if float(value).is_integer() else 1 if abs(value) >= 10 else 3
    return f"{value:.{digits}f}".replace("-", MINUS)


def write_value(value: float | None, percent: bool = True) -> str:
    """Write a figure: `65.0%`, `0.181`, or "not measured"."""
    if value is None:
        return NOT_MEASURED
    return f"{100 * value:.1f}%".replace("-", MINUS) if percent else write_plain(value)


def write_change(value: float | None, percent: bool = True) -> str:
    """Write a difference with its sign; shares in percentage points: `+4.2 pp`."""
    if value is None:
        return NOT_MEASURED
    scaled = round(100 * value, 1) if percent else round(value, 3)
    size = f"{abs(scaled):.1f}" if percent else write_plain(abs(scaled))
    sign = "" if scaled == 0 else "+" if scaled > 0 else MINUS
    return f"{sign}{size}{' pp' if percent else ''}"


def write_interval(item: Measure, percent: bool = True) -> str:
    """Write the ends of an interval without unit: `58.2\u201371.3`; "" where there is none."""
    if item.low is None or item.high is None:
        return ""
    ends = [f"{100 * end:.1f}" if percent else write_plain(end) for end in (item.low, item.high)]
    joint = " to " if item.low < 0 else "\u2013"
    return joint.join(ends).replace("-", MINUS)


def write_measure(item: Measure, percent: bool = True) -> str:
    """Write a figure with its interval and count: `65.0% [58.2-71.3], 130 of 200`; `n = 299` for a mean of shares."""
    text = write_value(item.value, percent)
    if item.value is None:
        return text
    interval = write_interval(item, percent)
    if interval:
        text += f" [{interval}]"
    if item.k is not None and item.n and abs(item.k / item.n - item.value) < 1e-6:  # a mean of two shares is none
        return f"{text}, {item.k} of {item.n}"
    return f"{text}, n = {item.n}" if item.n is not None else text


def round_name(metrics: Mapping[str, Any]) -> str:
    """Return the name of a round: "start" for round 0, which is evaluation only."""
    found = count(metrics.get("round"))
    return "start" if found == 0 else str(found)
