# ruff: noqa: RUF001
r"""Reading the final answer off a reply: the last complete box after the thinking, or a number or letter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfevolve.answers._tokens import Unreadable, matching_brace

_BOX = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{")
_NESTED = 8  # boxes within one another, at most; more are no answer
# a box without braces holds one plain number: "\\boxed 7"
_BARE = re.compile(
    r"\\(?:f?boxed|fbox)\s*([-−+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?)(?![\w^\\/{(]|[.,][0-9])"
)
_THOUGHT = re.compile(r"<(?:think|thinking|thought)>|\[think\]", re.IGNORECASE)
_CLOSE = re.compile(r"</(?:think|thinking|thought)>|\[/think\]", re.IGNORECASE)
_GROUPED = r"[0-9]{1,3}(?:(?:,|\{,\}|\\,|[\u00a0\u2009\u202f])[0-9]{3})+(?![0-9])"  # 1,234
_NUMBER = re.compile(
    r"(?P<sign>[-−+]?)(?:\\?\$|[€£¥])?(?:"
    r"(?:(?P<whole>[0-9]+)[ ]?)?\\[dtc]?frac\{(?P<top>[0-9]+)\}\{(?P<bottom>[0-9]+)\}"
    r"|(?:[0-9]+[ ])?(?<!/)[0-9]+/[0-9]+(?![0-9/])"
    rf"|(?:{_GROUPED}|[0-9]+)(?:\.[0-9]+)?(?:e[-−+]?[0-9]+(?![0-9a-z]))?"
    r"|\.[0-9]+)",
    re.IGNORECASE,
)
_RAISED = re.compile(r"(?:\^|[\w)}\]]\*\*)\s*[{(]?\Z")  # what stands before an exponent
_POWER = re.compile(r"\s*(?:\^(?!\s*\{?\s*(?:\\circ|°))|\*\*\s*[0-9({]|[⁰¹²³⁴-⁹])")  # what stands behind a base
_BEFORE_A_SIGN = ("", *" \t\n(=$*:,{[~\"'")  # elsewhere a minus is an operator or a dash
_MARKER = re.compile(
    r"\b(?:answer|(?:correct|right|best)\s+(?:option|choice))\b\W{0,3}?\s*(is\b\s*:?|[:=])?", re.IGNORECASE
)
_WIDE = {c: c - 0xFEE0 for c in range(0xFF01, 0xFF5F)} | {ord("【"): "[", ord("】"): "]"}  # of Chinese keyboards
_WRAPPING = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|textrm)\s*\{([^{}]*)\}")


def behind_thinking(text: str) -> str:
    """Return the part of a reply after the last mark that closes a thinking block; it may open another one."""
    ends = [mark.end() for mark in _CLOSE.finditer(text)]
    return text[ends[-1] :] if ends else text


def after_thinking(text: str) -> str | None:
    """Return the part of a reply after its last thinking block; None when a block never closes."""
    rest = behind_thinking(text)
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
        bare = list(_BARE.finditer(text, at, len(text) if match is None else match.start()))
        last = bare[-1].group(1) if bare else last
        if match is None:
            return last
        try:
            end = matching_brace(text, match.end() - 1)
        except Unreadable:
            return None
        last = text[match.end() : end]
        at = end + 1


def extract_final_number(text: str, finish_reason: str = "stop") -> str | None:
    """Return the last number of a reply as plain digits, without marks around it or commas in it.

    A fraction comes as ``3/4`` or ``3 1/2``, a power of ten as ``1.5e3``. An exponent (``5 cm^2``) and a piece of a
    dotted chain (``1.2.3``) are no numbers; where the last number is a power (``10^3``), the reply has no plain one.
    """
    if str(finish_reason) != "stop":
        return None
    rest = after_thinking(text.translate(_WIDE))
    if rest is None:
        return None
    found: str | None = None
    for match in _NUMBER.finditer(rest):
        before, behind = rest[max(0, match.start() - 8) : match.start()], rest[match.end() : match.end() + 20]
        chained = re.match(r"\.[0-9]", behind) or (match.group()[0] == "." and before[-1:].isdigit())
        if chained or _RAISED.search(before):
            continue
        found = None if _POWER.match(behind) else _plain_number(match, glued=before[-1:] not in _BEFORE_A_SIGN)
    return found


def _plain_number(match: re.Match[str], glued: bool) -> str:
    """Return a number without its marks; a sign that stands right behind something (``3-2``) is an operator."""
    if match["top"]:
        number = f"{match['whole'] or ''} {match['top']}/{match['bottom']}".strip()
    else:
        number = re.sub(r"[,{}\\$€£¥\u00a0\u2009\u202f]", "", match.group()[len(match["sign"]) :])
    minus = match["sign"] in ("-", "−") and not glued
    return ("-" if minus else "") + number.replace("−", "-")


def extract_choice(text: str, labels: str = "A-D", finish_reason: str = "stop") -> str | None:
    """Return the option that a reply chooses, out of ``labels`` ("A-D" or "ABCD"); None for none or several.

    The choice stands in the last box, in the last ``<answer>`` tag, after the last "answer", or alone on the last line.
    A small letter counts where it stands there alone.
    """
    if str(finish_reason) != "stop":
        return None
    rest = after_thinking(text.translate(_WIDE))
    if rest is None:
        return None
    allowed = _labels(labels)
    stated = extract(rest) if _BOX.search(rest) else _after_marker(rest)
    if stated is None:
        return None
    plain = re.sub(r"[*$`_~\"'“”<>]|\\[()\[\]]", "", _WRAPPING.sub(r"\1", stated)).strip()
    plain = re.sub(r"\A[-–—\s]*(?:(?:option|choice|letter)\b\s*:?\s*)?[(\[{]*\s*", "", plain, flags=re.IGNORECASE)
    if re.fullmatch(r"[a-z]\W*", plain):
        plain = plain.upper()
    match = re.match(r"([A-Z])(?![A-Za-z0-9'])", plain)
    if match is None or match.group(1) not in allowed:
        return None
    behind = re.sub(r"^[)\]}.:\s]+", "", plain[1:])
    another = re.match(r"(?:[/,;&|+]|and\b|or\b)\s*\(?[A-Z](?![A-Za-z])|\(?[A-Z][)\].]*\Z", behind)
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
        stated = [m for m in markers if m.group(1)]  # "answer:" and "answer is" before a bare "answer"
        return text[(stated or markers)[-1].end() :].strip() or None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines and re.fullmatch(r"\W*[A-Z]\W*", lines[-1]) else None


def read_label(
    text: str,
    labels: Sequence[str],
    marker: str = r"(?:final\s+)?(?:verdict|answer|judge?ment|decision|conclusion|label|grade|rating|result)",
) -> str | None:
    """Return the one of ``labels`` that a judge's reply states; None where it states none, or two.

    It counts as the sole content of the last line, or of a line after ``marker`` and a colon; whole words, whatever
    their case. The last line has precedence; without a label there, the marked lines of the reply must agree. The label
    is returned as it is spelt in ``labels``.

    Args:
        text: The reply; a thinking block is not read.
        labels: The words that count.
        marker: A pattern of what stands before a label, without the colon.
    """
    lines = [line for line in (after_thinking(text) or "").splitlines() if line.strip()]
    if not lines:
        return None
    found = [_label_of(line, labels, marker) for line in lines[-2:]]
    if found[-1] is not None:
        copied = len(found) > 1 and found[0] not in (None, found[-1])  # both choices, one below the other
        return None if copied else found[-1]
    bare = [_bare_line(line) for line in lines]
    marked = [line for line in bare if re.match(_before_a_label(marker), line, re.IGNORECASE)]
    word = "|".join(map(re.escape, labels))
    stated = {  # a marked line about something else says nothing: "the answer is 12"
        _label_of(line, labels, marker)
        for line in marked
        if re.search(rf"(?<![A-Za-z0-9_])(?:{word})(?![A-Za-z0-9_])", line, re.IGNORECASE)
    }
    return stated.pop() if len(stated) == 1 else None


def _before_a_label(marker: str) -> str:
    return rf"(?:the\s+|my\s+|our\s+)?{marker}\s*(?::|：|=|[-–—]\s|is\b)\s*:?\s*"


def _bare_line(line: str) -> str:
    """Return a line without marks of emphasis, bullets, quotes, tags and boxes around its words."""
    line = re.sub(r"\A\s*(?:[-+>•]\s+|[0-9]+[.)]\s+)+", "", re.sub(r"[*`$#\"“”]|</?[A-Za-z]+>", " ", line))
    line = re.sub(r"(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])", " ", line)
    return _WRAPPING.sub(r"\1", re.sub(r"\\f?box(?:ed)?\s*\{([^{}]*)\}", r"\1", line)).strip()


def _label_of(line: str, labels: Sequence[str], marker: str) -> str | None:
    plain = re.sub(_before_a_label(marker), "", _bare_line(line), count=1, flags=re.IGNORECASE)
    plain = plain.strip(" .!:;,()[]{}<>'\t").casefold()
    return next((label for label in labels if plain == label.casefold()), None)
