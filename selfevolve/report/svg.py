"""Small SVG charts: lines with interval bands, stacked bars, a heat map.

A chart is a string that stands alone inside a page. Colours are classes (`c1` .. `c9`, `c0` is grey), so the page's
stylesheet themes them; each column of a chart carries its numbers in a `<title>`, which the page shows as a tooltip.
All text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 290  # units of the view box
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 10, 40  # margins around the plot; the legend comes above it
LEGEND_ROW = 19
CHARACTER = 6.3  # mean width of a legend's character at 12 units


@dataclass(frozen=True)
class Point:
    """One value of a series; None is a gap."""

    x: int  # place on the x axis
    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""  # what the tooltip says of it


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str  # "" keeps it out of the legend and the tooltip
    tone: int  # colour class
    points: tuple[Point, ...]
    thin: bool = False  # a line in the background: one seed of several
    dashed: bool = False
    bold: bool = False


@dataclass(frozen=True)
class Layer:
    """One layer of stacked bars; a value a column."""

    label: str
    tone: int
    values: tuple[float, ...]
    texts: tuple[str, ...]  # what the tooltip says of each value


@dataclass(frozen=True)
class Frame:
    """The axes of a chart."""

    columns: tuple[str, ...]  # names of the places on the x axis
    top: float  # value at the upper edge
    bottom: float = 0.0
    unit: str = "%"  # "%" writes shares in per cent, "pp" with a sign; "s" seconds; "" plain numbers
    x_label: str = "round"
    y_label: str = ""


def _n(value: float) -> str:
    """Write a coordinate, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


class _Canvas:
    """Maps values to coordinates and collects the elements of one chart."""

    def __init__(self, frame: Frame, legend: Sequence[tuple[str, int, bool]], bars: bool) -> None:
        self.frame = frame
        self.bars = bars
        self.parts: list[str] = []
        self.top = TOP + self._legend(legend)
        self.height = HEIGHT - BOTTOM - TOP  # of the plot; the legend makes the chart taller, never the plot lower
        self.width = WIDTH - LEFT - RIGHT

    def _legend(self, entries: Sequence[tuple[str, int, bool]]) -> int:
        """Draw the legend, wrapped, and return its height."""
        x, row = float(LEFT), 0
        for label, tone, dashed in entries:
            need = 22 + CHARACTER * len(label) + 14
            if x + need > WIDTH and x > LEFT:
                x, row = float(LEFT), row + 1
            y = 12 + row * LEGEND_ROW
            if self.bars:
                self.rect(f"f{tone} chip", x, y - 9, 11, 11)
            else:
                self.line(f"s{tone} key{' dash' if dashed else ''}", x, y - 3.5, x + 16, y - 3.5)
            self.text("legend", x + (16 if self.bars else 21), y, label, anchor="start")
            x += need
        return (row + 1) * LEGEND_ROW + 4 if entries else 0

    def x(self, column: float) -> float:
        """Return the middle of a column."""
        return LEFT + (column + 0.5) * self.width / max(1, len(self.frame.columns))

    def y(self, value: float) -> float:
        """Return the height of a value."""
        span = (self.frame.top - self.frame.bottom) or 1.0
        inside = min(max(value, self.frame.bottom), self.frame.top)
        return self.top + self.height * (self.frame.top - inside) / span

    def text(self, kind: str, x: float, y: float, text: str, anchor: str = "middle", turned: bool = False) -> None:
        """Write a line of text; ``turned`` reads upwards."""
        where = f'x="{_n(x)}" y="{_n(y)}"'
        if turned:
            where = f'transform="rotate(-90)" x="{_n(-y)}" y="{_n(x)}"'
        self.parts.append(f'<text class="{kind}" {where} text-anchor="{anchor}">{escape(text)}</text>')

    def line(self, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
        """Draw a straight line."""
        self.parts.append(f'<line class="{kind}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>')

    def rect(self, kind: str, x: float, y: float, width: float, height: float, opacity: float | None = None) -> None:
        """Draw a rectangle."""
        more = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
        size = f'width="{_n(width)}" height="{_n(max(0.0, height))}"'
        self.parts.append(f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" {size}{more}/>')

    def axes(self, ticks: Sequence[float]) -> None:
        """Draw grid lines, tick labels and axis labels."""
        frame, foot = self.frame, self.top + self.height
        for tick in ticks:
            y = self.y(tick)
            self.line("base" if abs(tick) < 1e-12 else "grid", LEFT, y, WIDTH - RIGHT, y)
            self.text("tick", LEFT - 7, y + 4, write_tick(tick, frame.unit), anchor="end")
        stride = max(1, -(-len(frame.columns) // 12))
        for place, name in enumerate(frame.columns):
            if place % stride == 0:
                self.text("tick", self.x(place), foot + 16, name)
        self.text("axis", LEFT + self.width / 2, foot + 33, frame.x_label)
        if frame.y_label:
            self.text("axis", 11, self.top + self.height / 2, frame.y_label, turned=True)

    def hovers(self, texts: Sequence[str]) -> None:
        """Lay a transparent column over each place, with its numbers as title."""
        step = self.width / max(1, len(self.frame.columns))
        for place, text in enumerate(texts):
            self.parts.append('<g class="hover">')
            self.rect("area", LEFT + place * step, self.top, step, self.height)
            self.line("guide", self.x(place), self.top, self.x(place), self.top + self.height)
            self.parts.append(f"<title>{escape(text)}</title></g>")

    def svg(self, label: str) -> str:
        """Return the chart."""
        tall = self.top + self.height + BOTTOM
        return (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {tall}" role="img" aria-label="{escape(label)}" '
            f'xmlns="http://www.w3.org/2000/svg">{"".join(self.parts)}</svg>'
        )


def write_tick(value: float, unit: str) -> str:
    """Write a number on an axis."""
    if unit == "%":
        return f"{100 * value:.3g}%"
    if unit == "pp":
        return f"{100 * value:+.3g}".replace("-", "\u2212") if value else "0"
    return f"{value:.6g}".replace("-", "\u2212") + (f" {unit}" if unit else "")


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return round numbers from at most ``low`` to at least ``high``."""
    span = high - low if high > low else abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(size * part for part in (1, 2, 2.5, 5, 10) if size * part * wanted >= span * 0.999)
    first = math.floor(low / step + 1e-9)
    ticks = [first * step]
    while ticks[-1] < high - 1e-9 * span:
        ticks.append((first + len(ticks)) * step)
    return [round(tick, 10) for tick in ticks]


def _path(canvas: _Canvas, points: Sequence[Point]) -> str:
    """Return the path of a line, broken where a value is missing."""
    out, pen = [], "M"
    for point in points:
        if point.value is None:
            pen = "M"
            continue
        out.append(f"{pen}{_n(canvas.x(point.x))} {_n(canvas.y(point.value))}")
        pen = "L"
    return "".join(out)


def _bands(canvas: _Canvas, series: Series) -> list[str]:
    """Return the interval bands of a line: one polygon for each unbroken stretch."""
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for point in series.points:
        if point.value is None or point.low is None or point.high is None:
            stretches.append([])
        else:
            stretches[-1].append((canvas.x(point.x), canvas.y(point.high), canvas.y(point.low)))
    bands = []
    for stretch in stretches:
        if len(stretch) == 1:
            x, high, low = stretch[0]
            bands.append(
                f'<line class="s{series.tone} whisker" x1="{_n(x)}" x2="{_n(x)}" y1="{_n(high)}" y2="{_n(low)}"/>'
            )
        elif stretch:
            upper = " ".join(f"{_n(x)},{_n(high)}" for x, high, _ in stretch)
            lower = " ".join(f"{_n(x)},{_n(low)}" for x, _, low in reversed(stretch))
            bands.append(f'<polygon class="f{series.tone} band" points="{upper} {lower}"/>')
    return bands


def line_chart(series: Sequence[Series], frame: Frame, label: str, ticks: Sequence[float] | None = None) -> str:
    """Return lines over rounds, each with the band of its interval."""
    named = [item for item in series if item.label]
    canvas = _Canvas(
        frame, [(item.label, item.tone, item.dashed) for item in named] if len(named) > 1 else [], bars=False
    )
    canvas.axes(ticks if ticks is not None else nice_ticks(frame.bottom, frame.top))
    for item in series:
        canvas.parts += _bands(canvas, item)
    for item in sorted(series, key=lambda one: not one.thin):
        kind = "thin" if item.thin else "bold" if item.bold else "main"
        canvas.parts.append(
            f'<path class="s{item.tone} {kind}{" dash" if item.dashed else ""}" d="{_path(canvas, item.points)}"/>'
        )
        if not item.thin:
            for point in item.points:
                if point.value is not None:
                    place = f'cx="{_n(canvas.x(point.x))}" cy="{_n(canvas.y(point.value))}"'
                    canvas.parts.append(f'<circle class="f{item.tone} dot" {place} r="3.2"/>')
    texts = [f"{frame.x_label} {name}" if name.isdigit() else name for name in frame.columns]
    for item in named:
        for point in item.points:
            said = point.text or "not measured"
            texts[point.x] += f"\n{item.label}: {said}" if len(named) > 1 else f"\n{said}"
    canvas.hovers(texts)
    return canvas.svg(label)


def stacked_bars(layers: Sequence[Layer], frame: Frame, label: str) -> str:
    """Return stacked bars, the first layer at the foot."""
    canvas = _Canvas(frame, [(layer.label, layer.tone, False) for layer in layers], bars=True)
    canvas.axes(nice_ticks(frame.bottom, frame.top))
    wide = min(46.0, 0.72 * canvas.width / max(1, len(frame.columns)))
    texts = [f"{frame.x_label} {name}" for name in frame.columns]
    for place in range(len(frame.columns)):
        foot = 0.0
        for layer in layers:
            value = layer.values[place]
            if value > 0:
                high, low = canvas.y(foot + value), canvas.y(foot)
                canvas.rect(f"f{layer.tone} bar", canvas.x(place) - wide / 2, high, wide, low - high)
                texts[place] += f"\n{layer.label}: {layer.texts[place]}"
            foot += value
    canvas.hovers(texts)
    return canvas.svg(label)


def heat_map(
    cells: Sequence[Sequence[float | None]], frame: Frame, texts: Sequence[str], label: str, lines: Sequence[float] = ()
) -> str:
    """Return a heat map, axes ``[column][bin from below]``; values from 0 to the largest; ``lines`` are dashed."""
    canvas = _Canvas(frame, [], bars=True)
    most = max((value for column in cells for value in column if value), default=1.0)
    step = canvas.width / max(1, len(frame.columns))
    for place, column in enumerate(cells):
        span = (frame.top - frame.bottom) / max(1, len(column))
        for bin_, value in enumerate(column):
            if value:
                high = canvas.y(frame.bottom + (bin_ + 1) * span)
                left, tall = LEFT + place * step, canvas.height / len(column)
                canvas.rect("f1", left + 1, high + 0.5, step - 2, tall - 1, opacity=0.06 + 0.94 * value / most)
    canvas.axes(nice_ticks(frame.bottom, frame.top))
    for value in lines:
        canvas.line("mark", LEFT, canvas.y(value), WIDTH - RIGHT, canvas.y(value))
    canvas.hovers(texts)
    return canvas.svg(label)
