"""The page of a benchmark: what it says first, and its sections in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aske._folder import Bench
from aske._results import Analysis, AskerAnalysis
from aske.report import _html as h
from aske.report import _sections as s
from aske.report._browser import browser
from aske.report._meanings import MEANINGS
from aske.report._write import MINUS, count, interval, percent, points

SECTIONS = (
    ("outcomes", "Outcomes"),
    ("chance", "Against chance"),
    ("pairs", "Pairs"),
    ("direction", "Direction"),
    ("controls", "Controls"),
    ("sensitivity", "Sensitivity"),
    ("askers", "Between askers"),
    ("cost", "Cost"),
    ("sessions", "Sessions"),
    ("glossary", "What the numbers mean"),
)


def page(bench: Bench, found: Analysis, embedded: int) -> str:
    """Return the whole page."""
    body = [
        _head(found),
        _nav(),
        s.outcomes(found),
        s.against_chance(found),
        s.pairs(found),
        s.direction(found),
        s.controls(found),
        s.sensitivity(found),
        s.between_askers(found),
        s.cost(found),
        browser(bench, found, embedded),
        _glossary(),
        f"<footer>Made from the bench folder {h.esc(found.folder)} alone. Beside this page: askers.csv, cells.csv, "
        "sessions.csv, summary.json.</footer>",
    ]
    return h.document(f"Ask-E \u00b7 {_name(found)}", "\n".join(body))


def _nav() -> str:
    links = "".join(f'<a href="#{name}">{h.esc(title)}</a>' for name, title in SECTIONS)
    return f"<nav>{links}</nav>"


def _name(found: Analysis) -> str:
    return str(found.config.get("name") or found.folder)


def _head(found: Analysis) -> str:
    ranked = sorted(found.askers, key=lambda one: -(one.rate.value if one.rate.value is not None else -1.0))
    about = found.config.get("description")
    return "".join(
        [
            '<div class="kicker">Ask-E benchmark</div>',
            f"<h1>{h.esc(_name(found))}</h1>",
            f'<p class="lead">{h.esc(about)}</p>' if about else "",
            _chips(found),
            h.banner("Read this first.", found.warnings),
            h.banner("Not read:", found.notes[:10]),
            "".join(_headline(one, first=place == 0) for place, one in enumerate(ranked)),
        ]
    )


def _chips(found: Analysis) -> str:
    played = f"{count(found.played)} of {count(found.planned)}" if found.planned else count(found.played)
    pairs = {cell.pair for one in found.askers for cell in one.cells}
    facts = [
        ("askers", str(len(found.askers))),
        ("solvers", str(len(found.solvers))),
        ("pairs", str(len(pairs))),
        ("sessions", played),
        ("cross-check", _entry(found.config.get("cross_check"))),
        ("probes", _rule(found.config, "probes")),
        ("cross-checks a session", _rule(found.config, "checks")),
        ("prompts", str(found.config.get("prompts", ""))),
        ("seed", str(found.config.get("seed", ""))),
    ]
    items = "".join(f"<li><b>{h.esc(name)}</b>{h.esc(value)}</li>" for name, value in facts if value)
    return f'<ul class="chips">{items}</ul>'


def _entry(value: Any) -> str:
    return str(value.get("name", "")) if isinstance(value, Mapping) else str(value or "")


def _rule(config: Mapping[str, Any], key: str) -> str:
    rules = config.get("rules")
    return str(rules.get(key, "")) if isinstance(rules, Mapping) else ""


# ------------------------------------------------------------ headline


def headline(one: AskerAnalysis) -> str:
    """Say in plain words what the asker achieves and how much of it is luck."""
    if one.rate.value is None:
        reasons = ", ".join(f"{reason.replace('_', ' ')} {n}" for reason, n in one.reasons.items())
        why = f": all {one.rate.asked} are ungradable ({reasons})" if one.rate.asked else ""
        return f"No session of {one.asker} counts{why}. There is no rate to report."
    best = one.best_interval
    text = (
        f"When {one.asker} wrote the question, exactly one of the two solvers got it in {one.rate.k} of "
        f"{one.rate.n} sessions: {percent(one.rate.value)}, likely between {percent(best.low)} and "
        f"{percent(best.high)}."
    )
    if one.chance is None or one.chance.copies.value is None or one.excess is None or one.excess.value is None:
        why = (
            "no question has two fresh solutions of each solver" if one.stability else "the solvers were not resampled"
        )
        return f"{text} How much of that is luck is not known: {why}."
    copies = percent(one.chance.copies.value)
    text += f" Two copies of one solver would get {copies} on the same questions by luck alone."
    more = points(one.excess.value, sign=False).removeprefix(MINUS)
    if one.excess.low is None or one.excess.high is None:
        return f"{text} The difference is {points(one.excess.value)} points; too little data for an interval."
    ends = interval(one.excess.low, one.excess.high, signed=True)
    if one.excess.low > 0:
        return f"{text} So {more} points ({ends}) come from a real difference between the solvers."
    if one.excess.high < 0:
        return f"{text} That is {more} points ({ends}) below luck: check how the solvers were resampled."
    return f"{text} The difference of {points(one.excess.value)} points ({ends}) may be luck too."


def _headline(one: AskerAnalysis, first: bool) -> str:
    best = one.best_interval
    line = one.chance.copies if one.chance else None
    share = one.rate.ungradable_share
    reasons = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in one.reasons.items())
    untold = "too few fresh solutions" if one.stability else "not resampled"
    tiles = [
        ("Calibrated", percent(one.rate.value), f"{interval(best.low, best.high)}, {one.rate.k} of {one.rate.n}"),
        ("Chance line", percent(line.value) if line else "",
         interval(line.low, line.high) if line else untold),
        ("Above chance", f"{points(one.excess.value)} points" if one.excess and one.excess.value is not None else "",
         interval(one.excess.low, one.excess.high, signed=True) if one.excess else untold),
        ("Ungradable", percent(share), f"{one.rate.ungradable} of {one.rate.asked}{f': {reasons}' if reasons else ''}"),
    ]  # fmt: skip
    boxes = "".join(_tile(*tile) for tile in tiles)
    kind = "headline first" if first else "headline"
    return f'<div class="{kind}"><p>{h.esc(headline(one))}</p><div class="tiles">{boxes}</div></div>'


def _tile(name: str, value: str, small: str) -> str:
    shown = f"<strong>{h.esc(value)}</strong>" if value else '<strong class="none">not known</strong>'
    return (
        f'<div class="tile" title="{h.esc(MEANINGS[name])}"><span>{h.esc(name)}</span>{shown}'
        f"<small>{h.esc(small)}</small></div>"
    )


def _glossary() -> str:
    items = "".join(f"<div><dt>{h.esc(name)}</dt><dd>{h.esc(text)}</dd></div>" for name, text in MEANINGS.items())
    return h.section("glossary", "What the numbers mean", f'<dl class="glossary">{items}</dl>')
