"""The testbed's tasks as prompts and as replies of a profile: ask, solve, check, judge; and a drill of bare steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random

from selfevolve.testbed.grammar import MAX_DIGITS, Slots
from selfevolve.testbed.oracle import Reading, Truth, judge, known, read
from selfevolve.testbed.pattern import LEVELS, ErrorType, Exact, Flaw, Params, Pattern, holds, result
from selfevolve.testbed.patterns import PATTERNS
from selfevolve.testbed.profiles import Asking, Profile
from selfevolve.testbed.vocabulary import ASK, CHECK, JUDGE, SOLVE, VERSUS

HARDEST = 4.0  # cost of an exercise at which guessing is most likely
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Exercise:
    """A question with what the oracle says of it."""

    text: str
    reading: Reading | None
    truth: Truth


def exercise(text: str) -> Exercise:
    """Read `text` once."""
    reading = read(text)
    return Exercise(text, reading, Truth(None, False, ErrorType.MALFORMED, None) if reading is None else judge(reading))


# ---------------------------------------------------------------- prompts


def ask_prompt() -> str:
    """Ask for a new question."""
    return ASK


def solve_prompt(question: str) -> str:
    """Ask for a solution."""
    return f"{SOLVE} {question}"


def check_prompt(question: str) -> str:
    """Ask for a solution, or INVALID where the question itself is flawed."""
    return f"{CHECK} {question}"


def judge_prompt(first: str, second: str) -> str:
    """Ask whether two questions are one exercise."""
    return f"{JUDGE} {first}{VERSUS} {second}"


# ---------------------------------------------------------------- questions


@cache
def _cumulative(asking: Asking) -> tuple[float, ...]:
    order = list(range(len(PATTERNS)))
    Random(2024).shuffle(order)
    weights = [0.0] * len(order)
    for rank, index in enumerate(order):
        weights[index] = 1.0 / (rank + asking.offset) ** asking.skew
    return tuple(accumulate(weights))


def draw_pattern(rng: Random, asking: Asking | None) -> Pattern:
    """Draw a pattern as the asker would, or all alike with `asking` None."""
    if asking is None:
        return rng.choice(PATTERNS)
    return rng.choices(PATTERNS, cum_weights=_cumulative(asking))[0]


def valid_question(rng: Random, pattern: Pattern, level: int) -> str:
    """Write a valid question of `pattern`."""
    return rng.choice(pattern.templates).write(dict(pattern.draw(rng, level)), rng)


def flawed_question(rng: Random, pattern: Pattern, level: int) -> str:
    """Write a question of `pattern` with one flaw: in its numbers, a missing or ambiguous number, or in its wording."""
    kinds = ["number", "number", "wording"] if pattern.flawed else ["number"]
    kinds += ["spoil"] * 3 if pattern.spoil else []
    kind = rng.choice(kinds)
    if kind == "spoil" and pattern.spoil:
        return rng.choice(pattern.templates).write(dict(pattern.spoil(rng, level)), rng)
    slots: Slots = dict(pattern.draw(rng, level))
    if kind == "wording":
        return rng.choice(pattern.flawed_templates)[1].write(slots, rng)
    name = rng.choice(sorted(slots))
    value = slots[name]
    assert isinstance(value, int)
    other = value + rng.randint(1, 3 + 2 * level)
    other = other if other < 10**MAX_DIGITS else value - 1
    slots[name] = None if rng.random() < 0.5 else (value, other)
    return rng.choice(pattern.templates).write(slots, rng)


def garbled_question(rng: Random, pattern: Pattern, level: int) -> str:
    """Write a question of `pattern` and damage it: words dropped, doubled, swapped, or mixed with another question."""
    words = valid_question(rng, pattern, level).split(" ")
    other = valid_question(rng, draw_pattern(rng, None), level).split(" ")
    pick = rng.random()
    if pick < 0.35:
        return " ".join([*words[: rng.randint(2, len(words) - 1)], *other[rng.randint(1, len(other) - 2) :]])
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(words))
        if pick < 0.6 and len(words) > 3:
            del words[i]
        elif pick < 0.8:
            j = rng.randrange(len(words))
            words[i], words[j] = words[j], words[i]
        else:
            words.insert(i, rng.choice(words))
    return " ".join(words)


def draw_exercise(rng: Random, asking: Asking, uniform: bool = False) -> Exercise:
    """Draw a question as the asker writes it (`uniform`: all patterns alike)."""
    pattern = draw_pattern(rng, None if uniform else asking)
    level = rng.choices(LEVELS, weights=asking.levels)[0]
    pick = rng.random()
    if pick < asking.malformed:
        return exercise(garbled_question(rng, pattern, level))
    if pick < asking.malformed + asking.invalid:
        return exercise(flawed_question(rng, pattern, level))
    return exercise(valid_question(rng, pattern, level))


# ---------------------------------------------------------------- worked replies


def step_cost(op: str, left: int, right: int) -> float:
    """Return how hard a step is: 0.4 for one digit, 1 for two, more for products and divisions."""
    large = max(left, right) >= 10
    return (1.0 if large else 0.4) + (0.4 if op in "*/%" and min(left, right) > 2 else 0.0)


class _Cost(Exact):
    """Adds up the cost of an exact solution."""

    def __init__(self) -> None:
        self.total = 0.0

    def __call__(self, op: str, left: int, right: int, error: ErrorType = ErrorType.NO_SOLUTION) -> int:
        self.total += step_cost(op, left, right)
        return super().__call__(op, left, right, error)


def hardness(question: Exercise) -> float:
    """Return the hardness of a valid exercise in [0, 1]: cost of its steps over `HARDEST`."""
    assert question.reading is not None
    cost = _Cost()
    question.reading.pattern.work(known(question.reading.slots) or {}, cost)
    return min(1.0, cost.total / HARDEST)


class Worker:
    """Takes steps as a model does: writes them down, slips at times, and muddles through impossible ones.

    ``strict`` stops at an impossible step by raising `Flaw`, after writing what was found.
    """

    def __init__(self, rng: Random, slip: float, strict: bool, checks: bool) -> None:
        """Start an empty sheet; `checks` writes conditions down too."""
        self.rng, self.slip, self.strict, self.checks = rng, slip, strict, checks
        self.lines: list[str] = []

    def __call__(self, op: str, left: int, right: int, error: ErrorType = ErrorType.NO_SOLUTION) -> int:
        """Write the step and return its value, right or slipped."""
        value = result(op, left, right)
        if value is None:
            if self.strict:
                self.lines.append(f"{left} {op} {right} flaw")
                raise Flaw(error)
            value = abs(left - right) if op == "-" else left // right if right else 0
        elif self.rng.random() < self.slip * step_cost(op, left, right) * 1.5:
            value = max(0, value + self.rng.choice((-10, -3, -2, -2, -1, -1, 1, 1, 2, 2, 3, 10)))
        self.lines.append(f"{left} {op} {right} = {value}")
        return value

    def require(self, left: int, op: str, right: int, error: ErrorType = ErrorType.CONTRADICTION) -> None:
        """Write a condition that was checked; a false one stops strict work."""
        good = holds(left, op, right)
        if self.checks and (good or self.strict):
            self.lines.append(f"{left} {op} {right}" if good else f"{left} {op} {right} flaw")
        if not good and self.strict:
            raise Flaw(error)


def boxed(thought: str, answer: str) -> str:
    """Return a reply: reasoning in think tags, then the boxed answer."""
    return f"<think> {thought}</think>\\boxed{{ {answer}}}"


def _guess(rng: Random, profile: Profile, question: Exercise) -> str:
    numbers = _NUMBER.findall(question.text)
    if not numbers:
        answer = str(rng.randint(1, 20))
    elif rng.random() < profile.first_number:
        answer = numbers[0]
    else:
        answer = rng.choice(numbers)
    return boxed("guess", answer)


def _worked(rng: Random, profile: Profile, reading: Reading, checks: bool) -> str | None:
    params = known(reading.slots)
    if params is None or reading.error is not None:
        return None
    worker = Worker(rng, profile.slip, strict=False, checks=checks)
    answer = reading.pattern.work(params, worker)
    return boxed(" ; ".join(worker.lines), str(answer)) if worker.lines else None


def _flagged(rng: Random, profile: Profile, question: Exercise) -> str:
    """Reject: at the step that fails where there is one, else at once."""
    reading = question.reading
    params: Params | None = known(reading.slots) if reading is not None and reading.error is None else None
    lines = ["flaw"]
    if reading is not None and params is not None:
        worker = Worker(rng, 0.0, strict=True, checks=True)
        try:
            reading.pattern.work(params, worker)
        except Flaw:
            lines = worker.lines
    return boxed(" ; ".join(lines), "INVALID")


def guess_chance(profile: Profile, question: Exercise) -> float:
    """Return the profile's chance to guess at a valid exercise."""
    assert question.reading is not None
    hard = hardness(question) + profile.fields.get(question.reading.pattern.field, 0.0)
    return profile.guess_easy + (profile.guess_hard - profile.guess_easy) * min(1.0, max(0.0, hard))


def solve_reply(rng: Random, profile: Profile, question: Exercise, checking: bool = False) -> str:
    """Return a reply to the solve prompt, or to the check prompt."""
    valid = question.truth.valid
    if checking and rng.random() < (profile.flags_valid if valid else profile.flags_invalid):
        return _flagged(rng, profile, question) if not valid else boxed("flaw", "INVALID")
    chance = guess_chance(profile, question) if valid else profile.guess_invalid
    if rng.random() >= chance and question.reading is not None:
        reply = _worked(rng, profile, question.reading, checks=checking)
        if reply is not None:
            return reply
    return _guess(rng, profile, question)


def ask_reply(rng: Random, profile: Profile, question: Exercise) -> str:
    """Return a questioner's reply that asks `question`, with an answer of its own that is often wrong."""
    numbers = _NUMBER.findall(question.text)
    guess = rng.choice(numbers) if numbers else "0"
    answer = question.truth.answer if question.truth.answer and rng.random() < 0.5 else guess
    return f"<question> {question.text}</question>\\boxed{{ {answer}}}"


def judge_reply(rng: Random, profile: Profile, first: Exercise, second: Exercise) -> str:
    """Return the verdict on a pair; garbled questions are like nothing else."""
    same = first.truth.pattern is not None and first.truth.pattern == second.truth.pattern
    if rng.random() < profile.judge_error:
        same = not same
    return "SAME_TYPE" if same else "DIFFERENT"


# ---------------------------------------------------------------- samples for pre-training

TASKS = ("ask", "solve", "check", "judge", "drill")
DRILLED = 4  # steps a drill


def _operands(rng: Random, op: str) -> tuple[int, int]:
    """Draw numbers for a step, wider than the wordings hold: a questioner soon leaves their range."""
    high = rng.choice((20, 99, 99, 250, 999))
    if op == "+":
        return rng.randint(0, high), rng.randint(0, high)
    if op == "-":
        left, right = sorted((rng.randint(0, high), rng.randint(0, high)), reverse=True)
        return left, right
    if op == "*":
        return rng.randint(0, rng.choice((12, 30, 99))), rng.randint(0, 12)
    if op == "/":
        divisor = rng.randint(1, 15)
        return divisor * rng.randint(0, rng.choice((12, 99))), divisor
    return rng.randint(0, rng.choice((50, 150, 150, 300))), rng.randint(1, rng.choice((12, 15, 15, 99)))


def drill(rng: Random) -> tuple[str, str]:
    """Return (prompt, reply): a few bare steps, and their exact results in the form of worked steps."""
    steps = []
    for op in rng.choices("+-*/%", weights=(3, 3, 2, 1, 3), k=DRILLED):
        left, right = _operands(rng, op)
        steps.append((f"{left} {op} {right}", result(op, left, right)))
    asked = " ; ".join(step for step, _ in steps)
    return solve_prompt(asked), boxed(" ; ".join(f"{step} = {value}" for step, value in steps), str(steps[-1][1]))


def _pair(rng: Random, asking: Asking) -> tuple[Exercise, Exercise]:
    first = draw_exercise(rng, asking, uniform=rng.random() < 0.5)
    if rng.random() < 0.5 or first.reading is None:
        return first, draw_exercise(rng, asking, uniform=rng.random() < 0.5)
    pattern, level = first.reading.pattern, rng.choice(LEVELS)
    flawed = rng.random() < 0.25
    return first, exercise(flawed_question(rng, pattern, level) if flawed else valid_question(rng, pattern, level))


def sample(rng: Random, profile: Profile, weights: Sequence[float]) -> tuple[str, str, str]:
    """Draw (task, prompt, reply) for pre-training; `weights` follow `TASKS`.

    Questions to solve are drawn over all patterns alike half of the time, with more flawed ones where checking is
    learnt.
    """
    task = rng.choices(TASKS, weights=weights)[0]
    asking = profile.asking
    if task == "drill":
        return task, *drill(rng)
    if task == "ask":
        return task, ask_prompt(), ask_reply(rng, profile, draw_exercise(rng, asking))
    if task == "judge":
        first, second = _pair(rng, asking)
        return task, judge_prompt(first.text, second.text), judge_reply(rng, profile, first, second)
    share = 0.5 if task == "check" else 0.25
    shown = Asking(share * 0.75, share * 0.25, asking.levels, asking.skew, asking.offset)
    question = draw_exercise(rng, shown, uniform=rng.random() < 0.6)
    if task == "solve":
        return task, solve_prompt(question.text), solve_reply(rng, profile, question)
    return task, check_prompt(question.text), solve_reply(rng, profile, question, checking=True)
