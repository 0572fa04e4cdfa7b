"""What a round shows: metrics, concentration, the collapse monitor, and the glossary of all keys."""

from selfevolve.diagnostics.concentration import pattern_counts, top_share
from selfevolve.diagnostics.evaluation import Decoding, Evaluation, Outcome, accuracy
from selfevolve.diagnostics.glossary import GLOSSARY, Entry, markdown_table
from selfevolve.diagnostics.metrics import Metrics, label_outcome, round_metrics, valid_rate
from selfevolve.diagnostics.monitor import (
    Bounds,
    Check,
    CollapseMonitor,
    Finding,
    MonitorReport,
    NothingToLearn,
    check_reward_spread,
    check_training_set,
)

__all__ = [
    "GLOSSARY",
    "Bounds",
    "Check",
    "CollapseMonitor",
    "Decoding",
    "Entry",
    "Evaluation",
    "Finding",
    "Metrics",
    "MonitorReport",
    "NothingToLearn",
    "Outcome",
    "accuracy",
    "check_reward_spread",
    "check_training_set",
    "label_outcome",
    "markdown_table",
    "pattern_counts",
    "round_metrics",
    "top_share",
    "valid_rate",
]
