"""The standard prompts of the novelty package (structure of R-Quest, prompts B.1 and B.2; the sentences are ours).

Placeholders are filled in one pass, so that braces, backslashes and even placeholders inside a question are safe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from selfevolve.sampling import Prompt, user

SAME_TYPE_TEMPLATE = """Here are two mathematics questions, both written by a model. Decide whether they repeat one \
and the same exercise pattern.

Answer SAME_TYPE when the distinctive mathematical setup is essentially shared and the same kind of thing is asked \
for, so that a student who did one would see the other as a further version of it. Other constants, coefficients, \
variable names, formulas, bounds or similar details are not enough to make two questions different.

A broad topic in common, similar wording or the same manner of presentation is not enough for SAME_TYPE. If you cannot \
name a clear and specific pattern that both follow, answer DIFFERENT.

First compare the exercise patterns of the two questions in a few words. Then finish with exactly one verdict, \
SAME_TYPE or DIFFERENT, alone on the last line.

Question A:
{question_a}

Question B:
{question_b}

Analysis:"""

GROUPING_TEMPLATE = """You sort mathematics questions into groups by exercise pattern. You are given one new question \
and the groups that exist so far. Put the question into one of them, or open a new group for it.

## What a pattern is
Two questions follow one pattern when they share essentially the same distinctive mathematical setup and ask for the \
same kind of thing, so that each is a version of the other. Other wording, notation, numbers or local details do not \
make a new pattern. Other defining conditions, or another thing asked for, do make one where they change the exercise \
itself. A broad topic or a general method in common does not make a pattern.

## How to decide
Hold the new question against the description and the example of every group. Join the group that fits best, but only \
if the common pattern is clear and specific as the group is described; never widen a group to make the question fit. \
Otherwise open a new group, and say briefly what its setup is and what it asks for. If there is no group yet, open \
one. Sort the question as it is written, without mending it: that two questions are both flawed is no common pattern.

## What to return
One JSON object with these fields:
- "group_id": the ID of the group that the question joins, or "NEW"
- "pattern": a short description if the group is new, else ""
- "reason": in a sentence, why it fits or why a new group is needed

## Existing groups
Each has an ID, a description of its pattern and an example question.
{group_inventory}

## New question
{question}"""


def same_type_prompt(candidate: str, reference: str, template: str = SAME_TYPE_TEMPLATE) -> Prompt:
    """Return the prompt that asks whether two questions are one exercise; the candidate is question A.

    Args:
        candidate: The question under judgement.
        reference: The question that it is held against.
        template: A text that holds ``{question_a}`` and ``{question_b}``, each exactly once.

    Raises:
        ValueError: The template lacks a placeholder or repeats one.
    """
    return user(_fill(template, {"question_a": candidate, "question_b": reference}))


@dataclass(frozen=True)
class PatternGroup:
    """One group, as it was opened; it stays so for the whole pass."""

    group_id: str  # "G1", "G2", ... in the order of opening
    pattern: str  # short description of setup and task
    representative: str  # the question that opened the group


def grouping_prompt(question: str, inventory: Sequence[PatternGroup], template: str = GROUPING_TEMPLATE) -> Prompt:
    """Return the prompt that asks which group a question joins, or whether it opens a new one.

    Args:
        question: The question to be sorted.
        inventory: The groups so far, each shown as one line of JSON.
        template: A text that holds ``{group_inventory}`` and ``{question}``, each exactly once.

    Raises:
        ValueError: The template lacks a placeholder or repeats one.
    """
    entries = [{"id": g.group_id, "pattern": g.pattern, "question": g.representative} for g in inventory]
    lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    return user(_fill(template, {"group_inventory": "\n".join(lines) or "(none)", "question": question}))


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Put each value in the place of its name in braces."""
    for name in values:
        found = template.count("{" + name + "}")
        if found != 1:
            raise ValueError(f"the template holds {{{name}}} {found} times; write it exactly once")
    places = re.compile("|".join(r"\{" + re.escape(name) + r"\}" for name in values))
    return places.sub(lambda match: values[match.group()[1:-1]], template)
