"""BLEU clusters against R-Zero's way: a pairwise nltk loop, then scikit-learn. CPU seconds, one process.

Run ``python tests/benchmarks/bench_bleu.py`` (about a minute). Both ways run in full at the small sizes, which shows
how each grows. At the large size ours runs in full; the loop is timed on a random sample of the pairs there, multiplied
up to all pairs, and marked as estimated. ``--sizes 64 2048`` runs it in full instead (10 to 20 minutes). The last line
is JSON; its ``ratio`` is measured at the largest size that both ways ran in full.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from sklearn.cluster import AgglomerativeClustering

from novelty import bleu_clusters, bleu_distances

Result = TypeVar("Result")
METHOD1 = SmoothingFunction().method1
REFERENCE = "pairwise nltk sentence_bleu (method1) and scikit-learn AgglomerativeClustering (average linkage, 0.5)"

PATTERNS = [
    "A train leaves town {w} at {a} km per hour and a second train leaves town {w} {b} minutes later at {c} km per "
    "hour on the same track . After how many minutes does the second train reach the first , if the first one stops "
    "once for {d} minutes at a station that lies {e} kilometres from the town ?",
    "Let \\( f(x) = {a}x^2 + {b}x + {c} \\) be a polynomial over the {w} . Find the sum of all integers n with "
    "\\( 1 \\le n \\le {d}0 \\) such that f(n) is divisible by {e} , and give the remainder when that sum is "
    "divided by {b} .",
    "In a {w} there are {a} houses in a row , and each house is painted red , blue or green so that no two neighbours "
    "have the same colour and exactly {b} of them are green . In how many ways can this be done if the first house "
    "must be red and the house with number {c} must be blue ?",
    "A sequence is defined by \\( a_1 = {a} \\) , \\( a_2 = {b} \\) , and \\( a_n = {c}a_{{n-1}} - {d}a_{{n-2}} \\) "
    "for all n \\ge 3 . What is the remainder when the sum of the first {e}0 terms of this {w} sequence is divided "
    "by {b} ?",
    "Triangle ABC has sides of length {a} , {b} and {c} . The bisector of the angle at A meets BC in D , and the "
    "circle through A , B and D meets the line AC again in E . Find the {w} length of CE as a fraction in lowest "
    "terms p/q and report the value of p + q + {d} .",
]
WORDS = (
    "village",
    "city",
    "harbour",
    "forest",
    "integers",
    "rationals",
    "linear",
    "exact",
    "famous",
    "remote",
    "quiet",
)


def make_questions(count: int, seed: int = 0) -> list[str]:
    """Return questions of some 60 tokens: five patterns, other numbers, and in half of them a few words changed."""
    stream = random.Random(seed)
    questions = []
    for _ in range(count):
        numbers = {name: stream.randint(2, 60) for name in "abcde"}
        words = stream.choice(PATTERNS).format(w=stream.choice(WORDS), **numbers).split()
        for _ in range(stream.choice([0, 0, 4, 12])):
            words[stream.randrange(len(words))] = stream.choice(WORDS) + stream.choice(
                ["", "s", "ly", str(stream.randint(0, 99))]
            )
        questions.append(" ".join(words))
    return questions


def loop_distances(questions: Sequence[str]) -> np.ndarray:
    """Return the distances of R-Zero's way: every pair by nltk, the later question as reference."""
    distances = np.zeros((len(questions), len(questions)))
    for i, hypothesis in enumerate(questions):
        for j in range(i + 1, len(questions)):
            distances[i, j] = distances[j, i] = 1 - pair_score(hypothesis, questions[j])
    return distances


def pair_score(hypothesis: str, reference: str) -> float:
    """Return nltk's BLEU of one pair."""
    return float(sentence_bleu([reference.split()], hypothesis.split(), smoothing_function=METHOD1))


def loop_clusters(distances: np.ndarray) -> list[int]:
    """Return scikit-learn's clusters."""
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="average", distance_threshold=0.5
    )
    return [int(label) for label in clustering.fit_predict(distances)]


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what the work gives and its CPU seconds."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def ours(questions: Sequence[str]) -> tuple[list[int], float]:
    """Return our clusters and the median CPU seconds of three runs, distances included."""
    runs = [timed(lambda: bleu_clusters(questions, copies_at_zero=False)) for _ in range(3)]
    return runs[0][0], sorted(seconds for _, seconds in runs)[1]


def compare(size: int) -> dict[str, float]:
    """Run both ways in full at one size, check that they agree, and return the seconds and their ratio."""
    questions = make_questions(size)
    distances, loop_seconds = timed(lambda: loop_distances(questions))
    labels, cluster_seconds = timed(lambda: loop_clusters(distances))
    found, seconds = ours(questions)
    if not np.array_equal(distances, bleu_distances(questions, copies_at_zero=False)):
        raise SystemExit(f"at {size} questions the distances differ from nltk's")
    if not len(set(zip(found, labels, strict=True))) == len(set(found)) == len(set(labels)):
        raise SystemExit(f"at {size} questions the clusters differ from scikit-learn's")
    total = loop_seconds + cluster_seconds
    return {"questions": size, "loop_seconds": total, "seconds": seconds, "ratio": total / seconds}


def estimate(size: int, pairs: int) -> dict[str, float]:
    """Run ours in full and the loop on a sample of pairs; the loop's total is the sample's mean times all pairs."""
    questions = make_questions(size)
    _, seconds = ours(questions)
    distances = bleu_distances(questions, copies_at_zero=False)
    stream = random.Random(1)
    sample = [sorted(stream.sample(range(size), 2)) for _ in range(pairs)]
    scores, sample_seconds = timed(lambda: [pair_score(questions[i], questions[j]) for i, j in sample])
    if any(distances[i, j] != 1 - score for (i, j), score in zip(sample, scores, strict=True)):
        raise SystemExit(f"at {size} questions a distance differs from nltk's")
    total = sample_seconds / pairs * size * (size - 1) / 2
    return {"questions": size, "loop_seconds_estimated": total, "seconds": seconds, "ratio_estimated": total / seconds,
            "pairs_timed": pairs}  # fmt: skip


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256], help="both ways run in full")
    parser.add_argument("--large", type=int, default=2048, help="ours in full, the loop on a sample of pairs")
    parser.add_argument("--pairs", type=int, default=8_000, help="pairs in that sample")
    chosen = parser.parse_args()
    bleu_clusters(make_questions(32))  # imports
    print(f"{'questions':>10} {'loop, s':>10} {'ours, s':>10} {'ratio':>8}")
    rows = []
    for size in sorted(chosen.sizes):
        rows.append(row := compare(size))
        print(f"{size:>10} {row['loop_seconds']:>10.2f} {row['seconds']:>10.4f} {row['ratio']:>8.0f}")
    large = estimate(chosen.large, chosen.pairs)
    print(f"{chosen.large:>10} {large['loop_seconds_estimated']:>10.0f} {large['seconds']:>10.4f} "
          f"{large['ratio_estimated']:>8.0f}  loop estimated from {chosen.pairs} of its pairs")  # fmt: skip
    line = {"benchmark": "bleu", "ratio": rows[-1]["ratio"], "reference": REFERENCE, "unit": "CPU seconds",
            "questions": rows[-1]["questions"], "rows": rows, "large": large}  # fmt: skip
    print(json.dumps(line))


if __name__ == "__main__":
    main()
