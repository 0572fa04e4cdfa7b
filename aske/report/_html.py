"""Building blocks of the page.

Text of a bench is untrusted: it passes `esc`, or goes into the embedded JSON, which the page's script only ever writes
as text. The page's policy refuses every script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from aske.report._meanings import MEANINGS
from aske.report._write import DASH, interval, percent, points
from aske.statistics import Estimate, Rate


def esc(text: object) -> str:
    """Return text safe inside an element or a quoted attribute."""
    return escape(str(text), quote=True)


def _asset(name: str) -> str:
    return resources.files("aske.report").joinpath("assets", name).read_text(encoding="utf-8")


def document(title: str, body: str) -> str:
    """Return the whole page: style, script and body in one file."""
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_asset("page.html")).substitute(
        title=esc(title), style=_asset("report.css"), script=script, script_hash=f"sha256-{digest}", body=body
    )


def embedded(name: str, value: Any) -> str:
    """Return JSON in a script element that no text can leave: ASCII, and without the signs that HTML reads."""
    text = json.dumps(value, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def section(name: str, title: str, *parts: str, lead: str = "") -> str:
    """Return a section with an anchor."""
    intro = f'<p class="lead">{esc(lead)}</p>' if lead else ""
    return f'<section id="{name}"><h2>{esc(title)}</h2>{intro}{"".join(parts)}</section>'


def banner(title: str, lines: Sequence[str]) -> str:
    """Return a box for what the reader must know first; empty without lines."""
    if not lines:
        return ""
    if len(lines) == 1:
        return f'<div class="banner"><b>{esc(title)}</b> {esc(lines[0])}</div>'
    items = "".join(f"<li>{esc(line)}</li>" for line in lines)
    return f'<div class="banner"><b>{esc(title)}</b><ul>{items}</ul></div>'


def figure(title: str, note: str, svg: str) -> str:
    """Return a chart with its title and note."""
    return f"<figure><figcaption><h3>{esc(title)}</h3><p>{esc(note)}</p></figcaption>{svg}</figure>"


def note(text: str) -> str:
    """Return a small line."""
    return f'<p class="note">{esc(text)}</p>'


Head = str | tuple[str, str]  # a name, with or without a tooltip


def table(head: Sequence[Head], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a table of ready cells; a head may carry a tooltip."""
    names = []
    for place, name in enumerate(head):
        text, tip = name if isinstance(name, tuple) else (name, "")
        more = f' title="{esc(tip)}"' if tip else ""
        names.append(f'<th scope="col"{" class=left" if place < left else ""}{more}>{esc(text)}</th>')
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{"".join(names)}</tr></thead><tbody>{body}</tbody></table></div>'


def row_head(text: str, tip: str = "", small: str = "") -> str:
    """Return the first cell of a row."""
    more = f' title="{esc(tip)}"' if tip else ""
    under = f'<span class="ci">{esc(small)}</span>' if small else ""
    return f'<th scope="row"{more}>{esc(text)}{under}</th>'


def cell(text: str, *small: str, kind: str = "") -> str:
    """Return a plain cell, with small lines under it."""
    under = "".join(f'<span class="ci">{esc(line)}</span>' for line in small if line)
    return f"<td{f' class={kind}' if kind else ''}>{esc(text)}{under}</td>"


def number(found: Rate | Estimate | None, signed: bool = False, why: str = "not run") -> str:
    """Return a cell of a rate, its interval and denominators under it."""
    if found is None or found.value is None:
        return f'<td class="none" title="{esc(why)}">{DASH}</td>'
    n = f"{found.k} of {found.n}" if isinstance(found, Rate) else f"n {found.n}"
    if found.asked > found.n:
        n += f"; {found.asked - found.n} left out"
    value = points(found.value) if signed else percent(found.value)
    return cell(value, interval(found.low, found.high, signed), n)


def beside(chart: str, names: Iterable[str]) -> str:
    """Return a chart with the meanings of what it shows at its side."""
    items = "".join(f"<dt>{esc(name)}</dt><dd>{esc(MEANINGS[name])}</dd>" for name in names)
    return f'<div class="beside">{chart}<dl class="reading">{items}</dl></div>'
