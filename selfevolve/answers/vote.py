"""The majority vote over sampled answers: votes are for values, and a missing answer casts none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from selfevolve.answers._forms import Form, Missing, Scalar
from selfevolve.answers._read import form_of
from selfevolve.answers.equivalence import Equivalence, compare

Denominator = Literal["answered", "asked"]


@dataclass(frozen=True)
class Vote:
    """The outcome of one vote."""

    answer: str | None  # the winning cluster's first answer as written; None when no answer was given
    share: float  # of the largest cluster, over the denominator; 0.0 when no answer was given
    counted: int  # answers that cast a vote
    asked: int  # samples in all
    tie: bool  # another cluster is as large; the one first reached in sample order won
    clusters: tuple[tuple[str, int], ...]  # first answer and size, by size, then by first reached

    @property
    def votes(self) -> int:
        """Size of the largest cluster."""
        return self.clusters[0][1] if self.clusters else 0

    @property
    def share_of_asked(self) -> float:
        """Share of the largest cluster over all samples, missing ones included."""
        return self.votes / self.asked if self.asked else 0.0


def vote(answers: Sequence[str | None], denominator: Denominator = "answered") -> Vote:
    """Return the majority of ``answers`` (axis ``[sample]``) by value.

    An answer joins the first cluster, in the order in which they were reached, that it is the SAME as; UNDECIDED
    pairs stay apart. Missing answers (None, "", "None") cast no vote.
    """
    if denominator not in ("answered", "asked"):
        raise ValueError(f"denominator is {denominator!r}; it must be 'answered' or 'asked'")
    heads: list[tuple[str, Form]] = []
    sizes: list[int] = []
    by_key: dict[object, int] = {}
    for answer in answers:
        form = form_of(answer)
        if answer is None or isinstance(form, Missing):
            continue
        key = form.key
        at = by_key.get(key)
        if at is None:
            at = _place(answer, form, heads)
            if at == len(heads):
                heads.append((answer, form))
                sizes.append(0)
            by_key[key] = at
        sizes[at] += 1
    counted, asked = sum(sizes), len(answers)
    order = sorted(range(len(sizes)), key=lambda k: -sizes[k])
    clusters = tuple((heads[k][0], sizes[k]) for k in order)
    below = counted if denominator == "answered" else asked
    return Vote(
        answer=clusters[0][0] if clusters else None,
        share=clusters[0][1] / below if clusters else 0.0,
        counted=counted,
        asked=asked,
        tie=len(clusters) > 1 and clusters[0][1] == clusters[1][1],
        clusters=clusters,
    )


def _place(answer: str, form: Form, heads: list[tuple[str, Form]]) -> int:
    """Return the number of the cluster that ``answer`` joins; one past the last for a new one.

    Its key is new to the vote, so two plain numbers need no comparison.
    """
    plain = isinstance(form, Scalar) and form.plain
    for at, (head, other) in enumerate(heads):
        if plain and isinstance(other, Scalar) and other.plain:
            continue
        if compare(head, answer) is Equivalence.SAME:
            return at
    return len(heads)


def vote_many(questions: Iterable[Sequence[str | None]], denominator: Denominator = "answered") -> list[Vote]:
    """Return a vote for each question; axes ``[question][sample]``."""
    return [vote(answers, denominator) for answers in questions]
