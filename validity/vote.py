"""The validity vote: several verdicts on one question become a decision and a gate value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from validity.verdict import Verdict

Denominator = Literal["answered", "asked"]
ROUNDING = 1e-9  # 0.28 * 25 is 7.000000000000001, and 7 of 25 are enough


class ValidityDecision(StrEnum):
    """What the votes say of a question."""

    VALID = "valid"  # at most half of the votes reject it
    INVALID = "invalid"  # more than half reject it
    UNDECIDED = "undecided"  # too few replies cast a vote


@dataclass(frozen=True)
class ValidityVote:
    """The count of one question's verdicts, and what follows from it."""

    invalid: int  # verdicts INVALID
    valid: int  # verdicts VALID
    undecided: int  # verdicts UNDECIDED
    asked: int  # verdicts in all
    u: float | None  # share of INVALID, in [0, 1]; None where the denominator is 0
    decision: ValidityDecision

    @property
    def answered(self) -> int:
        """Replies that cast a vote."""
        return self.invalid + self.valid

    def to_json(self) -> dict[str, str | int | float | None]:
        """Return the ``validity`` object of an assessed question's record."""
        return {
            "decision": self.decision.value,
            "invalid": self.invalid,
            "valid": self.valid,
            "undecided": self.undecided,
            "asked": self.asked,
            "u": self.u,
        }


def vote_validity(
    verdicts: Iterable[Verdict], denominator: Denominator = "answered", min_answered: float = 0.5
) -> ValidityVote:
    """Count verdicts and decide: INVALID where ``u > 1/2``, strictly (R-Quest, section 3.3 and appendix C.2).

    Args:
        verdicts: One a reply, in any order.
        denominator: ``answered`` takes ``u`` over the replies that cast a vote; ``asked`` over all, which is the
            papers' way (an undecided reply then speaks for validity).
        min_answered: Share of the asked replies that must cast a vote, in [0, 1]; below it the question is UNDECIDED.
            The papers know no such bound: ``denominator="asked", min_answered=0`` is their rule exactly.

    Raises:
        ValueError: An unknown denominator, or ``min_answered`` outside [0, 1].
    """
    if denominator not in ("answered", "asked"):
        raise ValueError(f"denominator is {denominator!r}; it must be 'answered' or 'asked'")
    if not 0 <= min_answered <= 1:
        raise ValueError(f"min_answered is {min_answered}; it must lie in [0, 1]")
    counts = {verdict: 0 for verdict in Verdict}
    for verdict in verdicts:
        counts[Verdict(verdict)] += 1
    invalid, valid, undecided = counts[Verdict.INVALID], counts[Verdict.VALID], counts[Verdict.UNDECIDED]
    answered, asked = invalid + valid, invalid + valid + undecided
    base = answered if denominator == "answered" else asked
    u = invalid / base if base else None
    if u is None or answered < min_answered * asked - ROUNDING:
        decision = ValidityDecision.UNDECIDED
    elif 2 * invalid > base:
        decision = ValidityDecision.INVALID
    else:
        decision = ValidityDecision.VALID
    return ValidityVote(invalid, valid, undecided, asked, u, decision)


def settled(
    verdicts: Sequence[Verdict], planned: int, denominator: Denominator = "answered", min_answered: float = 0.5
) -> ValidityDecision | None:
    """Return the decision that all `planned` verdicts will give whatever the missing ones say; None while it is open.

    So asking can stop with the same decision. The share ``u`` of an early stop is that of the verdicts so far: where
    its value is needed (an invalid question's reward), ask for all.

    Args:
        verdicts: Those that came, at most `planned`.
        planned: Verdicts that would be asked for in all.
        denominator: As in `vote_validity`.
        min_answered: As in `vote_validity`.
    """
    rest = planned - len(verdicts)
    if rest < 0:
        raise ValueError(f"{len(verdicts)} verdicts came of {planned} that were planned")
    invalid, valid = verdicts.count(Verdict.INVALID), verdicts.count(Verdict.VALID)
    least, most = invalid, invalid + rest
    if denominator == "answered":
        # the missing ones all speak for validity, or all against it
        certain_invalid = 2 * least > invalid + valid + rest
        certain_valid = 2 * most <= invalid + valid + rest
    else:
        certain_invalid, certain_valid = 2 * least > planned, 2 * most <= planned
    answered = invalid + valid
    if answered < min_answered * planned - ROUNDING or (denominator == "answered" and not answered):
        return None  # too few may answer in the end
    if certain_invalid or certain_valid:
        return ValidityDecision.INVALID if certain_invalid else ValidityDecision.VALID
    return None


def gate_value(vote: ValidityVote) -> float | None:
    """Return ``g_valid = 1/2 - u`` (R-Quest, section 3.3), in [-1/2, 1/2]; None where the vote is undecided.

    It is negative exactly where the decision is INVALID.
    """
    if vote.u is None or vote.decision is ValidityDecision.UNDECIDED:
        return None
    return 0.5 - vote.u
