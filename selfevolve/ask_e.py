"""Ask-E's game without probes, as a reward inside the loop: two boundary solvers and a cross-check answer a question.

The same core as `aske`'s sessions: `aske.labels.grade` gives the label, `aske.reward.score` the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from aske.labels import Grade, Label, grade
from aske.reward import Embed, Memory, RewardSettings, SessionReward, score
from selfevolve.records import AskEResult
from selfevolve.sampling import Prompt, Reply, Sampler, Sampling, sample_more
from selfevolve.seeds import derive

Pair = tuple[str, str]
Spent = Callable[[str, Sequence[Reply]], None]  # (step, replies): told what was sampled


@dataclass(frozen=True)
class Table:
    """Who sits at the game: boundary solvers by name, pairs to draw from, and how they are sampled."""

    pairs: tuple[Pair, ...]
    solvers: Mapping[str, Sampler]  # every name of `pairs`
    sampling: Sampling  # of boundary solvers, and of three cross-checks; n and seed are set here
    weights: Mapping[str, str] = field(default_factory=dict)  # where each solver's weights lie; {}: all differ
    checks: int = 1  # one is greedy (Ask-E, training); three are drawn and must agree (the benchmark)

    def pair(self, seed: int, group: int) -> Pair:
        """Return the pair that all candidates of a group face."""
        return self.pairs[0] if len(self.pairs) == 1 else Random(derive(seed, "pair", group)).choice(self.pairs)

    def same_weights(self, pair: Pair) -> bool:
        """Return whether both solvers are one checkpoint."""
        a, b = (self.weights.get(name, name) for name in pair)
        return a == b

    def check_sampling(self, seed: int) -> Sampling:
        """Return how cross-checks are drawn."""
        temperature = 0.0 if self.checks == 1 else self.sampling.temperature
        return replace(self.sampling, n=self.checks, temperature=temperature, seed=derive(seed, "cross-check"))

    def boundary_sampling(self, seed: int, name: str) -> Sampling:
        """Return how a solver is sampled."""
        return replace(self.sampling, n=1, seed=derive(seed, "boundary", name))

    def boundary(
        self, prompts: Mapping[int, Prompt], pairs: Mapping[int, Pair], seed: int
    ) -> dict[int, tuple[Reply, Reply]]:
        """Return both solvers' replies to each prompt, by place; every solver is asked once, with all of its prompts.

        A solver's draws hang on (seed, its name, place), so two names for one checkpoint draw apart.
        """
        answered: dict[tuple[int, str], Reply] = {}
        for name in dict.fromkeys(name for place in prompts for name in pairs[place]):
            places = [place for place in prompts if name in pairs[place]]
            drawn = self.boundary_sampling(seed, name)
            groups = sample_more(self.solvers[name], [prompts[p] for p in places], drawn, places)
            answered.update({(place, name): group[0] for place, group in zip(places, groups, strict=True)})
        return {place: (answered[place, pairs[place][0]], answered[place, pairs[place][1]]) for place in prompts}


@dataclass
class AskEJudge:
    """Labels candidates without probes, and gives the terms of Ask-E's reward."""

    table: Table
    solve: Callable[[str], Prompt]  # the prompt of solvers and cross-checks
    group: int  # candidates of one group; they face the same pair, so that the baseline does not mix pairs
    cross_check: Sampler | None  # None: the questioner itself, whose replies are handed in
    settings: RewardSettings = field(default_factory=RewardSettings)
    memory: Memory | None = None  # past questions; None: no diversity term
    embed: Embed | None = None  # needed with a memory

    def label(
        self,
        questions: Mapping[int, str],
        seed: int,
        spent: Spent,
        checks: Mapping[int, Sequence[Reply]] | None = None,
    ) -> dict[int, AskEResult]:
        """Return the result of each question, by the candidate's place in the whole batch.

        Args:
            questions: what is asked, by place.
            seed: of pairs, boundary solvers and cross-checks.
            spent: told what was sampled.
            checks: the cross-check's replies, by place, where they are known already.

        Raises:
            ValueError: the cross-check is the questioner itself and its replies are not given.
        """
        prompts = {place: self.solve(question) for place, question in questions.items()}
        pairs = {place: self.pair(seed, place) for place in questions}
        boundary = self.table.boundary(prompts, pairs, seed)
        spent("boundary", [reply for both in boundary.values() for reply in both])
        if checks is None:
            checks = self._cross_check(prompts, seed)
        spent("cross_check", [reply for place in questions for reply in checks[place]])
        return {
            place: AskEResult(
                pairs[place],
                self.table.same_weights(pairs[place]),
                grade(boundary[place], checks[place]),
                boundary[place],
                tuple(checks[place]),
            )
            for place in questions
        }

    def pair(self, seed: int, place: int) -> Pair:
        """Return the pair of the candidate at a place."""
        return self.table.pair(seed, place // self.group)

    def no_question(self, seed: int, place: int, why: str) -> AskEResult:
        """Return the result of a reply without a question."""
        pair = self.pair(seed, place)
        return AskEResult(pair, self.table.same_weights(pair), Grade(Label.NO_QUESTION, detail=why))

    def terms(self, results: Mapping[int, AskEResult], questions: Mapping[int, str]) -> dict[int, SessionReward | None]:
        """Return Ask-E's terms of each result; all are scored against the memory as it was, then remembered in order.

        Args:
            results: by place.
            questions: the question of each place that has one.
        """
        places = list(results)
        scored = score(
            [results[p].grade.label for p in places],
            [results[p].malformed for p in places],
            [questions.get(p) for p in places],
            self.settings,
            self.memory,
            self.embed,
        )
        return dict(zip(places, scored, strict=True))

    def _cross_check(self, prompts: Mapping[int, Prompt], seed: int) -> dict[int, Sequence[Reply]]:
        if self.cross_check is None:
            raise ValueError("the cross-check is the questioner, but its replies are not given; pass checks=")
        places = list(prompts)
        sampling = self.table.check_sampling(seed)
        groups = sample_more(self.cross_check, [prompts[p] for p in places], sampling, places)
        return dict(zip(places, groups, strict=True))
