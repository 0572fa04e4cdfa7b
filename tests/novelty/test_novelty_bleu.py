"""BLEU distances against nltk's loop and clusters against scikit-learn's."""

import random
import warnings

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering

from novelty import bleu_clusters, bleu_distances, cluster_penalty

bleu_score = pytest.importorskip("nltk.translate.bleu_score", reason="nltk is the reference")

SENTENCE = "find the sum of two primes and a square root when x is 3 or 7 what remains \\(n\\) $x^2$ ?"
WORDS = SENTENCE.split()


def nltk_distances(questions: list[str]) -> np.ndarray:
    """Return 1 - sentence_bleu with the later question as reference, in both halves."""
    smoothing = bleu_score.SmoothingFunction().method1
    distances = np.zeros((len(questions), len(questions)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, hypothesis in enumerate(questions):
            for j in range(i + 1, len(questions)):
                reference = questions[j].split()
                score = bleu_score.sentence_bleu([reference], hypothesis.split(), smoothing_function=smoothing)
                distances[i, j] = distances[j, i] = 1 - score
    return distances


def sklearn_labels(distances: np.ndarray, threshold: float) -> list[int]:
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="average", distance_threshold=threshold
    )
    return [int(label) for label in clustering.fit_predict(distances)]


def same_partition(first: list[int], second: list[int]) -> bool:
    return len(set(zip(first, second, strict=True))) == len(set(first)) == len(set(second))


def random_questions(seed: int, count: int = 70) -> list[str]:
    """Return texts of 0 to 40 words: fresh ones, copies, and copies with a word changed, doubled or dropped."""
    stream = random.Random(seed)
    questions: list[str] = []
    for _ in range(count):
        words = [stream.choice(WORDS) for _ in range(stream.choice([0, 1, 2, 3, 4, 5, 8, 15, 40]))]
        if questions and stream.random() < 0.6:
            words = stream.choice(questions).split()
            for _ in range(stream.randint(0, 3)):
                place = stream.randint(0, len(words))
                words[place : place + stream.randint(0, 1)] = [stream.choice(WORDS)] * stream.randint(0, 2)
        questions.append("  ".join(words))
    return questions


@pytest.mark.parametrize("seed", range(4))
def test_distances_are_nltks_to_the_last_bit(seed: int) -> None:
    questions = random_questions(seed)
    expected = nltk_distances(questions)
    found = bleu_distances(questions, copies_at_zero=False)
    assert np.abs(found - expected).max() <= 1e-12
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "questions",
    [
        ["the the the the the the the", "the cat is on the mat", "the the cat"],  # repeated words are clipped
        ["a b c", "a b c"],
        ["a b", "a b"],
        ["a", "a"],
        ["", ""],
        ["", "Find x."],
        ["Find x.", ""],
        ["Solve", "Compute"],
        ["Evaluate", "Evaluate the sum of two primes"],
        ["Evaluate the sum of two primes", "Evaluate"],
        ["a b c d", "a b c d"],
        ["a b c d e", "e d c b a"],
        ["x\u00a0y z", "x y z"],  # a no-break space parts words too
    ],
)
def test_short_and_odd_texts(questions: list[str]) -> None:
    assert np.array_equal(bleu_distances(questions, copies_at_zero=False), nltk_distances(questions))


def test_one_value_by_hand() -> None:
    """Hypothesis a b c d, reference a b c e f: 3/4, 2/3, 1/2, smoothed 0.1/1; shorter by one: exp(1 - 5/4)."""
    score = np.exp(1 - 5 / 4) * (3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25
    assert bleu_distances(["a b c d", "a b c e f"])[0, 1] == pytest.approx(1 - score, abs=1e-15)


def test_the_earlier_question_is_the_hypothesis() -> None:
    short, long = "find the sum of primes", "find the sum of primes below ten and explain why"
    as_hypothesis, as_reference = bleu_distances([short, long])[0, 1], bleu_distances([long, short])[0, 1]
    assert as_hypothesis == nltk_distances([short, long])[0, 1]
    assert as_reference == nltk_distances([long, short])[0, 1]
    assert as_hypothesis != as_reference


def test_a_copy_is_at_distance_zero_at_any_length() -> None:
    questions = ["Find x.", "Find x.", "Solve", "Solve", "", "", "a b c", "a  b c", "one two three four", "x"]
    distances = bleu_distances(questions)
    for first, second in ((0, 1), (2, 3), (4, 5), (6, 7)):
        assert distances[first, second] == distances[second, first] == 0
    plain = bleu_distances(questions, copies_at_zero=False)
    assert plain[0, 1] == pytest.approx(1 - 0.316, abs=1e-3)  # nltk's value for two equal tokens
    assert plain[4, 5] == 1
    changed = distances != plain
    assert changed.sum() == 8  # the four pairs, in both halves
    assert bleu_clusters(questions) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5]
    assert bleu_clusters(questions, copies_at_zero=False)[:2] == [0, 1]


def test_bounds_shape_and_symmetry() -> None:
    questions = random_questions(9, 300)  # more than one block of rows
    distances = bleu_distances(questions)
    assert distances.shape == (300, 300)
    assert np.array_equal(distances, distances.T)
    assert not distances.diagonal().any()
    assert distances.min() >= 0 and distances.max() <= 1
    assert np.array_equal(bleu_distances(questions[280:] + questions[:5])[:20, :20], distances[280:, 280:])


def test_blocks_agree_with_a_sample_of_nltks_pairs() -> None:
    questions = random_questions(10, 600)
    distances = bleu_distances(questions, copies_at_zero=False)
    stream = random.Random(0)
    for _ in range(1500):
        first, second = sorted(stream.sample(range(600), 2))
        expected = nltk_distances([questions[first], questions[second]])[0, 1]
        assert distances[first, second] == expected


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_scikit_learns(seed: int) -> None:
    questions = random_questions(seed + 100, 50)
    distances = nltk_distances(questions)
    for threshold in (0.2, 0.5, 0.8):
        found = bleu_clusters(questions, threshold, copies_at_zero=False)
        assert same_partition(found, sklearn_labels(distances, threshold))
        assert found == [sorted(set(found), key=found.index).index(label) for label in found]  # numbered as they appear


def test_a_distance_equal_to_the_threshold_is_a_cut() -> None:
    questions = ["a b c d", "a b c e f", "a b c d", "v w x y z"]
    distances = bleu_distances(questions)
    limit = float(distances[0, 1])
    pair = [questions[0], questions[1]]
    assert bleu_clusters(pair, limit) == [0, 1]
    assert same_partition([0, 1], sklearn_labels(bleu_distances(pair), limit))
    assert bleu_clusters(pair, float(np.nextafter(limit, 1))) == [0, 0]
    assert bleu_clusters(["p q", "r s"], 1.0) == [0, 1]
    assert same_partition([0, 1], sklearn_labels(bleu_distances(["p q", "r s"]), 1.0))


def test_clusters_with_many_equal_distances_are_scikit_learns() -> None:
    """Few distinct texts, many copies, short ones: nearly every distance occurs many times."""
    stream = random.Random(5)
    base = ["find the sum of two", "find the sum of primes", "find a square root of x", "a b", "a c", "x is 3", ""]
    for _ in range(8):
        questions = [stream.choice(base) for _ in range(30)]
        distances = nltk_distances(questions)
        for threshold in (0.3, 0.5, 0.7):
            found = bleu_clusters(questions, threshold, copies_at_zero=False)
            assert same_partition(found, sklearn_labels(distances, threshold))


def test_no_question_and_one_question() -> None:
    assert bleu_distances([]).shape == (0, 0)
    assert bleu_distances(["Find x."]).tolist() == [[0.0]]
    assert bleu_clusters([]) == []
    assert bleu_clusters(["Find x."]) == [0]
    assert bleu_clusters(["", "", ""]) == [0, 0, 0]


def test_penalty_by_hand() -> None:
    assert cluster_penalty([0, 1, 0, 0, 2]) == [3 / 5, 1 / 5, 3 / 5, 3 / 5, 1 / 5]
    assert cluster_penalty([]) == []
