"""Building blocks of the HTML pages: escaping, figures, tables, the page's frame.

Everything that comes from a run folder is untrusted text: it passes `esc` or goes into the packed rows, which the
page's script only ever writes as text. The page's security policy also refuses every script but its own.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from selfevolve.report.charts import Chart
from selfevolve.report.figures import Measure, write_interval, write_value


def esc(text: object) -> str:
    """Return text safe inside an element or a quoted attribute."""
    return escape(str(text), quote=True)


def asset(name: str) -> str:
    """Return the text of a file beside the code."""
    return resources.files("selfevolve.report").joinpath("assets", name).read_text(encoding="utf-8")


def write_page(title: str, body: str) -> str:
    """Return a whole page: style, script and body in one file."""
    script = asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(asset("page.html")).substitute(
        title=esc(title), style=asset("report.css"), script=script, script_hash=f"sha256-{digest}", body=body
    )


def write_whole(path: Path, text: str) -> Path:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    os.replace(partial, path)
    return path


def pack(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as gzipped JSON in base64: small, and free of anything that HTML could read as markup."""
    text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), mtime=0)).decode()


def figure(chart: Chart) -> str:
    """Return a chart with its title and note."""
    note = chart.note[:1].upper() + chart.note[1:]
    return f"<figure><figcaption><h3>{esc(chart.title)}</h3><p>{esc(note)}</p></figcaption>{chart.svg}</figure>"


def figures_grid(charts: Iterable[Chart]) -> str:
    """Return charts side by side; those without a picture are only named."""
    listed = list(charts)
    drawn = "".join(figure(chart) for chart in listed if chart.svg)
    absent = [chart.title for chart in listed if not chart.svg]
    note = f'<p class="note absent">Not measured: {esc("; ".join(absent))}.</p>' if absent else ""
    return (f'<div class="grid">{drawn}</div>' if drawn else "") + note


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


def cell(found: Measure, percent: bool = True) -> str:
    """Return a table cell of a figure, its interval and denominator under it."""
    if found.value is None:
        return '<td class="none" title="not measured">\u2013</td>'
    under = [write_interval(found, percent)] if found.low is not None else []
    if found.n is not None:
        under.append(f"n {found.n}")
    extra = "".join(f'<span class="ci">{esc(item)}</span>' for item in under)
    return f"<td>{esc(write_value(found.value, percent))}{extra}</td>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, kind: str = "") -> str:
    """Return a table of ready cells; the first ``left`` columns are left-aligned."""
    names = "".join(
        f'<th scope="col"{" class=left" if place < left else ""}>{esc(name)}</th>' for place, name in enumerate(head)
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def nav(entries: Iterable[tuple[str, str]]) -> str:
    """Return the page's table of contents."""
    links = "".join(f'<a href="#{name}">{esc(title)}</a>' for name, title in entries)
    return f"<nav>{links}</nav>"


def chips(entries: Iterable[tuple[str, str, str]]) -> str:
    """Return (name, value, class) facts as a row of labels."""
    items = "".join(f'<li class="{kind}"><b>{esc(name)}</b>{esc(value)}</li>' for name, value, kind in entries)
    return f'<ul class="chips">{items}</ul>'
