import json
import re
from collections.abc import Sequence

import pytest

from novelty import (
    ChoiceKind,
    GroupChoice,
    Grouper,
    LabelGrouper,
    ModelGrouper,
    PatternGroup,
    group_patterns,
    read_choice,
    top_share,
)
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling, ScriptedSampler

GROUPS = [PatternGroup("G1", "series", "Add 1 and 2."), PatternGroup("G2", "path", "Go home.")]


def _kind(question: str) -> str | None:
    return None if question.startswith("?") else question.split()[0]


QUESTIONS = [f"{kind} {i}" for kind, size in {"a": 6, "b": 4, "c": 3, "d": 2, "e": 2, "f": 1, "g": 1}.items()
             for i in range(size)]  # fmt: skip


def test_labels_give_the_exact_groups_in_every_ordering() -> None:
    grouping = group_patterns([*QUESTIONS, "? 0", "? 1"], LabelGrouper(_kind), orderings=3, seed=1)
    assert isinstance(LabelGrouper(_kind), Grouper)
    assert len(grouping.passes) == 3
    for one in grouping.passes:
        assert one.sizes == (6, 4, 3, 2, 2, 1, 1)
        assert one.undecided == 2
        assert one.members[-2:] == (None, None)
        assert one.top_share() == 17 / 19  # the undecided are out of the denominator
        names = {group.group_id: group.pattern for group in one.groups}
        assert [names[name] for name in one.members if name] == [q.split()[0] for q in QUESTIONS]
        assert all(_kind(group.representative) == group.pattern for group in one.groups)
        assert [group.group_id for group in one.groups] == [f"G{n}" for n in range(1, 8)]
    assert grouping.top_share() == pytest.approx(17 / 19)
    assert grouping.top_share(1) == pytest.approx(6 / 19)
    assert grouping.undecided == 6
    assert len({one.groups for one in grouping.passes}) == 3  # the orderings differ
    again = group_patterns([*QUESTIONS, "? 0", "? 1"], LabelGrouper(_kind), orderings=3, seed=1)
    assert again == grouping


class FirstComesFirst:
    """Join the first group until it holds three questions, then refuse to decide: the outcome depends on the order."""

    def __init__(self) -> None:
        self.joined = 0
        self.seen: list[tuple[str, int]] = []

    def assign(self, question: str, inventory: Sequence[PatternGroup]) -> GroupChoice:
        self.seen.append((question, len(inventory)))
        if not inventory:
            self.joined = 0
            return GroupChoice(ChoiceKind.NEW, pattern="x")
        self.joined += 1
        if self.joined <= 2:
            return GroupChoice(ChoiceKind.JOIN, group_id="G1")
        return GroupChoice(ChoiceKind.UNDECIDED if self.joined > 4 else ChoiceKind.NEW)


def test_each_pass_begins_anew_and_sees_every_question_once() -> None:
    grouper = FirstComesFirst()
    grouping = group_patterns(list("pqrstu"), grouper, orderings=2)
    for number, one in enumerate(grouping.passes):
        seen = grouper.seen[6 * number : 6 * number + 6]
        assert sorted(question for question, _ in seen) == list("pqrstu")
        assert [size for _, size in seen] == [0, 1, 1, 1, 2, 3]
        assert one.sizes == (3, 1, 1)
        assert one.groups[0].representative == seen[0][0]
        assert one.members["pqrstu".index(seen[5][0])] is None
    assert grouping.to_json() == {
        "top5_share": 1.0,
        "undecided": 2,
        "orderings": [
            {"top5_share": 1.0, "k": 5, "counted": 5, "asked": 6, "undecided": 1, "sizes": [3, 1, 1]} for _ in range(2)
        ],
    }


def test_the_share_is_the_mean_over_the_orderings() -> None:
    class Alternate:
        passes = 0

        def assign(self, question: str, inventory: Sequence[PatternGroup]) -> GroupChoice:
            self.passes += not inventory
            lump = inventory and self.passes % 2 == 0
            return GroupChoice(ChoiceKind.JOIN, group_id="G1") if lump else GroupChoice(ChoiceKind.NEW)

    grouping = group_patterns([str(i) for i in range(10)], Alternate(), orderings=3)
    assert [one.top_share() for one in grouping.passes] == [0.5, 1.0, 0.5]
    assert grouping.top_share() == pytest.approx(2 / 3)


def test_nothing_grouped_has_no_share() -> None:
    assert group_patterns([], LabelGrouper(_kind)).top_share() is None
    grouping = group_patterns(["? 0", "? 1"], LabelGrouper(_kind))
    assert grouping.top_share() is None
    assert grouping.to_json()["orderings"][0] == {
        "top5_share": None, "k": 0, "counted": 0, "asked": 2, "undecided": 2, "sizes": [],
    }  # fmt: skip
    with pytest.raises(ValueError, match="orderings is 0"):
        group_patterns(["a"], LabelGrouper(_kind), orderings=0)


def test_top_share() -> None:
    assert top_share(["a"] * 4 + ["b"] * 3 + ["c", "d", "e", "f"]) == 10 / 11
    assert top_share(["a", "b", None, "a", None], top=1) == 2 / 3
    assert top_share(["a", "b"]) == 1.0
    assert top_share([None]) is None
    assert top_share([]) is None
    with pytest.raises(ValueError, match="top is 0"):
        top_share(["a"], top=0)


READINGS = [
    ('{"group_id": "G2", "pattern": "", "reason": "a path again"}', ChoiceKind.JOIN, "G2", ""),
    ('{"group_id": "NEW", "pattern": "trains meet", "reason": "none fits"}', ChoiceKind.NEW, None, "trains meet"),
    ('```json\n{"group_id": "new", "pattern": "x"}\n```', ChoiceKind.NEW, None, "x"),
    ('It fits G1.\n{"group_id": "G1"} That is all.', ChoiceKind.JOIN, "G1", ""),
    ('{"group_id": "G1"}</think>{"group_id": "G2"}', ChoiceKind.JOIN, "G2", ""),
    ('<think>{"group_id": "G1"}', ChoiceKind.UNDECIDED, None, ""),
    ('<thinking>{"group_id": "G1"}</thinking>{"group_id": "G2"}', ChoiceKind.JOIN, "G2", ""),
    (r'{"group_id": "NEW", "pattern": "\theta and \nu"}', ChoiceKind.NEW, None, r"\theta and \nu"),
    ('First {"group_id": "G1"}, no: {"group_id": "G2"}', ChoiceKind.JOIN, "G2", ""),
    ('{"choice": {"group_id": "G1"}}', ChoiceKind.JOIN, "G1", ""),
    (r'{"group_id": "NEW", "pattern": "sum \(a_i\) by \frac{n}{2} \\cdot"}', ChoiceKind.NEW, None,
     r"sum \(a_i\) by \frac{n}{2} \cdot"),
    ('{"group_id": "NEW", "pattern": "two\nlines"}', ChoiceKind.NEW, None, "two\nlines"),
    # cannot be read, or names no group
    ('{"group_id": "G3"}', ChoiceKind.UNDECIDED, None, ""),
    ('{"group_id": ""}', ChoiceKind.UNDECIDED, None, ""),
    ('{"group_id": null, "pattern": "x"}', ChoiceKind.UNDECIDED, None, ""),
    ('{"group_id": ["G1"]}', ChoiceKind.UNDECIDED, None, ""),
    ('{"pattern": "x"}', ChoiceKind.UNDECIDED, None, ""),
    ('{"group_id": "G1"', ChoiceKind.UNDECIDED, None, ""),
    ("G1", ChoiceKind.UNDECIDED, None, ""),
    ("", ChoiceKind.UNDECIDED, None, ""),
    ("{" * 50_000, ChoiceKind.UNDECIDED, None, ""),
    ('{"a":' * 20_000, ChoiceKind.UNDECIDED, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "group_id", "pattern"), READINGS)
def test_reading_a_choice(text: str, kind: ChoiceKind, group_id: str | None, pattern: str) -> None:
    choice = read_choice(text, GROUPS)
    assert (choice.kind, choice.group_id, choice.pattern) == (kind, group_id, pattern)
    assert choice.reason or kind is not ChoiceKind.UNDECIDED


def _model(prompt: Prompt, _: int) -> str:
    """Group by the first word of the question, reading the inventory as a model would."""
    text = prompt[0].content
    question = text.rpartition("## New question\n")[2]
    kind = question.split()[0]
    for line in re.findall(r'^\{"id".*$', text, re.MULTILINE):
        group = json.loads(line)
        if group["pattern"] == kind:
            return json.dumps({"group_id": group["id"], "pattern": "", "reason": "it fits"})
    return json.dumps({"group_id": "NEW", "pattern": kind, "reason": "none fits"}) if kind != "?" else "I cannot say."


def test_a_model_as_grouper_gives_what_the_labels_give() -> None:
    questions = [*QUESTIONS, "? 0"]
    sampler = ScriptedSampler(_model)
    assert group_patterns(questions, ModelGrouper(sampler), seed=4) == group_patterns(
        questions, LabelGrouper(_kind), seed=4
    )
    assert len(sampler.calls) == 3 * len(questions)


def test_a_truncated_reply_leaves_the_question_undecided() -> None:
    reply = Reply('{"group_id": "G1"}', FinishReason.LENGTH)
    choice = ModelGrouper(ScriptedSampler(lambda *_: reply)).assign("Find x.", GROUPS)
    assert choice == GroupChoice(ChoiceKind.UNDECIDED, reason="the reply ended by length")
    with pytest.raises(ValueError, match="n is 2"):
        ModelGrouper(ScriptedSampler(_model), sampling=Sampling(n=2))
