"""What a run will cost: replies, tokens and time a stage, from a recipe and a stated throughput; nothing is loaded.

Tokens are upper bounds: every reply is counted at its limit, and prompts are not counted. Times rest on replies that
fill `FILL` of their limit, as the testbed's do. A training stage generates its replies and then learns from them;
learning from a token takes about `LEARN_COST` times as long as generating it (measured on small models: forward,
backward and optimiser against generation).
"""

from __future__ import annotations

from dataclasses import dataclass

from selfevolve.config import Recipe, TrainStage
from selfevolve.errors import UserError

LEARN_COST = 2.0  # seconds of learning a token / seconds of generating it
FILL = 0.35  # mean length of a reply / its limit; 0.28 to 0.36 in votes and solutions of the testbed

# New tokens a second of one CPU core in large batches.
TESTBED_SPEED = 14_000.0  # a testbed model: its validity votes, measured in batches of 1,024
REAL_SPEED = 45.0  # a 0.5B model


@dataclass(frozen=True)
class StageCost:
    """Cost of one stage of one round: replies and tokens as upper bounds, time as expected."""

    stage: str
    replies: int  # sampled replies
    tokens: int  # new tokens, every reply at its limit
    seconds: float  # expected, at the stated throughput and fill


@dataclass(frozen=True)
class Estimate:
    """Cost of a run."""

    tokens_per_second: float  # the throughput that the times rest on
    once: tuple[StageCost, ...]  # before round 1
    a_round: tuple[StageCost, ...]  # each round
    rounds: int

    @property
    def seconds(self) -> float:
        """Seconds of the whole run, as expected."""
        return sum(c.seconds for c in self.once) + self.rounds * sum(c.seconds for c in self.a_round)

    @property
    def tokens(self) -> int:
        """New tokens of the whole run, at most."""
        return sum(c.tokens for c in self.once) + self.rounds * sum(c.tokens for c in self.a_round)


def default_speed(recipe: Recipe) -> float:
    """Return a throughput in new tokens a second for the recipe's kind of backbone, on one CPU core."""
    return TESTBED_SPEED if recipe.backbone.startswith("testbed:") else REAL_SPEED


def estimate(recipe: Recipe, tokens_per_second: float | None = None) -> Estimate:
    """Estimate the run of ``recipe`` at a throughput in new tokens a second (the default is one CPU core's).

    Raises:
        UserError: the throughput is not above 0.
    """
    speed = default_speed(recipe) if tokens_per_second is None else tokens_per_second
    if not speed > 0:
        raise UserError(f"the throughput is {speed} tokens a second; it must be above 0")
    limit = recipe.generation.max_new_tokens

    def cost(stage: str, parts: list[tuple[int, int]], learned: int = 0) -> StageCost:
        """Sum ``parts`` of (replies, tokens a reply); ``learned`` tokens are trained on as well."""
        tokens = sum(n * length for n, length in parts)
        return StageCost(stage, sum(n for n, _ in parts), tokens, FILL * (tokens + LEARN_COST * learned) / speed)

    def trained(
        stage: str, settings: TrainStage, length: int, more: list[tuple[int, int]], turns: int = 1
    ) -> StageCost:
        replies = settings.steps * settings.prompts * settings.responses * turns
        return cost(stage, [(replies, length), *more], learned=replies * length)

    questioner = recipe.questioner
    turns = 1 + (recipe.ask_e.probes if recipe.reward.rule == "ask_e" else 0)  # of the questioner a candidate
    batch = questioner.prompts * questioner.responses
    written = questioner.steps * batch
    comparisons = {"none": 0, "k_sampled": recipe.novelty.k, "exhaustive": batch - 1}[recipe.novelty.gate]
    sampled = recipe.diagnostics.sample or recipe.candidates
    heldout = recipe.diagnostics.heldout * (2 + recipe.diagnostics.solver_samples)
    judged = sampled if recipe.referee == "model" else 0
    once = []
    if recipe.initialisation.enabled:
        once.append(trained("initialisation", recipe.initialisation, limit.solution, []))
    a_round = (
        trained(
            "questioner",
            questioner,
            limit.question,
            [*_rewarded(recipe, written), (written * comparisons, limit.judge)],
            turns,
        ),
        cost("candidates", [(recipe.candidates, limit.question)]),
        cost("assessment", _assessed(recipe, recipe.candidates)),
        trained("solver", recipe.solver, limit.solution, []),
        cost("diagnostics", [(heldout, limit.solution), (judged, limit.solution)]),
    )
    return Estimate(speed, tuple(once), a_round, recipe.rounds)


def _rewarded(recipe: Recipe, questions: int) -> list[tuple[int, int]]:
    """Return (replies, tokens a reply) of what the questioner's reward asks the solvers."""
    if recipe.reward.rule != "ask_e":
        return _assessed(recipe, questions)
    limit = recipe.generation.max_new_tokens.solution
    boundary = 2 * questions * (1 + recipe.ask_e.probes)
    return [_votes(recipe, questions), (boundary, limit), (questions * recipe.ask_e.checks, limit)]


def _votes(recipe: Recipe, questions: int) -> tuple[int, int]:
    votes = 0 if recipe.assessment.validity.judge == "off" else recipe.assessment.validity.votes
    return questions * votes, recipe.generation.max_new_tokens.solution


def _assessed(recipe: Recipe, questions: int) -> list[tuple[int, int]]:
    """Return (replies, tokens a reply) of votes and solutions for ``questions``, if none were refused on the way."""
    limit = recipe.generation.max_new_tokens.solution
    return [_votes(recipe, questions), (questions * recipe.assessment.solutions, limit)]


def table(result: Estimate) -> str:
    """Return the estimate as text, one line a stage."""
    lines = [f"{'stage':<16}{'replies':>12}{'tokens, at most':>18}{'time, about':>16}"]
    for title, costs in (("once", result.once), (f"a round, {result.rounds} in all", result.a_round)):
        if costs:
            lines.append(f"-- {title}")
        lines += [f"{c.stage:<16}{c.replies:>12,}{c.tokens:>18,}{duration(c.seconds):>16}" for c in costs]
    lines.append(f"{'whole run':<16}{'':>12}{result.tokens:>18,}{duration(result.seconds):>16}")
    lines.append(
        f"times at {result.tokens_per_second:,.0f} new tokens a second (by default what one CPU core gives a testbed "
        "model or a 0.5B one); --tokens-per-second states your machine's"
    )
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return seconds in the largest unit that keeps two digits, such as ``12.3 min``."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"
