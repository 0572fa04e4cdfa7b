"""The shared tables of public bug reports, tricky pairs and labelled equivalences, where they are at hand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from selfevolve.answers import (
    Equivalence,
    compare,
    extract,
    extract_choice,
    extract_final_number,
    read_json,
    read_label,
    vote,
)

# The rows' labels that this package answers otherwise, each with its reason.
OTHERWISE = {
    "empty vs empty": "two missing answers are no match",
    "None vs None": "two missing answers are no match",
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def reports(shared: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in read_rows(shared / "cases" / "public-bug-reports.jsonl")}


def answer(op: str, row: dict[str, Any]) -> Any:
    given = row["input"]
    if op == "extract_answer":
        cases = given.get("cases") or [{"text": t, "finish_reason": "stop"} for t in given["texts"]]
        return [extract(c["text"], c["finish_reason"]) for c in cases]
    if op == "extract_final_number":
        return [extract_final_number(t) for t in given["texts"]]
    if op == "extract_choice":
        return [extract_choice(t, given["labels"]) for t in given["texts"]]
    if op == "judge_verdict":
        return [read_label(t, given["labels"]) for t in given["texts"]]
    if op == "judge_json":
        return [read_json(t) for t in given["texts"]]
    return [compare(a, b) is Equivalence.SAME for a, b in given["pairs"]]


def test_public_bug_reports(shared: Path) -> None:
    ops = ("extract_answer", "extract_final_number", "extract_choice", "judge_verdict", "judge_json", "equivalent")
    tried = 0
    for name, row in reports(shared).items():
        op = row["input"].get("op")
        if op not in ops or row["kind"] != "exact":
            continue
        found = answer(op, row)
        for got, wanted in zip(found, row["expected"], strict=True):
            if isinstance(wanted, str) and wanted.startswith("convention"):
                wanted = True  # written down in docs/answers.md
            assert got == wanted, (name, row["what_happened"], found)
        tried += 1
    assert tried >= 16


def test_reports_on_voting(shared: Path) -> None:
    rows = reports(shared)
    first = vote(rows["S23"]["input"]["answers"])
    assert (first.votes, first.asked, first.share) == (3, 4, 0.75)
    for answers, wanted in zip(rows["S24"]["input"]["cases"], rows["S24"]["expected"], strict=True):
        found = vote(answers, denominator="asked")
        assert (found.answer, found.votes, found.asked, found.share) == (
            wanted["winner_value"], wanted["votes"], wanted["of"], wanted["share"],
        )  # fmt: skip
        assert found.asked - found.counted == wanted["unparsed"]


def test_tricky_pairs(shared: Path) -> None:
    for row in read_rows(shared / "cases" / "tricky-answer-pairs.jsonl"):
        verdict = compare(row["gold"], row["predicted"])
        assert compare(row["predicted"], row["gold"]) is verdict
        if row["label"] not in OTHERWISE:
            assert (verdict is Equivalence.SAME) == row["equivalent"], row["label"]


def measuring() -> Any:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "measure_equivalence.py"
    spec = importlib.util.spec_from_file_location("measure_equivalence", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_labelled_equivalences(shared: Path) -> None:
    tool = measuring()
    rows = [r for r in tool.rows_of(shared / "data" / "answer_equivalence.jsonl.gz") if tool.sound(r)]
    result = tool.measure(rows, show=False)
    assert result["rows"] >= 600
    assert result["accuracy"] >= 0.98
    assert result["false_same"] == 0


@pytest.mark.parametrize("name", ["math_math500.jsonl", "math_olympiadbench.jsonl.gz", "math_minerva.jsonl"])
def test_gold_answers_equal_themselves(shared: Path, name: str) -> None:
    answers = [str(row["answer"]) for row in measuring().rows_of(shared / "data" / name)]
    assert [a for a in answers if compare(a, a) is not Equivalence.SAME] == []
