"""A round's metrics on twelve questions small enough to count by hand."""

from typing import Any

import pytest

from selfevolve.answers import Equivalence
from selfevolve.diagnostics import Evaluation, Outcome, accuracy, pattern_counts, round_metrics, top_share
from selfevolve.diagnostics.metrics import share_histogram
from validity import Verdict


def equal(gold: str, predicted: str) -> Equivalence:
    if "?" in predicted:
        return Equivalence.UNDECIDED
    return Equivalence.SAME if gold == predicted else Equivalence.DIFFERENT


def row(
    decision: str,
    share: float | None = None,
    answer: str | None = None,
    truth: tuple[str | None, bool | None, str | None, str | None] | None = None,
    vote: str | None = "valid",
    reward: float | None = 0.0,
) -> dict[str, Any]:
    """One assessed question; truth is (pattern, valid, error type, answer)."""
    parsed = decision != "malformed"
    counted = {"valid": (2, 6), "invalid": (7, 1), "undecided": (1, 1)}
    return {
        "question": "q" if parsed else None,
        "decision": decision,
        "validity": None
        if vote is None or not parsed
        else {"decision": vote, "invalid": counted[vote][0], "valid": counted[vote][1], "undecided": 1, "asked": 9},
        "solutions": None
        if share is None
        else {"answer": answer, "share": share, "counted": 8 if answer else 0, "asked": 10},
        "novelty": None,
        "reward": None if reward is None else {"total": reward, "terms": {}},
        "truth": None
        if truth is None
        else {"source": "oracle", **dict(zip(("pattern", "valid", "error_type", "answer"), truth, strict=True))},
    }


POOL = [
    row("malformed", reward=-1.0),
    row("invalid", truth=("a", False, "contradiction", None), vote="invalid", reward=-0.25),
    row("invalid", truth=("a", True, None, "1"), vote="invalid", reward=-0.25),
    row("undecided", 0.0, None, ("b", True, None, "1")),  # ten solutions, no answer among them
    row("too_easy", 1.0, "1", ("b", True, None, "1")),
    row("too_hard", 0.2, "9", ("c", True, None, "1"), reward=0.25),
    row("kept", 0.5, "1", ("a", True, None, "1"), reward=0.5),
    row("kept", 0.6, "2", ("a", True, None, "1"), reward=0.5),
    row("kept", 0.7, "1?", ("d", True, None, "1"), reward=0.25),
    row("kept", 0.3, "3", ("e", False, "ambiguity", None), reward=0.25),
    row("kept", 0.8, "3", (None, False, None, None), reward=0.25),
    row("kept", 0.5, "3", None, reward=0.5),
]
EVALUATION = Evaluation(
    verdicts=((True, Verdict.VALID),) * 3
    + ((True, Verdict.INVALID), (False, Verdict.INVALID), (False, Verdict.VALID), (False, Verdict.UNDECIDED)),
    sampled=(Outcome.RIGHT,) * 6 + (Outcome.WRONG,) * 2 + (Outcome.UNDECIDED,) * 2,
    greedy=(Outcome.RIGHT, Outcome.WRONG),
)


@pytest.fixture(scope="module")
def metrics() -> dict[str, Any]:
    return round_metrics(POOL, EVALUATION, round=3, seconds_by_stage={"questioner": 1.5, "solver": 2.5}, equal=equal)


@pytest.mark.parametrize(
    ("key", "k", "n", "asked"),
    [
        ("malformed_rate", 1, 12, None),
        ("undecided_rate", 1, 11, None),
        ("valid_rate", 7, 10, 11),  # one parsed question has no truth
        ("valid_rate_kept", 3, 5, 6),
        ("top5_share", 9, 9, 11),  # a 4, b 2, c 1, d 1, e 1; one kept question has no pattern, one parsed no truth
        ("top5_share_kept", 4, 4, 6),
        ("pseudo_label_accuracy", 1, 2, 3),  # 1 right, 2 wrong, 1? undecided
        ("majority_accuracy", 2, 4, 5),  # the too easy one is right, the too hard one wrong
        ("label_right_rate", 1, 4, 6),
        ("gate_valid_recall", 6, 7, None),
        ("gate_invalid_recall", 1, 3, None),
        ("valid_recall", 3, 4, None),
        ("invalid_recall", 1, 2, None),
        ("invalid_recall_strict", 1, 3, None),
        ("verdict_undecided_rate", 1, 7, None),
        ("solver_accuracy", 6, 8, 10),
        ("solver_accuracy_greedy", 1, 2, 2),
        ("answered_rate", 64, 90, None),
        ("vote_answered_rate", 11 * 8, 99, None),
        ("novel_rate", 0, 0, 0),
    ],
)
def test_rates_by_hand(metrics: dict[str, Any], key: str, k: int, n: int, asked: int | None) -> None:
    rate = metrics[key]
    assert (rate["k"], rate["n"], rate.get("asked")) == (k, n, asked)
    assert rate["value"] == (pytest.approx(k / n) if n else None)
    if n:
        assert rate["low"] <= rate["value"] <= rate["high"]


def test_plain_figures_by_hand(metrics: dict[str, Any]) -> None:
    assert metrics["round"] == 3
    assert (metrics["questions"], metrics["parsed"], metrics["kept"]) == (12, 11, 6)
    assert metrics["decisions"] == {
        "invalid": 2,
        "kept": 6,
        "malformed": 1,
        "too_easy": 1,
        "too_hard": 1,
        "undecided": 1,
    }
    assert metrics["balanced_accuracy"]["value"] == pytest.approx((0.75 + 0.5) / 2)
    assert (metrics["distinct_patterns"], metrics["distinct_patterns_kept"]) == (5, 3)
    assert metrics["pattern_shares"]["pool"] == [["a", 4], ["b", 2], ["c", 1], ["d", 1], ["e", 1]]
    assert metrics["pattern_shares"]["kept"] == [["a", 2], ["d", 1], ["e", 1]]
    assert metrics["error_types"] == {
        "pool": [["ambiguity", 1], ["contradiction", 1], ["unnamed", 1]],
        "kept": [["ambiguity", 1], ["unnamed", 1]],
    }
    assert metrics["share_histogram"] == [0, 0, 1, 1, 0, 2, 1, 1, 1, 1]
    assert (metrics["seconds"], metrics["seconds_by_stage"]) == (4.0, {"questioner": 1.5, "solver": 2.5})


def test_rewards_of_the_pool_or_of_the_questioner(metrics: dict[str, Any]) -> None:
    assert metrics["reward_source"] == "pool"
    assert metrics["reward_mean"] == pytest.approx(1.0 / 12)  # -1.5 and +2.5 over twelve
    asked = [row("kept", reward=r) for r in (0.0, 0.5, 1.0)] + [row("kept", reward=None)]
    for novelty, question in zip(("novel", "repeated", "undecided", "novel"), asked, strict=True):
        question["novelty"] = {"decision": novelty}
    found = round_metrics(POOL, EVALUATION, round=1, seconds_by_stage={}, questioner_rows=asked, equal=equal)
    assert (found["reward_source"], found["reward_mean"], found["reward_std"]) == ("questioner", 0.5, 0.5)
    assert (found["novel_rate"]["k"], found["novel_rate"]["n"], found["novel_rate"]["asked"]) == (2, 3, 4)


def test_an_empty_round_has_figures_without_values() -> None:
    found = round_metrics([], Evaluation(), round=1, seconds_by_stage={}, equal=equal)
    assert found["valid_rate"]["value"] is None
    assert found["balanced_accuracy"]["value"] is None
    assert found["reward_mean"] is None
    assert found["kept"] == 0
    malformed_only = round_metrics([POOL[0]], Evaluation(), round=1, seconds_by_stage={}, equal=equal)
    assert malformed_only["malformed_rate"]["value"] == 1.0
    assert malformed_only["valid_rate"]["n"] == 0


def test_a_rule_without_votes_leaves_the_gate_open() -> None:
    rows = [row("kept", 0.5, "1", ("a", True, None, "1"), vote=None)]
    found = round_metrics(rows, Evaluation(), round=1, seconds_by_stage={}, equal=equal)
    assert found["gate_valid_recall"]["n"] == 0
    assert found["vote_answered_rate"]["n"] == 0
    assert found["pseudo_label_accuracy"]["value"] == 1.0


def test_an_undecided_vote_is_left_out_of_the_gate() -> None:
    rows = [row("undecided", truth=("a", True, None, "1"), vote="undecided")]
    found = round_metrics(rows, Evaluation(), round=1, seconds_by_stage={}, equal=equal)
    assert found["gate_valid_recall"]["n"] == 0
    assert (found["vote_answered_rate"]["k"], found["vote_answered_rate"]["n"]) == (2, 9)


def test_labels_are_compared_by_value() -> None:
    rows = [row("kept", 0.5, r"\frac{1}{2}", ("a", True, None, "0.5"))]
    found = round_metrics(rows, Evaluation(), round=1, seconds_by_stage={})
    assert found["pseudo_label_accuracy"]["k"] == 1


def test_concentration_by_hand() -> None:
    counts = pattern_counts(["b", "a", "c", "a", None, "d", "e", "f", "g", "b", "a"])
    assert counts == [("a", 3), ("b", 2), ("c", 1), ("d", 1), ("e", 1), ("f", 1), ("g", 1)]
    rate = top_share(counts)
    assert (rate.k, rate.n) == (8, 10)
    assert top_share(counts, top=1).value == 0.3
    assert top_share([]).value is None
    assert top_share(counts, asked=11).asked == 11


def test_histogram_edges() -> None:
    tenths = [i / 10 for i in range(11)]
    assert share_histogram(tenths) == [1] * 9 + [2]
    assert share_histogram([3 / 10, 0.1 + 0.2, 0.7, 7 / 10, None]) == [0, 0, 0, 2, 0, 0, 0, 2, 0, 0]


def test_evaluation_rows() -> None:
    rows = [
        {"kind": "validity", "truth_valid": False, "verdict": "invalid", "question": "q"},
        {"kind": "solver", "decoding": "sampled", "outcome": "right"},
        {"kind": "solver", "decoding": "greedy", "outcome": "undecided"},
    ]
    found = Evaluation.from_rows(rows)
    assert found == Evaluation(((False, Verdict.INVALID),), (Outcome.RIGHT,), (Outcome.UNDECIDED,))
    assert accuracy(found.greedy).to_json()["asked"] == 1
    with pytest.raises(ValueError, match="row 0 is of kind 'x'"):
        Evaluation.from_rows([{"kind": "x"}])
    with pytest.raises(ValueError, match="maybe"):
        Evaluation.from_rows([{"kind": "solver", "decoding": "greedy", "outcome": "maybe"}])
