"""How figures are read and written, and the arithmetic of the charts."""

from __future__ import annotations

import re

import pytest

from selfevolve.report.charts import rate_chart
from selfevolve.report.figures import (
    VALID,
    Measure,
    read_measure,
    write_change,
    write_interval,
    write_measure,
    write_value,
)
from selfevolve.report.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Frame,
    Layer,
    Point,
    Series,
    heat_map,
    line_chart,
    nice_ticks,
    stacked_bars,
)

TALL = HEIGHT - TOP - BOTTOM
STEP = (WIDTH - LEFT - RIGHT) / 2  # width of a column where a chart has two


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (None, True, "not measured"),
        (0.0, True, "0.0%"),
        (0.65432, True, "65.4%"),
        (0.1812, False, "0.181"),
        (-0.25, False, "\u22120.250"),
        (24.0, False, "24"),
        (272.333, False, "272.3"),
    ],
)
def test_values_are_written(value: float | None, percent: bool, text: str) -> None:
    assert write_value(value, percent) == text


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (None, True, "not measured"),
        (0.042, True, "+4.2 pp"),
        (-0.3333, True, "\u221233.3 pp"),
        (-0.0001, True, "0.0 pp"),  # no sign on nothing
        (0.0724, False, "+0.072"),
        (-5.0, False, "\u22125"),
    ],
)
def test_changes_carry_their_sign(value: float | None, percent: bool, text: str) -> None:
    assert write_change(value, percent) == text


def test_a_measure_tells_interval_and_counts() -> None:
    rate = read_measure({"value": 0.65, "k": 130, "n": 200, "low": 0.5817, "high": 0.7127})
    assert rate == Measure(0.65, 0.5817, 0.7127, 130, 200)
    assert write_measure(rate) == "65.0% [58.2\u201371.3], 130 of 200"
    balanced = Measure(0.548, 0.514, 0.576, 122, 299)  # k and n are sums over both classes, and 122 / 299 is not 0.548
    assert write_measure(balanced) == "54.8% [51.4\u201357.6], n = 299"
    assert write_interval(Measure(0.1, -0.2, 0.3)) == "\u221220.0 to 30.0"  # a dash beside a minus would be misread
    empty = read_measure({"value": None, "k": 0, "n": 0, "low": None, "high": None})
    assert write_measure(empty) == "not measured"


@pytest.mark.parametrize("raw", [None, "0.5", True, float("nan"), float("inf"), [], {"value": "x"}])
def test_what_is_no_number_is_not_measured(raw: object) -> None:
    assert read_measure(raw).value is None


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 33.6, [0, 10, 20, 30, 40]),
        (-0.1, 0.1, [-0.1, -0.05, 0, 0.05, 0.1]),
        (0.0, 0.0351, [0, 0.01, 0.02, 0.03, 0.04]),
        (0.0, 0.0, [0.0]),
        (-0.03, 0.82, [-0.2, 0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_ticks_are_round_and_cover_the_range(low: float, high: float, ticks: list[float]) -> None:
    found = nice_ticks(low, high)
    assert found[0] <= low and found[-1] >= high
    assert found == pytest.approx(ticks)


def test_a_line_passes_through_its_values() -> None:
    points = (Point(0, 1.0), Point(1, 0.25))
    svg = line_chart([Series("a", 1, points)], Frame(("1", "2"), 1.0), "chart")
    x0, x1 = LEFT + STEP / 2, LEFT + 1.5 * STEP
    assert f'd="M{x0:g} {TOP}L{x1:g} {TOP + 0.75 * TALL:g}"' in svg


def test_a_missing_value_breaks_line_and_band() -> None:
    points = tuple(Point(i, v, v and v - 0.1, v and v + 0.1) for i, v in enumerate([0.5, 0.5, None, 0.5, 0.5]))
    svg = line_chart([Series("a", 1, points)], Frame(tuple("12345"), 1.0), "chart")
    path = re.search(r' d="([^"]*)"', svg)
    assert path and path[1].count("M") == 2
    assert svg.count("<polygon") == 2
    assert "round 3\nnot measured" in svg


def test_stacked_bars_stand_on_each_other() -> None:
    layers = [Layer("low", 1, (0.25, 0.0), ("25", "0")), Layer("high", 2, (0.75, 0.5), ("75", "50"))]
    svg = stacked_bars(layers, Frame(("1", "2"), 1.0), "chart")
    bars = [
        tuple(map(float, found))
        for found in re.findall(r'bar" x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', svg)
    ]
    (low_y, low_h), (high_y, high_h), (alone_y, alone_h) = bars  # nothing is drawn for 0
    assert (low_h, high_h, alone_h) == pytest.approx((0.25 * TALL, 0.75 * TALL, 0.5 * TALL))
    assert high_y + high_h == pytest.approx(low_y)
    assert alone_y + alone_h == pytest.approx(low_y + low_h)


def test_the_darkest_cell_is_the_fullest() -> None:
    svg = heat_map([[0.0, 0.25], [0.75, 0.0]], Frame(("1", "2"), 1.0), ["", ""], "chart", lines=(0.5,))
    assert re.findall(r'fill-opacity="([\d.]+)"', svg) == ["0.37", "1.00"]
    assert 'class="mark"' in svg


def test_charts_escape_their_text() -> None:
    svg = line_chart([Series("<b>", 1, (Point(0, 1.0, text="<i>"),)), Series("&", 2, ())], Frame(("<u>",), 1.0), '"<s>')
    assert not re.search(r"<[bius]>", svg)
    assert "&lt;b&gt;" in svg and 'aria-label="&quot;&lt;s&gt;"' in svg


def test_a_figure_that_no_round_measured_has_no_chart() -> None:
    assert rate_chart([{"round": 1, "valid_rate": None}], "t", "n", [(VALID, 1, "all")]).svg is None
