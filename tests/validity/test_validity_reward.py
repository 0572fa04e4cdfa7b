"""The initialisation reward: R-Quest, appendix A.3, equation 1."""

import pytest

from selfevolve.answers import Equivalence
from validity import InitialisationOutcome, initialisation_outcome, initialisation_reward


def equal(gold: str, predicted: str) -> Equivalence:
    if "?" in predicted:
        return Equivalence.UNDECIDED
    return Equivalence.SAME if gold == predicted else Equivalence.DIFFERENT


CASES = [
    ("12", "12", "correct_answer", 1.0),
    ("INVALID", "INVALID", "correct_rejection", 1.0),
    (r"\text{invalid}", "INVALID", "correct_rejection", 1.0),
    ("INVALID", "12", "false_rejection", -0.5),
    ("13", "12", "wrong_answer", 0.0),
    ("12", "INVALID", "missed_flaw", 0.0),
    (None, "12", "no_answer", -0.1),
    (None, "INVALID", "no_answer", -0.1),
    ("", "12", "no_answer", -0.1),
    ("  ", "INVALID", "no_answer", -0.1),
    ("9^{9?}", "12", "undecided", None),
    ("9^{9?}", "INVALID", "missed_flaw", 0.0),  # no comparison is needed to see that the flaw was missed
]


@pytest.mark.parametrize(("answer", "gold", "outcome", "reward"), CASES)
def test_reward_of_each_outcome(answer: str | None, gold: str, outcome: str, reward: float | None) -> None:
    assert initialisation_outcome(answer, gold, equal) is InitialisationOutcome(outcome)
    assert initialisation_reward(answer, gold, equal) == reward


def test_every_outcome_has_a_case() -> None:
    assert {outcome for _, _, outcome, _ in CASES} == {outcome.value for outcome in InitialisationOutcome}


def test_penalty_can_be_set() -> None:
    assert initialisation_reward("INVALID", "12", equal, rejection_penalty=1.0) == -1.0


def test_blank_gold_is_refused() -> None:
    with pytest.raises(ValueError, match="gold is blank"):
        initialisation_reward("12", " ", equal)


def test_gold_stands_first_in_the_comparison() -> None:
    seen: list[tuple[str, str]] = []

    def spy(gold: str, predicted: str) -> Equivalence:
        seen.append((gold, predicted))
        return Equivalence.SAME

    initialisation_reward("given", "true", spy)
    assert seen == [("true", "given")]
