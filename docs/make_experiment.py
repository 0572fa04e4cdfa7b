"""Make the table and the figure of docs/experiment.md out of run folders.

    python docs/make_experiment.py runs/* > table.md

Each folder is a run of one recipe and seed. The table gives the mean over seeds and its 95% Student interval; the
figure ``docs/images/experiment.png`` shows each seed as a thin line and the mean as a thick one.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

from selfevolve.rates import mean_interval, paired_permutation
from selfevolve.rundir import RunDir

FIGURES = (
    ("valid_rate", "question validity"),
    ("valid_rate_kept", "validity of kept questions"),
    ("pseudo_label_accuracy", "label accuracy, kept valid"),
    ("label_right_rate", "kept, valid and rightly labelled"),
    ("top5_share", "top-five share"),
    ("balanced_accuracy", "balanced accuracy"),
    ("invalid_recall", "invalid recall"),
    ("solver_accuracy", "solver, sampled"),
    ("solver_accuracy_greedy", "solver, greedy"),
)
SHOWN = ("valid_rate", "valid_rate_kept", "pseudo_label_accuracy", "top5_share", "invalid_recall", "solver_accuracy")
ROUNDS = (1, 5, 10)

Curve = list[float | None]  # a value a round, from round 1
Curves = dict[str, dict[int, dict[str, Curve]]]  # recipe -> seed -> key -> curve


def read(folders: list[Path]) -> Curves:
    """Return the curves of all complete runs."""
    curves: Curves = defaultdict(dict)
    for folder in folders:
        run = RunDir.open(folder)
        if run.rounds_done() < run.recipe.rounds:
            continue
        rows = run.metrics()
        name = run.recipe.name.rpartition("/")[2]
        curves[name][run.recipe.seed] = {key: [_value(row.get(key)) for row in rows] for key, _ in FIGURES}
    return curves


def _value(found: Any) -> float | None:
    return found["value"] if isinstance(found, dict) else None


def table(curves: Curves, reference: str) -> str:
    """Return the Markdown tables: values by round, and paired tests against `reference` in the last round."""
    lines = []
    for key, title in FIGURES:
        lines += [f"\n**{title}** (%)\n", "| recipe | seeds | " + " | ".join(f"round {r}" for r in ROUNDS) + " |"]
        lines.append("|---" * (2 + len(ROUNDS)) + "|")
        for name, seeds in curves.items():
            cells = [_cell([c[key][r - 1] for c in seeds.values()]) for r in ROUNDS]
            lines.append(f"| `{name}` | {len(seeds)} | " + " | ".join(cells) + " |")
    lines += [f"\n**Round {ROUNDS[-1]} against `{reference}`, paired over common seeds** (points; sign-flip p)\n"]
    others = [n for n in curves if n != reference]
    lines += ["| figure | " + " | ".join(f"`{n}`" for n in others) + " |", "|---" * (1 + len(others)) + "|"]
    for key, title in FIGURES:
        cells = [_difference(curves[name], curves[reference], key) for name in others]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: Curve) -> str:
    known = [100 * v for v in values if v is not None]
    if not known:
        return "-"
    if len(known) == 1:
        return f"{known[0]:.1f}"
    found = mean_interval(known)
    low, high = max(0.0, found.low), min(100.0, found.high)  # Student's interval knows no bounds of a rate
    return f"{found.value:.1f} ({low:.1f} to {high:.1f})"


def _difference(one: dict[int, dict[str, Curve]], other: dict[int, dict[str, Curve]], key: str) -> str:
    pairs = [(one[s][key][-1], other[s][key][-1]) for s in sorted(set(one) & set(other))]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not known:
        return "-"
    mean = 100 * sum(a - b for a, b in known) / len(known)
    p = paired_permutation([a for a, _ in known], [b for _, b in known])
    return f"{mean:+.1f} (n = {len(known)}, p = {p:.2f})"


def draw(curves: Curves, path: Path) -> None:
    """Draw the figures over rounds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colours = dict(zip(curves, ("#2f6fde", "#e2632b", "#3c9d57", "#8a5cc2", "#b08a1e", "#5b6472"), strict=False))
    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6.4), sharex=True)
    for axis, key in zip(axes.flat, SHOWN, strict=True):
        for name, seeds in curves.items():
            for curve in seeds.values():
                axis.plot(range(1, len(curve[key]) + 1), _percent(curve[key]), color=colours[name], alpha=0.25, lw=0.8)
            means = [_mean([c[key][r] for c in seeds.values()]) for r in range(ROUNDS[-1])]
            axis.plot(range(1, len(means) + 1), means, color=colours[name], lw=2, label=name)
        axis.set_title(dict(FIGURES)[key] + ", %", fontsize=10)
        axis.set_ylim(0, 100)
        axis.grid(axis="y", alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[1]:
        axis.set_xlabel("round")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=110)


def _percent(curve: Curve) -> list[float]:
    return [float("nan") if v is None else 100 * v for v in curve]


def _mean(values: Curve) -> float:
    known = [100 * v for v in values if v is not None]
    return sum(known) / len(known) if known else float("nan")


def main() -> None:
    """Print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--reference", default="r_zero_code")
    parser.add_argument("--figure", type=Path, default=Path(__file__).parent / "images" / "experiment.png")
    args = parser.parse_args()
    curves = read(args.runs)
    print(table(curves, args.reference))
    draw(curves, args.figure)


if __name__ == "__main__":
    main()
