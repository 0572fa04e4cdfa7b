"""The charts of a run page, each made from metrics.jsonl alone (reward terms come from the questions' records)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfevolve.report import figures
from selfevolve.report.digest import words
from selfevolve.report.figures import Figure, has_any, measure, number, round_name, write_measure, write_value
from selfevolve.report.svg import Frame, Layer, Point, Series, heat_map, line_chart, nice_ticks, stacked_bars

PERCENT_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
NAMED_PATTERNS = 9  # patterns with a colour of their own; the rest are one grey layer
DECISION_TONES = {
    "kept": 3,
    "too_easy": 7,
    "too_hard": 4,
    "invalid": 2,
    "undecided": 5,
    "no_answer": 9,
    "malformed": 0,
}
STAGE_TONES = {"questioner": 1, "candidates": 7, "assessment": 5, "data": 9, "solver": 3, "diagnostics": 4}

Rounds = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Chart:
    """One picture of a page."""

    title: str
    note: str  # what is counted, and what the band is
    svg: str | None  # None: not measured


def columns(rounds: Rounds) -> tuple[str, ...]:
    """Return the names on the x axis."""
    return tuple(round_name(item) for item in rounds)


def series_of(rounds: Rounds, figure: Figure, tone: int, label: str, dashed: bool = False) -> Series:
    """Return a figure as a line with its intervals."""
    points = []
    for place, item in enumerate(rounds):
        found = measure(item, figure.key)
        points.append(Point(place, found.value, found.low, found.high, write_measure(found, figure.percent)))
    return Series(label, tone, tuple(points), dashed=dashed)


def trimmed(metrics: Rounds, keys: Sequence[str]) -> Rounds:
    """Leave out the start where it has none of the figures."""
    return [item for item in metrics if item["round"] > 0 or any(measure(item, key).value is not None for key in keys)]


def rate_chart(
    metrics: Rounds, title: str, note: str, shown: Sequence[tuple[Figure, int, str]], full: bool = True
) -> Chart:
    """Return a chart of shares, one line a figure; figures that no round measured are left out and named.

    The axis goes from 0 to 100%, so that charts can be compared by eye; without ``full`` it ends above the highest
    value.
    """
    measured = [entry for entry in shown if has_any(metrics, entry[0].key)]
    if not measured:
        return Chart(title, note, None)
    rounds = trimmed(metrics, [figure.key for figure, _, _ in measured])
    lines = [
        series_of(rounds, figure, tone, label, dashed=place > 0) for place, (figure, tone, label) in enumerate(measured)
    ]
    absent = [label for figure, _, label in shown if (figure, label) not in {(one[0], one[2]) for one in measured}]
    if absent:
        note = f"{note}. Not measured: {', '.join(absent)}"
    ticks: Sequence[float] = PERCENT_TICKS
    if not full:
        ends = [end for line in lines for point in line.points for end in (point.value, point.high) if end is not None]
        ticks = nice_ticks(0.0, max(0.04, *ends))
    return Chart(title, note, line_chart(lines, Frame(columns(rounds), ticks[-1]), title, ticks))


def main_charts(metrics: Rounds) -> list[Chart]:
    """Return the three curves of the papers and the solver's accuracy."""
    f = figures
    return [
        rate_chart(
            metrics,
            f.VALID.label,
            "All parsed candidates, and those kept as solver data",
            [(f.VALID, 1, "all questions"), (f.VALID_KEPT, 3, "kept")],
        ),
        rate_chart(
            metrics,
            f.TOP5.label,
            "Share of the five commonest, of questions with a pattern; 100% is complete collapse",
            [(f.TOP5, 1, "all questions"), (f.TOP5_KEPT, 3, "kept")],
        ),
        rate_chart(
            metrics,
            f.LABELS.label,
            "Right majority answers among kept valid questions, and among all kept",
            [(f.LABELS, 1, "kept and valid"), (f.LABEL_RIGHT, 3, "all kept")],
        ),
        rate_chart(
            metrics,
            "Solver accuracy",
            "On held-out valid questions, sampled and greedy",
            [(f.SAMPLED, 1, "sampled"), (f.GREEDY, 2, "greedy")],
        ),
    ]


def filter_chart(metrics: Rounds) -> Chart:
    """Return validity before and after the consistency filter, and the difference that it makes."""
    title, note = "What the filter does to validity", "Validity of kept questions less that of all, percentage points"
    rounds = [item for item in metrics if item["round"] > 0]
    points, values = [], []
    for place, item in enumerate(rounds):
        before, after = measure(item, "valid_rate").value, measure(item, "valid_rate_kept").value
        gap = None if before is None or after is None else after - before
        values.append(gap)
        said = f"{figures.write_change(gap)} ({write_value(before)} to {write_value(after)})"
        points.append(Point(place, gap, text=said if gap is not None else ""))
    found = [value for value in values if value is not None]
    if not found:
        return Chart(title, note, None)
    edge = max(0.1, *(abs(value) for value in found))
    ticks = nice_ticks(-edge, edge)
    frame = Frame(columns(rounds), ticks[-1], ticks[0], unit="pp")
    return Chart(title, note, line_chart([Series("difference", 1, tuple(points))], frame, title, ticks))


def shares_of(item: Mapping[str, Any], pool: str, key: str = "pattern_shares") -> dict[str, float]:
    """Return a round's counts by name, of all questions ("pool") or of those kept ("kept")."""
    found = item.get(key)
    pairs = found.get(pool) if isinstance(found, Mapping) else None
    counts: dict[str, float] = {}
    for pair in pairs or []:
        if isinstance(pair, list | tuple) and len(pair) == 2:
            counts[str(pair[0])] = counts.get(str(pair[0]), 0.0) + (number(pair[1]) or 0.0)
    return counts


def named_patterns(metrics: Rounds) -> list[str]:
    """Return the patterns that get a colour: the commonest over all rounds, pool and kept alike, each round equal."""
    weight: Counter[str] = Counter()
    for item in metrics:
        for pool in ("pool", "kept"):
            counts = shares_of(item, pool)
            total = sum(counts.values())
            for name, amount in counts.items():
                weight[name] += amount / total if total else 0.0  # type: ignore[assignment]
    return sorted(weight, key=lambda name: (-weight[name], name))[:NAMED_PATTERNS]


def pattern_chart(metrics: Rounds, pool: str, title: str, note: str) -> Chart:
    """Return pattern shares as stacked bars."""
    rounds = [item for item in metrics if shares_of(item, pool)]
    if not rounds:
        return Chart(title, note, None)
    names = named_patterns(metrics)
    layers = []
    totals = [sum(shares_of(item, pool).values()) or 1.0 for item in rounds]
    for place, name in enumerate(names):
        counts = [shares_of(item, pool).get(name, 0.0) for item in rounds]
        layers.append(share_layer(words(name), place + 1, counts, totals))
    rest = [sum(v for name, v in shares_of(item, pool).items() if name not in names) for item in rounds]
    kinds = max((len(set(shares_of(item, pool)) - set(names)) for item in rounds), default=0)
    if any(rest):
        layers.append(share_layer(f"{kinds} others", 0, rest, totals))
    return Chart(title, note, stacked_bars(layers, Frame(columns(rounds), 1.0), title))


def share_layer(label: str, tone: int, counts: Sequence[float], totals: Sequence[float]) -> Layer:
    """Return a layer of shares whose tooltip also tells the counts."""
    shares = [amount / total for amount, total in zip(counts, totals, strict=True)]
    texts = [f"{100 * share:.1f}% ({amount:.0f})" for share, amount in zip(shares, counts, strict=True)]
    return Layer(label, tone, tuple(shares), tuple(texts))


def counts_of(item: Mapping[str, Any], key: str) -> dict[str, float]:
    """Return a round's counts by name: `{name: count}`, or the pool of `{"pool": [[name, count] ...]}`."""
    found = item.get(key)
    if not isinstance(found, Mapping):
        return {}
    if "pool" in found:
        return shares_of(item, "pool", key)
    return {str(name): safe(value) for name, value in found.items()}


def count_chart(metrics: Rounds, key: str, title: str, note: str, tones: Mapping[str, int]) -> Chart:
    """Return counts by name as stacked shares of the round."""
    rounds = [item for item in metrics if sum(counts_of(item, key).values())]
    if not rounds:
        return Chart(title, note, None)
    counted = [counts_of(item, key) for item in rounds]
    met = dict.fromkeys(name for counts in counted for name in sorted(counts))
    names = [name for name in tones if name in met] + [name for name in met if name not in tones]
    totals = [sum(counts.values()) for counts in counted]
    layers = [
        share_layer(words(name), tones.get(name, 1 + place % 9), [counts.get(name, 0.0) for counts in counted], totals)
        for place, name in enumerate(names)
    ]
    return Chart(title, note, stacked_bars(layers, Frame(columns(rounds), 1.0), title))


def safe(value: object) -> float:
    """Return a number, 0 where there is none: for counts, where an absent name means that it never occurred."""
    return number(value) or 0.0


def histogram_chart(metrics: Rounds, window: tuple[float, float]) -> Chart:
    """Return how the majority shares spread, a column a round."""
    title = "Majority share s"
    note = f"Questions by share of the largest answer cluster; dashed: the kept window [{window[0]:g}, {window[1]:g}]"
    rounds = [
        item for item in metrics if isinstance(item.get("share_histogram"), list) and any(item["share_histogram"])
    ]
    if not rounds:
        return Chart(title, note, None)
    cells, texts = [], []
    for item in rounds:
        counts = [safe(value) for value in item["share_histogram"]]
        total = sum(counts)
        cells.append([value / total for value in counts])
        lines = [
            f"s from {place / len(counts):.1f} to below {(place + 1) / len(counts):.1f}: "
            f"{100 * value / total:.0f}% ({value:.0f})"
            for place, value in reversed(list(enumerate(counts)))
            if value
        ]
        texts.append("\n".join([f"round {round_name(item)}", *lines]))
    frame = Frame(columns(rounds), 1.0, unit="", y_label="share s")
    return Chart(title, note, heat_map(cells, frame, texts, title, window))


def reward_chart(metrics: Rounds) -> Chart:
    """Return the mean reward with its spread."""
    title, note = (
        figures.REWARD.label,
        "Over the questioner's candidates; the band is one standard deviation either way",
    )
    rounds = [item for item in metrics if measure(item, "reward_mean").value is not None]
    if not rounds:
        return Chart(title, note, None)
    points, ends = [], [0.0]
    for place, item in enumerate(rounds):
        mean, spread = measure(item, "reward_mean").value or 0.0, measure(item, "reward_std").value
        low, high = (None, None) if spread is None else (mean - spread, mean + spread)
        ends += [value for value in (mean, low, high) if value is not None]
        said = write_value(mean, percent=False) + ("" if spread is None else f" \u00b1 {spread:.3f}")
        points.append(Point(place, mean, low, high, said))
    return Chart(title, note, free_chart([Series("mean reward", 1, tuple(points))], rounds, ends, title))


def terms_chart(terms: Mapping[int, Mapping[str, float]]) -> Chart:
    """Return the mean of each reward term, a line a term."""
    title, note = "Reward terms", "Mean of each term over the questioner's candidates that reached it"
    rounds = [{"round": place} for place in sorted(terms) if terms[place]]
    names = list(dict.fromkeys(name for place in sorted(terms) for name in terms[place]))
    if not names:
        return Chart(title, note, None)
    lines, ends = [], [0.0]
    for tone, name in enumerate(names):
        points = []
        for place, item in enumerate(rounds):
            value = terms[item["round"]].get(name)
            ends += [] if value is None else [value]
            points.append(Point(place, value, text=write_value(value, percent=False)))
        lines.append(Series(words(name), 1 + tone % 9, tuple(points)))
    return Chart(title, note, free_chart(lines, rounds, ends, title))


def free_chart(lines: Sequence[Series], rounds: Rounds, values: Sequence[float], title: str) -> str:
    """Return lines on an axis that fits the values."""
    ticks = nice_ticks(min(values), max(values))
    return line_chart(lines, Frame(columns(rounds), ticks[-1], ticks[0], unit=""), title, ticks)


def time_chart(metrics: Rounds) -> Chart:
    """Return the seconds of each stage, a bar a round."""
    title, note = "Where the time went", "Wall-clock seconds by stage"
    rounds = [
        item for item in metrics if isinstance(item.get("seconds_by_stage"), Mapping) and item["seconds_by_stage"]
    ]
    if not rounds:
        return Chart(title, note, None)
    met = dict.fromkeys(name for item in rounds for name in item["seconds_by_stage"])
    names = [name for name in STAGE_TONES if name in met] + [name for name in met if name not in STAGE_TONES]
    layers = []
    for place, name in enumerate(names):
        values = [safe(item["seconds_by_stage"].get(name)) for item in rounds]
        layers.append(
            Layer(words(name), STAGE_TONES.get(name, 1 + place % 9), tuple(values), tuple(f"{v:.1f} s" for v in values))
        )
    most = max(sum(layer.values[place] for layer in layers) for place in range(len(rounds)))
    top = nice_ticks(0, most or 1.0)[-1]
    return Chart(title, note, stacked_bars(layers, Frame(columns(rounds), top, unit="s"), title))


def gate_charts(metrics: Rounds) -> list[Chart]:
    """Return how well the validity vote knows valid from invalid, and what the filter makes of it."""
    f = figures
    return [
        filter_chart(metrics),
        rate_chart(
            metrics,
            "Calibration on held-out questions",
            "Single verdicts of the solver; 50% balanced accuracy is chance",
            [
                (f.BALANCED, 1, "balanced accuracy"),
                (f.INVALID_RECALL, 2, "invalid recall"),
                (f.VALID_RECALL, 3, "valid recall"),
            ],
        ),
        rate_chart(
            metrics,
            "The vote on the round's own questions",
            "Share of truly invalid and of truly valid questions judged rightly",
            [(f.GATE_INVALID, 2, "invalid recall"), (f.GATE_VALID, 3, "valid recall")],
        ),
        rate_chart(
            metrics,
            "Undecided and malformed",
            "Questions without a decision, and replies without a question",
            [(f.UNDECIDED, 5, "undecided"), (f.MALFORMED, 2, "malformed")],
            full=False,
        ),
    ]


def novelty_chart(metrics: Rounds) -> Chart:
    """Return the share of the questioner's candidates that the novelty gate lets pass."""
    return rate_chart(
        metrics,
        figures.NOVEL.label,
        "Of the questioner's candidates that reached the novelty gate",
        [(figures.NOVEL, 4, "novel")],
    )


def ask_e_charts(metrics: Rounds) -> list[Chart]:
    """Return the chart of Ask-E's labels, for runs whose reward is Ask-E's; else none."""
    f = figures
    if not has_any(metrics, f.CALIBRATED.key):
        return []
    return [
        rate_chart(
            metrics,
            "Ask-E's labels",
            "Of the questioner's candidates; two equal solvers reach up to 50% calibrated by chance",
            [(f.CALIBRATED, 1, "calibrated"), (f.TOO_EASY, 3, "too easy"), (f.TOO_HARD, 2, "too hard")],
        )
    ]
