"""The Markdown report of one run: what the page says, without the pictures and the admission table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selfevolve.report import figures
from selfevolve.report.digest import Digest, Example, part
from selfevolve.report.facts import glossary, referee_words, warnings
from selfevolve.report.figures import Figure, measure, number, round_name, write_measure, write_value
from selfevolve.report.load import RunView
from selfevolve.report.run_page import facts_of

REPLIES_SHOWN = 3  # solver replies of an example; the page has them all
SHOWN = (figures.VALID, figures.TOP5, figures.LABELS, figures.SAMPLED, figures.GREEDY)

GATE = (figures.VALID, figures.VALID_KEPT, figures.BALANCED, figures.INVALID_RECALL, figures.VALID_RECALL)
REWARDS = (figures.REWARD, figures.KEPT, figures.PATTERNS, figures.UNDECIDED, figures.MALFORMED)


def inline(text: object) -> str:
    """Return untrusted text safe inside a line or a table cell."""
    flat = re.sub(r"\s+", " ", str(text))
    return re.sub(r"([\\`*_\[\]<>|#~&$!])", r"\\\1", flat)


def fenced(text: object) -> str:
    """Return untrusted text as a code block whose fence it cannot close."""
    whole = str(text or "(empty)")
    longest = max((len(run) for run in re.findall(r"`+", whole)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{whole}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of ready cells."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def rounds_table(metrics: Sequence[Mapping[str, Any]], shown: Sequence[Figure]) -> str:
    """Return figures by round, a row a round."""
    head = ["round", *(figure.label for figure in shown)]
    return table(
        head, ([round_name(item), *(write_measure(measure(item, f.key), f.percent) for f in shown)] for item in metrics)
    )


def time_table(run: RunView) -> str:
    """Return the seconds of each stage, a row a round."""
    rounds = [item for item in run.rounds if isinstance(item.get("seconds_by_stage"), Mapping)]
    names = list(dict.fromkeys(str(name) for item in rounds for name in item["seconds_by_stage"]))
    if not names:
        return "Not measured."
    rows = []
    for item in rounds:
        values = [number(item["seconds_by_stage"].get(name)) for name in names]
        cells = ["not measured" if value is None else f"{value:.1f}" for value in values]
        rows.append([round_name(item), *cells, write_value(number(item.get("seconds")), percent=False)])
    return table(["round", *map(inline, names), "all"], rows)


def example(item: Example) -> str:
    """Return one example, verbatim."""
    record = item.record
    lines = [
        f"**{inline(item.title)}** ({inline(record.get('id', ''))})",
        "",
        fenced(record.get("question") or record.get("reply")),
        "",
    ]
    lines += [f"- {inline(name)}: {inline(value)}" for name, value in facts_of(record)]
    replies = part(record, "solutions").get("replies")
    if isinstance(replies, list) and replies:
        lines += ["", f"The first {min(len(replies), REPLIES_SHOWN)} of {len(replies)} solver replies:", ""]
        lines += [f"{fenced(text)}\n" for text in replies[:REPLIES_SHOWN]]
    return "\n".join(lines)


def run_markdown(run: RunView, digest: Digest) -> str:
    """Return the Markdown report of a run."""
    done = len(run.rounds)
    rounds = f"{done} of {run.planned}" if run.planned is not None else str(done)
    parts = [
        f"# {inline(run.recipe)}",
        f"Backbone {inline(run.backbone)}, seed {inline(run.seed)}, {rounds} rounds, "
        f"referee: {inline(referee_words(run.referee))}. Intervals are 95% (Wilson; of balanced accuracy, "
        "joined from both recalls).",
    ]
    if run.unfinished:
        parts.append(f"**Unfinished run.** {run.unfinished}")
    parts += [f"**Collapse monitor:** {inline(line)}" for line in warnings(run)]
    parts += [f"**Changed as the run went on:** {inline(line)}" for line in run.changes]
    parts += [f"**Not read:** {inline(line)}" for line in run.notes[:10]]
    parts += ["## Curves", rounds_table(run.metrics, SHOWN)]
    parts += ["## Validity gate", rounds_table(run.rounds, GATE)]
    parts += ["## Reward and decisions", rounds_table(run.rounds, REWARDS)]
    parts += ["## Where the time went (s)", time_table(run), "## Examples"]
    for place, picks in sorted(digest.picks.items()):
        parts += [f"### Round {place}", *(example(item) for item in picks.examples())]
    parts.append("## Glossary")
    parts += [
        f"- `{term.name}` ({inline(term.unit)}): {inline(term.meaning)} Formula: {inline(term.formula)}."
        for term in glossary()
    ]
    return "\n\n".join(parts) + "\n"
