"""The assessment of questions: validity vote -> novelty -> solutions -> reward. Exists once.

The questioner's GRPO reward and the building of solver data both call `Assessor.assess`; the second one with
``rewarded=False``, since the novelty gate and the repetition penalty belong to the questioner's reward.

With ``early_stop`` nothing is asked that can change no decision and no reward: a validity vote ends when the missing
verdicts cannot turn it (in the questioner's stage an invalid question's vote goes on, since its share is the reward),
and a question that the novelty gate rejects is not solved where its reward is 0 anyway. Draws are those of the full
assessment (`sample_more`), so decisions and rewards are the same; tests/test_early_stop.py shows it.

Under Ask-E's reward the questioner's candidates go to two boundary solvers and a cross-check in place of the solutions
of one solver (`Assessor.ask_e`); solver data is built as ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from aske.game import Seat
from aske.labels import Label
from aske.reward import SessionReward
from novelty import NoveltyDecision, NoveltyGate, NoveltyJudge, NoveltyResult, bleu_clusters
from selfevolve.answers import Vote, extract, vote
from selfevolve.ask_e import AskEJudge
from selfevolve.prompts import PromptPack
from selfevolve.records import AskEResult, Assessed, Candidate, Decision, Solutions, Votes
from selfevolve.rewards import AskERule, Measured, Reward, RewardRule
from selfevolve.sampling import Prompt, Reply, Sampler, Sampling, are_copies, sample_more
from validity import ValidityDecision, Verdict, gate_value, read_verdict, settled, vote_validity

logger = logging.getLogger(__name__)

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
    early_stop: bool = True  # ask for nothing that can change no decision and no reward


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
    """Assesses candidates with a frozen solver, a validity judge and a novelty gate, each optional but the solver.

    `ask_e` and an `AskERule` go together: the questioner's candidates are then labelled by Ask-E's game.
    """

    pack: PromptPack
    solver: Sampler
    settings: AssessmentSettings
    rule: RewardRule | AskERule
    validity_judge: Sampler | None = None  # None: no validity vote
    novelty_gate: NoveltyGate | None = None
    novelty_judge: NoveltyJudge | None = None  # needed with a gate
    ask_e: AskEJudge | None = None  # needed with an `AskERule`
    usage: Usage = field(default_factory=Usage)

    def assess(
        self,
        candidates: Sequence[Candidate],
        *,
        seed: int,
        rewarded: bool,
        progress: Progress | None = None,
        checks: Mapping[int, Sequence[Reply]] | None = None,
        played: Sequence[AskEResult] | None = None,
    ) -> list[Assessed]:
        """Return every candidate assessed, in order.

        Args:
            candidates: The whole batch, of all processes.
            seed: Seed of votes, solutions and novelty draws.
            rewarded: Also run the novelty gate and the clusters, and give the questioner's reward.
            progress: Told before each step how many questions it concerns.
            checks: Ask-E without probes: the questioner's own cross-checks, by place, where it checks itself.
            played: Ask-E with probes: how each candidate's session ended.
        """
        tell = progress or (lambda step, done, of: None)
        questions = [c.question for c in candidates]
        open_ = [i for i, q in enumerate(questions) if q is not None]
        tell("validity votes", 0, len(open_))
        votes = self._votes(questions, open_, seed, whole_invalid=rewarded)
        passed = [i for i in open_ if _passed(votes[i])]
        if rewarded and isinstance(self.rule, AskERule):
            return self._by_ask_e(candidates, votes, seed, tell, checks, played)
        novelty: dict[int, NoveltyResult | None] = {}
        if rewarded:
            tell("novelty", 0, len(passed))
            novelty = self._novelty(candidates, set(passed), seed)
        repeated = {i for i in passed if self._unsolved(novelty.get(i))}
        tell("solutions", 0, len(passed) - len(repeated))
        solutions = self._solutions(questions, passed, repeated, seed)
        parts = [
            _Parts(c, votes.get(i), solutions.get(i), *self._decide(c, votes.get(i), solutions.get(i), novelty.get(i)))
            for i, c in enumerate(candidates)
        ]
        if not rewarded:
            return [p.assessed(None, None) for p in parts]
        measured = self._clustered(candidates, [self._measured(p, novelty.get(i)) for i, p in enumerate(parts)])
        return [p.assessed(novelty.get(i), self.rule(m)) for i, (p, m) in enumerate(zip(parts, measured, strict=True))]

    # ------------------------------------------------------------ steps

    def _ask(
        self, step: str, sampler: Sampler, prompts: list[Prompt], sampling: Sampling, places: Sequence[int]
    ) -> list[list[Reply]]:
        """Ask for samples ``sampling.first`` and on of the prompts at some places of a step's list."""
        replies = sample_more(sampler, prompts, sampling, places)
        self.usage.add(step, sampling.n * len(prompts), sum(r.completion_tokens for group in replies for r in group))
        if sampling.temperature > 0 and are_copies(replies):
            logger.warning(
                "%s: the %d replies to each question are one text (%s): their agreement is no confidence. Look at the "
                "seeds and the temperature of its server, or the solver has collapsed.", step, sampling.n, sampler.name
            )  # fmt: skip
        return replies

    def _votes(
        self, questions: Sequence[str | None], open_: list[int], seed: int, whole_invalid: bool
    ) -> dict[int, Votes | None]:
        """Ask for verdicts in waves; `whole_invalid` asks for all of an invalid question's, whose share counts."""
        if self.validity_judge is None:
            return dict.fromkeys(open_)
        s = self.settings
        verdicts: list[list[Verdict]] = [[] for _ in open_]
        given: list[list[Reply]] = [[] for _ in open_]
        waiting = list(range(len(open_)))
        for first, n in _waves(s.votes) if s.early_stop else [(0, s.votes)]:
            prompts = [self.pack.check(questions[open_[place]] or "") for place in waiting]
            groups = self._ask(
                "votes", self.validity_judge, prompts, replace(s.sampling, n=n, seed=seed, first=first), waiting
            )
            for place, group in zip(waiting, groups, strict=True):
                given[place] += group
                verdicts[place] += [read_verdict(r) for r in group]
            ends = {ValidityDecision.VALID} if whole_invalid else {ValidityDecision.VALID, ValidityDecision.INVALID}
            waiting = [
                place
                for place in waiting
                if settled(verdicts[place], s.votes, s.denominator, s.min_answered_votes) not in ends
            ]
        return {
            i: Votes.of(vote_validity(said, s.denominator, s.min_answered_votes), replies)
            for i, said, replies in zip(open_, verdicts, given, strict=True)
        }

    def _unsolved(self, novelty: NoveltyResult | None) -> bool:
        """Return whether a question need not be solved: the novelty gate rejects it and its reward is 0 anyway."""
        return (
            self.settings.early_stop
            and isinstance(self.rule, RewardRule)
            and self.rule.novelty_gate
            and self.rule.repeated_earns_nothing
            and _novel(novelty) is False
        )

    def _solutions(
        self, questions: Sequence[str | None], passed: list[int], left_out: set[int], seed: int
    ) -> dict[int, Solutions]:
        places = [place for place, i in enumerate(passed) if i not in left_out]
        prompts = [self.pack.solve(questions[passed[place]] or "") for place in places]
        sampling = replace(self.settings.sampling, n=self.settings.solutions, seed=seed + 1)
        groups = self._ask("solutions", self.solver, prompts, sampling, places)
        return {
            passed[place]: Solutions(
                vote([extract(r.text, r.finish_reason) for r in group], self.settings.denominator),
                tuple(r.text for r in group),
            )
            for place, group in zip(places, groups, strict=True)
        }

    def _decide(
        self,
        candidate: Candidate,
        validity: Votes | None,
        solutions: Solutions | None,
        novelty: NoveltyResult | None,
    ) -> tuple[Decision, str]:
        s = self.settings
        if (refused := _refused(candidate, validity)) is not None:
            return refused
        if solutions is None:
            return Decision.REPEATED, f"same exercise as {novelty.match if novelty else None}; not solved"
        v = solutions.vote
        if v.answer is None:
            return Decision.NO_ANSWER, f"none of {v.asked} solutions has an answer"
        if not _enough(v, s.min_answered):
            return Decision.UNDECIDED, f"only {v.counted} of {v.asked} solutions have an answer"
        window = f"[{s.share_low:.2f}, {s.share_high:.2f}]"
        if v.share > s.share_high + 1e-9:
            return Decision.TOO_EASY, f"share {v.share:.2f} is above {window}"
        if v.share < s.share_low - 1e-9:
            return Decision.TOO_HARD, f"share {v.share:.2f} is below {window}"
        return Decision.KEPT, f"share {v.share:.2f} lies in {window}"

    def _measured(self, p: _Parts, novelty: NoveltyResult | None) -> Measured:
        solved = p.solved(self.settings.min_answered)
        return Measured(
            parsed=p.candidate.question is not None,
            g_valid=gate_value(p.validity.vote) if p.validity else None,
            validity_decision=p.validity.vote.decision if p.validity else None,
            share=p.solutions.vote.share if p.solutions and solved else None,
            solutions_decided=solved,
            novel=_novel(novelty),
        )

    def _novelty(
        self, candidates: Sequence[Candidate], eligible: set[int], seed: int
    ) -> dict[int, NoveltyResult | None]:
        """Run the novelty gate over the whole batch: it decides on `eligible`, and all parsed ones are references."""
        if self.novelty_gate is None:
            return {}
        assert self.novelty_judge is not None
        parsed = [i for i, c in enumerate(candidates) if c.question is not None]
        results = self.novelty_gate.decide(
            [candidates[i].question or "" for i in parsed],
            self.novelty_judge,
            seed=seed + 2,
            eligible=[i in eligible for i in parsed],
            ids=[candidates[i].id for i in parsed],
        )
        return dict(zip(parsed, results, strict=True))

    def _clustered(self, candidates: Sequence[Candidate], measured: Sequence[Measured]) -> list[Measured]:
        """Add each candidate's lexical cluster in the whole batch, where the reward has a repetition term."""
        parsed = [i for i, c in enumerate(candidates) if c.question is not None]
        if self.settings.bleu_threshold is None or not parsed:
            return list(measured)
        labels = bleu_clusters([candidates[i].question or "" for i in parsed], self.settings.bleu_threshold)
        counts = {label: labels.count(label) for label in set(labels)}
        sizes = {i: counts[label] for i, label in zip(parsed, labels, strict=True)}
        return [replace(m, cluster_size=sizes.get(i), batch=len(parsed)) for i, m in enumerate(measured)]

    # ------------------------------------------------------------ Ask-E

    def _by_ask_e(
        self,
        candidates: Sequence[Candidate],
        votes: Mapping[int, Votes | None],
        seed: int,
        tell: Progress,
        checks: Mapping[int, Sequence[Reply]] | None,
        played: Sequence[AskEResult] | None,
    ) -> list[Assessed]:
        """Label, gate and reward the questioner's candidates by Ask-E's game."""
        judge = self.ask_e
        assert judge is not None, "the rule is Ask-E's: give ask_e, its judge"
        questions = {i: c.question for i, c in enumerate(candidates) if c.question is not None}
        passed = {i: q for i, q in questions.items() if _passed(votes[i])}
        if played is not None:
            self._spent_in_sessions(played)
            results = {i: r for i, r in enumerate(played) if i in passed or i not in questions}
        else:
            tell("boundary solvers", 0, len(passed))
            results = judge.label(passed, seed + 1, self._spent, checks)
            results |= {
                i: judge.no_question(seed + 1, i, c.parse_failure.value)
                for i, c in enumerate(candidates)
                if c.parse_failure is not None
            }
        # in the order of the batch, which is the order in which questions are remembered
        terms = judge.terms({i: results[i] for i in sorted(results)}, passed)
        parts = [
            _Parts(c, votes.get(i), None, *_named(c, votes.get(i), results.get(i))) for i, c in enumerate(candidates)
        ]
        tell("novelty", 0, len(passed))
        novelty = self._novelty(candidates, {i for i in passed if results[i].grade.label in _BY_LABEL}, seed)
        measured = self._clustered(
            candidates,
            [_with_terms(self._measured(p, novelty.get(i)), terms.get(i)) for i, p in enumerate(parts)],
        )
        return [
            replace(p.assessed(novelty.get(i), self.rule(m)), ask_e=results.get(i), by_ask_e=True)
            for i, (p, m) in enumerate(zip(parts, measured, strict=True))
        ]

    def _spent_in_sessions(self, played: Sequence[AskEResult]) -> None:
        """Count what the solvers wrote in sessions; the asker's own turns are the trainer's to count."""
        for result in played:
            for call in result.session["calls"] if result.session else ():
                if call["seat"] != Seat.ASKER:
                    step = "cross_check" if call["seat"] == Seat.CROSS_CHECK else "boundary"
                    tokens = sum(reply["completion_tokens"] for reply in call["replies"])
                    self.usage.add(step, len(call["replies"]), tokens)

    def _spent(self, step: str, replies: Sequence[Reply]) -> None:
        self.usage.add(step, len(replies), sum(r.completion_tokens for r in replies))


_BY_LABEL = {
    Label.CALIBRATED: Decision.CALIBRATED,
    Label.TOO_EASY: Decision.TOO_EASY,
    Label.TOO_HARD: Decision.TOO_HARD,
}


def _named(c: Candidate, validity: Votes | None, result: AskEResult | None) -> tuple[Decision, str]:
    """Return the decision of a candidate under Ask-E, with its reason."""
    refused = _refused(c, validity)
    if result is None or result.grade.label is Label.NO_QUESTION:
        assert refused is not None
        return refused
    g = result.grade
    if g.label is Label.UNGRADABLE:
        return Decision.UNGRADABLE, f"{g.reason.value if g.reason else 'undecided'}: {g.detail}"
    return _BY_LABEL.get(g.label, Decision.BAD_CROSS_CHECK), f"{' and '.join(result.pair)}: {g.detail}"


def _with_terms(measured: Measured, terms: SessionReward | None) -> Measured:
    if terms is None:
        return measured
    t = terms.terms
    return replace(measured, calibration=t["calibration"], diversity=t["diversity"], malformed_turns=t["format"])


def _refused(candidate: Candidate, validity: Votes | None) -> tuple[Decision, str] | None:
    """Return why a candidate goes no further than its format or its votes; None where it does."""
    if candidate.parse_failure is not None:
        return Decision.MALFORMED, f"no question: {candidate.parse_failure.value}"
    if validity is None:
        return None
    vote = validity.vote
    if vote.decision is ValidityDecision.INVALID:
        return Decision.INVALID, f"{vote.invalid} of {vote.answered} votes say INVALID"
    if vote.decision is ValidityDecision.UNDECIDED:
        why = ", ".join(f"{_UNREAD.get(name, name)}: {number}" for name, number in sorted(validity.unread.items()))
        return Decision.UNDECIDED, f"only {vote.answered} of {vote.asked} votes could be read ({why})"
    return None


_UNREAD = {"length": "cut off", "no_box": "without a box", "timeout": "too late", "error": "failed"}


def _enough(vote: Vote, min_answered: float) -> bool:
    """Return whether a share of at least `min_answered` of the solutions carry an answer."""
    return vote.counted >= min_answered * vote.asked - 1e-9  # 0.28 * 25 is 7.000000000000001


def _novel(novelty: NoveltyResult | None) -> bool | None:
    if novelty is None or novelty.decision is NoveltyDecision.UNDECIDED:
        return None
    return novelty.decision is NoveltyDecision.NOVEL


def _waves(votes: int) -> list[tuple[int, int]]:
    """Return (first, n) of each wave: as many as can settle a vote at the earliest, then two at a time."""
    least = votes // 2 + 1
    return [(0, least), *((first, min(2, votes - first)) for first in range(least, votes, 2))]


def _passed(votes: Votes | None) -> bool:
    return votes is None or votes.vote.decision is ValidityDecision.VALID


@dataclass(frozen=True)
class _Parts:
    """A candidate on its way through the steps."""

    candidate: Candidate
    validity: Votes | None
    solutions: Solutions | None
    decision: Decision
    reason: str

    def solved(self, min_answered: float) -> bool:
        """Return whether enough solutions carry an answer for their share to mean something."""
        if self.solutions is None or self.solutions.vote.answer is None:
            return False
        return _enough(self.solutions.vote, min_answered)

    def assessed(self, novelty: NoveltyResult | None, reward: Reward | None) -> Assessed:
        """Return the finished record."""
        return Assessed(self.candidate, self.validity, self.solutions, novelty, reward, self.decision, self.reason)
