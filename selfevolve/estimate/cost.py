"""What a run will ask for: replies and tokens a stage, from a recipe and stated shares; nothing is loaded.

"At most" counts every reply at its limit. "Expected" counts `FILL` of the limit, and what early stopping was measured
to leave. Prompts are not counted as tokens; `PROMPT` stands for their length in the throughput model. Times at a given
throughput rest on what is expected; learning from a token takes about `LEARN_COST` times as long as generating it
(measured on small models: forward, backward and optimiser against generation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from selfevolve.config import Recipe, TrainStage
from selfevolve.errors import UserError

LEARN_COST = 2.0  # seconds of learning a token / seconds of generating it
FILL = 0.35  # mean length of a reply / its limit; 0.28 to 0.36 in votes and solutions of the testbed
PROMPT = 300  # tokens of a prompt, mean: instructions and a question

# New tokens a second of one CPU core in large batches.
TESTBED_SPEED = 14_000.0  # a testbed model: its validity votes, measured in batches of 1,024
REAL_SPEED = 45.0  # a 0.5B model

# What early stopping left of the new tokens in a measured run of R-Quest (docs/one-round.md).
VOTES_REWARDED = 291_088 / 451_274
SOLUTIONS_REWARDED = 91_930 / 423_273  # with both gates: what they reject is not solved
VOTES_POOL = 217_844 / 346_929


@dataclass(frozen=True)
class Asked:
    """Replies of one kind within a stage."""

    role: str  # who replies: policy, questioner, solver, base, referee or boundary
    prompts: int  # prompts that are read; the replies of a prompt share it
    replies: int
    limit: int  # new tokens of a reply, at most
    share: float = 1.0  # of prompts and replies that early stopping is expected to leave

    @property
    def tokens(self) -> int:
        """New tokens, at most."""
        return self.replies * self.limit


@dataclass(frozen=True)
class Learned:
    """What a training stage learns from."""

    sequences: int  # rollouts
    limit: int  # new tokens of a rollout, at most
    updates: int  # of the optimiser, in the whole stage
    updates_a_batch: int
    kl: bool  # the KL term needs the reference's log-probabilities


@dataclass(frozen=True)
class StageCost:
    """Cost of one stage of one round."""

    stage: str
    asked: tuple[Asked, ...]
    learned: Learned | None  # None: the stage trains nothing
    fill: float  # expected length of a reply / its limit
    tokens_per_second: float  # the throughput of `seconds`

    @property
    def replies(self) -> int:
        """Sampled replies, at most."""
        return sum(a.replies for a in self.asked)

    @property
    def tokens(self) -> int:
        """New tokens, at most: every reply at its limit."""
        return sum(a.tokens for a in self.asked)

    @property
    def expected(self) -> float:
        """New tokens, as expected."""
        return self.fill * sum(a.share * a.tokens for a in self.asked)

    @property
    def seconds(self) -> float:
        """Time at the throughput, as expected."""
        learned = self.fill * self.learned.sequences * self.learned.limit if self.learned else 0.0
        return (self.expected + LEARN_COST * learned) / self.tokens_per_second


@dataclass(frozen=True)
class Estimate:
    """Cost of a run."""

    tokens_per_second: float  # the throughput that `seconds` rests on
    fill: float  # expected length of a reply / its limit
    once: tuple[StageCost, ...]  # before round 1
    a_round: tuple[StageCost, ...]  # each round
    rounds: int

    def total(self, measure: Callable[[StageCost], float]) -> float:
        """Return a measure of stages, summed over the whole run."""
        return sum(map(measure, self.once)) + self.rounds * sum(map(measure, self.a_round))

    @property
    def seconds(self) -> float:
        """Seconds of the whole run, as expected."""
        return self.total(lambda c: c.seconds)

    @property
    def expected(self) -> float:
        """New tokens of the whole run, as expected."""
        return self.total(lambda c: c.expected)

    @property
    def tokens(self) -> int:
        """New tokens of the whole run, at most."""
        return int(self.total(lambda c: c.tokens))


def speed_and_fill(backbone: str, tokens_per_second: float | None, fill: float | None) -> tuple[float, float]:
    """Return the throughput, by default one CPU core's with this kind of backbone, and the fill.

    Raises:
        UserError: the throughput is not above 0, or the fill not in its range.
    """
    speed = tokens_per_second
    if speed is None:
        speed = TESTBED_SPEED if backbone.startswith("testbed:") else REAL_SPEED
    if not speed > 0:
        raise UserError(f"the throughput is {speed} tokens a second; it must be above 0")
    filled = FILL if fill is None else fill
    if not 0 < filled <= 1:
        raise UserError(f"the fill is {filled}; it is a reply's mean length over its limit, above 0 and at most 1")
    return speed, filled


def estimate(recipe: Recipe, tokens_per_second: float | None = None, fill: float | None = None) -> Estimate:
    """Estimate the run of ``recipe``.

    Args:
        recipe: the settings.
        tokens_per_second: throughput of new tokens; None: one CPU core's.
        fill: expected length of a reply / its limit, in (0, 1]; None: `FILL`.

    Raises:
        UserError: the throughput is not above 0, or the fill not in its range.
    """
    speed, filled = speed_and_fill(recipe.backbone, tokens_per_second, fill)
    limit = recipe.generation.max_new_tokens

    def cost(stage: str, asked: list[Asked], learned: Learned | None = None) -> StageCost:
        return StageCost(stage, tuple(a for a in asked if a.replies), learned, filled, speed)

    def trained(stage: str, settings: TrainStage, length: int, more: list[Asked], turns: int = 1) -> StageCost:
        prompts = settings.steps * settings.prompts * turns
        rollouts = Asked("policy", prompts, prompts * settings.responses, length)
        updates = settings.prompts // settings.global_batch
        learned = Learned(rollouts.replies, length, settings.steps * updates, updates, settings.kl > 0)
        return cost(stage, [rollouts, *more], learned)

    questioner, sampled = recipe.questioner, recipe.diagnostics.sample or recipe.candidates
    turns = 1 + (recipe.ask_e.probes if recipe.reward.rule == "ask_e" else 0)  # of the questioner a candidate
    heldout, judged = recipe.diagnostics.heldout, sampled if recipe.referee == "model" else 0
    once = []
    if recipe.initialisation.enabled:
        once.append(trained("initialisation", recipe.initialisation, limit.solution, []))
    a_round = (
        trained("questioner", questioner, limit.question, [*_rewarded(recipe), _compared(recipe)], turns),
        cost("candidates", [Asked("questioner", 1, recipe.candidates, limit.question)]),
        cost("assessment", [_votes(recipe, recipe.candidates, VOTES_POOL), _solutions(recipe, recipe.candidates, 1.0)]),
        trained("solver", recipe.solver, limit.solution, []),
        cost(
            "diagnostics",
            [
                Asked("solver", 2 * heldout, heldout * (2 + recipe.diagnostics.solver_samples), limit.solution),
                Asked("referee", judged, judged, limit.solution),
            ],
        ),
    )
    return Estimate(speed, filled, tuple(once), a_round, recipe.rounds)


def _written(recipe: Recipe) -> int:
    """Return the candidates of a round's questioner stage."""
    return recipe.questioner.steps * recipe.questioner.prompts * recipe.questioner.responses


def _rewarded(recipe: Recipe) -> list[Asked]:
    """Return what the questioner's reward asks the solvers, if no candidate were refused on the way."""
    questions = _written(recipe)
    votes = _votes(recipe, questions, VOTES_REWARDED)
    if recipe.reward.rule != "ask_e":
        both = votes.replies and recipe.novelty.gate != "none"
        return [votes, _solutions(recipe, questions, SOLUTIONS_REWARDED if both else 1.0)]
    limit, own = recipe.generation.max_new_tokens.solution, recipe.ask_e
    boundary = 2 * questions * (1 + own.probes)
    check = "policy" if own.cross_check == "questioner" else "boundary"
    return [
        votes,
        Asked("boundary", boundary, boundary, limit),
        Asked(check, questions, questions * own.checks, limit),
    ]


def _votes(recipe: Recipe, questions: int, share: float) -> Asked:
    votes = 0 if recipe.assessment.validity.judge == "off" else recipe.assessment.validity.votes
    limit = recipe.generation.max_new_tokens.solution
    return Asked("solver", questions, questions * votes, limit, share if recipe.assessment.early_stop else 1.0)


def _solutions(recipe: Recipe, questions: int, share: float) -> Asked:
    limit, each = recipe.generation.max_new_tokens.solution, recipe.assessment.solutions
    return Asked("solver", questions, questions * each, limit, share if recipe.assessment.early_stop else 1.0)


def _compared(recipe: Recipe) -> Asked:
    """Return the same-type verdicts of the novelty gate."""
    others = recipe.questioner.prompts * recipe.questioner.responses - 1
    each = {"none": 0, "k_sampled": recipe.novelty.k, "exhaustive": others}[recipe.novelty.gate]
    comparisons = _written(recipe) * each
    return Asked("base", comparisons, comparisons, recipe.generation.max_new_tokens.judge)
