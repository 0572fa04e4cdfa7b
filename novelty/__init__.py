"""novelty: does a question repeat another? Judges, gates, BLEU clusters, pattern groups, exact duplicates.

Imports `selfevolve.sampling` only.
"""

from novelty.bleu import bleu_clusters, bleu_distances, cluster_penalty
from novelty.duplicates import deduplicate, first_indices, is_duplicate, normal_text
from novelty.gate import ExhaustiveGate, KSampledGate, NoveltyDecision, NoveltyGate, NoveltyResult
from novelty.grouping import (
    ChoiceKind,
    GroupChoice,
    Grouper,
    Grouping,
    GroupingPass,
    LabelGrouper,
    ModelGrouper,
    group_patterns,
    read_choice,
    top_share,
)
from novelty.judge import JudgeCounts, ModelJudge, NoveltyJudge
from novelty.probability import approximate_pass_probability, pass_probability, plot_pass_probability
from novelty.prompts import GROUPING_TEMPLATE, SAME_TYPE_TEMPLATE, PatternGroup, grouping_prompt, same_type_prompt
from novelty.verdict import SameType, read_same_type

__all__ = [
    "GROUPING_TEMPLATE",
    "SAME_TYPE_TEMPLATE",
    "ChoiceKind",
    "ExhaustiveGate",
    "GroupChoice",
    "Grouper",
    "Grouping",
    "GroupingPass",
    "JudgeCounts",
    "KSampledGate",
    "LabelGrouper",
    "ModelGrouper",
    "ModelJudge",
    "NoveltyDecision",
    "NoveltyGate",
    "NoveltyJudge",
    "NoveltyResult",
    "PatternGroup",
    "SameType",
    "approximate_pass_probability",
    "bleu_clusters",
    "bleu_distances",
    "cluster_penalty",
    "deduplicate",
    "first_indices",
    "group_patterns",
    "grouping_prompt",
    "is_duplicate",
    "normal_text",
    "pass_probability",
    "plot_pass_probability",
    "read_choice",
    "read_same_type",
    "same_type_prompt",
    "top_share",
]
