"""The browser of sessions: transcripts, embedded as JSON, failures first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aske import statistics as st
from aske._folder import Bench, resample_of
from aske._results import Analysis
from aske.game import Seat
from aske.labels import Label
from aske.records import Call, SessionRecord
from aske.report import _html as h

ORDER = (  # failures first
    Label.UNGRADABLE, Label.BAD_CROSS_CHECK, Label.NO_QUESTION, Label.TOO_HARD, Label.TOO_EASY, Label.CALIBRATED,
)  # fmt: skip
FAILURES = ORDER[:3]
TEXT_LIMIT = 20_000  # characters of one text that are embedded


def chosen(sessions: Sequence[SessionRecord], limit: int) -> list[SessionRecord]:
    """Return the sessions to embed, failures first: all failures, then the others spread evenly over the bench.

    Where the failures alone pass the limit, so many of them.
    """
    failed = [s for s in sessions if s.label in FAILURES]
    failed.sort(key=lambda s: ORDER.index(s.label))
    others = [s for s in sessions if s.label not in FAILURES]
    room = max(0, limit - len(failed))
    if room < len(others):
        others = [others[i * len(others) // room] for i in range(room)] if room else []
    others.sort(key=lambda s: ORDER.index(s.label))
    return [*failed[:limit], *others]


def browser(bench: Bench, found: Analysis, limit: int) -> str:
    """Return the section with its filters and the embedded sessions."""
    if not bench.sessions:
        return h.section("sessions", "Sessions", h.note("No session has been played yet."))
    shown = chosen(bench.sessions, limit)
    left_out = len(bench.sessions) - len(shown)
    failed = sum(s.label in FAILURES for s in bench.sessions)
    note = ""
    if left_out:
        whole = "all" if failed <= limit else f"{limit} of the"
        note = h.note(
            f"{len(shown)} of {len(bench.sessions)} sessions are embedded: {whole} {failed} failures, and the others "
            "spread evenly. Every session has a line in sessions.csv and its whole record in sessions.jsonl."
        )
    pairs = sorted({" + ".join(s.pair) for s in shown})
    labels = [(label.value, label.value.replace("_", " ")) for label in ORDER if any(s.label is label for s in shown)]
    controls = [
        '<input id="f-q" type="search" placeholder="Search in everything that was said" aria-label="Search">',
        _select("label", "all outcomes", labels),
        _select("pair", "all pairs", [(p, p) for p in pairs]),
        _select("asker", "all askers", [(one.asker, one.asker) for one in found.askers]),
        '<span id="count"></span>',
    ]
    return h.section(
        "sessions",
        "Sessions",
        f'<div class="controls">{"".join(controls)}</div>',
        note,
        '<div class="browser"><ol id="list"></ol><div id="detail"></div></div>',
        h.embedded("data", [session_data(s, bench) for s in shown]),
        lead="Every turn as it was sent and received, failures first.",
    )


def _select(name: str, label: str, values: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<option value="{h.esc(value)}">{h.esc(text)}</option>' for value, text in [("", label), *values])
    return f'<select id="f-{name}" aria-label="{h.esc(label)}">{items}</select>'


def session_data(session: SessionRecord, bench: Bench) -> dict[str, Any]:
    """Return what the page shows of a session."""
    grade = session.grade
    drawn = resample_of((bench.resamples or {}).get(session.id), session.pair)
    truth = (bench.truths or {}).get(session.id)
    return {
        "id": session.id, "asker": session.asker, "pair": list(session.pair), "slot": session.slot,
        "first": session.pair[1] if session.flip else session.pair[0],
        "probes": session.rules.probes, "label": grade.label.value,
        "reason": grade.reason.value if grade.reason else None, "detail": grade.detail,
        "question": session.question, "answer": grade.answer, "answers": list(grade.answers),
        "marks": [mark.value for mark in grade.marks],
        "drawn": _drawn(drawn), "truth": None if truth is None else [truth.valid, truth.answer, truth.cross_check_true],
        "regrades": [[name, rows[session.id].label] for name, rows in bench.regrades.items() if session.id in rows],
        "malformed": [turn.malformed.value if turn.malformed else None for turn in session.turns],
        "steps": _steps(session),
    }  # fmt: skip


def _drawn(drawn: st.Resample | None) -> list[Any] | None:
    if drawn is None:
        return None
    apart = st.gap(drawn)
    return [drawn.right_a, drawn.counted_a, drawn.right_b, drawn.counted_b, apart.value, apart.low, apart.high]


def _steps(session: SessionRecord) -> list[dict[str, Any]]:
    """Return the calls in order, each with what was new in what it was sent; null: the same as the call before."""
    steps = []
    told = 0
    before: object = None
    for call in session.calls:
        sent: list[list[str]] | None
        if isinstance(call.messages, int):
            sent = [[m.role, _cut(m.content)] for m in session.transcript[told : call.messages]]
            told = call.messages + 1  # the asker's own reply follows
        else:
            sent = None if call.messages == before else [[m.role, _cut(m.content)] for m in call.messages]
            before = call.messages
        steps.append({
            "seat": call.seat.value, "who": _who(session, call), "turn": call.turn, "model": call.model,
            "settings": _settings(call), "sent": sent, "replies": [_reply(r) for r in call.replies],
        })  # fmt: skip
    return steps


def _who(session: SessionRecord, call: Call) -> str:
    if call.seat is Seat.ASKER:
        return session.asker
    if call.seat is Seat.BOUNDARY_A:
        return session.pair[0]
    return session.pair[1] if call.seat is Seat.BOUNDARY_B else call.model


def _settings(call: Call) -> str:
    s = call.sampling
    return f"temperature {s.temperature:g}, top-p {s.top_p:g}, at most {s.max_tokens} tokens, seed {s.seed}"


def _reply(reply: Any) -> list[Any]:
    return [_cut(reply.text), reply.finish_reason.value, reply.prompt_tokens, reply.completion_tokens, reply.error]


def _cut(text: str) -> str:
    rest = len(text) - TEXT_LIMIT
    return text if rest <= 0 else f"{text[:TEXT_LIMIT]}\n[{rest} more characters in sessions.jsonl]"
