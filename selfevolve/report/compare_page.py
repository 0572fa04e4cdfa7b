"""The page that shows several runs in one picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from selfevolve.report import html as h
from selfevolve.report.charts import PERCENT_TICKS, Chart, free_chart
from selfevolve.report.compare import (
    Comparison,
    Difference,
    Group,
    Pairing,
    common_seeds,
    compare_runs,
    config_differences,
    difference,
    group_change,
    group_measure,
    least_p,
)
from selfevolve.report.facts import referee_words
from selfevolve.report.figures import Figure, Measure, measure, write_change, write_measure
from selfevolve.report.load import RunView
from selfevolve.report.svg import Frame, Point, Series, line_chart

SECTIONS = (
    ("curves", "Curves"),
    ("values", "Values"),
    ("differences", "Differences"),
    ("settings", "Settings"),
    ("runs", "Runs"),
)


def write_comparison(run_paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write a page that compares runs and return its path.

    Args:
        run_paths: at least two run folders; the recipe of the first is the reference of all differences.
        out: the HTML file to write, or a folder, which then gets comparison.html.

    Raises:
        UserError: if the runs are different in kind, with what differs.
    """
    found = compare_runs(run_paths)
    target = Path(out)
    if target.is_dir() or not target.suffix:
        target = target / "comparison.html"
    return h.write_whole(target, comparison_page(found, target))


def comparison_page(found: Comparison, target: Path) -> str:
    """Return the whole page."""
    names = [group.label for group in found.groups]
    body = [
        head(found),
        h.nav(SECTIONS),
        h.section(
            "curves",
            "Curves",
            h.figures_grid(curve(found, figure) for figure in found.figures),
            lead=bands(found.groups),
        ),
        h.section(
            "values",
            "Values",
            values_table(found),
            lead=f"At round {found.first}, at round {found.last}, and the change between them.",
        ),
        h.section("differences", "Differences", differences(found)),
        h.section("settings", "Settings that differ", settings_table(found.groups)),
        h.section("runs", "Runs", runs_table(found.groups, target)),
    ]
    return h.write_page(" vs ".join(names), "\n".join(body))


def every(groups: Sequence[Group]) -> list[RunView]:
    """Return all runs, group by group."""
    return [run for group in groups for run in group.runs]


def head(found: Comparison) -> str:
    """Return the headline and what to bear in mind."""
    runs = every(found.groups)
    backbones = list(dict.fromkeys(run.backbone for run in runs))
    referee = next((run.referee for run in runs if run.referee is not None), None)
    facts = [
        ("backbone", ", ".join(backbones), ""),
        ("rounds", f"{found.first} to {found.last}", ""),
        ("runs", str(len(runs)), ""),
        ("referee", referee_words(referee), "" if referee == "oracle" else "model"),
    ]
    names = "".join(
        f'<span class="name"><i class="swatch b{group.tone}"></i>{h.esc(group.label)}</span>' for group in found.groups
    )
    unfinished = [f"{run.name}: {run.unfinished}" for run in runs if run.unfinished]
    return "".join(
        [
            '<div class="kicker">Comparison of runs</div>',
            f'<h1 class="names">{names}</h1>',
            h.chips(facts),
            h.banner("Unfinished runs:", unfinished),
            h.banner("Bear in mind:", found.notes),
        ]
    )


def bands(groups: Sequence[Group]) -> str:
    """Say what lines and bands are."""
    many = [group for group in groups if len(group.runs) > 1]
    single = [group for group in groups if len(group.runs) == 1]
    parts = []
    if many:
        parts.append(
            "Thin lines are single seeds, thick ones their mean; the band is its 95% interval over seeds (Student's t)."
        )
    if single:
        one = "a recipe" if many else "each recipe"
        parts.append(
            f"With one run of {one}, its band is the 95% interval of the round's own sample, which says nothing of how "
            "another seed would have gone."
        )
    return " ".join(parts)


def curve(found: Comparison, figure: Figure) -> Chart:
    """Return one figure of all recipes over the rounds."""
    places = sorted(
        {
            item["round"]
            for run in every(found.groups)
            for item in run.metrics
            if item["round"] > 0 or measure(item, figure.key).value is not None
        }
    )
    lines, ends = [], [0.0]
    for group in found.groups:
        several = len(group.runs) > 1
        points = []
        for column, place in enumerate(places):
            item = group_measure(group, place, figure)
            ends += [value for value in (item.value, item.low, item.high) if value is not None]
            points.append(Point(column, item.value, item.low, item.high, told(item, figure, several)))
        if several:
            for run in group.runs:
                own = [
                    measure(next((m for m in run.metrics if m["round"] == place), {}), figure.key) for place in places
                ]
                ends += [item.value for item in own if item.value is not None]
                lines.append(
                    Series("", group.tone, tuple(Point(i, item.value) for i, item in enumerate(own)), thin=True)
                )
        lines.append(Series(group.label, group.tone, tuple(points), bold=several))
    names = tuple("start" if place == 0 else str(place) for place in places)
    if figure.percent:
        return Chart(figure.label, figure.note, line_chart(lines, Frame(names, 1.0), figure.label, PERCENT_TICKS))
    return Chart(
        figure.label, figure.note, free_chart(lines, [{"round": place} for place in places], ends, figure.label)
    )


def told(item: Measure, figure: Figure, several: bool) -> str:
    """Return what a tooltip says of a figure."""
    if item.value is None:
        return ""
    if not several:
        return write_measure(item, figure.percent)
    seeds = f"{item.n} seed{'' if item.n == 1 else 's'}"
    return f"{write_measure(Measure(item.value, item.low, item.high), figure.percent)}, {seeds}"


def title_of(figure: Figure, rows: int = 1) -> str:
    """Return the head of a figure's row, or of several."""
    return f'<th scope="row" rowspan="{rows}" title="{h.esc(figure.note)}">{h.esc(figure.label)}</th>'


def values_table(found: Comparison) -> str:
    """Return each recipe's figures at the first and the last round, and their change."""
    rows = []
    for figure in found.figures:
        for place, group in enumerate(found.groups):
            title = title_of(figure, len(found.groups)) if not place else ""
            start, end = (group_measure(group, at, figure) for at in (found.first, found.last))
            change = group_change(group, found.first, found.last, figure)
            seeds = str(len(group.runs))
            rows.append(
                [
                    title,
                    f'<td class="left"><i class="swatch b{group.tone}"></i>{h.esc(group.label)}</td>',
                    f"<td>{seeds}</td>",
                    h.cell(plain(start, group), figure.percent),
                    h.cell(plain(end, group), figure.percent),
                    change_cell(change, figure),
                ]
            )
    return h.table(["figure", "recipe", "seeds", f"round {found.first}", f"round {found.last}", "change"], rows, left=2)


def plain(item: Measure, group: Group) -> Measure:
    """Leave out the count of seeds, which has a column of its own."""
    return Measure(item.value, item.low, item.high) if len(group.runs) > 1 else item


def change_cell(item: Measure | Difference, figure: Figure) -> str:
    """Return a difference with its sign, its interval, and the test where there is one."""
    if item.value is None:
        return '<td class="none" title="not measured">\u2013</td>'
    under = []
    if item.low is not None and item.high is not None:
        ends = [write_change(end, figure.percent).removesuffix(" pp") for end in (item.low, item.high)]
        under.append(" to ".join(ends))
    if isinstance(item, Difference) and item.p is not None:
        under.append(f"p = {item.p:.3g}, {item.pairs} pairs")
    clear = item.low is not None and item.high is not None and (item.low > 0 or item.high < 0)
    extra = "".join(f'<span class="ci">{h.esc(text)}</span>' for text in under)
    value = write_change(item.value, figure.percent)
    return f"<td>{f'<b>{value}</b>' if clear else value}{extra}</td>"


def differences(found: Comparison) -> str:
    """Return each recipe's difference from the reference, with what the test can and cannot say."""
    reference, others = found.groups[0], found.groups[1:]
    if not others:
        return '<p class="note">All runs are seeds of one recipe, so there is nothing to subtract.</p>'
    heads = ["figure"]
    for group in others:
        heads += [f"{group.label}, round {found.last}", f"{group.label}, change since round {found.first}"]
    rows = []
    for figure in found.figures:
        row = [title_of(figure)]
        for group in others:
            row.append(change_cell(difference(group, reference, figure, found.last), figure))
            row.append(change_cell(difference(group, reference, figure, found.last, found.first), figure))
        rows.append(row)
    text = "".join(f"<p>{h.esc(line)}</p>" for line in explain(found, reference, others))
    return f'<div class="lead">{text}</div>{h.table(heads, rows)}'


def explain(found: Comparison, reference: Group, others: Sequence[Group]) -> list[str]:
    """Say what was subtracted, how sure it is, and how small p can be at all."""
    lines = [f"Each recipe less {reference.label}, with 95% intervals; bold where the interval leaves out 0."]
    for group in others:
        pairs = len(common_seeds(group, reference))
        if pairs >= 2:
            lines.append(
                f"{group.label}: paired over {pairs} seeds in common. The sign-flip test has 2^{pairs} = {2**pairs} "
                f"sign patterns, so its p cannot be below {least_p(pairs):.3g}, however large the difference"
                + ("; p < 0.05 needs at least 6 seeds." if pairs < 6 else ".")
            )
        elif len(group.runs) == 1 or len(reference.runs) == 1:
            lines.append(
                f"{group.label}: one run against another or with too few seeds in common, so there is no paired test; "
                "the interval covers each run's own sample, not how other seeds would have gone."
            )
        else:
            lines.append(
                f"{group.label}: fewer than two seeds in common, so there is no paired test; the interval is unpaired."
            )
    if any(difference(group, reference, found.figures[0], found.last).pairing is Pairing.PAIRED for group in others):
        lines.append(
            "The intervals take differences between seeds as normal, the test does not: where they disagree, the seeds "
            "are too few to tell. The p-values are not corrected for the number of figures."
        )
    return lines


def settings_table(groups: Sequence[Group]) -> str:
    """Return the settings in which the recipes differ."""
    found = config_differences(groups)
    if not found:
        return '<p class="note">The configurations differ in nothing but name and seed.</p>'
    rows = [
        [
            f'<th scope="row"><code>{h.esc(key)}</code></th>',
            *(f'<td class="wrap">{h.esc(" / ".join(group))}</td>' for group in values),
        ]
        for key, values in found.items()
    ]
    return h.table(["setting", *(group.label for group in groups)], rows)


def runs_table(groups: Sequence[Group], target: Path) -> str:
    """Return the runs with links to their reports, relative to the page."""
    rows = []
    for group in groups:
        for run in group.runs:
            report = run.path / "report.html"
            name = h.esc(run.name)
            if report.is_file():
                link = quote(os.path.relpath(report.resolve(), target.parent.resolve()))
                name = f'<a href="{h.esc(link)}">{name}</a>'
            else:
                name += f' <span class="note">(no report yet: selfevolve report {name})</span>'
            rounds = f"{len(run.rounds)} of {run.planned}" if run.planned is not None else str(len(run.rounds))
            rows.append(
                [
                    f'<th scope="row"><i class="swatch b{group.tone}"></i>{name}</th>',
                    f'<td class="left">{h.esc(group.label)}</td>',
                    f"<td>{h.esc(run.seed)}</td>",
                    f"<td>{h.esc(rounds)}</td>",
                    f'<td class="left">{h.esc(run.referee or "none")}</td>',
                ]
            )
    return h.table(["run", "recipe", "seed", "rounds", "referee"], rows, left=2)
