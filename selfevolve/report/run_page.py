"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfevolve.diagnostics.glossary import Entry
from selfevolve.report import charts, figures
from selfevolve.report import html as h
from selfevolve.report.admission import admission_table
from selfevolve.report.digest import Digest, RoundPicks, part, words
from selfevolve.report.facts import glossary, referee_words, warnings
from selfevolve.report.figures import Figure, measure, number, round_name, write_change, write_value
from selfevolve.report.load import RunView, read_object

REPLY_LIMIT = 20_000  # characters of one reply that are shown
SECTIONS = (
    ("curves", "Curves"),
    ("gate", "Validity gate"),
    ("patterns", "Patterns"),
    ("reward", "Reward and decisions"),
    ("time", "Time"),
    ("rounds", "All figures"),
    ("examples", "Examples"),
    ("table", "Admission table"),
    ("glossary", "Glossary"),
)


def run_page(run: RunView, digest: Digest) -> str:
    """Return the whole page of a run."""
    terms = {place: picks.mean_terms() for place, picks in digest.picks.items()}
    body = [
        head(run),
        h.nav(SECTIONS),
        h.section(
            "curves",
            "Curves",
            h.figures_grid(charts.main_charts(run.metrics)),
            lead="Bands are 95% intervals (Wilson) of each round's own sample. Point at a round for its numbers.",
        ),
        h.section("gate", "Validity gate", h.figures_grid(charts.gate_charts(run.metrics))),
        h.section(
            "patterns",
            "Patterns",
            h.figures_grid(pattern_figures(run.metrics)),
            lead="Which kinds of exercise the questions are. The commonest patterns have a colour of their own.",
        ),
        h.section("reward", "Reward and decisions", h.figures_grid(reward_figures(run, terms))),
        h.section("time", "Time", time_part(run), time_note(run)),
        h.section(
            "rounds",
            "All figures",
            rounds_table(run.metrics),
            lead="Under each rate: its 95% interval and denominator. A dash means not measured.",
        ),
        h.section(
            "examples",
            "Examples",
            examples(run, digest.picks),
            lead="Verbatim. Best, worst and repeated are from the questioner's steps; the others from the candidates.",
        ),
        admission_table(digest),
        h.section("glossary", "Glossary", glossary_list(glossary())),
        f"<footer>Made from the run folder {h.esc(run.name)} alone. {h.esc(versions(run))}</footer>",
    ]
    return h.write_page(f"{run.recipe} \u00b7 {run.name}", "\n".join(body))


def head(run: RunView) -> str:
    """Return the headline: what ran, how far, who knew the truth, and the four figures that matter."""
    done, planned = len(run.rounds), run.planned
    rounds = f"{done} of {planned}" if planned is not None else str(done)
    facts = [
        ("backbone", run.backbone, ""),
        ("seed", run.seed, ""),
        ("rounds", rounds, ""),
        ("referee", referee_words(run.referee), "" if run.referee == "oracle" else "model"),
    ]
    about = run.config.get("description")
    return "".join(
        [
            '<div class="kicker">Self-evolution run</div>',
            f"<h1>{h.esc(run.recipe)}</h1>",
            f'<p class="lead">{h.esc(about)}</p>' if about else "",
            h.chips(facts),
            h.banner("Unfinished run.", [run.unfinished] if run.unfinished else []),
            h.banner("Collapse monitor:", warnings(run)),
            h.banner("Changed as the run went on:", run.changes),
            h.banner("Not read:", run.notes[:10]),
            f'<div class="tiles">{"".join(tile(run.metrics, figure) for figure in figures.HEADLINE)}</div>',
        ]
    )


def tile(metrics: Sequence[Mapping[str, Any]], figure: Figure) -> str:
    """Return a headline figure: its last value and the way there."""
    known = [item for item in metrics if measure(item, figure.key).value is not None]
    if not known:
        return f'<div class="tile"><span>{h.esc(figure.label)}</span><strong class="none">not measured</strong></div>'
    first, last = measure(known[0], figure.key), measure(known[-1], figure.key)
    small = f"round {round_name(known[-1])}"
    if len(known) > 1 and first.value is not None and last.value is not None:
        change = last.value - first.value
        good = (change > 0) != (figure.key == figures.TOP5.key)
        origin = round_name(known[0])
        since = "the start" if origin == "start" else f"round {origin}"
        tone = "" if abs(change) < 0.0005 else "up" if good else "down"
        small = f'<b class="{tone}">{write_change(change)}</b> since {since}'
    return (
        f'<div class="tile"><span>{h.esc(figure.label)}</span>'
        f"<strong>{write_value(last.value)}</strong><small>{small}</small></div>"
    )


def pattern_figures(metrics: Sequence[Mapping[str, Any]]) -> list[charts.Chart]:
    """Return the charts of patterns and novelty."""
    found = [
        charts.pattern_chart(
            metrics, "pool", "Patterns of all questions", "Share of the parsed questions with a pattern"
        ),
        charts.pattern_chart(
            metrics, "kept", "Patterns of kept questions", "Share of the kept questions with a pattern"
        ),
        charts.count_chart(
            metrics, "error_types", "What is wrong with invalid questions", "Share of the invalid questions", {}
        ),
    ]
    novel = charts.novelty_chart(metrics)
    return [*found, novel] if novel.svg else found


def reward_figures(run: RunView, terms: Mapping[int, Mapping[str, float]]) -> list[charts.Chart]:
    """Return the charts of rewards, shares and decisions."""
    return [
        charts.reward_chart(run.metrics),
        *charts.ask_e_charts(run.metrics),
        charts.terms_chart(terms),
        charts.histogram_chart(run.metrics, run.window),
        charts.count_chart(run.metrics, "decisions", "Decisions", "Share of the candidates", charts.DECISION_TONES),
    ]


def time_part(run: RunView) -> str:
    """Return the chart of seconds and, beside it, each stage's total and share."""
    chart = charts.time_chart(run.metrics)
    totals: dict[str, float] = {}
    for item in run.rounds:
        for name, value in part(item, "seconds_by_stage").items():
            totals[str(name)] = totals.get(str(name), 0.0) + (number(value) or 0.0)
    whole = sum(totals.values())
    if not chart.svg or not whole:
        return h.figures_grid([chart])
    rows = [
        [
            f'<th scope="row"><i class="swatch b{charts.STAGE_TONES.get(name, 0)}"></i>{h.esc(words(name))}</th>',
            f"<td>{seconds:,.1f}</td>",
            f"<td>{seconds / len(run.rounds):,.1f}</td>",
            f"<td>{100 * seconds / whole:.1f}%</td>",
        ]
        for name, seconds in sorted(totals.items(), key=lambda pair: -pair[1])
    ]
    totals_table = h.table(["stage", "s in all", "s a round", "share"], rows)
    return f'<div class="grid">{h.figure(chart)}<div>{totals_table}</div></div>'


def time_note(run: RunView) -> str:
    """Say what the rounds took together, and the initialisation before them."""
    seconds = [number(item.get("seconds")) for item in run.rounds]
    known = [value for value in seconds if value is not None]
    if not known:
        return ""
    text = f"{len(known)} rounds took {sum(known):,.0f} s, {sum(known) / len(known):.1f} s each on average."
    before = number(read_object(run.path / "initialisation" / "DONE.json").get("seconds"))
    if before is not None:
        text += f" The initialisation took {before:,.0f} s."
    return f'<p class="note" style="margin-top:12px">{h.esc(text)}</p>'


def rounds_table(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return every figure of every round, a row a figure."""
    if not metrics:
        return '<p class="note">No round has been measured yet.</p>'
    rows = []
    for figure in (*figures.TABLE, figures.PATTERNS, figures.KEPT, figures.REWARD):
        found = [measure(item, figure.key) for item in metrics]
        if any(one.value is not None for one in found):
            title = f'<th scope="row" title="{h.esc(figure.note)}">{h.esc(figure.label)}</th>'
            rows.append([title, *(h.cell(one, figure.percent) for one in found)])
    return h.table(["figure", *(round_name(item) for item in metrics)], rows, kind="dense")


def verbatim(text: object) -> str:
    """Return a model's text as it is, up to a limit."""
    whole = str(text or "")
    shown = h.esc(whole[:REPLY_LIMIT])
    rest = len(whole) - REPLY_LIMIT
    return f"<pre>{shown or '(empty)'}</pre>" + (f'<p class="note">{rest:,} more characters.</p>' if rest > 0 else "")


def facts_of(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is known of a question, as names and values."""
    vote, solved, novelty = part(record, "validity"), part(record, "solutions"), part(record, "novelty")
    reward, truth = part(record, "reward"), part(record, "truth")
    found = [("decision", f"{words(record.get('decision'))}: {record.get('reason')}")]
    if record.get("parse_failure"):
        found.append(("not parsed", str(record["parse_failure"])))
    if record.get("own_answer") is not None:
        found.append(("questioner's answer", str(record["own_answer"])))
    if vote:
        found.append(
            (
                "validity vote",
                f"{vote.get('invalid')} invalid, {vote.get('valid')} valid, {vote.get('undecided')} undecided",
            )
        )
    if solved:
        clusters = ", ".join(
            f"{one[0]} \u00d7{one[1]}"
            for one in solved.get("clusters") or []
            if isinstance(one, list) and len(one) == 2
        )
        share = number(solved.get("share"))
        found.append(("answers", clusters or "none"))
        found.append(
            (
                "majority",
                f"{solved.get('answer')}, share {'undecided' if share is None else f'{share:.2f}'}"
                f" of {solved.get('counted')} counted{', tie' if solved.get('tie') else ''}",
            )
        )
    if novelty:
        match = novelty.get("match")
        found.append(
            (
                "novelty",
                f"{words(novelty.get('decision'))}, compared with {novelty.get('compared')}"
                + (f"; same exercise as {match}" if match is not None else ""),
            )
        )
    if reward:
        terms = ", ".join(
            f"{words(name)} {write_value(number(value), percent=False)}"
            for name, value in part(reward, "terms").items()
        )
        found.append(("reward", f"{write_value(number(reward.get('total')), percent=False)} ({terms})"))
    if truth:
        state = {True: "valid", False: "invalid"}.get(truth.get("valid"), "undecided")  # type: ignore[arg-type]
        pieces = [state, *(words(truth[key]) for key in ("error_type", "pattern") if truth.get(key))]
        if truth.get("answer") is not None:
            pieces.append(f"answer {truth['answer']}")
        found.append((f"truth ({truth.get('source')})", ", ".join(pieces)))
    return found


def card(title: str, record: Mapping[str, Any]) -> str:
    """Return one example."""
    question = record.get("question")
    facts = "".join(f"<dt>{h.esc(name)}</dt><dd>{h.esc(value)}</dd>" for name, value in facts_of(record))
    more = ""
    if question and record.get("reply"):
        more += f"<details><summary>The questioner's whole reply</summary>{verbatim(record['reply'])}</details>"
    for name, what in (("validity", "validity votes"), ("solutions", "solver replies")):
        replies = part(record, name).get("replies")
        if isinstance(replies, list) and replies:
            items = "".join(f"<li>{verbatim(text)}</li>" for text in replies)
            more += f"<details><summary>{len(replies)} {what}</summary><ol>{items}</ol></details>"
    return (
        f'<div class="card"><h3>{h.esc(title)}</h3><small>{h.esc(record.get("id", ""))}</small>'
        f"{verbatim(question or record.get('reply'))}<dl>{facts}</dl>{more}</div>"
    )


def examples(run: RunView, picks: Mapping[int, RoundPicks]) -> str:
    """Return the examples of each round, the first and the last one open."""
    places = sorted(place for place in picks if picks[place].examples())
    if not places:
        return '<p class="note">No question has been assessed yet.</p>'
    parts = []
    for place in places:
        shown = picks[place].examples()
        cards = "".join(card(item.title, item.record) for item in shown)
        state = " open" if place == places[-1] else ""
        parts.append(
            f'<details class="round"{state}><summary>Round {place}<span>{len(shown)} examples</span></summary>'
            f'<div class="cards">{cards}</div></details>'
        )
    return "".join(parts)


def glossary_list(terms: Sequence[Entry]) -> str:
    """Return what each figure means."""
    items = "".join(
        f"<div><dt><code>{h.esc(term.name)}</code> <small>{h.esc(term.unit)}</small></dt><dd>{h.esc(term.meaning)}"
        f'<span class="formula">{h.esc(term.formula)}</span></dd></div>'
        for term in terms
    )
    return f'<dl class="glossary">{items}</dl>'


def versions(run: RunView) -> str:
    """Return the versions that the run recorded, as a line."""
    found = read_object(run.path / "environment.json")
    packages = found.get("packages")
    named = packages if isinstance(packages, Mapping) else found
    known = [
        f"{name} {named[name]}"
        for name in ("selfevolve", "torch", "transformers", "trl")
        if isinstance(named.get(name), str)
    ]
    if isinstance(found.get("python"), str):
        known.insert(0, f"Python {found['python'].split()[0]}")
    return f"Ran with {', '.join(known)}." if known else ""
