"""Reading JSON out of a model's reply."""

from __future__ import annotations

import json
import re
from typing import Any

from selfevolve.answers._words import words

_FENCE = re.compile(r"```[A-Za-z]*\s*\n?(.*?)\n?\s*```\s*\Z", re.DOTALL)
_COMMANDS = words(  # of LaTeX, as far as they begin like an escape of JSON
    "bar beta because begin bf big binom bmod boldsymbol bot boxed breve bullet flat "
    "forall frac frown nabla ne neg neq newline nexists ni nmid not notin nu "
    "rangle rbrace rceil rfloor rho right rightarrow rm tan tanh tau tbinom text "
    "textbf textit textrm tfrac theta tilde times to top triangle"
)
_DAMAGED = re.compile(rf"(?<!\\)\\(?={'|'.join(rf'{c}(?![a-zA-Z])' for c in _COMMANDS)})")
_LATEX_WORD = re.compile(_DAMAGED.pattern + r'|(?<!\\)\\(?!["\\/bfnrtu])|(?<!\\)\\u(?![0-9a-fA-F]{4})')
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


def read_json(text: str) -> Any | None:
    r"""Return the JSON value in ``text``, or None where there is none.

    The text is tried as it is, then without a code fence, then from its first brace to its last, each also with
    trailing commas removed and with the backslashes of LaTeX doubled. Where a command of LaTeX would load as a control
    character (``\frac`` as a form feed), the backslashes are doubled first.
    """
    stripped = text.strip()
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
    return None


def _load(text: str) -> Any | None:
    doubled = _LATEX_WORD.sub(r"\\\\", text)
    tries = [doubled, text] if _DAMAGED.search(text) else [text, doubled]
    for attempt in tries:
        for repaired in (attempt, _without_trailing_commas(attempt)):
            try:
                return json.loads(repaired)
            except ValueError:
                continue
            except RecursionError:
                return None
    return None


def _without_trailing_commas(text: str) -> str:
    """Drop a comma before a closing bracket, outside of strings."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    joined = "\0".join(parts[0::2])
    outside = _TRAILING_COMMA.sub("", joined).split("\0")
    parts[0::2] = outside if len(outside) == len(parts[0::2]) else parts[0::2]
    return "".join(parts)
