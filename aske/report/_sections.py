"""The sections of the page between the headline and the browser of sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aske._results import Analysis, AskerAnalysis, Cell
from aske.labels import Label
from aske.report import _html as h
from aske.report._meanings import MEANINGS
from aske.report._svg import Dot, Part, Square, bars, dots, matrix
from aske.report._write import DASH, count, interval, p_value, percent, points, said
from aske.statistics import Rate

TONES = {
    Label.CALIBRATED: "f3",
    Label.TOO_EASY: "f7",
    Label.TOO_HARD: "f4",
    Label.NO_QUESTION: "f5",
    Label.BAD_CROSS_CHECK: "f2",
    Label.UNGRADABLE: "f0",
}


def words(name: str) -> str:
    """Return an enum's value as words."""
    return name.replace("_", " ")


def tip(name: str) -> tuple[str, str]:
    """Return a table head with its meaning."""
    return name, MEANINGS[name]


def _nothing(name: str, title: str, text: str) -> str:
    return h.section(name, title, h.note(text))


# ------------------------------------------------------------ outcomes


def outcomes(found: Analysis) -> str:
    """Return how the sessions ended, a bar and a row an asker."""
    if not found.askers:
        return _nothing("outcomes", "Outcomes", "No session has been played yet.")
    drawn, rows = [], []
    for one in found.askers:
        total = one.rate.asked
        parts = [
            Part(words(label), TONES[label], one.labels[label],
                 f"{words(label)}: {one.labels[label]} of {total} ({percent(one.labels[label] / total)})")
            for label in Label
        ]  # fmt: skip
        drawn.append((one.asker, parts))
        rows.append([
            h.row_head(one.asker), *(h.cell(count(one.labels[label])) for label in Label),
            h.number(one.rate, why="no session counts"),
            h.cell(percent(one.rate.ungradable_share), _reasons(one)),
            h.cell(percent(one.malformed / one.turns if one.turns else None), f"{one.malformed} of {one.turns}"),
        ])  # fmt: skip
    head: list[h.Head] = ["asker", *(words(label) for label in Label), ("calibrated rate", MEANINGS["Calibrated"]),
            ("ungradable share", MEANINGS["Ungradable"]), "malformed turns"]  # fmt: skip
    chart = h.figure("How the sessions ended", "Share of all sessions of the asker", bars(drawn, "Outcomes"))
    return h.section(
        "outcomes", "Outcomes", h.beside(chart, ("Calibrated", "Ungradable", "Interval")), h.table(head, rows),
        lead="The rate leaves ungradable sessions out of numerator and denominator. Interval in the table: Wilson's.",
    )  # fmt: skip


def _reasons(one: AskerAnalysis) -> str:
    return ", ".join(f"{words(reason)} {n}" for reason, n in one.reasons.items())


# ------------------------------------------------------------ against chance


def against_chance(found: Analysis) -> str:
    """Return the calibrated rate beside everything that it must beat."""
    if not found.askers:
        return _nothing("chance", "Against chance", "No session has been played yet.")
    groups = []
    for one in found.askers:
        best, copies = one.best_interval, one.chance.copies if one.chance else None
        other = one.shuffled.other if one.shuffled else None
        same, bare = one.same_model_clustered, one.no_probing_clustered
        rows = [Dot("calibrated", "3", best.value, best.low, best.high, said(best) if best.value is not None else "")]
        for label, estimate in (
            ("chance line", copies), ("same model twice", same), ("shuffled pairs", other), ("no probing", bare)
        ):  # fmt: skip
            value = estimate.value if estimate else None
            low, high = (estimate.low, estimate.high) if estimate else (None, None)
            rows.append(Dot(label, "0" if label != "chance line" else "2", value, low, high,
                            said(estimate) if value is not None else "not run", hollow=True))  # fmt: skip
        groups.append((one.asker, rows))
    note = "Filled: measured. Rings: what it is held against. Lines are 95% intervals; point at a row for its numbers"
    chart = h.figure("Calibrated rate, chance and controls", note, dots(groups, "Against chance"))
    rows_ = [
        [
            h.row_head(one.asker),
            h.number(one.best_interval, why="no session counts"),
            h.number(one.chance.copies if one.chance else None),
            h.number(one.excess, signed=True),
            h.number(one.chance.pair if one.chance else None),
            h.number(one.stability.flips if one.stability else None),
            h.number(one.stability.flips_calibrated if one.stability else None),
            h.number(one.stability.stable if one.stability else None),
            h.number(one.stability.stable_calibrated if one.stability else None),
            h.number(one.stability.gap if one.stability else None, signed=True, why="not known"),
        ]
        for one in found.askers
    ]
    head: list[h.Head] = ["asker", tip("Calibrated"), tip("Chance line"),
            ("Above chance, points", MEANINGS["Above chance"]), tip("Expected rate"),
            tip("Label flips"), ("\u2026 of calibrated", MEANINGS["Label flips"]), tip("Stably calibrated"),
            ("\u2026 of calibrated", MEANINGS["Stably calibrated"]), ("Gap, points", MEANINGS["Gap"])]  # fmt: skip
    drawn = max((one.stability.solutions for one in found.askers if one.stability), default=0)
    over = sorted({one.clusters for one in found.askers})
    return h.section(
        "chance", "Against chance",
        h.beside(chart, ("Chance line", "Above chance", "Same model twice", "Shuffled pairs", "No probing")),
        h.table(head, rows_),
        h.note(f"{drawn} fresh solutions a solver and question. " if drawn else "The solvers were not resampled. "),
        lead=f"A coin-flip question is calibrated half of the time. Intervals redraw {', '.join(over)}.",
    )  # fmt: skip


# ------------------------------------------------------------ pairs


def pairs(found: Analysis) -> str:
    """Return the heat maps: the calibrated share below the diagonal, the chance line above it."""
    played = [one for one in found.askers if one.cells]
    if not played:
        return _nothing("pairs", "Pairs", "No session has been played yet.")
    values = [c.rate.value or 0.0 for one in played for c in one.cells]
    values += [c.chance.value for one in played for c in one.cells if c.chance and c.chance.value is not None]
    most = max([0.2, *values])
    maps = [
        h.figure(one.asker, "Below the diagonal: calibrated, with n. Above: chance line. On it: same model twice",
                 matrix(found.solvers, _fields(one, found.solvers), f"Pairs of {one.asker}", most))
        for one in played
    ]  # fmt: skip
    order = f"strongest first by {found.ability_source}" if found.ability_source else "in order of the pool"
    rows = [_pair_row(one, cell) for one in played for cell in one.cells]
    head: list[h.Head] = [
        "asker",
        "pair",
        tip("Calibrated"),
        tip("Chance line"),
        tip("Stably calibrated"),
        *map(words, Label),
    ]
    return h.section(
        "pairs", "Pairs", f'<div class="grid">{"".join(maps)}</div>',
        f"<details><summary>All {len(rows)} cells as a table</summary>{h.table(head, rows, left=2)}</details>",
        lead=f"Solvers {order}. One scale for all maps; a cell has few sessions, so read its interval.",
    )  # fmt: skip


def _pair_row(one: AskerAnalysis, cell: Cell) -> list[str]:
    return [
        h.row_head(one.asker), h.cell(" + ".join(cell.pair), kind="left"), h.number(cell.rate, why="no session counts"),
        h.number(cell.chance), h.number(cell.stable), *(h.cell(count(cell.labels[label])) for label in Label),
    ]  # fmt: skip


def _fields(one: AskerAnalysis, solvers: Sequence[str]) -> list[list[Square | None]]:
    at = {name: i for i, name in enumerate(solvers)}
    fields: list[list[Square | None]] = [[None] * len(solvers) for _ in solvers]
    for cell in one.cells:
        i, j = sorted(at[name] for name in cell.pair)
        title = f"{one.asker}: {' + '.join(cell.pair)}"
        counts = ", ".join(f"{words(label)} {n}" for label, n in cell.labels.items() if n)
        told = f"{title}\ncalibrated {said(cell.rate)}\nchance line {said(cell.chance)}\n{counts}"
        fields[j][i] = Square(cell.rate.value, percent(cell.rate.value, 0), f"n {cell.rate.n}", told, "f3")
        if cell.chance is not None and cell.chance.value is not None:
            fields[i][j] = Square(cell.chance.value, percent(cell.chance.value, 0), f"n {cell.chance.n}", told, "f2")
    for solver, rate in one.same_model_cells.items():
        if solver in at:
            told = f"{one.asker}: {solver} twice\ncalibrated {said(rate)}"
            fields[at[solver]][at[solver]] = Square(rate.value, percent(rate.value, 0), f"n {rate.n}", told, "f0")
    return fields


# ------------------------------------------------------------ direction


def direction(found: Analysis) -> str:
    """Return which solver was right in the calibrated sessions."""
    known = [(one, one.direction) for one in found.askers if one.direction is not None]
    if not known and found.ability:
        return _nothing("direction", "Direction", "No session was graded, so no solver was right or wrong.")
    if not known:
        return _nothing("direction", "Direction", "Not known: nothing tells which of two solvers is the stronger. "
                        "State `ability` in the pool, or run the controls no_probing or difficulty.")  # fmt: skip
    drawn, rows = [], []
    for one, way in known:
        total = way.strong_only + way.weak_only + way.tied
        drawn.append((one.asker, [
            Part("only the stronger", "f3", way.strong_only,
                 f"only the stronger solver right: {way.strong_only} of {total}"),
            Part("equally strong", "f0", way.tied, f"exactly one right, solvers equally strong: {way.tied} of {total}"),
            Part("only the weaker", "f2", way.weak_only, f"only the weaker solver right: {way.weak_only} of {total}"),
        ]))  # fmt: skip
        rows.append([
            h.row_head(one.asker), *(h.cell(count(n)) for n in (way.strong_only, way.weak_only, way.tied, way.both,
                                                               way.neither, way.ungradable)),
            h.number(way.weak_share, why="no such session"), h.cell(p_value(way.p)),
        ])  # fmt: skip
    chart = h.figure("Who was right in calibrated sessions", "Dashed: one half, what luck gives a pair without a gap",
                     bars(drawn, "Direction", middle=True))  # fmt: skip
    head: list[h.Head] = ["asker", "stronger only", "weaker only", "tied", "both", "neither", "undecided",
                          "weaker of one right", ("McNemar p", MEANINGS["Direction"])]  # fmt: skip
    return h.section(
        "direction", "Direction", h.beside(chart, ("Direction",)), h.table(head, rows),
        lead=f"Which solver was right. The order of strength is that of {found.ability_source}.",
    )  # fmt: skip


# ------------------------------------------------------------ controls


def controls(found: Analysis) -> str:
    """Return the controls, a row each and a column an asker, and what was not run."""
    kinds: dict[str, str] = {}  # name of the row: its meaning
    columns: list[dict[str, str]] = []
    for one in found.askers:
        column: dict[str, str] = {}
        for name, meaning, ready in _control_cells(one):
            kinds.setdefault(name, meaning)
            column[name] = ready
        columns.append(column)
    rows = [
        [h.row_head(name, MEANINGS[meaning]), *(column.get(name) or h.number(None) for column in columns)]
        for name, meaning in kinds.items()
    ]
    absent = [
        [h.row_head(one.name), h.cell(f"not known without it: {one.what}", kind="wrap"),
         f'<td class="left"><code>{h.esc(one.command)}</code></td>']
        for one in found.missing
    ]  # fmt: skip
    parts = [h.table(["control", *(one.asker for one in found.askers)], rows)] if found.askers else []
    if absent:
        parts += ['<h3 class="sub">Not run</h3>', h.table(["control", "", "how to run it"], absent, left=3)]
    return h.section("controls", "Controls", *parts, lead="Each control takes one explanation away from the rate.")


def _control_cells(one: AskerAnalysis) -> Iterator[tuple[str, str, str]]:
    """Yield (row, meaning, cell)."""
    yield "Calibrated, as played", "Calibrated", h.number(one.best_interval, why="no session counts")
    if one.same_model_clustered is not None:
        yield "Same model twice", "Same model twice", h.number(one.same_model_clustered)
    if one.shuffled is not None:
        yield "Shuffled pairs", "Shuffled pairs", h.number(one.shuffled.other)
        yield "Own pair less shuffled, points", "Shuffled pairs", h.number(one.shuffled.aimed, signed=True)
    if one.no_probing_clustered is not None:
        yield "No probing", "No probing", h.number(one.no_probing_clustered)
    if one.stability is not None:
        yield "Redraws differ (beside label flips)", "Redraws differ", h.number(one.stability.redraws)
    if one.cross_check is not None:
        yield "Cross-check true (oracle)", "Cross-check true", h.number(one.cross_check.true)
        yield "\u2026 of calibrated", "Cross-check true", h.number(one.cross_check.true_calibrated)
        yield "Final questions valid (oracle)", "Cross-check true", h.number(one.cross_check.valid)
    for other in one.regrades:
        yield f"Regrade {other.name}: same label", "Regrade", h.number(other.agreement)
        yield f"Regrade {other.name}: rate", "Regrade", h.number(other.rate)
        yield f"Regrade {other.name}: rate moves, points", "Regrade", h.number(other.shift, signed=True)
    for label, share in one.difficulty.items():
        yield f"Solved by the pool: {words(label)} questions", "Difficulty", h.number(share)


def sensitivity(found: Analysis) -> str:
    """Return the rate under other ways of counting."""
    if not found.askers:
        return _nothing("sensitivity", "Sensitivity", "No session has been played yet.")
    names = list(dict.fromkeys(name for one in found.askers for name, _ in one.sensitivity))
    rows = []
    for one in found.askers:
        known: dict[str, Rate] = dict(one.sensitivity)
        rows.append([h.row_head(one.asker), *(h.number(known.get(name), why="no session counts") for name in names)])
    return h.section(
        "sensitivity", "Sensitivity", h.table(["asker", *names], rows),
        lead="The calibrated rate if cut-off replies or cross-checks counted otherwise, replayed from the records.",
    )  # fmt: skip


# ------------------------------------------------------------ between askers, cost


def between_askers(found: Analysis) -> str:
    """Return the paired comparisons."""
    if not found.comparisons:
        return _nothing("askers", "Between askers", "One asker has played; there is nothing to compare.")
    rows = []
    for pair in found.comparisons:
        one = pair.comparison
        ends = interval(one.low, one.high, signed=True)
        dropped = f"{one.ungradable} ungradable, {one.unmatched} unmatched dropped"
        rows.append([
            h.row_head(f"{one.first} {DASH} {one.second}"), h.cell(f"{points(one.difference)} points", ends),
            h.cell(p_value(one.p)), h.cell(p_value(one.p_holm)), h.cell(count(one.n), dropped),
            h.cell(count(one.first_only)), h.cell(count(one.second_only)),
            h.cell(count(pair.needed), "" if pair.to_ask is None else f"ask {pair.to_ask:,}"),
        ])  # fmt: skip
    test = MEANINGS["Paired permutation"]
    head: list[h.Head] = ["askers", "difference", ("p", test), ("p, Holm", test), "cells", "only the first",
                          "only the second", tip("Sessions needed")]  # fmt: skip
    return h.section(
        "askers", "Between askers", h.table(head, rows),
        lead="Both askers on the same pairs and slots. The interval redraws pairs and slots, so it speaks of other "
        "pairs too and is wider than the p-value, which speaks of these.",
    )  # fmt: skip


def cost(found: Analysis) -> str:
    """Return what a session and a calibrated question take."""
    if not found.askers:
        return _nothing("cost", "Cost", "No session has been played yet.")
    rows = []
    for one in found.askers:
        taken = one.cost
        lines = [(words(x.seat), x.calls, x.replies, x.prompt_tokens, x.new_tokens) for x in taken.seats]
        replies = sum(x.replies for x in taken.seats)
        lines.append(("all", taken.calls, replies, taken.prompt_tokens, taken.new_tokens))
        for seat, calls, got, prompt, new in lines:
            each = (calls, got, prompt, new)
            per = [h.cell(_per(n, taken.sessions)) for n in each] + [h.cell(_per(n, taken.calibrated)) for n in each]
            rows.append([h.row_head(one.asker), h.cell(seat, kind="left"), *per])
    names = ["calls", "replies", "prompt tokens", "new tokens"]
    head: list[h.Head] = [
        "asker",
        "seat",
        *(f"{name} a session" for name in names),
        *(f"{name} a calibrated q." for name in names),
    ]
    return h.section(
        "cost", "Cost", h.table(head, rows, left=2),
        lead="All sessions, failed ones too; controls not included. A reply from a cache counts as if it were paid.",
    )  # fmt: skip


def _per(value: int, of: int) -> str:
    if not of:
        return DASH
    each = value / of
    return f"{each:,.0f}" if each >= 100 else f"{each:,.1f}"
