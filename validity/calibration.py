"""How well verdicts on questions agree with the truth: recall on valid and on invalid ones, balanced accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from validity.intervals import Estimate, mean_of_two, proportion
from validity.verdict import Verdict
from validity.vote import ValidityDecision


@dataclass(frozen=True)
class Calibration:
    """Counts of verdicts by truth, and the figures that follow from them.

    Each figure comes twice. The plain one counts replies that say something (``n`` = accepted + rejected); the strict
    one counts all that were asked, so that an undecided verdict is neither an acceptance nor a rejection and lowers
    the recall. Example: 10 invalid questions, 6 rejected, 2 accepted, 2 undecided: `invalid_recall` is 6 / 8,
    `invalid_recall_strict` is 6 / 10.
    """

    valid_accepted: int
    valid_rejected: int
    valid_undecided: int
    invalid_accepted: int
    invalid_rejected: int
    invalid_undecided: int

    @property
    def asked(self) -> int:
        """Verdicts in all."""
        valid = self.valid_accepted + self.valid_rejected + self.valid_undecided
        return valid + self.invalid_accepted + self.invalid_rejected + self.invalid_undecided

    @property
    def undecided(self) -> int:
        """Verdicts that say nothing."""
        return self.valid_undecided + self.invalid_undecided

    @property
    def valid_recall(self) -> Estimate:
        """Valid questions accepted, of the valid ones that were answered."""
        return proportion(self.valid_accepted, self.valid_accepted + self.valid_rejected)

    @property
    def invalid_recall(self) -> Estimate:
        """Invalid questions rejected, of the invalid ones that were answered."""
        return proportion(self.invalid_rejected, self.invalid_accepted + self.invalid_rejected)

    @property
    def balanced_accuracy(self) -> Estimate:
        """Mean of both recalls; its interval is described at `validity.intervals.mean_of_two`."""
        return mean_of_two(self.valid_recall, self.invalid_recall)

    @property
    def valid_recall_strict(self) -> Estimate:
        """Valid questions accepted, of all valid ones."""
        return proportion(self.valid_accepted, self.valid_accepted + self.valid_rejected + self.valid_undecided)

    @property
    def invalid_recall_strict(self) -> Estimate:
        """Invalid questions rejected, of all invalid ones."""
        return proportion(self.invalid_rejected, self.invalid_accepted + self.invalid_rejected + self.invalid_undecided)

    @property
    def balanced_accuracy_strict(self) -> Estimate:
        """Mean of both strict recalls."""
        return mean_of_two(self.valid_recall_strict, self.invalid_recall_strict)

    def to_json(self) -> dict[str, object]:
        """Return all figures in rate form, and the counts of undecided verdicts."""
        return {
            "balanced_accuracy": self.balanced_accuracy.to_json(),
            "valid_recall": self.valid_recall.to_json(),
            "invalid_recall": self.invalid_recall.to_json(),
            "balanced_accuracy_strict": self.balanced_accuracy_strict.to_json(),
            "valid_recall_strict": self.valid_recall_strict.to_json(),
            "invalid_recall_strict": self.invalid_recall_strict.to_json(),
            "valid_undecided": self.valid_undecided,
            "invalid_undecided": self.invalid_undecided,
            "asked": self.asked,
        }


def calibrate(pairs: Iterable[tuple[bool, Verdict | ValidityDecision]]) -> Calibration:
    """Return the calibration of ``(truth: is the question valid?, verdict or decision)`` pairs."""
    counts = Counter((truth, Verdict(verdict.value)) for truth, verdict in pairs)
    return Calibration(
        valid_accepted=counts[True, Verdict.VALID],
        valid_rejected=counts[True, Verdict.INVALID],
        valid_undecided=counts[True, Verdict.UNDECIDED],
        invalid_accepted=counts[False, Verdict.VALID],
        invalid_rejected=counts[False, Verdict.INVALID],
        invalid_undecided=counts[False, Verdict.UNDECIDED],
    )
