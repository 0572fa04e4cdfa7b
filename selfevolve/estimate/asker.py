"""What the training of an asker will ask for: replies and tokens by seat; nothing is loaded."""

from __future__ import annotations

from selfevolve.config.asker import AskerTraining
from selfevolve.estimate.cost import Asked, Estimate, Learned, StageCost, speed_and_fill


def asker_estimate(
    settings: AskerTraining, tokens_per_second: float | None = None, fill: float | None = None
) -> Estimate:
    """Estimate a training: its sessions, and the evaluations on held-out pairs before, in between and after.

    Args:
        settings: of the training.
        tokens_per_second: throughput of new tokens; None: one CPU core's.
        fill: expected length of a reply / its limit, in (0, 1]; None: `FILL`.

    Raises:
        UserError: the throughput is not above 0, or the fill not in its range.
    """
    s, e = settings, settings.evaluation
    speed, filled = speed_and_fill(s.backbone, tokens_per_second, fill)
    sessions = s.steps * s.groups * s.sessions
    between = (s.steps - 1) // e.every if e.every else 0
    evaluated = (2 + between) * len(s.heldout_pairs) * e.sessions
    turn, solution = s.max_turn_tokens, s.max_solution_tokens

    def cost(stage: str, *asked: Asked, learned: Learned | None = None) -> StageCost:
        return StageCost(stage, tuple(a for a in asked if a.replies), learned, filled, speed)

    def turns(n: int) -> Asked:
        return Asked("policy", n * (1 + s.probes), n * (1 + s.probes), turn)

    def solved(n: int) -> Asked:
        return Asked("boundary", 2 * n * (1 + s.probes), 2 * n * (1 + s.probes), solution)

    updates = s.groups // s.update_groups
    learned = Learned(sessions, turn * (1 + s.probes), s.steps * updates, updates, s.kl > 0)
    return Estimate(
        speed,
        filled,
        once=(
            cost("asker's turns", turns(sessions), learned=learned),
            cost("solvers", solved(sessions)),
            cost("cross-checks", Asked("boundary", sessions, sessions * (s.checks + s.audit), solution)),
            cost("evaluations", turns(evaluated), solved(evaluated)),
            cost("their checks", Asked("boundary", evaluated, evaluated * e.checks, solution)),
            cost("chance line", Asked("boundary", 2 * evaluated, 2 * evaluated * e.resamples, solution)),
        ),
        a_round=(),
        rounds=1,
    )
