"""What a benchmark will cost, counted before anything is started."""

from __future__ import annotations

from dataclasses import dataclass

from aske.settings import Bench


@dataclass(frozen=True)
class Cost:
    """One part of a benchmark, at most: every turn holds a question, every session is graded."""

    part: str
    items: int  # sessions or questions
    replies: int
    tokens: int  # new tokens, if each reply runs to its limit


def estimate(bench: Bench) -> list[Cost]:
    """Return the cost of each part; the real one is lower wherever a reply ends by itself."""
    asker = _mean([a.sampling.over(bench.samplings.asker).max_tokens for a in bench.askers])
    solver = _mean([s.sampling.over(bench.samplings.boundary).max_tokens for s in bench.pool.solvers])
    check = bench.cross_checker().sampling.over(bench.samplings.cross_check).max_tokens or 0
    turns, checks, size = bench.rules.probes + 1, bench.rules.checks, len(bench.pool.solvers)
    controls, pairs, askers = bench.controls, len(bench.pairs), len(bench.askers)

    def session_cost(part: str, number: int) -> Cost:
        per = turns * asker + 2 * turns * solver + checks * check
        return Cost(part, number, number * (3 * turns + checks), round(number * per))

    sessions = askers * pairs * bench.sessions
    costs = [session_cost("sessions", sessions)]
    if controls.same_model:
        costs.append(session_cost("same-model sessions", askers * size * controls.same_model))
    if controls.no_probing:
        number = askers * controls.no_probing
        tokens = number * (asker + size * solver + checks * check)
        costs.append(Cost("questions without probes", number, number * (1 + size + checks), round(tokens)))
    drawn = {"resamples": controls.resamples, "shuffled pairs": controls.resamples if controls.shuffled else 0}
    for part, m in drawn.items():
        if m and (part == "resamples" or pairs > 1):
            costs.append(Cost(part, sessions, sessions * 2 * m, round(sessions * 2 * m * solver)))
    if controls.difficulty:
        # a shuffled pair may share a solver with its session's: the number of others is at most this
        asked = 2 if controls.resamples else 0
        replies = sessions * (size - asked) * controls.difficulty
        costs.append(Cost("difficulty", sessions, replies, round(replies * solver)))
    return costs


def table(costs: list[Cost]) -> str:
    """Return the costs as a table of text with its sum."""
    rows = [("part", "items", "replies", "new tokens, at most")]
    rows += [(c.part, f"{c.items:,}", f"{c.replies:,}", f"{c.tokens:,}") for c in costs]
    rows.append(("all", "", f"{sum(c.replies for c in costs):,}", f"{sum(c.tokens for c in costs):,}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _mean(values: list[int | None]) -> float:
    known = [value or 0 for value in values]
    return sum(known) / len(known)
