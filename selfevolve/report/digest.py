"""One pass over a run's assessed questions: rows of the admission table, examples, mean reward terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from selfevolve.report.figures import count, number
from selfevolve.report.load import RunView, iter_assessed, read_truths

ROW_LIMIT = 20_000  # rows that are embedded, unless the candidates' assessment alone is more
KEPT_DECISION = "kept"
NOVEL = "novel"


@dataclass(frozen=True)
class Example:
    """One question shown verbatim."""

    title: str  # why it is shown
    record: Mapping[str, Any]


@dataclass
class RoundPicks:
    """The examples of one round, while its records go by."""

    best: Mapping[str, Any] | None = None
    worst: Mapping[str, Any] | None = None
    boundary: Mapping[str, Any] | None = None
    repeated: Mapping[str, Any] | None = None
    rejected: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # decision -> first of it
    terms: dict[str, list[float]] = field(default_factory=dict)  # reward term -> [sum, count]

    def examples(self) -> list[Example]:
        """Return the examples in the order in which they are shown; each question once."""
        found: list[tuple[str, Mapping[str, Any] | None]] = [
            ("Best reward", self.best),
            ("Worst reward", self.worst),
            ("At the edge of the window", self.boundary),
            ("Rejected by the novelty gate", self.repeated),
            *((f"Rejected: {words(name)}", record) for name, record in sorted(self.rejected.items())),
        ]
        return [Example(title, record) for title, record in found if record is not None]

    def mean_terms(self) -> dict[str, float]:
        """Return the mean of each reward term."""
        return {name: total / amount for name, (total, amount) in self.terms.items() if amount}


@dataclass(frozen=True)
class Digest:
    """What one pass over a run's questions gives."""

    columns: dict[str, list[Any]]  # the admission table, a list a column
    picks: dict[int, RoundPicks]  # by round
    total: int  # assessed questions in the folder
    left_out: str | None  # which of them are not in the table
    notes: tuple[str, ...]


def words(name: object) -> str:
    """Return an enum's value as words: too_easy -> too easy."""
    return str(name).replace("_", " ")


def part(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of a record, empty where the step was not reached."""
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def reward_total(record: Mapping[str, Any]) -> float | None:
    """Return the question's reward, or None where it got none."""
    return number(part(record, "reward").get("total"))


def edge_distance(record: Mapping[str, Any], window: tuple[float, float]) -> float | None:
    """Return how far the question's share lies from the nearer edge of the window."""
    share = number(part(record, "solutions").get("share"))
    return None if share is None else min(abs(share - edge) for edge in window)


def compact(record: Mapping[str, Any], number_of_round: int) -> dict[str, Any]:
    """Return the admission table's row of a question: what the table shows and filters, nothing else."""
    vote, solved = part(record, "validity"), part(record, "solutions")
    novelty, truth, reward = part(record, "novelty"), part(record, "truth"), part(record, "reward")
    question = record.get("question")
    return {
        "id": record.get("id"),
        "round": number_of_round,
        "stage": record.get("stage"),
        "step": record.get("step"),
        "question": question,
        "reply": None if question else record.get("reply"),
        "own": record.get("own_answer"),
        "failure": record.get("parse_failure"),
        "decision": record.get("decision"),
        "reason": record.get("reason"),
        "vote": [count(vote.get(key)) for key in ("invalid", "valid", "undecided", "asked")] if vote else None,
        "share": number(solved.get("share")),
        "answer": solved.get("answer"),
        "counted": [count(solved.get(key)) for key in ("counted", "asked")] if solved else None,
        "tie": bool(solved.get("tie")),
        "clusters": solved.get("clusters"),
        "novelty": novelty.get("decision"),
        "compared": [count(novelty.get(key)) for key in ("compared", "unreadable")] if novelty else None,
        "match": novelty.get("match"),
        "reward": number(reward.get("total")),
        "terms": reward.get("terms"),
        "pattern": truth.get("pattern"),
        "valid": truth.get("valid"),
        "error": truth.get("error_type"),
        "truth": truth.get("answer"),
        "source": truth.get("source"),
    }


def watch(picks: RoundPicks, record: Mapping[str, Any], window: tuple[float, float]) -> None:
    """Let a record become an example of its round, and add up its reward terms.

    The reward belongs to the questioner's stage and the decision to the candidates' assessment, so each example is
    drawn where it matters; among equals the first stays.
    """
    if record.get("stage") == "questioner":
        total = reward_total(record)
        if total is not None:
            best = reward_total(picks.best) if picks.best else None
            worst = reward_total(picks.worst) if picks.worst else None
            if best is None or total > best:
                picks.best = record
            if worst is None or total < worst:
                picks.worst = record
        for name, value in part(part(record, "reward"), "terms").items():
            found = number(value)
            if found is not None:
                entry = picks.terms.setdefault(str(name), [0.0, 0.0])
                entry[0] += found
                entry[1] += 1
        if picks.repeated is None and part(record, "novelty").get("match") is not None:
            picks.repeated = record
        return
    decision = record.get("decision")
    if decision and decision != KEPT_DECISION:
        picks.rejected.setdefault(str(decision), record)
    near, nearest = edge_distance(record, window), None
    if picks.boundary is not None:
        nearest = edge_distance(picks.boundary, window)
    if near is not None and (nearest is None or near < nearest):
        picks.boundary = record


def digest_run(run: RunView, limit: int = ROW_LIMIT) -> Digest:
    """Read every assessed question of a run once.

    All of the candidates' assessment goes into the table. Of the questioner's candidates, as many as fit below
    ``limit``, spread evenly over the run.
    """
    notes: list[str] = []
    truths = read_truths(run.path, notes)
    picks: dict[int, RoundPicks] = {}
    rows: dict[str, list[dict[str, Any]]] = {"questioner": [], "assessment": []}
    for stage, found in rows.items():
        for place, record in iter_assessed(run.path, stage, notes):
            if not part(record, "truth") and str(record.get("id")) in truths:
                record["truth"] = truths[str(record["id"])]
            record.setdefault("stage", stage)
            watch(picks.setdefault(place, RoundPicks()), record, run.window)
            found.append(compact(record, place))
    asked, room = rows["questioner"], max(0, limit - len(rows["assessment"]))
    total = len(asked) + len(rows["assessment"])
    left_out = None
    if len(asked) > room:
        shown = [asked[place * len(asked) // room] for place in range(room)]
        left_out = (
            f"The run holds {total:,} assessed questions. The table has every one of the candidates' assessment; of "
            f"the {len(asked):,} that the questioner wrote in training it has {room:,}, spread evenly."
        )
        asked = shown
    ordered = sorted([*asked, *rows["assessment"]], key=lambda row: row["round"])
    names = list(compact({}, 0))
    return Digest({name: [row[name] for row in ordered] for name in names}, picks, total, left_out, tuple(notes))
