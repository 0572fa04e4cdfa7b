"""validity: is a question sound? Prompt, verdicts, votes, the initialisation and its reward, calibration.

Imports `selfevolve.answers` and `selfevolve.sampling` only.
"""

from validity.calibration import Calibration, calibrate
from validity.initialisation import (
    InitialisationExample,
    InitialisationSet,
    Label,
    Split,
    build_initialisation_set,
    read_examples,
    write_examples,
)
from validity.intervals import Estimate
from validity.prompts import VALIDITY_TEMPLATE, validity_prompt
from validity.reward import InitialisationOutcome, initialisation_outcome, initialisation_reward
from validity.verdict import INVALID, Verdict, is_rejection, read_verdict, why_unread
from validity.vote import ValidityDecision, ValidityVote, gate_value, settled, vote_validity

__all__ = [
    "INVALID",
    "VALIDITY_TEMPLATE",
    "Calibration",
    "Estimate",
    "InitialisationExample",
    "InitialisationOutcome",
    "InitialisationSet",
    "Label",
    "Split",
    "ValidityDecision",
    "ValidityVote",
    "Verdict",
    "build_initialisation_set",
    "calibrate",
    "gate_value",
    "initialisation_outcome",
    "initialisation_reward",
    "is_rejection",
    "read_examples",
    "read_verdict",
    "settled",
    "validity_prompt",
    "vote_validity",
    "why_unread",
    "write_examples",
]
