"""Reading JSON out of a model's reply."""

from __future__ import annotations

import json
import re
from typing import Any

_FENCE = re.compile(r"```[A-Za-z]*\s*\n?(.*?)\n?\s*```\s*\Z", re.DOTALL)
_LATEX_WORD = re.compile(r'(?<!\\)\\(?=[bfnrt][a-zA-Z]{2,})|(?<!\\)\\(?!["\\/bfnrtu])|(?<!\\)\\u(?![0-9a-fA-F]{4})')
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


def read_json(text: str) -> Any | None:
    r"""Return the JSON value in ``text``, or None where there is none.

    The text is tried as it is, then without a code fence, then from its first brace to its last, each also with
    trailing commas removed and with the backslashes of LaTeX doubled. A value that loads but holds control
    characters (``\frac`` read as a form feed) is read again with doubled backslashes.
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
    tries = [doubled, text] if doubled != text and _damaged(text) else [text, doubled]
    for attempt in tries:
        for repaired in (attempt, _without_trailing_commas(attempt)):
            try:
                return json.loads(repaired)
            except ValueError:
                continue
            except RecursionError:
                return None
    return None


def _damaged(text: str) -> bool:
    """Return True where plain loading turns a LaTeX command into a control character."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(re.search(r"[\b\f\t\r]|\n(?=[a-z]{2,})", _strings(found)))


def _strings(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join([*map(str, value), *(_strings(v) for v in value.values())])
    if isinstance(value, list):
        return " ".join(_strings(v) for v in value)
    return value if isinstance(value, str) else ""


def _without_trailing_commas(text: str) -> str:
    """Drop a comma before a closing bracket, outside of strings."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    joined = "\0".join(parts[0::2])
    outside = _TRAILING_COMMA.sub("", joined).split("\0")
    parts[0::2] = outside if len(outside) == len(parts[0::2]) else parts[0::2]
    return "".join(parts)
