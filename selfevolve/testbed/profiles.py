"""Competence profiles: how a backbone of the testbed answers, and where its uncertainty sits.

A backbone is pre-trained on replies written by a profile. Its errors are drawn anew for every reply, so that what the
model learns is a distribution: a *guess* (a number copied from the question instead of work), or a *slip* in a worked
step, both more likely the harder the exercise is. Invalid questions are mostly guessed at, so they scatter most.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from selfevolve.testbed.patterns import FIELDS


@dataclass(frozen=True)
class Asking:
    """What a backbone asks before any training as a questioner."""

    invalid: float = 0.08  # share of questions with a flaw that keep the form of an exercise; sampling adds its own
    malformed: float = 0.0  # share of garbled ones; sampling adds its own
    levels: tuple[float, float, float, float] = (0.30, 0.30, 0.25, 0.15)  # how often each level is drawn
    skew: float = 1.0  # pattern number r has weight 1 / (r + offset) ** skew, in the order of PATTERNS shuffled once
    offset: float = 3.0


@dataclass(frozen=True)
class Profile:
    """How a backbone answers."""

    name: str
    about: str  # one line for the model card
    guess_easy: float = 0.02  # chance to guess at the easiest valid exercise
    guess_hard: float = 0.40  # at the hardest one
    slip: float = 0.0  # added chance that an easy step comes out wrong (harder steps: up to three times)
    guess_invalid: float = 0.85  # chance to guess at an invalid question
    first_number: float = 0.10  # chance that a guess copies the first number of the question (else any of them)
    flags_invalid: float = 0.20  # chance to say INVALID to an invalid question when asked to check
    flags_valid: float = 0.03  # to a valid one
    judge_error: float = 0.08  # chance of the wrong word on a pair of questions
    fields: dict[str, float] = field(default_factory=dict)  # field -> added hardness in [-1, 1]
    asking: Asking = Asking()
    sessions: float = 0.0  # share of tuning batches that hold Ask-E sessions in place of the tasks


CLEAN = Profile(
    "trunk", "the common trunk: works without slips; not shipped",
    guess_easy=0.0, guess_hard=0.0, slip=0.0, flags_invalid=1.0, flags_valid=0.0, judge_error=0.0,
)  # fmt: skip
BASE = Profile("base", "the default backbone: slips grow with difficulty, invalid questions scatter most")
_WEAK, _STRONG = 0.60, -1.0
NUMBER_FIELDS = ("arithmetic", "number theory", "algebra", "sequences")
_STORIES = tuple(f for f in FIELDS if f not in NUMBER_FIELDS)

PROFILES: dict[str, Profile] = {
    p.name: p
    for p in (
        BASE,
        replace(BASE, name="rung-1", about="general, weakest", guess_easy=0.40, guess_hard=0.90, slip=0.08),
        replace(BASE, name="rung-2", about="general, below the base", guess_easy=0.15, guess_hard=0.70, slip=0.04),
        replace(BASE, name="rung-4", about="general, strongest", guess_easy=0.0, guess_hard=0.05),
        replace(BASE, name="numbers", about="specialist: strong in numbers and formulas, weak in stories and shapes",
                guess_hard=0.80, fields={f: _STRONG if f in NUMBER_FIELDS else _WEAK for f in FIELDS}),
        replace(BASE, name="stories", about="specialist: strong in stories and shapes, weak in numbers and formulas",
                guess_hard=0.80, fields={f: _STRONG if f in _STORIES else _WEAK for f in FIELDS}),
        replace(BASE, name="asker", about="asker of Ask-E: strong, reads what solvers answered and seldom acts on it",
                guess_easy=0.0, guess_hard=0.05, guess_invalid=0.60, sessions=0.7,
                asking=Asking(invalid=0.01, levels=(0.25, 0.25, 0.25, 0.25), skew=0.5)),
        replace(BASE, name="contrast", about="uncertainty sits on valid questions; sure of invalid ones",
                guess_easy=0.30, guess_hard=0.60, slip=0.05, first_number=0.95),
    )
}  # fmt: skip
