"""The admission table: every assessed question, packed into the page, which searches, filters and pages it."""

from __future__ import annotations

from collections.abc import Sequence

from selfevolve.report import html as h
from selfevolve.report.digest import Digest, words

COLUMNS = (
    ("round", "round", 8), ("question", "question", 41), ("invalid", "invalid votes", 9), ("s", "s", 6),
    ("novelty", "novelty", 9), ("reward", "reward", 7), ("decision", "decision", 11), ("truth", "truth", 9),
)  # fmt: skip
# key of the script's order, title, width in per cent
LEFT = ("question", "decision", "truth")
TRUTHS = (
    ("valid", "truly valid"),
    ("invalid", "truly invalid"),
    ("kept_invalid", "kept though invalid"),
    ("rejected_valid", "rejected though valid"),
    ("unknown", "truth not known"),
)
SEARCH = "Search questions, answers, patterns, reasons"


def options(name: str, label: str, values: Sequence[tuple[str, str]]) -> str:
    """Return a filter of the table."""
    items = "".join(f'<option value="{h.esc(value)}">{h.esc(text)}</option>' for value, text in [("", label), *values])
    return f'<select id="f-{name}" aria-label="{h.esc(label)}">{items}</select>'


def controls(digest: Digest) -> str:
    """Return the search field, the filters and the pager."""

    def met(name: str) -> list[str]:
        return list(dict.fromkeys(str(value) for value in digest.columns[name] if value is not None))

    parts = [
        f'<input id="f-q" type="search" placeholder="{SEARCH}" aria-label="Search">',
        options("round", "all rounds", [(value, f"round {value}") for value in met("round")]),
        options("stage", "all stages", [(value, words(value)) for value in met("stage")]),
        options("decision", "all decisions", [(value, words(value)) for value in sorted(met("decision"))]),
        options("truth", "any truth", TRUTHS),
        '<span id="count">unpacking\u2026</span>',
        '<button id="back" aria-label="page before" disabled>\u2190</button>',
        '<button id="next" aria-label="next page" disabled>\u2192</button>',
    ]
    return f'<div class="controls">{"".join(parts)}</div>'


def admission_table(digest: Digest) -> str:
    """Return the section of the table."""
    if not digest.total:
        return h.section("table", "Admission table", '<p class="note">No question has been assessed yet.</p>')
    heads = "".join(
        f'<th scope="col" data-key="{key}" style="width:{width}%"{" class=left" if key in LEFT else ""}>{name}</th>'
        for key, name, width in COLUMNS
    )
    note = f'<p class="note absent">{h.esc(digest.left_out)}</p>' if digest.left_out else ""
    return h.section(
        "table",
        "Admission table",
        controls(digest),
        note,
        f'<div class="scroll"><table id="rows"><thead><tr>{heads}</tr></thead><tbody></tbody></table></div>',
        f'<script type="text/plain" id="packed">{h.pack(digest.columns)}</script>',
        lead="Every assessed question with its votes and the reason for its decision. Open a row for the rest.",
    )
