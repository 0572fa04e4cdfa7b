"""The CSV files: askers, cells, sessions."""

from __future__ import annotations

from typing import Any

from aske import statistics as st
from aske._folder import Bench, resample_of
from aske._results import Analysis
from aske.labels import Label
from aske.records import SessionRecord
from aske.report._write import write_csv
from aske.statistics import Estimate, Rate

_LABELS = [label.value for label in Label]


def write_tables(bench: Bench, found: Analysis) -> None:
    """Write askers.csv, cells.csv and sessions.csv into the bench folder."""
    _askers(bench, found)
    _cells(bench, found)
    write_csv(bench.path / "sessions.csv", _SESSION_HEAD, (_session(s, bench) for s in bench.sessions))


def _ends(found: Estimate | None) -> list[Any]:
    return [None] * 3 if found is None else [found.value, found.low, found.high]


def _rate(found: Rate | None) -> list[Any]:
    return [None] * 5 if found is None else [found.k, found.n, found.value, found.low, found.high]


def _askers(bench: Bench, found: Analysis) -> None:
    head = ["asker", *_LABELS, "calibrated_k", "counted", "rate", "wilson_low", "wilson_high", "clustered_low",
            "clustered_high", "ungradable_share"]  # fmt: skip
    for name in ("chance", "above_chance", "expected", "same_model", "shuffled", "aimed", "no_probing", "label_flips"):
        head += [name, f"{name}_low", f"{name}_high"]
    head += ["stable_k", "stable_n", "stable", "stable_low", "stable_high", "strong_only", "weak_only", "mcnemar_p",
             "cross_check_true", "calls_a_session", "new_tokens_a_session", "new_tokens_a_calibrated"]  # fmt: skip
    rows = []
    for one in found.askers:
        estimates = [
            one.chance.copies if one.chance else None, one.excess, one.chance.pair if one.chance else None,
            one.same_model_clustered, one.shuffled.other if one.shuffled else None,
            one.shuffled.aimed if one.shuffled else None, one.no_probing_clustered,
            one.stability.flips if one.stability else None,
        ]  # fmt: skip
        way, cost = one.direction, one.cost
        rows.append([
            one.asker, *(one.labels[label] for label in _LABELS), *_rate(one.rate), one.clustered.low,
            one.clustered.high, one.rate.ungradable_share, *(x for e in estimates for x in _ends(e)),
            *_rate(one.stability.stable if one.stability else None),
            *((way.strong_only, way.weak_only, way.p) if way else (None, None, None)),
            one.cross_check.true.value if one.cross_check else None,
            cost.calls / cost.sessions if cost.sessions else None,
            cost.new_tokens / cost.sessions if cost.sessions else None,
            cost.new_tokens / cost.calibrated if cost.calibrated else None,
        ])  # fmt: skip
    write_csv(bench.path / "askers.csv", head, rows)


def _cells(bench: Bench, found: Analysis) -> None:
    head = ["asker", "a", "b", *_LABELS, "calibrated_k", "counted", "rate", "low", "high", "chance", "chance_n",
            "stable_k", "stable_n", "stable", "stable_low", "stable_high"]  # fmt: skip
    rows = [
        [c.asker, *c.pair, *(c.labels[label] for label in _LABELS), *_rate(c.rate),
         *((c.chance.value, c.chance.n) if c.chance else (None, None)), *_rate(c.stable)]
        for one in found.askers
        for c in one.cells
    ]  # fmt: skip
    write_csv(bench.path / "cells.csv", head, rows)


_SESSION_HEAD = [
    "id", "asker", "a", "b", "slot", "label", "reason", "detail", "question", "answer", "answer_a", "answer_b",
    "mark_a", "mark_b", "malformed_turns", "right_a", "counted_a", "right_b", "counted_b", "gap", "gap_low", "gap_high",
    "stably_calibrated", "cross_check_true", "calls", "prompt_tokens", "new_tokens",
]  # fmt: skip


def _session(session: SessionRecord, bench: Bench) -> list[Any]:
    grade = session.grade
    drawn = resample_of((bench.resamples or {}).get(session.id), session.pair)
    apart = st.gap(drawn) if drawn else None
    truth = (bench.truths or {}).get(session.id)
    prompt_tokens = sum(r.prompt_tokens for c in session.calls for r in c.replies)
    return [
        session.id, session.asker, *session.pair, session.slot, grade.label.value,
        grade.reason.value if grade.reason else None, grade.detail, session.question, grade.answer,
        *(grade.answers if len(grade.answers) == 2 else (None, None)),
        *((mark.value for mark in grade.marks) if len(grade.marks) == 2 else (None, None)), session.malformed,
        *((drawn.right_a, drawn.counted_a, drawn.right_b, drawn.counted_b) if drawn else (None,) * 4),
        *_ends(apart), st.stably_calibrated(drawn) if drawn else None, truth.cross_check_true if truth else None,
        len(session.calls), prompt_tokens, session.tokens(),
    ]  # fmt: skip
