"""The training reward: calibration, format, and diversity over a memory of questions (Ask-E, training).

``R = R_calib + R_format + R_div`` with ``R_calib`` +1 calibrated, +0.2 too easy, -0.2 too hard, 0 otherwise;
``R_format`` -0.05 a malformed turn; ``R_div = max(0, R_calib) * alpha * (1 - mean cosine to the k nearest questions)``
of the last 5,000, so that only a question that earns something can earn more for being new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aske.labels import Label

Vectors = NDArray[np.float64]  # [question, dimension], rows of length 1 or 0
Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True)
class RewardSettings:
    """What each outcome earns."""

    calibrated: float = 1.0
    too_easy: float = 0.2
    too_hard: float = -0.2
    no_question: float = 0.0  # the malformed final turn costs `malformed` already
    bad_cross_check: float = 0.0
    malformed: float = -0.05  # a malformed turn
    alpha: float = 1.0  # weight of diversity; 0 switches it off
    neighbours: int = 5  # nearest questions of the memory whose cosines are averaged
    memory: int = 5000  # questions remembered

    def __post_init__(self) -> None:
        """Refuse counts and weights outside their range."""
        if self.neighbours < 1 or self.memory < 1 or self.alpha < 0:
            raise ValueError(f"{self}: neighbours and memory must be 1 or more, alpha 0 (off) or more")


@dataclass(frozen=True)
class SessionReward:
    """A reward with its terms: ``total = calibration + format + diversity``."""

    total: float
    terms: dict[str, float]


def calibration(label: Label, settings: RewardSettings = RewardSettings()) -> float | None:
    """Return the calibration term of a label; None where the session is ungradable."""
    match label:
        case Label.CALIBRATED:
            return settings.calibrated
        case Label.TOO_EASY:
            return settings.too_easy
        case Label.TOO_HARD:
            return settings.too_hard
        case Label.NO_QUESTION:
            return settings.no_question
        case Label.BAD_CROSS_CHECK:
            return settings.bad_cross_check
        case Label.UNGRADABLE:
            return None


def unit_rows(vectors: NDArray[Any]) -> Vectors:
    """Return the rows scaled to length 1; rows of zeros stay zeros."""
    values = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    scaled: Vectors = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return scaled


class Memory:
    """The last `size` questions as unit vectors: one for a whole run, over all processes and steps."""

    def __init__(self, size: int = 5000) -> None:
        """Start empty."""
        if size < 1:
            raise ValueError(f"size is {size}; a memory holds at least 1 question, or none is passed")
        self.size = size
        self.questions: list[str] = []
        self.vectors: Vectors | None = None

    def __len__(self) -> int:
        """Return how many questions are remembered."""
        return len(self.questions)

    def similarity(self, vectors: Vectors, neighbours: int) -> list[float]:
        """Return the mean cosine of each row to its nearest rows of the memory; 0 where the memory is empty.

        With fewer than `neighbours` in the memory all of it is averaged.
        """
        if self.vectors is None or not len(self.vectors):
            return [0.0] * len(vectors)
        cosines = vectors @ self.vectors.T
        k = min(neighbours, cosines.shape[1])
        nearest = np.sort(np.partition(cosines, cosines.shape[1] - k, axis=1)[:, -k:], axis=1)
        return [float(row.mean()) for row in nearest]

    def add(self, questions: Sequence[str], vectors: Vectors) -> None:
        """Remember questions; the oldest beyond `size` are forgotten."""
        if not questions:
            return
        self.questions = [*self.questions, *questions][-self.size :]
        joined = vectors if self.vectors is None else np.concatenate([self.vectors, vectors])
        self.vectors = joined[-self.size :]

    def save(self, path: Path) -> None:
        """Write the memory as JSON, whole or not at all; vectors are made anew by `load`'s embedder."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps({"size": self.size, "questions": self.questions}), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path, embed: Embed) -> Memory:
        """Return the memory that `save` wrote."""
        row = json.loads(path.read_text(encoding="utf-8"))
        memory = cls(row["size"])
        if row["questions"]:
            memory.add(row["questions"], unit_rows(embed(row["questions"])))
        return memory


def score(
    labels: Sequence[Label],
    malformed: Sequence[int],
    questions: Sequence[str | None],
    settings: RewardSettings = RewardSettings(),
    memory: Memory | None = None,
    embed: Embed | None = None,
) -> list[SessionReward | None]:
    """Return the reward of each session of a whole batch; None where it is ungradable.

    Every question is scored against the memory as it was before the batch; then all final questions that could be
    graded are remembered, in order.

    Args:
        labels: how the sessions ended.
        malformed: malformed turns of each.
        questions: the final questions, None where there is none.
        settings: what each outcome earns.
        memory: past questions; None: no diversity term.
        embed: turns questions into vectors; needed with a memory.
    """
    if not len(labels) == len(malformed) == len(questions):
        raise ValueError(
            f"{len(labels)} labels, {len(malformed)} counts and {len(questions)} questions are given; "
            "give one of each a session"
        )
    graded = [i for i, (label, q) in enumerate(zip(labels, questions, strict=True)) if label.counted and q is not None]
    novelty: dict[int, float] = {}
    if memory is not None and settings.alpha and graded:
        if embed is None:
            raise ValueError("a memory is given without an embedder; pass embed=")
        texts = [questions[i] or "" for i in graded]
        vectors = unit_rows(embed(texts))
        novelty = {i: 1 - s for i, s in zip(graded, memory.similarity(vectors, settings.neighbours), strict=True)}
        memory.add(texts, vectors)
    rewards: list[SessionReward | None] = []
    for i, (label, wrong) in enumerate(zip(labels, malformed, strict=True)):
        base = calibration(label, settings)
        if base is None:
            rewards.append(None)
            continue
        terms = {
            "calibration": base,
            "format": settings.malformed * wrong if wrong else 0.0,  # never -0.0
            "diversity": max(0.0, base) * settings.alpha * novelty.get(i, 0.0),
        }
        rewards.append(SessionReward(sum(terms.values()), terms))
    return rewards
