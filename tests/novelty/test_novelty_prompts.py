import json

import pytest

from novelty import PatternGroup, grouping_prompt, same_type_prompt


def test_the_comparison_prompt_has_the_papers_parts_in_order() -> None:
    (turn,) = same_type_prompt("Find $x^{2}$.", "Find $y$.")
    text = turn.content
    assert turn.role == "user"
    parts = ["SAME_TYPE", "DIFFERENT", "Question A:\nFind $x^{2}$.\n", "Question B:\nFind $y$.\n", "Analysis:"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.endswith("Analysis:")


def test_a_question_that_holds_a_placeholder_is_left_alone() -> None:
    text = same_type_prompt("about {question_b}", "about \\1 {question_a}", "{question_a} | {question_b}")[0].content
    assert text == "about {question_b} | about \\1 {question_a}"


@pytest.mark.parametrize("template", ["{question_a}", "{question_b}", "{question_a} {question_b} {question_a}", ""])
def test_a_template_without_its_placeholders_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="exactly once"):
        same_type_prompt("a", "b", template)


def test_the_grouping_prompt_shows_every_group_and_the_question() -> None:
    groups = [PatternGroup("G1", "sum of a series", 'Find "1 + 2".'), PatternGroup("G2", "path", "Go\nhome.")]
    text = grouping_prompt("What is {question}?", groups)[0].content
    for word in ('"group_id"', '"pattern"', '"reason"', "NEW"):
        assert word in text
    assert text.endswith("What is {question}?")
    shown = [json.loads(line) for line in text.splitlines() if line.startswith('{"id"')]
    assert shown == [
        {"id": "G1", "pattern": "sum of a series", "question": 'Find "1 + 2".'},
        {"id": "G2", "pattern": "path", "question": "Go\nhome."},
    ]


def test_an_empty_inventory_is_said_to_be_empty() -> None:
    assert "\n(none)\n" in grouping_prompt("Find x.", [])[0].content
    with pytest.raises(ValueError, match="group_inventory"):
        grouping_prompt("Find x.", [], "{question}")
