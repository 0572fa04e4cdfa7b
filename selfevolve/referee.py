"""The referee: who says what is really so about a question. For diagnostics only; nothing in training reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from novelty import Grouper, ModelGrouper, group_patterns
from selfevolve.prompts import PromptPack
from selfevolve.sampling import Sampler, Sampling
from validity import Verdict, read_verdict

TruthRow = dict[str, Any]  # source, pattern, valid, error_type, answer; a value that the referee cannot tell is None


class Referee(Protocol):
    """Says what is so about questions."""

    source: str  # "oracle" or "model": shown beside every figure that rests on it
    top5_shares: list[float]  # of the questions last judged, one an ordering; empty where patterns are exact

    def truths(self, questions: Sequence[str | None]) -> list[TruthRow | None]:
        """Return a truth a question; None where there is no question or the referee gives none."""
        ...


class OracleReferee:
    """The testbed's oracle: exact."""

    source = "oracle"

    def __init__(self) -> None:
        """Patterns are exact, so no ordering matters."""
        self.top5_shares: list[float] = []

    def truths(self, questions: Sequence[str | None]) -> list[TruthRow | None]:
        """Return the exact truth of each question."""
        from selfevolve.testbed import oracle

        return [None if q is None else oracle(q).to_json() for q in questions]


class ModelReferee:
    """A model as validity and pattern judge: an opinion, marked as such. It gives no reference answers."""

    source = "model"

    def __init__(
        self,
        sampler: Sampler,
        pack: PromptPack,
        sampling: Sampling,
        orderings: int = 3,
        grouper: Grouper | None = None,
    ) -> None:
        """Judge with greedy replies of `sampler`; patterns by `grouper` (default: the same model).

        Questions are grouped in several orderings (R-Quest, appendix B.3): the first one's groups stand in the truths,
        and each one's top-five share in `top5_shares`.
        """
        self.sampler, self.pack, self.orderings = sampler, pack, orderings
        self.top5_shares: list[float] = []
        self.sampling = Sampling(n=1, temperature=0.0, max_tokens=sampling.max_tokens, seed=sampling.seed)
        self.grouper = grouper or ModelGrouper(sampler, sampling=self.sampling)

    def truths(self, questions: Sequence[str | None]) -> list[TruthRow | None]:
        """Return the model's opinion of each question; undecided values are None."""
        asked = [q for q in questions if q is not None]
        if not asked:
            return [None] * len(questions)
        replies = self.sampler.sample([self.pack.check(q) for q in asked], self.sampling)
        verdicts = [read_verdict(group[0]) for group in replies]
        grouping = group_patterns(asked, self.grouper, orderings=self.orderings, seed=self.sampling.seed)
        self.top5_shares = [share for one in grouping.passes if (share := one.top_share()) is not None]
        groups = grouping.passes[0].members
        rows = iter(
            {
                "source": f"model {self.sampler.name}",
                "pattern": group,
                "valid": None if verdict is Verdict.UNDECIDED else verdict is Verdict.VALID,
                "error_type": None,
                "answer": None,
            }
            for verdict, group in zip(verdicts, groups, strict=True)
        )
        return [None if q is None else next(rows) for q in questions]
