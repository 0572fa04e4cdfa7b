"""Prompt packs: every text that is put before a model, under one name.

A pack is a set of templates; placeholders are ``{question}``, ``{question_a}``, ``{question_b}``. They are filled by
plain replacement, so braces of LaTeX need no escaping.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from novelty import SAME_TYPE_TEMPLATE, same_type_prompt
from selfevolve.config.yaml_text import parse_mapping
from selfevolve.errors import UserError
from selfevolve.sampling import Prompt, user
from validity import VALIDITY_TEMPLATE

_FIELDS = ("ask_system", "ask", "solve_system", "solve", "check", "same_type")


@dataclass(frozen=True)
class PromptPack:
    """The prompts of one kind of backbone."""

    name: str
    ask_text: str  # asks for one new question
    solve_text: str  # holds {question}
    check_text: str  # holds {question}; asks for a solution, or INVALID where the question is flawed
    same_type_text: str = SAME_TYPE_TEMPLATE  # holds {question_a} and {question_b}, each once
    ask_system: str | None = None
    solve_system: str | None = None

    def ask(self) -> Prompt:
        """Return the prompt that asks for a new question."""
        return user(self.ask_text, self.ask_system)

    def solve(self, question: str) -> Prompt:
        """Return the plain solving prompt."""
        return user(self.solve_text.replace("{question}", question), self.solve_system)

    def check(self, question: str) -> Prompt:
        """Return the validity-aware solving prompt."""
        return user(self.check_text.replace("{question}", question))

    def same_type(self, first: str, second: str) -> Prompt:
        """Return the prompt that asks whether two questions are one exercise; `first` is the candidate."""
        return same_type_prompt(first, second, self.same_type_text)


TESTBED = PromptPack(
    name="testbed",
    ask_text="<ask>",
    solve_text="<solve> {question}",
    check_text="<check> {question}",
    same_type_text="<judge> {question_a}<vs> {question_b}",
)

STANDARD = PromptPack(
    name="standard",
    ask_system=(
        "You are an expert who sets problems for mathematics competitions.\n\n"
        "FIRST, think in private about a new problem that is not trivial. It may come from any field of mathematics: "
        "algebra, geometry, number theory, combinatorics, probability, statistics, calculus. Aim at a difficulty that "
        "fewer than 30% of strong high-school students would master. Do not reuse textbook exercises or known contest "
        "problems.\n\n"
        "THEN write exactly these two blocks, and nothing of your private thoughts:\n\n"
        "<question>\nThe full statement of the problem, on one or more lines\n</question>\n\n"
        "\\boxed{final_answer}\n\n"
        "Write nothing else: no explanation and no other markup."
    ),
    ask_text=(
        "Write one new, challenging problem now. Begin your reply with <question>, close the problem with </question>, "
        "and put its final answer in \\boxed{} on the last line."
    ),
    solve_system="Reason step by step, and end with your final answer inside \\boxed{}.",
    solve_text="{question}",
    check_text=VALIDITY_TEMPLATE,
)

_BEFORE_THE_FORM = VALIDITY_TEMPLATE.partition("Begin with your reasoning")[0]
PLAIN = replace(
    STANDARD,
    name="plain",
    check_text=_BEFORE_THE_FORM
    + (
        "Reason step by step first. End with exactly one final answer inside \\boxed{}: the mathematical answer if the "
        "question is sound, or INVALID if it is flawed."
    ),
)


def load_pack(name: str) -> PromptPack:
    """Return a shipped pack (``testbed``, ``standard``, ``plain``), or the standard one with texts of a YAML file.

    ``plain`` is the standard pack without think tags in the validity prompt: small instruct models open the tag and do
    not close it, so that no vote of theirs could be read.

    Raises:
        UserError: The file is missing, has an unknown key, or a text lacks its placeholder.
    """
    shipped = {pack.name: pack for pack in (TESTBED, STANDARD, PLAIN)}
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if not path.is_file():
        raise UserError(f"prompts is {name!r}: none of {', '.join(shipped)}, and no file of that name exists")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if re.match(r"(?:\s*(?:#.*)?\n)*\s*-\s", text):
        raise UserError(f"{path} must map some of {', '.join(_FIELDS)} to texts, and holds a list")
    texts, _ = parse_mapping(text, str(path))
    for key, text in texts.items():
        if key not in _FIELDS or not isinstance(text, str):
            met = f"{key!r}" if key not in _FIELDS else f"{key}: {text!r}"
            raise UserError(
                f"{path} must map some of {', '.join(_FIELDS)} to texts; it holds {met}",
                "Write a text as a block (`solve: |`) or in quotes: YAML reads bare braces as a mapping.",
            )
    needed = {"solve": ("{question}",), "check": ("{question}",), "same_type": ("{question_a}", "{question_b}")}
    for key, marks in needed.items():
        for mark in marks:
            if key in texts and mark not in texts[key]:
                raise UserError(f"{path}: the text {key!r} lacks the placeholder {mark}")
    return PromptPack(
        name=path.stem,
        ask_text=texts.get("ask", STANDARD.ask_text),
        solve_text=texts.get("solve", STANDARD.solve_text),
        check_text=texts.get("check", STANDARD.check_text),
        same_type_text=texts.get("same_type", STANDARD.same_type_text),
        ask_system=texts.get("ask_system", STANDARD.ask_system),
        solve_system=texts.get("solve_system", STANDARD.solve_system),
    )
