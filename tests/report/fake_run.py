"""Make a run folder that looks like a real one, for looking at reports and for their tests.

`python tests/report/fake_run.py DIR` writes DIR/r_quest-s1 .. and DIR/r_zero_code-s1 .. for three seeds each.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATTERNS = (
    "train_meeting", "clock_angle", "gcd_pair", "digit_sum", "arithmetic_sum", "percent_change", "rectangle_area",
    "coin_change", "handshakes", "age_puzzle", "work_rate", "mixture", "remainder", "triangle_angle", "geometric_term",
    "linear_pair", "probability_draw", "paths_on_grid", "prime_count", "average_speed", "discount_chain", "set_overlap",
    "power_mod", "circle_sector",
)  # fmt: skip
ERRORS = ("contradiction", "no_solution", "ambiguity", "missing_information", "malformed")
STAGES = {"questioner": 11.5, "candidates": 2.4, "assessment": 6.1, "data": 0.1, "solver": 9.2, "diagnostics": 1.9}


@dataclass(frozen=True)
class Shape:
    """How a fake recipe's figures move over its rounds, as (first, last)."""

    valid: tuple[float, float]
    kept_shift: float  # validity of kept questions less that of all
    skew: tuple[float, float]  # 0: patterns equally common, 1: very few of them
    label: tuple[float, float]
    recall: tuple[float, float]
    solver: tuple[float, float]


SHAPES = {
    "r_quest": Shape((0.76, 0.80), 0.05, (0.35, 0.33), (0.71, 0.74), (0.82, 0.79), (0.60, 0.66)),
    "r_zero_code": Shape((0.76, 0.45), -0.07, (0.35, 0.95), (0.70, 0.41), (0.58, 0.17), (0.60, 0.49)),
}


def rate(k: int, n: int) -> dict[str, Any]:
    """Return a rate as a run records it; the interval here is the plain normal one, good enough for a picture."""
    if n == 0:
        return {"value": None, "k": 0, "n": 0, "low": None, "high": None}
    value = k / n
    half = 1.96 * (value * (1 - value) / n) ** 0.5
    return {"value": value, "k": k, "n": n, "low": max(0.0, value - half), "high": min(1.0, value + half)}


def lines(path: Path, objects: list[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in objects), encoding="utf-8")


def between(pair: tuple[float, float], number: int, rounds: int) -> float:
    """Return the value of round ``number`` on the straight line from the first to the last round."""
    return pair[0] + (pair[1] - pair[0]) * (number - 1) / max(1, rounds - 1)


def assessed(rng: random.Random, shape: Shape, number: int, rounds: int, stage: str, index: int) -> dict[str, Any]:
    """Return one assessed question, in the form of assessed.jsonl."""
    skew = between(shape.skew, number, rounds)
    pattern = rng.choices(PATTERNS, [1 / (1 + place) ** (2.2 * skew) for place in range(len(PATTERNS))])[0]
    step = index // 100 if stage == "questioner" else 0
    a, b = rng.randint(2, 60), rng.randint(2, 40)
    question = (
        f"A {pattern.replace('_', ' ')} exercise: two trains leave stations {a * 10} km apart and run towards "
        f"each other at {b} and {a} km an hour. After how many whole hours have they passed?"
    )
    record: dict[str, Any] = {
        "id": f"r{number:02d}-{stage}-s{step:02d}-{index:06d}", "round": number, "stage": stage, "step": step,
        "index": index, "reply": f"<question>{question}</question> \\boxed{{ {a} }}", "finish_reason": "stop",
        "question": question, "parse_failure": None, "own_answer": str(a), "validity": None, "solutions": None,
        "novelty": None, "reward": None,
    }  # fmt: skip
    if rng.random() < 0.02:
        record |= {"question": None, "own_answer": None, "parse_failure": "no closing tag", "finish_reason": "length",
                   "reply": "<question>A shop sells a shop sells a shop sells", "decision": "malformed",
                   "reason": "the reply has no complete question", "truth": None}  # fmt: skip
        record["reward"] = reward(-1.0, format=-1.0)
        return record
    truly = rng.random() < between(shape.valid, number, rounds)
    says = between(shape.recall, number, rounds) if not truly else 0.08
    invalid = sum(rng.random() < says * 0.9 for _ in range(9))
    undecided = int(rng.random() < 0.1 and invalid < 9)
    counted = 9 - undecided
    decision = "invalid" if invalid > counted / 2 else "valid"
    record["validity"] = {"decision": decision, "invalid": invalid, "valid": counted - invalid, "undecided": undecided,
                          "asked": 9, "u": invalid / counted}  # fmt: skip
    error = None if truly else rng.choice(ERRORS)
    truth = {"source": "oracle", "pattern": pattern, "valid": truly, "error_type": error}
    record["truth"] = truth | {"answer": str(a) if truly else None}
    if decision == "invalid":
        record["reward"] = reward(0.5 - invalid / counted, format=0.0, validity=0.5 - invalid / counted)
        record |= {"decision": "invalid", "reason": f"{invalid} of {counted} votes say INVALID, more than half"}
        return record
    return solved(rng, record, shape, number, rounds, truly, a)


def reward(total: float, **terms: float) -> dict[str, Any]:
    """Return a reward with its terms by name."""
    return {"total": total, "terms": {"format": 0.0, "validity": 0.0, "uncertainty": 0.0, "novelty": 1.0} | terms}


def solved(
    rng: random.Random, record: dict[str, Any], shape: Shape, number: int, rounds: int, truly: bool, answer: int
) -> dict[str, Any]:
    """Fill in the solutions, the novelty gate, the reward and the decision."""
    top = min(10, max(2, round(rng.gauss(6.2 if truly else 4.2, 2.2))))
    right = truly and rng.random() < between(shape.label, number, rounds) + 0.1
    first = answer if right else answer + 1
    answers = [str(first)] * top + [str(answer + 2 + place // 2) for place in range(10 - top)]
    clusters = [[value, answers.count(value)] for value in dict.fromkeys(answers)]
    rng.shuffle(answers)
    share = top / 10
    record["solutions"] = {
        "answer": str(first), "share": share, "counted": 10, "asked": 10, "tie": False, "clusters": clusters,
        "replies": [f"<think>step by step, {value}</think> the answer is \\boxed{{{value}}}" for value in answers],
    }  # fmt: skip
    gate = 1.0
    if record["stage"] == "questioner":
        repeated = rng.random() < 0.3
        gate = 0.0 if repeated else 1.0
        record["novelty"] = {
            "decision": "repeated" if repeated else "novel", "compared": 8,
            "match": f"r{number:02d}-questioner-s{record['step']:02d}-{record['step'] * 100:06d}" if repeated else None,
            "unreadable": 0, "references": [],
        }  # fmt: skip
    record["reward"] = reward(gate * min(share, 1 - share), uncertainty=min(share, 1 - share), novelty=gate)
    if share > 0.8:
        record |= {"decision": "too_easy", "reason": f"share {share:.2f} is above 0.80"}
    elif share < 0.3:
        record |= {"decision": "too_hard", "reason": f"share {share:.2f} is below 0.30"}
    else:
        record |= {"decision": "kept", "reason": f"share {share:.2f} lies in [0.30, 0.80]"}
    return record


def measured(
    rng: random.Random, records: list[dict[str, Any]], shape: Shape, number: int, rounds: int
) -> dict[str, Any]:
    """Return a round's object of metrics.jsonl, counted from its candidates."""
    parsed = [item for item in records if item["question"]]
    kept = [item for item in parsed if item["decision"] == "kept"]

    def valid(items: list[dict[str, Any]]) -> dict[str, Any]:
        return rate(sum(item["truth"]["valid"] for item in items), len(items))

    def shares(items: list[dict[str, Any]]) -> list[list[Any]]:
        names = [item["truth"]["pattern"] for item in items]
        return sorted(([name, names.count(name)] for name in set(names)), key=lambda pair: -pair[1])

    def top5(items: list[dict[str, Any]]) -> dict[str, Any]:
        return rate(sum(count for _, count in shares(items)[:5]), len(items))

    bad = [item for item in parsed if not item["truth"]["valid"]]
    good = [item for item in parsed if item["truth"]["valid"]]
    caught = rate(sum(item["decision"] == "invalid" for item in bad), len(bad))
    passed = rate(sum(item["decision"] != "invalid" for item in good), len(good))
    keptgood = [item for item in kept if item["truth"]["valid"]]
    right = sum(item["solutions"]["answer"] == item["truth"]["answer"] for item in keptgood)
    solver = between(shape.solver, number, rounds)
    histogram = [0] * 10
    for item in parsed:
        if item["solutions"]:
            histogram[min(9, int(item["solutions"]["share"] * 10))] += 1
    seconds = {name: value * (1 + 0.1 * rng.random()) for name, value in STAGES.items()}
    names = [item["decision"] for item in records]
    return {
        "round": number, "valid_rate": valid(parsed), "valid_rate_kept": valid(kept), "top5_share": top5(parsed),
        "top5_share_kept": top5(kept), "pattern_shares": {"pool": shares(parsed), "kept": shares(kept)},
        "error_types": {name: sum(item["truth"]["error_type"] == name for item in bad) for name in ERRORS},
        "pseudo_label_accuracy": rate(right, len(keptgood)), "majority_accuracy": rate(right, len(keptgood)),
        "label_right_rate": rate(right, len(kept)),
        "balanced_accuracy": {"k": None, "n": len(parsed)}
        | {key: (caught[key] + passed[key]) / 2 for key in ("value", "low", "high")},
        "gate_invalid_recall": caught, "gate_valid_recall": passed,
        "invalid_recall": caught, "valid_recall": passed,
        "solver_accuracy": rate(round(400 * (solver + rng.gauss(0, 0.012))), 400),
        "solver_accuracy_greedy": rate(round(400 * (solver + 0.07 + rng.gauss(0, 0.012))), 400),
        "questions": len(records), "parsed": len(parsed), "kept": len(kept),
        "undecided_rate": rate(names.count("undecided"), len(records)),
        "malformed_rate": rate(names.count("malformed"), len(records)),
        "decisions": {name: names.count(name) for name in dict.fromkeys(names)},
        "distinct_patterns": len(shares(parsed)), "reward_mean": 0.18 + 0.008 * number, "reward_std": 0.16,
        "share_histogram": histogram, "seconds": sum(seconds.values()), "seconds_by_stage": seconds,
    }  # fmt: skip


def start(shape: Shape) -> dict[str, Any]:
    """Return the object of round 0: the evaluation before any round."""
    solver = shape.solver[0] - 0.01
    return {"round": 0, "solver_accuracy": rate(round(400 * solver), 400), "valid_rate": None,
            "solver_accuracy_greedy": rate(round(400 * (solver + 0.06)), 400), "seconds": 2.1}  # fmt: skip


def write_fake_run(
    folder: Path,
    recipe: str = "r_quest",
    seed: int = 1,
    rounds: int = 10,
    questions: int = 400,
    planned: int | None = None,
) -> Path:
    """Write a run folder of ``rounds`` complete rounds out of ``planned`` and return it."""
    rng = random.Random(f"{recipe}-{seed}")
    shape = SHAPES[recipe]
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "name": recipe,
        "description": "Synthetic figures for looking at reports",
        "seed": seed,
        "rounds": planned or rounds,
        "backbone": "testbed:base-m",
        "referee": "oracle",
        "novelty": {"k": 8 if recipe == "r_quest" else 0},
        "assessment": {"share_low": 0.3, "share_high": 0.8},
        "monitor": {"min_valid_rate": 0.5, "min_kept": 32},
    }
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    (folder / "environment.json").write_text('{"python": "3.11.7", "torch": "2.13.0"}', encoding="utf-8")
    lines(folder / "initialisation" / "start.json", [start(shape)])
    (folder / "initialisation" / "DONE.json").write_text('{"seconds": 41.5}', encoding="utf-8")
    everything = []
    for number in range(1, rounds + 1):
        base = folder / "rounds" / f"{number:02d}"
        asked = [assessed(rng, shape, number, rounds, "questioner", index) for index in range(questions // 2)]
        pool = [assessed(rng, shape, number, rounds, "assessment", index) for index in range(questions)]
        figures = measured(rng, pool, shape, number, rounds) | {"referee": "oracle"}
        lines(base / "diagnostics" / "truths.jsonl", [{"id": item["id"], "truth": item["truth"]} for item in pool])
        lines(base / "questioner" / "assessed.jsonl", [item | {"truth": None} for item in asked])
        lines(base / "assessment" / "assessed.jsonl", [item | {"truth": None} for item in pool])
        everything.append(figures)
        for stage in STAGES:
            (base / stage).mkdir(exist_ok=True)
            (base / stage / "DONE.json").write_text(json.dumps({"seconds": figures["seconds_by_stage"][stage]}))
        (base / "diagnostics" / "metrics.json").write_text(json.dumps(figures), encoding="utf-8")
    lines(folder / "metrics.jsonl", everything)
    return folder


if __name__ == "__main__":
    home = Path(sys.argv[1])
    for name in SHAPES:
        for number in (1, 2, 3):
            print(write_fake_run(home / f"{name}-s{number}", name, number))
