"""Texts that are put before the asker and the solvers: shipped packs, or a YAML file of one's own.

Placeholders are filled by plain replacement, so braces of LaTeX need no escaping.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import yaml

from aske.errors import AskeError
from aske.yaml12 import parse_yaml
from selfevolve.sampling import Message, Prompt, user

SHIPPED = ("standard", "testbed")


@dataclass(frozen=True)
class AskePack:
    """The prompts of one kind of model."""

    name: str
    opening: str  # the asker's first user turn; may hold {probes} and {words}
    opening_without_probes: str  # the same where the first question is the final one; may hold {words}
    results: str  # what is said after a probe; holds {shown_1} and {shown_2}; may hold {left}, the probes that remain
    final: str  # the same before the final turn; holds {shown_1} and {shown_2}
    lost: str  # said after a probe that held no question; may hold {left}
    lost_final: str  # the same before the final turn
    shown: str  # what the asker reads of one solver; holds {summary} and {answer}
    no_answer: str  # stands for {answer} where the solver gave none
    solve: str  # put before both boundary solvers and the cross-check; holds {question}
    asker_system: str | None = None
    solve_system: str | None = None
    summary: Literal["reply", "thinking"] = "reply"  # which part of a solver's reply the summary is taken from

    def open(self, probes: int, words: int) -> Prompt:
        """Return the asker's first prompt."""
        text = self.opening if probes else self.opening_without_probes
        return user(_fill(text, probes=str(probes), words=str(words)), self.asker_system)

    def after_probe(self, shown_1: str, shown_2: str, left: int) -> Message:
        """Return the user turn that shows both solvers' replies; `left` counts the probes that remain."""
        text = self.results if left else self.final
        return Message("user", _fill(text, left=str(left), shown_1=shown_1, shown_2=shown_2))

    def after_lost(self, left: int) -> Message:
        """Return the user turn after a probe that held no question."""
        return Message("user", _fill(self.lost if left else self.lost_final, left=str(left)))

    def fill_shown(self, summary: str, answer: str) -> str:
        """Return what the asker reads of one solver."""
        return _fill(self.shown, summary=summary, answer=answer)

    def solver(self, question: str) -> Prompt:
        """Return the prompt of boundary solvers and cross-checks."""
        return user(_fill(self.solve, question=question), self.solve_system)


_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def _fill(text: str, **values: str) -> str:
    """Replace each placeholder in one pass, so that one inside a value stays as it is."""
    return _PLACEHOLDER.sub(lambda found: values.get(found.group(1), found.group(0)), text)


_MAY_BE_NONE = ("asker_system", "solve_system")
_NEEDED = {
    "results": ("{shown_1}", "{shown_2}"),
    "final": ("{shown_1}", "{shown_2}"),
    "shown": ("{answer}",),
    "solve": ("{question}",),
}


def load_pack(name: str) -> AskePack:
    """Return a shipped pack (``standard``, ``testbed``), or the standard one with texts of a YAML file.

    Raises:
        AskeError: the file is missing, has an unknown key, or a text lacks its placeholder.
    """
    shipped = name in SHIPPED
    path = Path(__file__).parent / f"{name}.yaml" if shipped else Path(name)
    if not path.is_file():
        raise AskeError(f"prompts is {name!r}: none of {', '.join(SHIPPED)}, and no file of that name exists")
    if not shipped and path.stem in SHIPPED:
        raise AskeError(
            f"{path} has the name of a shipped pack", "Records name their pack: give the file another name."
        )
    try:
        texts = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AskeError(
            f"{path} cannot be read: {error}", "Prompts are a YAML file that maps names to texts."
        ) from None
    known = {f.name for f in fields(AskePack)} - {"name"}
    if not isinstance(texts, dict):
        raise AskeError(f"{path} holds {type(texts).__name__}; it must map some of {', '.join(sorted(known))} to texts")
    if unknown := sorted(set(texts) - known):
        raise AskeError(f"{path} has the unknown key {unknown[0]!r}", f"The keys are {', '.join(sorted(known))}.")
    for key, text in texts.items():
        if not isinstance(text, str) and not (text is None and key in _MAY_BE_NONE):
            raise AskeError(
                f"{path}: {key!r} is {text!r}; it must be a text", "Put a text that begins with a sign in quotes."
            )
    for key, marks in _NEEDED.items():
        for mark in marks:
            if key in texts and mark not in texts[key]:
                raise AskeError(f"{path}: the text {key!r} lacks the placeholder {mark}")
    if texts.get("summary", "reply") not in ("reply", "thinking"):
        raise AskeError(f"{path}: summary is {texts['summary']!r}; it must be 'reply' or 'thinking'")
    if shipped:
        return AskePack(name=name, **texts)
    standard = load_pack("standard")
    base = {f.name: getattr(standard, f.name) for f in fields(AskePack)}
    return AskePack(**{**base, **texts, "name": path.stem})
