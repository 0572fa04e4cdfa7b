"""R-Zero's repetition penalty: BLEU distances, average-linkage clusters, cluster size over batch size.

Distances equal those of a pairwise loop over nltk's ``sentence_bleu`` with ``SmoothingFunction().method1`` on
blank-separated tokens. Clusters equal those of scikit-learn's ``AgglomerativeClustering`` on that matrix (average
linkage, no set number of clusters). The values are nltk's to the last bit, so that ties between distances fall alike.

BLEU is not symmetric: it divides by the n-grams of the hypothesis, and punishes one that is shorter than its reference.
As in R-Zero's released reward, of two questions the earlier in the batch is the hypothesis and the later the reference,
and the value stands in both halves of the matrix. So the order of a batch can move a distance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

ORDERS = 4  # BLEU-4: n-grams of one to four tokens, weight 1/4 each
EPSILON = 0.1  # method1 puts this in place of a count of 0
BLOCK = 256  # hypotheses handled at once: bounds the memory at BLOCK * batch counts an order
COMMON_SHARE = 1 / 16  # n-grams in more of the questions go through a dense product: faster, at most 64 bytes a token


class _Incidence(NamedTuple):
    """Which question holds which n-gram occurrence; the dot product of two rows is their clipped n-gram count."""

    rare: Any  # scipy CSR matrix, float32, shape (questions, rare occurrences)
    common: npt.NDArray[np.float32]  # shape (questions, common occurrences)


def bleu_distances(questions: Sequence[str], *, copies_at_zero: bool = True) -> Matrix:
    """Return ``1 - BLEU`` between all pairs of questions; shape ``(questions, questions)``, symmetric, diagonal 0.

    Entry ``[i, j]`` with ``i < j`` has question i as hypothesis and question j as the only reference.

    Args:
        questions: The batch; an empty text is at distance 1 from every other text.
        copies_at_zero: Put two questions of the same tokens at distance 0 at any length. With False the value is
            nltk's, which finds a BLEU below 1 between a text of one to three tokens and its copy (two equal tokens:
            0.316), and 0 between two empty texts, so that copies can count as novel. From four tokens on both agree.
    """
    tokens = [question.split() for question in questions]
    size = len(tokens)
    distances = np.zeros((size, size))
    incidences = _incidences(tokens)
    lengths = np.array([len(words) for words in tokens], dtype=np.int64)
    distinct, length_index = np.unique(lengths, return_inverse=True)
    logs = {int(grams): _log_precisions(int(grams)) for length in distinct for grams in _gram_counts(int(length))}
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        counts = [_clipped_counts(incidence, start, stop) for incidence in incidences]
        for row in range(start, min(stop, size - 1)):
            matches = [count[row - start, row + 1 - start :] for count in counts]
            brevity = _brevity_penalties(int(lengths[row]), distinct)[length_index[row + 1 :]]
            tables = [logs[grams] for grams in _gram_counts(int(lengths[row]))]
            distances[row, row + 1 :] = 1 - _scores(matches, tables, brevity)
    distances += distances.T
    if copies_at_zero:
        _join_copies(distances, tokens)
    return distances


def bleu_clusters(questions: Sequence[str], threshold: float = 0.5, *, copies_at_zero: bool = True) -> list[int]:
    """Return each question's cluster, numbered from 0 in the order of first appearance.

    Average linkage over `bleu_distances`. Clusters at a distance of ``threshold`` or more stay apart, as in
    scikit-learn. The defaults of both arguments are R-Zero's, save that copies count as copies at any length.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # here, so that importing the package stays light
    from scipy.spatial.distance import squareform

    if len(questions) < 2:
        return [0] * len(questions)
    distances = bleu_distances(questions, copies_at_zero=copies_at_zero)
    tree = linkage(squareform(distances, checks=False), method="average")
    # fcluster joins what lies at its limit; the next smaller number makes the limit itself a cut
    flat = fcluster(tree, np.nextafter(threshold, -np.inf), criterion="distance")
    numbers: dict[int, int] = {}
    return [numbers.setdefault(int(label), len(numbers)) for label in flat]


def cluster_penalty(labels: Sequence[int]) -> list[float]:
    """Return each question's repetition penalty ``cluster size / batch size`` (R-Quest, section 2.1; R-Zero)."""
    sizes = Counter(labels)
    return [sizes[label] / len(labels) for label in labels]


def _gram_counts(length: int) -> list[int]:
    """Return the number of n-grams of each order in a text of `length` tokens; at least 1, as in nltk."""
    return [max(1, length - order + 1) for order in range(1, ORDERS + 1)]


def _incidences(tokens: list[list[str]]) -> list[_Incidence]:
    """Index the n-grams of each order, 1 to 4: the t-th occurrence of an n-gram in a question is a column of its own.

    min(a, b) = sum over t of [a >= t][b >= t], so clipped counts are products of this 0/1 matrix with itself.
    """
    vocabulary: dict[str, int] = {}
    words = np.array([vocabulary.setdefault(word, len(vocabulary)) for text in tokens for word in text], dtype=np.int64)
    rows = np.repeat(np.arange(len(tokens)), [len(text) for text in tokens])  # the question of each position
    found: list[_Incidence] = []
    grams = words  # number of the n-gram that begins at each position of `rows`
    places = np.arange(len(words))  # those positions
    for order in range(1, ORDERS + 1):
        if order > 1:
            inside = places + order - 1 < len(words)
            inside[inside] &= rows[places[inside] + order - 1] == rows[places[inside]]
            places = places[inside]
            pairs = grams[inside] * len(vocabulary) + words[places + order - 1]
            grams = np.unique(pairs, return_inverse=True)[1]
        found.append(_incidence(rows[places], grams, len(tokens)))
    return found


def _incidence(rows: Indices, grams: Indices, questions: int) -> _Incidence:
    """Return the 0/1 matrix of n-gram occurrences; occurrences that one question alone holds are left out."""
    from scipy.sparse import csr_matrix

    by_gram = np.lexsort((grams, rows))
    rows, grams = rows[by_gram], grams[by_gram]
    place = np.arange(len(rows))
    first = np.ones(len(rows), dtype=bool)  # begins a run of equal n-grams within one question
    first[1:] = (rows[1:] != rows[:-1]) | (grams[1:] != grams[:-1])
    occurrence = place - np.maximum.accumulate(np.where(first, place, 0))
    keys = grams * (len(rows) + 1) + occurrence
    columns = np.unique(keys, return_inverse=True)[1]
    holders = np.bincount(columns)  # questions that hold each column
    whole = csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=(questions, len(holders))).tocsc()
    is_common = holders > COMMON_SHARE * questions
    return _Incidence(whole[:, (holders > 1) & ~is_common].tocsr(), whole[:, is_common].toarray())


def _clipped_counts(incidence: _Incidence, start: int, stop: int) -> npt.NDArray[np.intp]:
    """Return the clipped n-gram matches of questions start..stop with questions start..end (exact integers)."""
    dense = incidence.common[start:stop] @ incidence.common[start:].T
    sparse = (incidence.rare[start:stop] @ incidence.rare[start:].T).tocoo()
    dense[sparse.row, sparse.col] += sparse.data
    return dense.astype(np.intp)


def _log_precisions(grams: int) -> Matrix:
    """Return ``log(matches / grams) / 4`` for 0..grams matches, smoothed at 0."""
    return np.array([math.log((matches or EPSILON) / grams) / ORDERS for matches in range(grams + 1)])


def _brevity_penalties(length: int, references: npt.NDArray[np.int64]) -> Matrix:
    """Return the factor that punishes a hypothesis of `length` tokens beside references of these lengths."""
    if length == 0:
        return np.zeros(len(references))
    return np.array([1.0 if length > other else math.exp(1 - other / length) for other in references.tolist()])


def _scores(matches: list[npt.NDArray[np.intp]], tables: list[Matrix], brevity: Matrix) -> Matrix:
    """Return BLEU from the matches of each order; 0 where no single token matches."""
    logs = _exact_sum([table[found] for table, found in zip(tables, matches, strict=True)])
    # math.exp and not numpy's: the two differ in the last bit on some processors
    means = np.fromiter(map(math.exp, logs.tolist()), dtype=np.float64, count=len(logs))
    return np.where(matches[0] > 0, brevity * means, 0.0)


def _exact_sum(terms: list[Matrix]) -> Matrix:
    """Return the elementwise sum, rounded once at the end as `math.fsum` does (Knuth's two-sum)."""
    total = terms[0]
    lost = np.zeros_like(total)
    for term in terms[1:]:
        larger = total + term
        shadow = larger - total
        lost = lost + ((total - (larger - shadow)) + (term - shadow))
        total = larger
    return total + lost


def _join_copies(distances: Matrix, tokens: list[list[str]]) -> None:
    """Put questions of equal tokens at distance 0, in place."""
    copies: dict[tuple[str, ...], list[int]] = {}
    for row, words in enumerate(tokens):
        copies.setdefault(tuple(words), []).append(row)
    for rows in copies.values():
        if len(rows) > 1:
            distances[np.ix_(rows, rows)] = 0.0
