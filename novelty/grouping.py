"""Incremental grouping of questions by exercise pattern; the share of the largest patterns (R-Quest, appendix B.3)."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from novelty.prompts import PatternGroup, grouping_prompt
from selfevolve.answers.extract import after_thinking
from selfevolve.answers.readers import latex_doubled
from selfevolve.sampling import Prompt, Sampler, Sampling

LONGEST = 10_000  # characters at the end of a reply that are searched for the choice: bounds the time for hostile text


class ChoiceKind(StrEnum):
    """What a grouper does with a question."""

    JOIN = "join"  # it belongs to an existing group
    NEW = "new"  # it opens a group
    UNDECIDED = "undecided"  # the reply could not be read, or names a group that does not exist


@dataclass(frozen=True)
class GroupChoice:
    """A grouper's answer for one question."""

    kind: ChoiceKind
    group_id: str | None = None  # the group joined; None unless kind is JOIN
    pattern: str = ""  # description of the new group; "" unless kind is NEW
    reason: str = ""  # the grouper's own words, or why the reply could not be read


@runtime_checkable
class Grouper(Protocol):
    """Anything that can sort one question into groups."""

    def assign(self, question: str, inventory: Sequence[PatternGroup]) -> GroupChoice:
        """Return which group the question joins, or that it opens one, or UNDECIDED; never raises on a bad reply."""
        ...


class LabelGrouper:
    """Group by exact labels, for instance the pattern that an oracle names; the label becomes the description."""

    def __init__(self, label_of: Callable[[str], str | None]) -> None:
        """Keep the labelling; a question whose label is None stays undecided."""
        self.label_of = label_of

    def assign(self, question: str, inventory: Sequence[PatternGroup]) -> GroupChoice:
        """Return the group whose description is the question's label, or a new one."""
        label = self.label_of(question)
        if label is None:
            return GroupChoice(ChoiceKind.UNDECIDED, reason="the question has no label")
        for group in inventory:
            if group.pattern == label:
                return GroupChoice(ChoiceKind.JOIN, group_id=group.group_id, reason="same label")
        return GroupChoice(ChoiceKind.NEW, pattern=label, reason="first of its label")


class ModelGrouper:
    """Ask a model for each question, with the inventory in the prompt (R-Quest, prompt B.2)."""

    def __init__(
        self,
        sampler: Sampler,
        prompt_builder: Callable[[str, Sequence[PatternGroup]], Prompt] = grouping_prompt,
        sampling: Sampling | None = None,
    ) -> None:
        """Keep what is needed to ask; by default greedy, 512 tokens.

        Raises:
            ValueError: The sampling asks for more than one reply a prompt.
        """
        self.sampling = sampling or Sampling(temperature=0.0, max_tokens=512)
        if self.sampling.n != 1:
            raise ValueError(f"sampling.n is {self.sampling.n}; a question gets one choice, so set it to 1")
        self.sampler = sampler
        self.prompt_builder = prompt_builder

    def assign(self, question: str, inventory: Sequence[PatternGroup]) -> GroupChoice:
        """Return the model's choice; one call of the sampler."""
        reply = self.sampler.sample([self.prompt_builder(question, inventory)], self.sampling)[0][0]
        if not reply.complete:
            return GroupChoice(ChoiceKind.UNDECIDED, reason=f"the reply ended by {reply.finish_reason.value}")
        return read_choice(reply.text, inventory)


def read_choice(text: str, inventory: Sequence[PatternGroup]) -> GroupChoice:
    """Return the choice that a grouper's reply makes: its last JSON object with a ``group_id``.

    The ID is that of a group of the inventory, or NEW; anything else is UNDECIDED. Text around the object is ignored,
    a thinking block in any case (one that never closes holds no choice), and backslashes of LaTeX inside it need not be
    doubled.
    """
    found = _last_object((after_thinking(text) or "")[-LONGEST:])
    if found is None:
        return GroupChoice(ChoiceKind.UNDECIDED, reason="no JSON object with a group_id in the reply")
    name, pattern, reason = (str(found.get(key) or "").strip() for key in ("group_id", "pattern", "reason"))
    if name.upper() == "NEW":
        return GroupChoice(ChoiceKind.NEW, pattern=pattern, reason=reason)
    if any(group.group_id == name for group in inventory):
        return GroupChoice(ChoiceKind.JOIN, group_id=name, reason=reason)
    return GroupChoice(ChoiceKind.UNDECIDED, reason=f"group_id is {name[:40]!r}: neither NEW nor a group so far")


@dataclass(frozen=True)
class GroupingPass:
    """The outcome of one ordering."""

    groups: tuple[PatternGroup, ...]  # in the order of opening
    members: tuple[str | None, ...]  # group of each question, in the order given; None: undecided

    @property
    def sizes(self) -> tuple[int, ...]:
        """Questions in each group, largest first."""
        return tuple(sorted(Counter(name for name in self.members if name is not None).values(), reverse=True))

    @property
    def undecided(self) -> int:
        """Questions without a group; they are in no size and in no denominator."""
        return self.members.count(None)

    def top_share(self, top: int = 5) -> float | None:
        """Return the share of grouped questions in the `top` largest groups; None where nothing is grouped."""
        return top_share(self.members, top)


@dataclass(frozen=True)
class Grouping:
    """The passes over several random orderings of the same questions."""

    passes: tuple[GroupingPass, ...]

    @property
    def undecided(self) -> int:
        """Questions left without a group, summed over the passes."""
        return sum(one.undecided for one in self.passes)

    def top_share(self, top: int = 5) -> float | None:
        """Return the mean of the passes' top shares (R-Quest, appendix B.3); None where no pass grouped anything."""
        shares = [share for one in self.passes if (share := one.top_share(top)) is not None]
        return sum(shares) / len(shares) if shares else None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a record: the mean top-five share, and by ordering what it rests on."""
        orderings = [
            {
                "top5_share": one.top_share(),
                "k": sum(one.sizes[:5]),
                "counted": sum(one.sizes),
                "asked": len(one.members),
                "undecided": one.undecided,
                "sizes": list(one.sizes),
            }
            for one in self.passes
        ]
        return {"top5_share": self.top_share(), "undecided": self.undecided, "orderings": orderings}


def group_patterns(questions: Sequence[str], grouper: Grouper, orderings: int = 3, seed: int = 0) -> Grouping:
    """Group the questions anew under each of several random orderings (R-Quest, appendix B.3).

    A pass begins with no groups and takes one question at a time. Descriptions and representatives never change. A
    question with an undecided choice joins no group and opens none.

    Args:
        questions: The sample whose concentration is asked for; 200 in the paper.
        grouper: Sorts one question.
        orderings: Passes; at least 1.
        seed: Fixes the orderings.
    """
    if orderings < 1:
        raise ValueError(f"orderings is {orderings}; it must be at least 1")
    passes: list[GroupingPass] = []
    for number in range(orderings):
        order = list(range(len(questions)))
        random.Random(f"pattern grouping {seed} {number}").shuffle(order)
        passes.append(_group_once(questions, order, grouper))
    return Grouping(tuple(passes))


def top_share(labels: Sequence[str | None], top: int = 5) -> float | None:
    """Return the share of labelled questions in the `top` largest groups; all groups count where there are fewer.

    A label of None (undecided) is out of numerator and denominator. None where no question is labelled.
    """
    if top < 1:
        raise ValueError(f"top is {top}; it must be at least 1")
    sizes = Counter(label for label in labels if label is not None)
    counted = sum(sizes.values())
    return sum(size for _, size in sizes.most_common(top)) / counted if counted else None


def _group_once(questions: Sequence[str], order: Sequence[int], grouper: Grouper) -> GroupingPass:
    """Take the questions in `order`, beginning with no groups."""
    groups: list[PatternGroup] = []
    members: list[str | None] = [None] * len(questions)
    for index in order:
        choice = grouper.assign(questions[index], tuple(groups))
        if choice.kind is ChoiceKind.NEW:
            groups.append(PatternGroup(f"G{len(groups) + 1}", choice.pattern, questions[index]))
            members[index] = groups[-1].group_id
        elif choice.kind is ChoiceKind.JOIN:
            members[index] = choice.group_id
    return GroupingPass(tuple(groups), tuple(members))


def _last_object(text: str) -> dict[str, Any] | None:
    """Return the last JSON object in a text that has a ``group_id``."""
    decoder = json.JSONDecoder(strict=False)
    text = latex_doubled(text)
    found: dict[str, Any] | None = None
    place = text.find("{")
    while place >= 0:
        end = place + 1
        try:
            value, after = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            pass
        else:
            if "group_id" in value:
                found, end = value, after
        place = text.find("{", end)
    return found
