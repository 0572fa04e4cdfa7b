"""The reward of the validity initialisation, which replay examples keep in later rounds."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from selfevolve.answers import Equivalence
from validity.verdict import is_rejection

Equal = Callable[[str, str], Equivalence]  # (gold, predicted) -> same, different or undecided


class InitialisationOutcome(StrEnum):
    """How one reply to a labelled question ended."""

    CORRECT_ANSWER = "correct_answer"  # a valid question, the right answer
    CORRECT_REJECTION = "correct_rejection"  # an invalid question, rejected
    FALSE_REJECTION = "false_rejection"  # a valid question, rejected
    WRONG_ANSWER = "wrong_answer"  # a valid question, another answer
    MISSED_FLAW = "missed_flaw"  # an invalid question, answered
    NO_ANSWER = "no_answer"  # the box is missing or empty
    UNDECIDED = "undecided"  # whether the answer is right cannot be told


def initialisation_outcome(answer: str | None, gold: str, equal: Equal) -> InitialisationOutcome:
    """Return how a reply ended.

    Args:
        answer: Content of the final box; None where it is missing.
        gold: The reference answer, or ``INVALID`` for an invalid question.
        equal: Compares the gold answer with the given one, e.g. `selfevolve.answers.compare`.

    Raises:
        ValueError: ``gold`` is blank.
    """
    if not gold.strip():
        raise ValueError("gold is blank; give the reference answer, or INVALID for an invalid question")
    if answer is None or not answer.strip():
        return InitialisationOutcome.NO_ANSWER
    question_is_valid = not is_rejection(gold)
    if is_rejection(answer):
        if question_is_valid:
            return InitialisationOutcome.FALSE_REJECTION
        return InitialisationOutcome.CORRECT_REJECTION
    if not question_is_valid:
        return InitialisationOutcome.MISSED_FLAW
    match equal(gold, answer):
        case Equivalence.SAME:
            return InitialisationOutcome.CORRECT_ANSWER
        case Equivalence.DIFFERENT:
            return InitialisationOutcome.WRONG_ANSWER
        case _:
            return InitialisationOutcome.UNDECIDED


def initialisation_reward(answer: str | None, gold: str, equal: Equal, rejection_penalty: float = 0.5) -> float | None:
    """Return the reward of one reply (R-Quest, section 3.1 and appendix A.3, equation 1).

    1 for a correct answer or a correct rejection, ``-rejection_penalty`` for rejecting a valid question, 0 otherwise,
    and -0.1 for a missing or empty box. None where the comparison is undecided: such a reply is masked, since 0 would
    call it wrong. Arguments and errors as in `initialisation_outcome`.
    """
    match initialisation_outcome(answer, gold, equal):
        case InitialisationOutcome.CORRECT_ANSWER | InitialisationOutcome.CORRECT_REJECTION:
            return 1.0
        case InitialisationOutcome.FALSE_REJECTION:
            return -rejection_penalty
        case InitialisationOutcome.WRONG_ANSWER | InitialisationOutcome.MISSED_FLAW:
            return 0.0
        case InitialisationOutcome.NO_ANSWER:
            return -0.1
        case InitialisationOutcome.UNDECIDED:
            return None
