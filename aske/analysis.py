"""The analysis of a bench folder: every number of the report, from the recorded files alone and without a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aske import _measures as m
from aske import statistics as st
from aske._folder import SESSIONS, Bench, Draws, read_bench
from aske._results import (
    Analysis,
    AskerAnalysis,
    Cell,
    Compared,
    Cost,
    CrossCheck,
    Missing,
    Regrade,
    SeatCost,
    Shuffled,
    Stability,
)
from aske.labels import Label
from aske.records import SessionRecord

__all__ = [
    "Analysis",
    "AskerAnalysis",
    "Cell",
    "Compared",
    "Cost",
    "CrossCheck",
    "Missing",
    "Regrade",
    "SeatCost",
    "Shuffled",
    "Stability",
    "analyse",
    "analyse_bench",
]

UNGRADABLE_WARNING = 0.1  # share of ungradable sessions from which the page warns
CONTROLS = (  # name, what of the bench, what is not known without it, the setting that runs it
    ("Resampled solvers", "resamples", "the chance line, label flips and stably calibrated questions",
     "controls.resamples=8"),
    ("Shuffled pairs", "shuffled", "what aiming at a pair earns over asking good questions in general",
     "controls.shuffled=true"),
    ("Same model twice", "same_model", "the rate that a pair without any gap earns when it is played",
     "controls.same_model=10"),
    ("No probing", "no_probing", "what the probes earn", "controls.no_probing=50"),
    ("Difficulty", "difficulty", "how hard the questions are for the whole pool", "controls.difficulty=1"),
    ("Oracle", "truths", "how often the cross-check's answer is true", "truth=MODULE:FUNCTION"),
    ("Another cross-check", "regrades", "whether the labels hang on the cross-check", ""),
)  # fmt: skip


_PLAYED = ("controls.same_model", "controls.no_probing")  # need no graded question of a session


def analyse(folder: str | Path, *, draws: int = st.clusters.DRAWS, seed: int = 0) -> Analysis:
    """Return the analysis of a bench folder, finished or not.

    Args:
        folder: what `aske bench` wrote; every control's file may be missing.
        draws: bootstrap draws of the intervals.
        seed: seed of the draws.

    Raises:
        AskeError: it is no bench folder.
    """
    return analyse_bench(read_bench(folder), draws=draws, seed=seed)


def analyse_bench(bench: Bench, *, draws: int = st.clusters.DRAWS, seed: int = 0) -> Analysis:
    """Return the analysis of a bench that has been read."""
    drawing = m.Drawing(draws, seed)
    names = _askers(bench)
    solvers = _solvers(bench)
    ability, source = _ability(bench, solvers)
    by_asker: dict[str, list[SessionRecord]] = {name: [] for name in names}
    for session in bench.sessions:
        by_asker[session.asker].append(session)
    askers = tuple(_asker(name, by_asker[name], bench, solvers, ability, drawing) for name in names)
    if all(name in ability for name in solvers):
        solvers = sorted(solvers, key=lambda name: -ability[name])
    planned = _planned(bench.config)
    return Analysis(
        folder=bench.path.resolve().name,
        config=bench.config,
        planned=planned,
        played=len(bench.sessions),
        solvers=tuple(solvers),
        ability=ability,
        ability_source=source,
        askers=askers,
        comparisons=_comparisons(by_asker, drawing),
        missing=_missing(bench),
        warnings=tuple(_warnings(bench, askers, planned)),
        notes=bench.notes,
    )


def _asker(
    name: str,
    sessions: Sequence[SessionRecord],
    bench: Bench,
    solvers: Sequence[str],
    ability: Mapping[str, float],
    drawing: m.Drawing,
) -> AskerAnalysis:
    labels = [s.label.value for s in sessions]
    outcomes = [m.outcome(label) for label in labels]
    values = [None if one is None else float(one) for one in outcomes]
    clusters = m.clusters_of(sessions, drawing)
    line, excess = m.chance(sessions, bench, drawing)
    same = [s for s in bench.same_model or () if s.asker == name]
    same_values = [None if (one := m.outcome(s.label)) is None else float(one) for s in same]
    unprobed = [q for q in bench.no_probing or () if q.asker == name]
    unprobed_rate, unprobed_clustered = m.no_probing(unprobed, m.all_pairs(solvers), drawing)
    return AskerAnalysis(
        asker=name,
        labels=m.label_counts(labels),
        reasons=dict(Counter(s.grade.reason.value for s in sessions if s.grade.reason is not None)),
        malformed=sum(s.malformed for s in sessions),
        turns=sum(len(s.turns) for s in sessions),
        rate=st.rate(outcomes),
        clustered=clusters.mean(values),
        clusters=clusters.name(values),
        chance=line,
        excess=excess,
        same_model=st.rate(m.outcome(s.label) for s in same) if same else None,
        same_model_clustered=m.clusters_of(same, drawing).mean(same_values) if same else None,
        same_model_cells={
            solver: st.rate(m.outcome(s.label) for s in same if s.pair[0] == solver)
            for solver in dict.fromkeys(s.pair[0] for s in same)
        },
        shuffled=m.shuffled(sessions, bench, drawing),
        no_probing=unprobed_rate,
        no_probing_clustered=unprobed_clustered,
        sensitivity=m.sensitivity(sessions),
        stability=m.stability(sessions, bench, ability, drawing),
        direction=m.direction(sessions, ability),
        cross_check=m.cross_check(sessions, bench),
        regrades=m.regrades(sessions, bench, drawing),
        difficulty=m.difficulty(sessions, bench, drawing),
        cost=m.cost(sessions),
        cells=m.cells(name, sessions, bench),
    )


# ------------------------------------------------------------ who plays


def _named(config: Mapping[str, Any], *keys: str) -> list[dict[str, Any]]:
    """Return the entries of a list in the config that have a name."""
    found: Any = config
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return [e for e in found if isinstance(e, dict) and "name" in e] if isinstance(found, list) else []


def _askers(bench: Bench) -> list[str]:
    """Return the askers that have played, in the config's order where it names them."""
    played = dict.fromkeys(s.asker for s in bench.sessions)
    listed = [str(e["name"]) for e in _named(bench.config, "askers")]
    return [*(name for name in listed if name in played), *(name for name in played if name not in listed)]


def _solvers(bench: Bench) -> list[str]:
    """Return the pool: of the config, and whoever has sat in a pair."""
    listed = [str(e["name"]) for e in _named(bench.config, "pool", "solvers")]
    met = [name for s in bench.sessions for name in s.pair]
    return list(dict.fromkeys([*listed, *met]))


def _planned(config: Mapping[str, Any]) -> int | None:
    askers, solvers, each = _named(config, "askers"), _named(config, "pool", "solvers"), config.get("sessions")
    if not askers or len(solvers) < 2 or not isinstance(each, int):
        return None
    return len(askers) * len(m.all_pairs([e["name"] for e in solvers])) * each


def _ability(bench: Bench, solvers: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return how strong each solver is and what tells so: the first source that covers every solver.

    Sources without the session's own replies only: measured on the same solutions, luck makes a solver both strong and
    right.
    """
    stated = {
        str(e["name"]): float(e["ability"])
        for e in _named(bench.config, "pool", "solvers")
        if isinstance(e.get("ability"), int | float)
    }
    unprobed: dict[str, list[bool]] = {}
    for question in bench.no_probing or ():
        for solver, mark in question.marks.items():
            if mark is not None:
                unprobed.setdefault(solver, []).append(mark)
    sources = [
        (stated, "the configuration"),
        ({s: sum(marks) / len(marks) for s, marks in unprobed.items()}, "the unprobed questions"),
        (_shares(bench.difficulty), "the difficulty probe"),
        (_shares(bench.resamples), "fresh solutions of the final questions"),
    ]
    for found, source in sources:
        if solvers and all(name in found for name in solvers):
            return {name: found[name] for name in solvers}, source
    return {}, ""


def _shares(draws: Mapping[str, tuple[Draws, ...]] | None) -> dict[str, float]:
    """Return each solver's share right."""
    right: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for one in (d for group in (draws or {}).values() for d in group):
        right[one.solver] += one.right
        counted[one.solver] += one.right + one.wrong
    return {solver: right[solver] / n for solver, n in counted.items() if n}


# ------------------------------------------------------------ between askers


def _comparisons(by_asker: Mapping[str, Sequence[SessionRecord]], drawing: m.Drawing) -> tuple[Compared, ...]:
    """Return every two askers on the cells (pair, slot) that both have played."""
    scores: dict[str, dict[st.Cell, float | None]] = {}
    for name, sessions in by_asker.items():
        outcomes = {("+".join(sorted(s.pair)), s.slot): m.outcome(s.label) for s in sessions}
        scores[name] = {cell: None if one is None else float(one) for cell, one in outcomes.items()}
    slots = {slot for cells in scores.values() for _, slot in cells}
    found = st.compare_askers(scores, shared_slots=len(slots) > 1, draws=drawing.draws, seed=drawing.seed)
    return tuple(_compared(one) for one in found)


def _compared(one: st.Comparison) -> Compared:
    if not one.n or one.first_only == one.second_only:
        return Compared(one, None, None)
    needed = st.sessions_paired(one.first_only / one.n, one.second_only / one.n, corrected=True)
    share = one.ungradable / (one.n + one.ungradable)
    return Compared(one, needed, st.sessions_to_ask(needed, ungradable_share=share))


# ------------------------------------------------------------ what to know first


def _missing(bench: Bench) -> tuple[Missing, ...]:
    return tuple(
        Missing(name, what, _command(bench, setting))
        for name, file, what, setting in CONTROLS
        if not getattr(bench, file)
    )


def _command(bench: Bench, setting: str) -> str:
    """Return how a control is run: going on, where the settings ask for it; else in a new folder."""
    if not setting:
        return f"aske regrade {bench.path} --cross-check ENTRY --name NAME"
    key, _, _ = setting.partition("=")
    asked: Any = bench.config
    for part in key.split("."):
        asked = asked.get(part) if isinstance(asked, Mapping) else None
    if not asked:
        return f"aske bench CONFIG --out NEW {setting}"
    if bench.sessions and not key.startswith(_PLAYED) and not any(s.label in m.GRADED for s in bench.sessions):
        return "nothing to draw: no final question was graded"
    return f"aske resume {bench.path}"


def _warnings(bench: Bench, askers: Sequence[AskerAnalysis], planned: int | None) -> list[str]:
    found = []
    played = len(bench.sessions)
    if not played:
        found.append(f"No session has been played yet: {SESSIONS} is missing or empty.")
    elif planned is not None and played < planned:
        found.append(f"Not finished: {played} of {planned} sessions have been played. All numbers are of these.")
    for one in askers:
        share = one.rate.ungradable_share
        if share is not None and share >= UNGRADABLE_WARNING:
            reasons = ", ".join(f"{reason.replace('_', ' ')} {n}" for reason, n in one.reasons.items())
            found.append(
                f"{one.asker}: {one.rate.ungradable} of {one.rate.asked} sessions ({share:.0%}) are ungradable "
                f"({reasons}). The rate speaks of the rest alone; see Sensitivity."
            )
        found += _unresampled(one, bench)
        if one.stability is not None and _apart(one.stability):
            found.append(
                f"{one.asker}: labels flip in {one.stability.flips.value:.0%} of redraws, but redraws differ among "
                f"themselves in {one.stability.redraws.value:.0%}. The fresh solutions seem to be drawn otherwise than "
                "the sessions' own (other sampling, a cache), so the chance line may not fit."
            )
        if one.labels[Label.BAD_CROSS_CHECK] * 4 >= max(1, one.rate.n):
            found.append(f"{one.asker}: {one.labels[Label.BAD_CROSS_CHECK]} sessions have a bad cross-check.")
    return found


def _unresampled(one: AskerAnalysis, bench: Bench) -> list[str]:
    """Warn where the chance line rests on a part of the graded questions."""
    if bench.resamples is None:
        return []
    lacking, graded = m.untold([s for s in bench.sessions if s.asker == one.asker], bench)
    if not lacking or lacking / graded < UNGRADABLE_WARNING:
        return []
    return [
        f"{one.asker}: {lacking} of {graded} graded questions ({lacking / graded:.0%}) lack two decided fresh "
        "solutions of each solver, so the chance line does not speak of them. Go on with `aske resume` where the "
        "control has not ended; it needs controls.resamples of 2 or more, and solvers that end their replies."
    ]


def _apart(one: Stability) -> bool:
    """Return whether the two flip rates are too far apart for chance: their intervals do not meet."""
    a, b = one.flips, one.redraws
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low > b.high or b.low > a.high
