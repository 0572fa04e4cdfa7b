"""Reading JSON out of a model's reply."""

from __future__ import annotations

import json
import re
from typing import Any

from selfevolve.answers._words import words
from selfevolve.answers.extract import after_thinking

_FENCE = re.compile(r"```[A-Za-z]*\s*\n?(.*?)\n?\s*```\s*\Z", re.DOTALL)
_COMMANDS = words(  # of LaTeX, as far as they begin like a line feed, a carriage return or a tab
    "nabla natural ncong ne nearrow neg neq newcommand newline nexists ngeq ngtr ni nleq nless nmid noindent nolimits "
    "nonumber normalsize not notag notin nparallel nprec nsim nsubseteq nsucc nsupseteq nu nwarrow "
    "raisebox rangle rbrace rbrack rceil rfloor rho right rightarrow rightharpoonup rightleftharpoons rm rtimes rule "
    "tag tan tanh tau tbinom text textbf textit textnormal textrm textsf textstyle texttt tfrac therefore theta "
    "thickapprox thickspace thinspace tilde times to top triangle triangleq triangleright"
)
# a backspace or a form feed before a letter is never meant
_DAMAGED = re.compile(rf"(?<!\\)\\(?=[bf][a-zA-Z]|(?:{'|'.join(_COMMANDS)})(?![a-zA-Z]))")
_LATEX_WORD = re.compile(_DAMAGED.pattern + r'|(?<!\\)\\(?!["\\/bfnrtu]|\n)|(?<!\\)\\(?=u(?![0-9a-fA-F]{4}))')
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_OBJECTS = 50  # beginnings of an object that are tried, from the last one back


def read_json(text: str) -> Any | None:
    r"""Return the JSON value in ``text``, or None where there is none.

    A thinking block is not read. The text is tried as it is, then without a code fence, then from its first brace to
    its last, then the last object in it; each also with trailing commas removed, with line feeds inside strings, and
    with the backslashes of LaTeX doubled. Where a command of LaTeX would load as a control character (``\frac`` as a
    form feed), the backslashes are doubled first. NaN and Infinity are no JSON.
    """
    stripped = (after_thinking(text) or "").strip()
    candidates = [stripped]
    fenced = _FENCE.search(stripped)
    if fenced and stripped.startswith("```"):
        candidates.append(fenced.group(1))
    start, end = stripped.find("{"), stripped.rfind("}")
    if 0 <= start < end:
        candidates.append(stripped[start : end + 1])
    for candidate in candidates:
        found = _load(candidate)
        if found is not None:
            return found
    return _last_object(stripped[: end + 1])


def _last_object(text: str) -> Any | None:
    """Return the last outermost object of a text that may hold braces of prose and several objects."""
    found, begins = None, len(text)
    for _ in range(_OBJECTS):
        begins = text.rfind("{", 0, begins)
        if begins < 0:
            return found
        value = _load(text[begins:].rstrip())
        if isinstance(value, dict):
            found = value  # an object around the one found last, or that one
        elif found is not None and "}" in text[begins:]:
            return found
    return found


def latex_doubled(text: str) -> str:
    """Return JSON with the backslashes of LaTeX doubled, so that they load as they were meant."""
    return _LATEX_WORD.sub(r"\\\\", text)


def _load(text: str) -> Any | None:
    doubled = latex_doubled(text)
    tries = [doubled, text] if _DAMAGED.search(text) else [text, doubled]
    for attempt in tries:
        for repaired in (attempt, _without_trailing_commas(attempt)):
            try:
                return json.loads(repaired, strict=False, parse_constant=_refuse)
            except ValueError:
                continue
            except RecursionError:
                return None
    return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _without_trailing_commas(text: str) -> str:
    """Drop a comma before a closing bracket, outside of strings."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    joined = "\0".join(parts[0::2])
    outside = _TRAILING_COMMA.sub("", joined).split("\0")
    parts[0::2] = outside if len(outside) == len(parts[0::2]) else parts[0::2]
    return "".join(parts)
