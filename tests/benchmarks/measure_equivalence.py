"""Measure `compare` on a file of (gold, predicted, equivalent) rows, and on a file of gold answers against themselves.

    python tests/benchmarks/measure_equivalence.py ROWS.jsonl.gz [--gold GOLD.jsonl] [--show]

A row counts where its label is sound by this rule: it has no ``note`` (the file marks with it a label that is a
convention, holds only up to rounding, or is doubtful) and no ``settings`` (the label then holds under an option of the
source's own grader: a tolerance, a language, a letter out of running text). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

from selfevolve.answers import Equivalence, compare, explain


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file, packed or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def sound(row: dict[str, Any]) -> bool:
    """Return whether the row's label holds without a convention or an option of its source."""
    return not row.get("note") and not row.get("settings")


def measure(rows: list[dict[str, Any]], show: bool) -> dict[str, Any]:
    """Return counts over the rows; ``right`` needs SAME for equivalent rows and anything else for the others."""
    counts = {"rows": len(rows), "right": 0, "false_same": 0, "missed": 0, "undecided": 0}
    for row in rows:
        found = explain(row["gold"], row["predicted"])
        is_same = found.verdict is Equivalence.SAME
        right = is_same == row["equivalent"]
        counts["right"] += right
        counts["false_same"] += is_same and not right
        counts["missed"] += not is_same and not right
        counts["undecided"] += found.verdict is Equivalence.UNDECIDED
        if show and not right:
            print(row["id"], row["label_basis"], repr(row["gold"][-60:]), repr(row["predicted"][-60:]), found)
    return {**counts, "accuracy": round(counts["right"] / max(1, len(rows)), 4)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--gold", type=Path, help="JSONL with an answer field, compared with itself")
    parser.add_argument("--show", action="store_true", help="print the rows that come out wrong")
    chosen = parser.parse_args()
    start = time.perf_counter()
    rows = rows_of(chosen.rows)
    kept = [row for row in rows if sound(row)]
    by_people = [row for row in kept if not row["label_basis"].startswith("model judge")]
    result: dict[str, Any] = {
        "left_out": len(rows) - len(kept),
        "sound": measure(kept, chosen.show),
        "sound_without_model_labels": measure(by_people, False),
        "all": measure(rows, False),
    }
    if chosen.gold:
        answers = [str(row["answer"]) for row in rows_of(chosen.gold)]
        right = sum(compare(answer, answer) is Equivalence.SAME for answer in answers)
        result["gold_against_itself"] = {"rows": len(answers), "right": right}
    result["seconds"] = round(time.perf_counter() - start, 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
