"""Speed of the vote against the pairwise symbolic way of R-Zero's released code.

    python tests/benchmarks/bench_vote.py [--questions 2000] [--reference 150] [--seed 0]

Both get the same generated answers: ten a question, of one field each, with a majority value and strays, every value in
several spellings, some answers missing. The reference puts an answer into the first cluster whose head mathruler calls
equal in either direction, in one process; since it is slow it runs on the first ``--reference`` questions, and the
ratio compares CPU seconds a question. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from fractions import Fraction

from selfevolve.answers import vote_many

SAMPLES = 10


def spellings(rng: random.Random) -> list[list[str]]:
    """Return six values of one field, each in its spellings; the first value is the majority's."""
    kind = rng.choice(
        [
            "whole",
            "whole",
            "whole",
            "fraction",
            "fraction",
            "root",
            "point",
            "list",
            "algebra",
            "percent",
            "unit",
            "word",
        ]
    )
    base = rng.randint(2, 2000)
    values: list[list[str]] = []
    for k in range(6):
        n = base + k * rng.randint(1, 9)
        values.append(_spelt(kind, n, k, rng))
    return values


def _spelt(kind: str, n: int, k: int, rng: random.Random) -> list[str]:
    match kind:
        case "whole":
            return [str(n), f"{n:,}", f"{n}.0", f"x = {n}", f"\\text{{{n}}}", f"{n}\\text{{ }}"]
        case "fraction":
            f = Fraction(n, 8)
            return [f"\\frac{{{f.numerator}}}{{{f.denominator}}}", f"{n}/8", str(n / 8), f"\\dfrac{{{2 * n}}}{{16}}"]
        case "root":
            return [f"{n}\\sqrt{{2}}", f"\\sqrt{{{2 * n * n}}}", f"\\sqrt{{2}}\\cdot {n}", f"{n}\\sqrt2"]
        case "point":
            return [f"({n}, {k})", f"({n},{k})", f"\\left({n},{k}\\right)", f"({n}.0, {k})"]
        case "list":
            return [f"{n}, {n + 3}", f"{n + 3}, {n}", f"x = {n} \\text{{ or }} x = {n + 3}", f"\\{{{n}, {n + 3}\\}}"]
        case "algebra":
            return [f"x^2 + {2 * n}x + {n * n}", f"(x+{n})^2", f"{n * n} + {2 * n}x + x^{{2}}"]
        case "percent":
            return [f"{n % 97 + k}\\%", f"{n % 97 + k}%", f"{n % 97 + k} \\text{{ percent}}"]
        case "unit":
            return [f"{n}\\text{{ cm}}", f"{n} cm", f"{n}", f"{n}\\,\\mathrm{{cm}}"]
        case _:
            word = ["even", "odd", "yes", "no", "Alice", "never"][k]
            return [word, f"\\text{{{word}}}", word.capitalize()]


def questions(count: int, seed: int) -> list[list[str | None]]:
    """Return ``count`` questions' answers; axes ``[question][sample]``."""
    rng = random.Random(seed)
    out: list[list[str | None]] = []
    for _ in range(count):
        values = spellings(rng)
        sure = rng.uniform(0.2, 0.95)  # how often the majority's value is drawn
        answers: list[str | None] = []
        for _ in range(SAMPLES):
            if rng.random() < 0.05:
                answers.append(rng.choice([None, "", "None"]))
                continue
            value = values[0] if rng.random() < sure else rng.choice(values[1:])
            answers.append(rng.choice(value))
        out.append(answers)
    return out


def pairwise(answers: list[str | None]) -> list[tuple[str, int]]:
    """Return clusters by mathruler's verdict on pairs, each tried in both directions, as R-Zero's code groups them."""
    from mathruler.grader import grade_answer

    heads: list[str] = []
    sizes: list[int] = []
    for answer in answers:
        text = str(answer)
        for at, head in enumerate(heads):
            if grade_answer(text, head) or grade_answer(head, text):
                sizes[at] += 1
                break
        else:
            heads.append(text)
            sizes.append(1)
    return list(zip(heads, sizes, strict=True))


def main() -> None:
    """Run both and print the figures."""
    parser = argparse.ArgumentParser(description="vote against pairwise symbolic clustering")
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--reference", type=int, default=150, help="questions that the slow way is run on")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    asked = questions(chosen.questions, chosen.seed)
    pairwise(["1", "2"])  # the imports of either are not counted
    vote_many([["\\sqrt{2}", "2"]])
    start = time.process_time()
    votes = vote_many(asked)
    ours = time.process_time() - start
    start = time.process_time()
    clusters = [pairwise(answers) for answers in asked[: chosen.reference]]
    reference = time.process_time() - start
    whole = reference / chosen.reference * chosen.questions
    more = sum(len(theirs) > len(v.clusters) for theirs, v in zip(clusters, votes, strict=False))
    print(json.dumps({
        "benchmark": "vote",
        "questions": chosen.questions,
        "samples": SAMPLES,
        "ours_cpu_s": round(ours, 3),
        "reference_cpu_s_for_all": round(whole, 1),
        "reference_ran_on": chosen.reference,
        "questions_split_further_by_reference": more,
        "ratio": round(whole / ours, 1),
        "reference": "pairwise mathruler.grade_answer in both directions, greedy clusters (R-Zero's way), same answers",
    }))  # fmt: skip


if __name__ == "__main__":
    main()
