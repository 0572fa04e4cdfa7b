"""The metrics of one round, from its assessed questions and its evaluation. Every key stands in `glossary`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from typing import Any

from selfevolve.answers import Equivalence, compare
from selfevolve.diagnostics.concentration import pattern_counts, top_share
from selfevolve.diagnostics.evaluation import Evaluation, Outcome, accuracy
from selfevolve.rates import Rate
from validity import ValidityDecision, calibrate

Row = Mapping[str, Any]  # one assessed question, as a line of assessed.jsonl
Metrics = dict[str, Any]  # one object of metrics.jsonl
Equal = Callable[[str, str], Equivalence]

HISTOGRAM_BINS = 10


def round_metrics(
    pool_rows: Sequence[Row],
    evaluation: Evaluation,
    *,
    round: int,
    seconds_by_stage: Mapping[str, float],
    questioner_rows: Sequence[Row] = (),
    referee: str | None = None,
    top5_shares: Sequence[float] = (),
    equal: Equal = compare,
) -> Metrics:
    """Return one object of ``metrics.jsonl``.

    Args:
        pool_rows: All assessed candidates of the round, from which solver data is kept.
        evaluation: Results of the round's solver on held-out questions.
        round: Number of the round.
        seconds_by_stage: Wall seconds of each stage.
        questioner_rows: The candidates of the questioner's steps; their rewards are the ones that train. Without
            them the reward figures come from the pool, and ``reward_source`` says so.
        referee: Who said what is so: "oracle", "model", or None.
        top5_shares: The pool's top-five share in each ordering of its grouping, where patterns are a model's word.
        equal: Compares a true answer with a given one.
    """
    parsed = [row for row in pool_rows if row["question"] is not None]
    kept = [row for row in parsed if row["decision"] == "kept"]
    return {
        "round": round,
        "referee": referee,
        **_counts(pool_rows, parsed, kept),
        **_validity(parsed, kept),
        **_patterns(parsed, kept),
        "top5_share_orderings": list(top5_shares),
        **_labels(parsed, kept, equal),
        **_gate(parsed),
        **_evaluated(evaluation),
        **_answered(parsed),
        **_rewards(questioner_rows or pool_rows, "questioner" if questioner_rows else "pool"),
        **_novelty(questioner_rows),
        **_ask_e(questioner_rows),
        "share_histogram": share_histogram(row["solutions"]["share"] for row in parsed if _has_majority(row)),
        "seconds": sum(seconds_by_stage.values()),
        "seconds_by_stage": dict(seconds_by_stage),
    }


def _counts(pool: Sequence[Row], parsed: Sequence[Row], kept: Sequence[Row]) -> Metrics:
    decisions = Counter(str(row["decision"]) for row in pool)
    return {
        "questions": len(pool),
        "parsed": len(parsed),
        "kept": len(kept),
        "decisions": dict(sorted(decisions.items())),
        "malformed_rate": Rate(len(pool) - len(parsed), len(pool)).to_json(),
        "undecided_rate": Rate(decisions["undecided"], len(parsed)).to_json(),
    }


def _truth_known(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["truth"] is not None and row["truth"]["valid"] is not None]


def valid_rate(rows: Sequence[Row]) -> Rate:
    """Return valid questions over those that the referee judged; ``asked`` is all rows."""
    known = _truth_known(rows)
    return Rate(sum(bool(row["truth"]["valid"]) for row in known), len(known), asked=len(rows))


def _validity(parsed: Sequence[Row], kept: Sequence[Row]) -> Metrics:
    def error_types(rows: Sequence[Row]) -> list[list[object]]:
        invalid = (row["truth"] for row in _truth_known(rows) if not row["truth"]["valid"])
        return [list(pair) for pair in pattern_counts(truth["error_type"] or "unnamed" for truth in invalid)]

    return {
        "valid_rate": valid_rate(parsed).to_json(),
        "valid_rate_kept": valid_rate(kept).to_json(),
        "error_types": {"pool": error_types(parsed), "kept": error_types(kept)},
    }


def _patterns(parsed: Sequence[Row], kept: Sequence[Row]) -> Metrics:
    def counted(rows: Sequence[Row]) -> list[tuple[str, int]]:
        return pattern_counts(row["truth"]["pattern"] for row in rows if row["truth"] is not None)

    pool_counts, kept_counts = counted(parsed), counted(kept)
    return {
        "top5_share": top_share(pool_counts, asked=len(parsed)).to_json(),
        "top5_share_kept": top_share(kept_counts, asked=len(kept)).to_json(),
        "distinct_patterns": len(pool_counts),
        "distinct_patterns_kept": len(kept_counts),
        "pattern_shares": {
            "pool": [list(pair) for pair in pool_counts],
            "kept": [list(pair) for pair in kept_counts],
        },
    }


def label_outcome(row: Row, equal: Equal = compare) -> Outcome:
    """Return whether the majority answer of a valid question is the true one."""
    truth = row["truth"]["answer"]
    if truth is None:
        return Outcome.UNDECIDED
    match equal(str(truth), str(row["solutions"]["answer"])):
        case Equivalence.SAME:
            return Outcome.RIGHT
        case Equivalence.DIFFERENT:
            return Outcome.WRONG
        case _:
            return Outcome.UNDECIDED


def _labels(parsed: Sequence[Row], kept: Sequence[Row], equal: Equal) -> Metrics:
    labelled = [row for row in _truth_known(parsed) if row["truth"]["valid"] and _has_majority(row)]
    outcomes = [label_outcome(row, equal) for row in labelled]
    kept_outcomes = [outcome for row, outcome in zip(labelled, outcomes, strict=True) if row["decision"] == "kept"]
    kept_rate = accuracy(kept_outcomes)
    undecided = kept_outcomes.count(Outcome.UNDECIDED)
    return {
        "pseudo_label_accuracy": kept_rate.to_json(),
        "majority_accuracy": accuracy(outcomes).to_json(),
        "label_right_rate": Rate(kept_rate.k, len(_truth_known(kept)) - undecided, asked=len(kept)).to_json(),
    }


def _has_majority(row: Row) -> bool:
    return row["solutions"] is not None and row["solutions"]["answer"] is not None


def _gate(parsed: Sequence[Row]) -> Metrics:
    pairs = [
        (bool(row["truth"]["valid"]), ValidityDecision(row["validity"]["decision"]))
        for row in _truth_known(parsed)
        if row["validity"] is not None
    ]
    gate = calibrate(pairs)
    return {
        "gate_valid_recall": gate.valid_recall.to_json(),
        "gate_invalid_recall": gate.invalid_recall.to_json(),
    }


def _evaluated(evaluation: Evaluation) -> Metrics:
    calibration = calibrate(evaluation.verdicts)
    return {
        "balanced_accuracy": calibration.balanced_accuracy.to_json(),
        "valid_recall": calibration.valid_recall.to_json(),
        "invalid_recall": calibration.invalid_recall.to_json(),
        "invalid_recall_strict": calibration.invalid_recall_strict.to_json(),
        "verdict_undecided_rate": Rate(calibration.undecided, calibration.asked).to_json(),
        "solver_accuracy": accuracy(evaluation.sampled).to_json(),
        "solver_accuracy_greedy": accuracy(evaluation.greedy).to_json(),
    }


def _answered(parsed: Sequence[Row]) -> Metrics:
    solved = [row["solutions"] for row in parsed if row["solutions"] is not None]
    voted = [row["validity"] for row in parsed if row["validity"] is not None]
    return {
        "answered_rate": Rate(sum(s["counted"] for s in solved), sum(s["asked"] for s in solved)).to_json(),
        "vote_answered_rate": Rate(
            sum(v["invalid"] + v["valid"] for v in voted), sum(v["asked"] for v in voted)
        ).to_json(),
    }


def _rewards(rows: Sequence[Row], source: str) -> Metrics:
    totals = [float(row["reward"]["total"]) for row in rows if row["reward"] is not None]
    mean = sum(totals) / len(totals) if totals else None
    deviation = None
    if mean is not None and len(totals) > 1:
        deviation = sqrt(sum((value - mean) ** 2 for value in totals) / (len(totals) - 1))
    return {"reward_mean": mean, "reward_std": deviation, "reward_source": source}


def _novelty(rows: Sequence[Row]) -> Metrics:
    decisions = [row["novelty"]["decision"] for row in rows if row["novelty"] is not None]
    decided = [decision for decision in decisions if decision != "undecided"]
    return {"novel_rate": Rate(decided.count("novel"), len(decided), asked=len(decisions)).to_json()}


def _ask_e(rows: Sequence[Row]) -> Metrics:
    """Return the labels of Ask-E's game; nothing where the reward is another one."""
    if not any("ask_e" in row for row in rows):
        return {}
    played = [row["ask_e"] for row in rows if row["ask_e"] is not None]
    labels = Counter(str(result["label"]) for result in played)
    ungradable = labels["ungradable"]
    counted = len(played) - ungradable

    def rate(label: str) -> dict[str, Any]:
        return Rate(labels[label], counted, asked=len(played)).to_json()

    return {
        "ask_e_labels": dict(sorted(labels.items())),
        "calibrated_rate": rate("calibrated"),
        "too_easy_rate": rate("too_easy"),
        "too_hard_rate": rate("too_hard"),
        "bad_cross_check_rate": rate("bad_cross_check"),
        "ungradable_rate": Rate(ungradable, len(played)).to_json(),
        "same_weights_rate": Rate(sum(bool(r["same_weights"]) for r in played), len(played)).to_json(),
    }


def share_histogram(shares: Iterable[float | None]) -> list[int]:
    """Return counts of majority shares in ten bins ``[0, 0.1), [0.1, 0.2), ... [0.9, 1]``; None is left out."""
    bins = [0] * HISTOGRAM_BINS
    for share in shares:
        if share is not None:
            bins[min(int(share * HISTOGRAM_BINS + 1e-9), HISTOGRAM_BINS - 1)] += 1  # 0.3 and 3/10 share a bin
    return bins
