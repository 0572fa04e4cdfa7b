"""What an exercise pattern is: its wordings, its parameters, when it is flawed, and how it is worked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from random import Random
from typing import Protocol

from selfevolve.testbed.grammar import Template


class ErrorType(StrEnum):
    """Why a question is invalid (R-Quest, table 5)."""

    CONTRADICTION = "contradiction"
    NO_SOLUTION = "no_solution"
    AMBIGUITY = "ambiguity"
    MISSING_INFORMATION = "missing_information"
    MALFORMED = "malformed"


Params = dict[str, int]  # the number slots of a wording, all present and unambiguous
LEVELS = (1, 2, 3, 4)  # sizes of numbers, from one digit to two full digits


class Flaw(Exception):
    """Raised by a strict calculator where a step cannot be taken; carries the error type."""

    def __init__(self, error: ErrorType) -> None:
        """Keep the error type."""
        super().__init__(error.value)
        self.error = error


class Calculator(Protocol):
    """Takes the steps of a solution one by one."""

    def __call__(self, op: str, left: int, right: int, error: ErrorType = ErrorType.NO_SOLUTION) -> int:
        """Return ``left op right`` for op in + - * / %; `error` says what it means if the step is impossible."""
        ...

    def require(self, left: int, op: str, right: int, error: ErrorType = ErrorType.CONTRADICTION) -> None:
        """State that ``left op right`` (op in < > =) must hold for the question to make sense."""
        ...


def result(op: str, left: int, right: int) -> int | None:
    """Return the whole, non-negative result of a step, or None where there is none."""
    if op == "+":
        return left + right
    if op == "-":
        return left - right if left >= right else None
    if op == "*":
        return left * right
    if right == 0:
        return None
    if op == "%":
        return left % right
    return left // right if left % right == 0 else None


def holds(left: int, op: str, right: int) -> bool:
    """Return whether ``left op right`` is true, for op in < > =."""
    return left < right if op == "<" else left > right if op == ">" else left == right


class Exact:
    """The oracle's calculator: every step exact, the first impossible one raises `Flaw`."""

    def __call__(self, op: str, left: int, right: int, error: ErrorType = ErrorType.NO_SOLUTION) -> int:
        """Return the exact result of the step."""
        value = result(op, left, right)
        if value is None:
            raise Flaw(error)
        return value

    def require(self, left: int, op: str, right: int, error: ErrorType = ErrorType.CONTRADICTION) -> None:
        """Raise `Flaw` unless the condition holds."""
        if not holds(left, op, right):
            raise Flaw(error)


@dataclass(frozen=True)
class Pattern:
    """One exercise pattern.

    ``work`` is the one definition of what the exercise asks: run with `Exact` it yields the answer or the flaw; run
    with a model's calculator it yields worked steps that may slip.
    """

    name: str
    field: str  # arithmetic, number theory, algebra, ...
    wordings: tuple[str, ...]  # at least three; all with the same number slots
    draw: Callable[[Random, int], Params]  # parameters of a valid question at a level in LEVELS
    work: Callable[[Params, Calculator], int]
    spoil: Callable[[Random, int], Params] | None = None  # parameters that make `work` raise Flaw
    flawed: tuple[tuple[ErrorType, str], ...] = ()  # wordings that are flawed whatever the numbers

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """The wordings, compiled."""
        return tuple(Template(w) for w in self.wordings)

    @cached_property
    def flawed_templates(self) -> tuple[tuple[ErrorType, Template], ...]:
        """The flawed wordings, compiled."""
        return tuple((e, Template(w)) for e, w in self.flawed)


def size(level: int) -> tuple[int, int]:
    """Return the range (low, high) of a plain number at a level."""
    return ((1, 9), (5, 20), (12, 50), (25, 99))[level - 1]


def number(rng: Random, level: int) -> int:
    """Draw a plain number at a level."""
    return rng.randint(*size(level))


def factor(rng: Random, level: int) -> int:
    """Draw a small multiplier at a level: 2-4, 2-6, 3-9, 4-12."""
    return rng.randint(*((2, 4), (2, 6), (3, 9), (4, 12))[level - 1])
