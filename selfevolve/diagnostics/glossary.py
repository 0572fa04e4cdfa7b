"""Every key of a round's metrics: formula, unit, meaning. Reports and ``docs/diagnostics.md`` are made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One key of `metrics.jsonl`."""

    name: str
    formula: str
    unit: str  # "rate" is an object with value, k, n, low, high
    meaning: str
    ask_e: bool = False  # stands in runs with Ask-E's reward only


GLOSSARY: tuple[Entry, ...] = (
    Entry("round", "-", "count", "Number of the round, from 1."),
    Entry("referee", "-", "name", "Who says what is valid: the oracle (exact), a model (an opinion), or none."),
    Entry("questions", "all candidates", "count", "Replies of the questioner in the candidates stage."),
    Entry("parsed", "candidates with a question", "count", "Replies that hold a question in the required format."),
    Entry("kept", "questions with decision kept", "count", "Questions that the solver trains on."),
    Entry("decisions", "candidates by decision", "counts", "How many questions were kept, and why others were not."),
    Entry(
        "malformed_rate",
        "(questions - parsed) / questions",
        "rate",
        "Replies without a question in the required format.",
    ),
    Entry(
        "undecided_rate",
        "decision undecided / parsed",
        "rate",
        "Questions on which too few votes or solutions were answered.",
    ),
    Entry(
        "valid_rate",
        "valid / parsed questions judged by the referee",
        "rate",
        "Validity of what the questioner writes, before any filter.",
    ),
    Entry(
        "valid_rate_kept",
        "valid / kept questions judged by the referee",
        "rate",
        "Validity of what the solver trains on. Below `valid_rate`, the filter makes things worse.",
    ),
    Entry(
        "error_types",
        "invalid questions by error type",
        "counts",
        "What is wrong with invalid questions, in the pool and among the kept; largest first.",
    ),
    Entry(
        "top5_share",
        "questions in the five largest patterns / grouped questions",
        "rate",
        "Concentration of the pool. 1 where there are five patterns or fewer. `asked` also counts questions without a "
        "pattern or a judgement. The five are chosen on the same questions, so the share is too high where these are "
        "few (on the testbed by 4 to 8 points at 40 questions beside 370): compare like numbers.",
    ),
    Entry(
        "top5_share_orderings",
        "`top5_share` in each ordering of the grouping",
        "shares",
        "Where a model groups the patterns; their mean is the paper's figure. Empty where patterns are exact.",
    ),
    Entry(
        "top5_share_kept",
        "the same over kept questions",
        "rate",
        "Concentration of what the solver trains on. Too high where few are kept, as above.",
    ),
    Entry("distinct_patterns", "patterns with at least one question", "count", "Variety of the pool."),
    Entry("distinct_patterns_kept", "the same over kept questions", "count", "Variety of what the solver trains on."),
    Entry("pattern_shares", "questions by pattern", "counts", "Pattern and questions, largest first; pool and kept."),
    Entry(
        "pseudo_label_accuracy",
        "majority right / kept valid questions whose comparison is decided",
        "rate",
        "Quality of the labels, where a right one exists. `asked` also counts undecided comparisons.",
    ),
    Entry(
        "majority_accuracy",
        "majority right / valid pool questions with a majority, comparison decided",
        "rate",
        "Quality of the majority before the filter. `asked` also counts undecided comparisons.",
    ),
    Entry(
        "label_right_rate",
        "valid and majority right / kept questions judged by the referee, comparison decided",
        "rate",
        "Share of training questions that teach something true: an invalid question never does.",
    ),
    Entry(
        "gate_valid_recall",
        "valid questions that pass the vote / valid pool questions with a decided vote",
        "rate",
        "The validity vote on the pool. n is 0 in rules without the vote.",
    ),
    Entry(
        "gate_invalid_recall",
        "invalid questions that the vote rejects / invalid pool questions with a decided vote",
        "rate",
        "The validity vote on the pool. n is 0 in rules without the vote.",
    ),
    Entry(
        "balanced_accuracy",
        "(valid_recall + invalid_recall) / 2",
        "rate",
        "The solver's single verdicts on held-out questions. k and n are sums over both classes, so value is not "
        "k / n. The interval adds the squared distances of both Wilson intervals (Newcombe 1998; Zou and Donner 2008).",
    ),
    Entry(
        "valid_recall",
        "valid questions answered / (answered + rejected)",
        "rate",
        "Verdicts on valid held-out questions; undecided ones are left out.",
    ),
    Entry(
        "invalid_recall",
        "invalid questions rejected / (answered + rejected)",
        "rate",
        "Verdicts on invalid held-out questions; undecided ones are left out.",
    ),
    Entry(
        "invalid_recall_strict",
        "invalid questions rejected / all verdicts on invalid questions",
        "rate",
        "The same, where an undecided verdict is not a rejection.",
    ),
    Entry(
        "verdict_undecided_rate",
        "undecided verdicts / held-out verdicts",
        "rate",
        "Verdicts without a box, cut off or failed.",
    ),
    Entry(
        "solver_accuracy",
        "right / decided answers, sampled",
        "rate",
        "The solver on fixed questions at the training temperature. `asked` also counts undecided answers. Answers to "
        "one question hang together, so for other questions of the kind the interval is too narrow.",
    ),
    Entry(
        "solver_accuracy_greedy",
        "right / decided answers, temperature 0",
        "rate",
        "The solver on fixed questions without chance. `asked` also counts undecided answers.",
    ),
    Entry(
        "answered_rate",
        "solutions with an answer / solutions asked",
        "rate",
        "Whether the solver still ends its solutions. Solutions of one question hang together, so the interval is too "
        "narrow.",
    ),
    Entry(
        "vote_answered_rate",
        "votes cast / votes asked",
        "rate",
        "Whether the solver still ends its validity replies. The interval is too narrow, as above.",
    ),
    Entry("reward_mean", "mean of total rewards", "reward", "Mean reward; null where nothing was rewarded."),
    Entry(
        "reward_std",
        "deviation of total rewards, n - 1",
        "reward",
        "Spread of rewards; near 0 there is nothing to learn. Null below two rewards.",
    ),
    Entry(
        "reward_source",
        "-",
        "questioner or pool",
        "Whose rewards these are: those that trained the questioner, or those of the candidates (no novelty gate).",
    ),
    Entry(
        "novel_rate",
        "novel / questions with a decided novelty",
        "rate",
        "Questions of the questioner's steps that pass the novelty gate. `asked` also counts undecided ones.",
    ),
    Entry(
        "ask_e_labels",
        "questioner's candidates by label of the game",
        "counts",
        "Ask-E's reward only. Candidates that the validity vote rejects reach no solver and have no label.",
        ask_e=True,
    ),
    Entry(
        "calibrated_rate",
        "calibrated / labels but ungradable",
        "rate",
        "Exactly one boundary solver agrees with the cross-check. Two copies of one solver give this by chance too: "
        "see `same_weights_rate`. `asked` also counts ungradable ones.",
        ask_e=True,
    ),
    Entry("too_easy_rate", "too easy / labels but ungradable", "rate", "Both boundary solvers are right.", ask_e=True),
    Entry("too_hard_rate", "too hard / labels but ungradable", "rate", "Neither boundary solver is right.", ask_e=True),
    Entry(
        "bad_cross_check_rate",
        "bad cross-check / labels but ungradable",
        "rate",
        "The cross-check has no answer, or three of them disagree. One greedy check cannot disagree with itself.",
        ask_e=True,
    ),
    Entry(
        "ungradable_rate",
        "ungradable / labels",
        "rate",
        "A reply was cut off or failed, or answers could not be compared: masked, out of the group's baseline.",
        ask_e=True,
    ),
    Entry(
        "same_weights_rate",
        "pair of one checkpoint / labels",
        "rate",
        "Candidates whose two solvers were the same weights, as base and current before the solver has learnt.",
        ask_e=True,
    ),
    Entry(
        "share_histogram",
        "questions by majority share s",
        "ten counts",
        "Bins [0, 0.1), [0.1, 0.2), ... [0.9, 1]; questions without a majority are left out.",
    ),
    Entry("seconds", "sum over stages", "seconds", "Wall time of the round."),
    Entry("seconds_by_stage", "wall time of each stage", "seconds", "Where the time went."),
)


def markdown_table() -> str:
    """Return the glossary as a Markdown table."""
    lines = ["| key | formula | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{e.name}` | {e.formula} | {e.unit} | {e.meaning} |" for e in GLOSSARY]
    return "\n".join(lines)


def entry(name: str) -> Entry:
    """Return the entry of a key.

    Raises:
        KeyError: The glossary has no such key.
    """
    for found in GLOSSARY:
        if found.name == name:
            return found
    raise KeyError(f"the glossary has no key {name!r}")
