"""Three small SVG charts: stacked bars that lie, estimates with whiskers on one axis, and a matrix of pairs.

Colours are classes, so that the page's stylesheet themes them. All text is escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 620
LABEL = 150  # room for a row's label
END = 24
CHARACTER = 6.4  # mean width of a character at 12 units


@dataclass(frozen=True)
class Part:
    """A layer of a stacked bar."""

    label: str
    tone: str  # colour class
    value: int
    text: str  # tooltip


@dataclass(frozen=True)
class Dot:
    """An estimate on the axis."""

    label: str
    tone: str
    value: float | None  # None: the row is drawn empty
    low: float | None = None
    high: float | None = None
    text: str = ""
    hollow: bool = False  # a reference, not the measured rate


@dataclass(frozen=True)
class Square:
    """A field of the matrix."""

    value: float | None
    upper: str  # first line
    lower: str  # second line, small
    text: str  # tooltip
    tone: str = "f1"


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _short(text: str, room: float) -> str:
    most = max(3, int(room / CHARACTER))
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start", title: str = "") -> str:
    tip = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(text)}{tip}</text>'


def _rect(kind: str, x: float, y: float, width: float, height: float, more: str = "", title: str = "") -> str:
    size = f'x="{_n(x)}" y="{_n(y)}" width="{_n(max(0.0, width))}" height="{_n(height)}"'
    tip = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect class="{kind}" {size}{more}>{tip}</rect>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def _svg(parts: Sequence[str], width: float, height: float, label: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _legend(entries: Sequence[tuple[str, str]], x0: float, width: float) -> tuple[list[str], float]:
    """Return the legend, wrapped, and its height."""
    parts: list[str] = []
    x, y = x0, 12.0
    for label, tone in entries:
        need = 16 + CHARACTER * len(label) + 16
        if x + need > width and x > x0:
            x, y = x0, y + 19
        parts += [_rect(f"{tone} chip", x, y - 9, 11, 11), _text("legend", x + 16, y, label)]
        x += need
    return parts, y + 14


def bars(rows: Sequence[tuple[str, Sequence[Part]]], label: str, middle: bool = False) -> str:
    """Return stacked bars of shares, a row each; `middle` marks one half."""
    met: dict[str, str] = {part.label: part.tone for _, parts in rows for part in parts}
    used = [(name, tone) for name, tone in met.items() if any(p.value for _, ps in rows for p in ps if p.label == name)]
    parts, top = _legend(used, LABEL, WIDTH)
    tall, step, wide = 26, 38, WIDTH - LABEL - END
    for place, (name, layers) in enumerate(rows):
        y = top + place * step
        parts.append(_text("name", LABEL - 10, y + tall / 2 + 4, _short(name, LABEL - 14), "end", name))
        total = sum(part.value for part in layers)
        if not total:
            parts.append(_text("tick", LABEL, y + tall / 2 + 4, "nothing to show"))
        x = float(LABEL)
        for part in layers:
            size = wide * part.value / total if total else 0.0
            if part.value:
                parts.append(_rect(f"{part.tone} bar", x, y, size, tall, title=f"{name}\n{part.text}"))
                share = f"{100 * part.value / total:.0f}%"
                if size > 30:
                    parts.append(_text("inside", x + size / 2, y + tall / 2 + 4, share, "middle"))
            x += size
    foot = top + len(rows) * step - (step - tall)
    if middle:
        parts.append(_line("mark", LABEL + wide / 2, top - 4, LABEL + wide / 2, foot + 4))
    return _svg(parts, WIDTH, foot + 8, label)


def dots(groups: Sequence[tuple[str, Sequence[Dot]]], label: str) -> str:
    """Return estimates with their intervals on one axis from 0 to the next tenth above the largest end."""
    ends = [end for _, rows in groups for dot in rows for end in (dot.value, dot.high) if end is not None]
    most = min(1.0, max(0.2, -(-max(ends, default=0.2) * 10 // 1) / 10))
    left, step, y = 190, 22, 10.0
    wide = WIDTH - left - END - 44
    parts: list[str] = []

    def at(value: float) -> float:
        return left + wide * max(0.0, min(value, most)) / most

    body: list[str] = []
    for name, rows in groups:
        if name:
            body.append(_text("group", 0, y + 8, _short(name, WIDTH), title=name))
            y += 20
        for dot in rows:
            middle = y + step / 2
            body.append(_text("name", left - 12, middle + 4, _short(dot.label, left - 14), "end", dot.label))
            if dot.value is None:
                body.append(_text("tick", left + 4, middle + 4, dot.text or "not run"))
            else:
                body.append(f"<g>{_whisker(dot, at, middle)}<title>{escape(dot.label)}\n{escape(dot.text)}</title></g>")
                body.append(_text("value", WIDTH - 4, middle + 4, f"{100 * dot.value:.1f}%", "end"))
            y += step
        y += 10
    ticks = [t / 10 for t in range(0, round(most * 10) + 1, 1 if most <= 0.6 else 2)]
    for tick in ticks:
        parts.append(_line("base" if tick == 0 else "grid", at(tick), 4, at(tick), y))
        parts.append(_text("tick", at(tick), y + 16, f"{100 * tick:.0f}%", "middle"))
    return _svg([*parts, *body], WIDTH, y + 24, label)


def _whisker(dot: Dot, at: object, y: float) -> str:
    place = at if callable(at) else float
    parts = [_rect("area", place(0.0), y - 10, 400, 20)]
    if dot.low is not None and dot.high is not None:
        parts.append(_line(f"s{dot.tone} whisker", place(dot.low), y, place(dot.high), y))
    kind = f"s{dot.tone} ring" if dot.hollow else f"f{dot.tone} dot"
    parts.append(f'<circle class="{kind}" cx="{_n(place(dot.value or 0.0))}" cy="{_n(y)}" r="5"/>')
    return "".join(parts)


def matrix(names: Sequence[str], fields: Sequence[Sequence[Square | None]], label: str, most: float) -> str:
    """Return a square matrix ``[row][column]`` of shares; `most` has the full colour. Beyond 9 names only colours."""
    n = len(names)
    size = max(14.0, min(64.0, (WIDTH - 110) / max(1, n)))
    room = 104.0
    head = 16.0 + (CHARACTER * min(12, max((len(x) for x in names), default=0)) if size < 44 else 0)
    parts: list[str] = []
    for i, name in enumerate(names):
        x, y = room + (i + 0.5) * size, head + (i + 0.5) * size
        parts.append(_text("tick", room - 8, y + 4, _short(name, room - 8), "end", name))
        if size < 44:
            short = escape(_short(name, 12 * CHARACTER))
            turned = f'transform="rotate(-60 {_n(x)} {_n(head - 6)})"'
            parts.append(f'<text class="tick" x="{_n(x)}" y="{_n(head - 6)}" {turned}>{short}</text>')
        else:
            parts.append(_text("tick", x, head - 6, _short(name, size), "middle", name))
    for i in range(n):
        for j in range(n):
            found = fields[i][j]
            x, y = room + j * size, head + i * size
            if found is None:
                parts.append(_rect("empty", x + 1, y + 1, size - 2, size - 2))
                continue
            parts.append(_square(found, x, y, size, most))
    return _svg(parts, max(room + n * size + 4, WIDTH * 0.75), head + n * size + 4, label)


def _square(found: Square, x: float, y: float, size: float, most: float) -> str:
    parts = [_rect("empty", x + 1, y + 1, size - 2, size - 2)]
    shade = 0.0 if found.value is None else 0.08 + 0.92 * min(1.0, found.value / (most or 1.0))
    if found.value is not None:
        parts.append(_rect(f"{found.tone}", x + 1, y + 1, size - 2, size - 2, f' fill-opacity="{shade:.2f}"'))
    if size >= 30:
        kind = "on" if shade > 0.62 else "off"
        two = bool(found.lower) and size >= 40
        parts.append(_text(f"field {kind}", x + size / 2, y + size / 2 + (0 if two else 4), found.upper, "middle"))
        if two:
            parts.append(_text(f"under {kind}", x + size / 2, y + size / 2 + 15, found.lower, "middle"))
    return f"<g>{''.join(parts)}<title>{escape(found.text)}</title></g>"
