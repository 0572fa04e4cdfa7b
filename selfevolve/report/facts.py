"""What pages and Markdown say in words: the referee, the collapse warnings, the glossary."""

from __future__ import annotations

from collections.abc import Mapping

from selfevolve.diagnostics.glossary import GLOSSARY, Entry
from selfevolve.diagnostics.monitor import Bounds, CollapseMonitor
from selfevolve.report.figures import number
from selfevolve.report.load import RunView

MONITORED = {
    "valid_rate": ("min_valid_rate", "question validity"),
    "distinct_patterns": ("min_distinct_patterns", "distinct patterns"),
    "kept": ("min_kept", "kept questions"),
    "answered_rate": ("min_answered_share", "answered share"),
    "reward_std": ("min_reward_std", "reward spread"),
}  # metric -> (key of the configuration's `monitor`, words)


def referee_words(referee: str | None) -> str:
    """Say who knew the truth, and how sure that is."""
    if referee is None:
        return "none, so figures that need the truth are not measured"
    if referee == "oracle":
        return "oracle (exact)"
    name = referee if referee.startswith("model") else f"model {referee}"
    return f"{name} (an opinion, not the truth)"


def warnings(run: RunView) -> list[str]:
    """Return what fell below the bounds of the run's collapse monitor, one line a figure."""
    section = run.config.get("monitor")
    if not isinstance(section, Mapping):
        return []
    bounds = {metric: number(section.get(key)) for metric, (key, _) in MONITORED.items()}
    monitor = CollapseMonitor(Bounds(**{key: value or None for key, value in bounds.items()}))  # type: ignore[arg-type]
    below: dict[str, list[tuple[int, float]]] = {}
    for item in run.rounds:
        for check in monitor.check(item).below:
            if check.value is not None:
                below.setdefault(check.metric, []).append((item["round"], check.value))
    lines = []
    for metric, found in below.items():
        rounds = ", ".join(str(place) for place, _ in found)
        worst = min(value for _, value in found)
        where = f"round{'s' if len(found) > 1 else ''} {rounds}"
        lines.append(f"{MONITORED[metric][1]} below its bound of {bounds[metric]:g} in {where} (lowest {worst:.3g})")
    return lines


def glossary() -> tuple[Entry, ...]:
    """Return every key of a round's metrics with its formula, unit and meaning."""
    return GLOSSARY
