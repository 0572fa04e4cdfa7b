# ruff: noqa: RUF001
r"""Reading the final answer off a reply: the last complete box after the thinking, or a number or letter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfevolve.answers._tokens import Unreadable, matching_brace

_BOX = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{")
_NESTED = 8  # boxes within one another, at most; more are no answer
_CLOSE = "</think>"
_THOUGHT = re.compile(r"<think(?:ing)?>")
_NUMBER = re.compile(r"[-−+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|[-−+]?\.\d+")
_MARKER = re.compile(r"(?:final\s+)?answer\s*(?:is\b\s*)?[:=]?", re.IGNORECASE)
_WRAPPING = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|textrm)\s*\{([^{}]*)\}")


def after_thinking(text: str) -> str | None:
    """Return the part of a reply after its last thinking block; None when a block never closes."""
    at = text.rfind(_CLOSE)
    rest = text if at < 0 else text[at + len(_CLOSE) :]
    return None if _THOUGHT.search(rest) else rest


def extract(text: str, finish_reason: str = "stop") -> str | None:
    r"""Return the content of the last box of a reply, outer blanks removed; None where there is no final answer.

    Only text after the thinking block counts. A reply that did not end by itself (``finish_reason`` other than
    ``"stop"``), an empty box, and a last box that never closes give None: an earlier box was withdrawn.
    """
    if str(finish_reason) != "stop":
        return None
    rest = after_thinking(text)
    for _ in range(_NESTED):
        if rest is None:
            return None
        last = _last_box(rest)
        if last is None:
            return None
        content = last.strip()
        if not (_BOX.match(content) and content.endswith("}")):
            return content or None
        rest = after_thinking(content)
    return None


def _last_box(text: str) -> str | None:
    """Return the content of the last outermost box; None where there is none, or where a box never closes."""
    last = None
    at = 0
    while True:  # a box inside a box belongs to the outer one
        match = _BOX.search(text, at)
        if match is None:
            return last
        try:
            end = matching_brace(text, match.end() - 1)
        except Unreadable:
            return None
        last = text[match.end() : end]
        at = end + 1


def extract_final_number(text: str, finish_reason: str = "stop") -> str | None:
    """Return the last number of a reply as plain digits, without marks around it or commas in it."""
    if str(finish_reason) != "stop":
        return None
    rest = after_thinking(text)
    if rest is None:
        return None
    found = ""
    for match in _NUMBER.finditer(rest):
        number = match.group()
        glued = match.start() > 0 and rest[match.start() - 1] not in " \t\n(=$*:,{[~"
        found = number.lstrip("+-−") if glued and number[0] in "+-−" else number
    return found.replace(",", "").replace("−", "-").lstrip("+") or None


def extract_choice(text: str, labels: str = "A-D", finish_reason: str = "stop") -> str | None:
    """Return the option that a reply chooses, out of ``labels`` ("A-D" or "ABCD"); None for none or several.

    The choice stands in the last box, in the last ``<answer>`` tag, after the last "answer", or alone on the last line.
    """
    if str(finish_reason) != "stop":
        return None
    rest = after_thinking(text)
    if rest is None:
        return None
    allowed = _labels(labels)
    stated = extract(rest) if _BOX.search(rest) else _after_marker(rest)
    if stated is None:
        return None
    plain = _WRAPPING.sub(r"\1", stated)
    plain = re.sub(r"[*$`_]|\\[()\[\]]", "", plain).strip().lstrip("([{ ").strip()
    match = re.match(r"([A-Z])(?![A-Za-z0-9'])", plain)
    if match is None or match.group(1) not in allowed:
        return None
    behind = re.sub(r"^[)\]}.:\s]+", "", plain[1:])
    another = re.match(r"(?:[/,&|+]|and\b|or\b)\s*\(?[A-Z](?![A-Za-z])", behind)
    return None if another else match.group(1)


def _labels(labels: str) -> str:
    if len(labels) == 3 and labels[1] == "-":
        return "".join(chr(c) for c in range(ord(labels[0]), ord(labels[2]) + 1))
    return labels


def _after_marker(text: str) -> str | None:
    tags = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL | re.IGNORECASE)
    if tags:
        return str(tags[-1])
    markers = list(_MARKER.finditer(text))
    if markers:
        return text[markers[-1].end() :].strip() or None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines and re.fullmatch(r"\W*[A-Z]\W*", lines[-1]) else None


def read_label(
    text: str, labels: Sequence[str], marker: str = r"(?:final\s+)?(?:verdict|answer|judge?ment|decision|label)"
) -> str | None:
    """Return the one of ``labels`` that a judge's reply states; None where it states none.

    It counts only as the sole content of the last line or of that line after ``marker`` and a colon; whole words,
    whatever their case. The label is returned as it is spelt in ``labels``.
    """
    rest = after_thinking(text)
    lines = [line for line in (rest or "").splitlines() if line.strip()]
    if not lines:
        return None
    line = re.sub(r"[*`_$#\"]", " ", lines[-1].replace("_", "\0")).replace("\0", "_")
    line = _WRAPPING.sub(r"\1", re.sub(r"\\f?box(?:ed)?\s*\{([^{}]*)\}", r"\1", line)).strip()
    found = re.match(rf"(?:the\s+)?{marker}\s*(?::|=|is\b)\s*", line, re.IGNORECASE)
    if found:
        line = line[found.end() :]
    line = line.strip(" .!:;,()[]{}<>\t")
    for label in labels:
        if line.casefold() == label.casefold():
            return label
    return None
