"""The assessment of questions: validity vote -> solutions -> novelty -> reward. Exists once.

The questioner's GRPO reward and the building of solver data both call `Assessor.assess`; the second one with
``rewarded=False``, since the novelty gate and the repetition penalty belong to the questioner's reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from novelty import NoveltyDecision, NoveltyGate, NoveltyJudge, NoveltyResult, bleu_clusters
from selfevolve.answers import extract, vote
from selfevolve.prompts import PromptPack
from selfevolve.records import Assessed, Candidate, Decision, Solutions
from selfevolve.rewards import Measured, Reward, RewardRule
from selfevolve.sampling import Prompt, Reply, Sampler, Sampling
from validity import ValidityDecision, ValidityVote, gate_value, read_verdict, vote_validity

Progress = Callable[[str, int, int], None]  # (what is being done, done, of)


@dataclass(frozen=True)
class AssessmentSettings:
    """What an assessment asks for; the recipe's sections ``assessment``, ``novelty`` and ``reward`` in plain form."""

    votes: int  # validity replies a question; unused without a validity judge
    solutions: int  # fresh solutions a question
    share_low: float  # the window of kept shares, ends included
    share_high: float
    denominator: Literal["answered", "asked"]  # of the majority share and of u
    min_answered: float  # share of solutions that must be answered, else undecided
    min_answered_votes: float  # share of validity replies that must be readable, else undecided
    sampling: Sampling  # temperature, top_p, top_k and max_tokens of votes and solutions; n and seed are set here
    bleu_threshold: float | None = None  # cluster distance of the repetition penalty; None: no clusters


@dataclass
class Usage:
    """What an assessor has spent; grows over its life."""

    replies: dict[str, int] = field(default_factory=dict)  # replies by step
    tokens: dict[str, int] = field(default_factory=dict)  # new tokens by step

    def add(self, step: str, replies: int, tokens: int) -> None:
        """Count what one step asked for."""
        self.replies[step] = self.replies.get(step, 0) + replies
        self.tokens[step] = self.tokens.get(step, 0) + tokens


@dataclass
class Assessor:
    """Assesses candidates with a frozen solver, a validity judge and a novelty gate, each optional but the solver."""

    pack: PromptPack
    solver: Sampler
    settings: AssessmentSettings
    rule: RewardRule
    validity_judge: Sampler | None = None  # None: no validity vote
    novelty_gate: NoveltyGate | None = None
    novelty_judge: NoveltyJudge | None = None  # needed with a gate
    usage: Usage = field(default_factory=Usage)

    def assess(
        self, candidates: Sequence[Candidate], *, seed: int, rewarded: bool, progress: Progress | None = None
    ) -> list[Assessed]:
        """Return every candidate assessed, in order.

        Args:
            candidates: The whole batch, of all processes.
            seed: Seed of votes, solutions and novelty draws.
            rewarded: Also run the novelty gate and the clusters, and give the questioner's reward.
            progress: Told before each step how many questions it concerns.
        """
        tell = progress or (lambda step, done, of: None)
        questions = [c.question for c in candidates]
        open_ = [i for i, q in enumerate(questions) if q is not None]
        tell("validity votes", 0, len(open_))
        votes = self._votes(questions, open_, seed)
        passed = [i for i in open_ if _passed(votes[i])]
        tell("solutions", 0, len(passed))
        solutions = self._solutions(questions, passed, seed)
        parts = [
            _Parts(c, votes.get(i), solutions.get(i), *self._decide(c, votes.get(i), solutions.get(i)))
            for i, c in enumerate(candidates)
        ]
        if not rewarded:
            return [p.assessed(None, None) for p in parts]
        tell("novelty", 0, len(passed))
        return self._rewarded(parts, seed)

    # ------------------------------------------------------------ steps

    def _ask(self, step: str, sampler: Sampler, prompts: list[Prompt], n: int, seed: int) -> list[list[Reply]]:
        replies = sampler.sample(prompts, replace(self.settings.sampling, n=n, seed=seed))
        self.usage.add(step, n * len(prompts), sum(r.completion_tokens for group in replies for r in group))
        return replies

    def _votes(self, questions: Sequence[str | None], open_: list[int], seed: int) -> dict[int, ValidityVote | None]:
        if self.validity_judge is None:
            return dict.fromkeys(open_)
        prompts = [self.pack.check(questions[i] or "") for i in open_]
        groups = self._ask("votes", self.validity_judge, prompts, self.settings.votes, seed)
        s = self.settings
        return {
            i: vote_validity([read_verdict(r) for r in group], s.denominator, s.min_answered_votes)
            for i, group in zip(open_, groups, strict=True)
        }

    def _solutions(self, questions: Sequence[str | None], passed: list[int], seed: int) -> dict[int, Solutions]:
        prompts = [self.pack.solve(questions[i] or "") for i in passed]
        groups = self._ask("solutions", self.solver, prompts, self.settings.solutions, seed + 1)
        return {
            i: Solutions(
                vote([extract(r.text, r.finish_reason) for r in group], self.settings.denominator),
                tuple(r.text for r in group),
            )
            for i, group in zip(passed, groups, strict=True)
        }

    def _decide(
        self, candidate: Candidate, validity: ValidityVote | None, solutions: Solutions | None
    ) -> tuple[Decision, str]:
        s = self.settings
        if candidate.parse_failure is not None:
            return Decision.MALFORMED, f"no question: {candidate.parse_failure.value}"
        if validity is not None and validity.decision is ValidityDecision.INVALID:
            return Decision.INVALID, f"{validity.invalid} of {validity.answered} votes say INVALID"
        if validity is not None and validity.decision is ValidityDecision.UNDECIDED:
            return Decision.UNDECIDED, f"only {validity.answered} of {validity.asked} votes could be read"
        assert solutions is not None
        v = solutions.vote
        if v.answer is None:
            return Decision.NO_ANSWER, f"none of {v.asked} solutions has an answer"
        if v.counted < s.min_answered * v.asked:
            return Decision.UNDECIDED, f"only {v.counted} of {v.asked} solutions have an answer"
        window = f"[{s.share_low:.2f}, {s.share_high:.2f}]"
        if v.share > s.share_high + 1e-9:
            return Decision.TOO_EASY, f"share {v.share:.2f} is above {window}"
        if v.share < s.share_low - 1e-9:
            return Decision.TOO_HARD, f"share {v.share:.2f} is below {window}"
        return Decision.KEPT, f"share {v.share:.2f} lies in {window}"

    def _rewarded(self, parts: list[_Parts], seed: int) -> list[Assessed]:
        parsed = [i for i, p in enumerate(parts) if p.candidate.question is not None]
        questions = [parts[i].candidate.question or "" for i in parsed]
        novelty: dict[int, NoveltyResult | None] = {}
        if self.novelty_gate is not None:
            assert self.novelty_judge is not None
            results = self.novelty_gate.decide(
                questions,
                self.novelty_judge,
                seed=seed + 2,
                eligible=[parts[i].solved(self.settings.min_answered) for i in parsed],
                ids=[parts[i].candidate.id for i in parsed],
            )
            novelty = dict(zip(parsed, results, strict=True))
        sizes: dict[int, int] = {}
        if self.settings.bleu_threshold is not None and questions:
            labels = bleu_clusters(questions, self.settings.bleu_threshold)
            counts = {label: labels.count(label) for label in set(labels)}
            sizes = {i: counts[label] for i, label in zip(parsed, labels, strict=True)}
        return [
            p.assessed(novelty.get(i), self._reward(p, novelty.get(i), sizes.get(i), len(parsed)))
            for i, p in enumerate(parts)
        ]

    def _reward(self, p: _Parts, novelty: NoveltyResult | None, cluster: int | None, batch: int) -> Reward:
        novel = None
        if novelty is not None and novelty.decision is not NoveltyDecision.UNDECIDED:
            novel = novelty.decision is NoveltyDecision.NOVEL
        solved = p.solved(self.settings.min_answered)
        return self.rule(
            Measured(
                parsed=p.candidate.question is not None,
                g_valid=gate_value(p.validity) if p.validity else None,
                validity_decision=p.validity.decision if p.validity else None,
                share=p.solutions.vote.share if p.solutions and solved else None,
                solutions_decided=solved,
                novel=novel,
                cluster_size=cluster,
                batch=batch,
            )
        )


def _passed(vote: ValidityVote | None) -> bool:
    return vote is None or vote.decision is ValidityDecision.VALID


@dataclass(frozen=True)
class _Parts:
    """A candidate on its way through the steps."""

    candidate: Candidate
    validity: ValidityVote | None
    solutions: Solutions | None
    decision: Decision
    reason: str

    def solved(self, min_answered: float) -> bool:
        """Return whether enough solutions carry an answer for their share to mean something."""
        if self.solutions is None or self.solutions.vote.answer is None:
            return False
        return self.solutions.vote.counted >= min_answered * self.solutions.vote.asked

    def assessed(self, novelty: NoveltyResult | None, reward: Reward | None) -> Assessed:
        """Return the finished record."""
        return Assessed(self.candidate, self.validity, self.solutions, novelty, reward, self.decision, self.reason)
