"""The report: its numbers are those of the analysis, it stands alone, it trusts no text, and it bears missing files."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from bench_helpers import World, settings
from fake_bench import ASKERS, PACK, Seat, config_of, play_bench, solver, write_bench, write_lines

from aske import AskeError, Label, Rules, Samplings, Seats, SessionRecord, Slot, play
from aske.analysis import Analysis, analyse
from aske.bench import start
from aske.regrade import regrade
from aske.report import write_report
from aske.report._browser import FAILURES, chosen
from aske.report._page import headline
from aske.report._svg import Part, bars
from aske.report._write import interval, percent, points

DRAWS = 200
CONTROLS = ("resamples", "shuffled", "same_model", "no_probing", "difficulty", "truths", "regrade-strict")
HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \u2028\u2029 \ud800 \x00 & \"' ]]>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench")
    write_bench(path, sessions=2)
    write_report(path, draws=DRAWS)
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> Analysis:
    return analyse(folder, draws=DRAWS)


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """Return what a reader sees outside of scripts, blanks made single."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def data_of(page: str) -> list[dict[str, Any]]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match is not None
    rows: list[dict[str, Any]] = json.loads(match[1])
    return rows


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def copy_without(folder: Path, target: Path, *left_out: str) -> Path:
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("report.html", "*.csv", "summary.json", *left_out))
    return target


# ------------------------------------------------------------ numbers


def test_numbers_on_the_page_are_those_of_the_analysis(page: str, found: Analysis) -> None:
    seen = text_of(page)
    assert [one.asker for one in found.askers] == list(ASKERS)
    for one in found.askers:
        assert one.chance and one.excess and one.stability and one.shuffled and one.direction and one.cross_check
        assert one.rate.value is not None
        best = one.best_interval
        assert (
            f"Calibrated {percent(one.rate.value)} {interval(best.low, best.high)}, {one.rate.k} of {one.rate.n}"
            in seen
        )
        copies = one.chance.copies
        assert f"Chance line {percent(copies.value)} {interval(copies.low, copies.high)}" in seen
        assert f"Above chance {points(one.excess.value)} points" in seen
        assert f"{one.rate.k} of {one.rate.n} sessions: {percent(one.rate.value)}" in seen
        counts = " ".join(str(one.labels[label]) for label in Label)
        assert f"{one.asker} {counts} {percent(one.rate.value)}" in seen
        for estimate in (one.same_model_clustered, one.shuffled.other, one.no_probing_clustered, one.stability.flips):
            assert estimate is not None and percent(estimate.value) in seen
        assert f"{one.direction.strong_only} {one.direction.weak_only} {one.direction.tied}" in seen
        assert percent(one.cross_check.true.value) in seen
    for pair in found.comparisons:
        assert (
            f"{pair.comparison.first} \u2013 {pair.comparison.second} {points(pair.comparison.difference)} points"
            in seen
        )


def test_summary_and_tables_hold_the_same_numbers(folder: Path, found: Analysis) -> None:
    assert json.loads((folder / "summary.json").read_text(encoding="utf-8")) == json.loads(json.dumps(found.to_json()))
    for row, one in zip(table(folder / "askers.csv"), found.askers, strict=True):
        assert one.chance and one.excess and one.chance.copies.value is not None and one.excess.value is not None
        assert int(row["calibrated_k"]) == one.rate.k and int(row["ungradable"]) == one.labels["ungradable"]
        assert float(row["chance"]) == pytest.approx(one.chance.copies.value, rel=1e-5)
        assert float(row["above_chance"]) == pytest.approx(one.excess.value, rel=1e-5)
    cells = [cell for one in found.askers for cell in one.cells]
    for row, cell in zip(table(folder / "cells.csv"), cells, strict=True):
        assert (row["asker"], row["a"], row["b"]) == (cell.asker, *cell.pair)
        assert int(row["calibrated_k"]) == cell.rate.k and int(row["counted"]) == cell.rate.n
    sessions = table(folder / "sessions.csv")
    assert len(sessions) == found.played
    assert sum(row["label"] == "calibrated" for row in sessions) == sum(one.rate.k for one in found.askers)


def test_every_cell_of_the_heat_map_tells_its_pair(page: str, found: Analysis) -> None:
    for one in found.askers:
        for cell in one.cells:
            assert f"{one.asker}: {' + '.join(cell.pair)}\ncalibrated {percent(cell.rate.value)}" in unescape(page)


def test_the_report_is_the_same_twice(folder: Path) -> None:
    files = ("report.html", "summary.json", "askers.csv", "cells.csv", "sessions.csv")
    first = [(folder / name).read_bytes() for name in files]
    write_report(folder, draws=DRAWS)
    assert first == [(folder / name).read_bytes() for name in files]


def test_the_headline_says_when_it_may_be_luck(found: Analysis) -> None:
    for one in found.askers:
        assert one.excess is not None and one.excess.low is not None
        said = headline(one)
        assert ("come from a real difference" in said) == (one.excess.low > 0)
        assert ("may be luck" in said) == (one.excess.low <= 0)


# ------------------------------------------------------------ stands alone


def test_nothing_is_fetched_and_no_other_script_may_run(page: str) -> None:
    assert "default-src 'none'" in page and re.search(r"script-src 'sha256-[A-Za-z0-9+/]+=*'", page)
    outside = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"https?://|<link\b|<iframe|@import|\burl\(|\bsrc=", re.sub(r'id="data">.*?</script>', "", outside)
    )
    assert page.count("<script") == 2


def test_transcripts_are_whole(folder: Path, page: str) -> None:
    rows = {row["id"]: row for row in data_of(page)}
    lines = (folder / "sessions.jsonl").read_text(encoding="utf-8").splitlines()
    record = SessionRecord.from_json(json.loads(lines[0]))
    steps = rows[record.id]["steps"]
    assert len(steps) == len(record.calls)
    told = [tuple(m) for step in steps if step["seat"] == "asker" for m in step["sent"]]
    assert told == [(m.role, m.content) for m in record.transcript if m.role != "assistant"]
    for step, call in zip(steps, record.calls, strict=True):
        assert [r[0] for r in step["replies"]] == [r.text for r in call.replies]
        if step["seat"] == "boundary_a":
            assert [m[1] for m in step["sent"]] == [m.content for m in call.messages]  # type: ignore[union-attr]
        if step["seat"] == "boundary_b":
            assert step["sent"] is None  # the same as solver a


# ------------------------------------------------------------ missing files


@pytest.mark.parametrize("name", CONTROLS)
def test_a_missing_control_is_named_and_breaks_nothing(folder: Path, tmp_path: Path, name: str) -> None:
    bench = copy_without(folder, tmp_path / "bench", f"{name}.jsonl")
    seen = text_of(write_report(bench, draws=DRAWS).read_text(encoding="utf-8"))
    assert "Not run" in seen and "not known without it" in seen
    command = "aske regrade" if name.startswith("regrade") else "aske bench CONFIG --out NEW"
    assert command in seen
    (missing,) = analyse(bench, draws=DRAWS).missing
    assert missing.what in seen


def test_sessions_alone_make_a_report(folder: Path, tmp_path: Path) -> None:
    bench = copy_without(folder, tmp_path / "bench", "config.json", *(f"{name}.jsonl" for name in CONTROLS))
    seen = text_of(write_report(bench, draws=DRAWS).read_text(encoding="utf-8"))
    assert "How much of that is luck is not known" in seen
    assert "config.json is missing" in seen and "Not known: nothing tells which of two solvers is the stronger" in seen
    assert len(analyse(bench, draws=DRAWS).missing) == 7


def test_empty_files_count_as_not_run(folder: Path, tmp_path: Path) -> None:
    bench = copy_without(folder, tmp_path / "bench")
    for name in CONTROLS[:-1]:
        (bench / f"{name}.jsonl").write_text("", encoding="utf-8")
    write_report(bench, draws=DRAWS)
    assert len(analyse(bench, draws=DRAWS).missing) == 6


def test_a_bench_that_has_only_begun(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(["x"], 2)), encoding="utf-8")
    seen = text_of(write_report(tmp_path, draws=DRAWS).read_text(encoding="utf-8"))
    assert "No session has been played yet" in seen
    assert table(tmp_path / "sessions.csv") == []


def test_no_bench_folder_is_a_clean_error(tmp_path: Path) -> None:
    with pytest.raises(AskeError, match=r"no bench folder[\s\S]*aske bench"):
        write_report(tmp_path)


# ------------------------------------------------------------ other benches


def test_one_asker_has_nothing_to_compare(tmp_path: Path) -> None:
    write_bench(tmp_path, {"prober": 1.0}, sessions=1)
    seen = text_of(write_report(tmp_path, draws=DRAWS).read_text(encoding="utf-8"))
    assert "One asker has played; there is nothing to compare." in seen


def test_a_bench_as_the_command_writes_it(tmp_path: Path) -> None:
    run = start(settings(), tmp_path, World())
    regrade(tmp_path, "strong", "again", World())
    found = analyse(tmp_path, draws=DRAWS)
    assert found.missing == () and found.notes == ()
    assert not any("Not finished" in line for line in found.warnings) and found.planned == found.played == 24
    first, second = found.askers
    assert (first.asker, second.asker) == ("first", "second") and run.bench.name == "aske"
    for one in found.askers:
        assert one.chance and one.shuffled and one.same_model and one.no_probing and one.cross_check and one.stability
        assert one.cross_check.true.value == 1.0  # the judge is always right
        assert one.chance.copies.n == one.shuffled.other.n == one.rate.n
        assert one.same_model.asked == 6 and one.no_probing.asked == 4 * 3
        assert 0 < one.regrades[0].agreement.k < one.regrades[0].agreement.n  # strong errs in 10% of its cross-checks
        graded = ("calibrated", "too_easy", "too_hard")
        assert set(one.difficulty) == {label for label in graded if one.labels[label]}
    seen = text_of(write_report(tmp_path, draws=DRAWS).read_text(encoding="utf-8"))
    assert headline(first) in seen and headline(second) in seen and "Not run" not in seen


def test_all_ungradable_says_why(tmp_path: Path) -> None:
    write_bench(tmp_path, {"prober": 1.0}, sessions=1, failing=1.0)
    seen = text_of(write_report(tmp_path, draws=DRAWS).read_text(encoding="utf-8"))
    assert "No session of prober counts: all 15 are ungradable (http 15). There is no rate to report." in seen
    assert "Calibrated \u2013" in seen and "0.0%, likely" not in seen
    (row,) = table(tmp_path / "askers.csv")
    assert row["rate"] == "" and row["ungradable_share"] == "1"


def hostile_bench(folder: Path) -> list[SessionRecord]:
    """Play a session in which everybody writes hostile text."""
    ask = f"#Reasoning#\n{HOSTILE}\n#Draft#\n\\boxed{{42}}\n#Question#\n=cmd|' /C calc'!A0 {HOSTILE}"
    name = "<b>x</b>"
    seats = Seats(
        Seat(name, lambda p, r: ask),
        {"<i>a</i>": Seat("<i>a</i>", lambda p, r: f"{HOSTILE} \\boxed{{42}}"), "b": Seat("b", solver(1.0))},
        Seat("judge", lambda p, r: f"{HOSTILE} \\boxed{{42}}"),
    )
    slots = [Slot(f"{name}/<i>a</i>+b/{i}", ("<i>a</i>", "b"), i, False) for i in range(3)]
    done = play(slots, name, seats, PACK, Rules(1, 3), Samplings(), seed=3)
    config = {**config_of([name], 3), "name": "<h1>bench</h1>", "description": HOSTILE.replace("\ud800", "")}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_lines(folder / "sessions.jsonl", [s.to_json() for s in done])
    return done


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    done = hostile_bench(tmp_path)
    page = write_report(tmp_path, draws=DRAWS).read_text(encoding="utf-8")
    assert page.count("<script") == 2 and page.count("</script>") == 2
    body = page.split("</head>")[1]
    assert "<!--" not in body and "<img" not in page and "<b>x" not in page and "<i>a" not in page
    assert "\u2028" not in page.split('id="data">')[1]
    rows = {row["id"]: row for row in data_of(page)}
    for session in done:
        row = rows[session.id]
        assert row["question"] == session.question
        assert HOSTILE in row["steps"][0]["replies"][0][0]  # even half a character comes back as it was
    (first, *_) = table(tmp_path / "sessions.csv")
    assert first["question"].startswith("'=cmd|")  # no formula for a spreadsheet
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["askers"][0]["asker"] == "<b>x</b>"


# ------------------------------------------------------------ limits of the browser


def test_failures_are_embedded_first_and_the_page_says_what_is_left_out(folder: Path) -> None:
    lines = (folder / "sessions.jsonl").read_text(encoding="utf-8").splitlines()
    sessions = [SessionRecord.from_json(json.loads(line)) for line in lines]
    failed = sum(s.label in FAILURES for s in sessions)
    assert 0 < failed < 30
    page = write_report(folder, draws=DRAWS, embedded=40).read_text(encoding="utf-8")
    rows = data_of(page)
    assert len(rows) == 40 and [row["label"] in FAILURES for row in rows] == [True] * failed + [False] * (40 - failed)
    assert f"40 of {len(sessions)} sessions are embedded: all {failed} failures" in text_of(page)
    assert len({row["asker"] for row in rows[failed:]}) == 3  # the others are spread over the bench
    write_report(folder, draws=DRAWS)


def test_a_limit_below_the_failures_keeps_failures_only() -> None:
    sessions = play_bench({"prober": 1.0}, sessions=1, failing=0.1)
    failed = [s for s in sessions if s.label in FAILURES]
    assert len(failed) > 2
    kept = chosen(sessions, 2)
    assert len(kept) == 2 and all(s.label in FAILURES for s in kept)
    assert len(chosen(sessions, 10_000)) == len(sessions)


def test_bars_without_sessions_draw_nothing_wrong() -> None:
    svg = bars([("x", [Part("only", "f1", 0, "0")])], "empty")
    assert "nothing to show" in svg and "nan" not in svg.lower()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_filters_and_hostile_text_in_a_browser(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    bench.mkdir()
    hostile_bench(bench)
    path = write_report(bench, draws=DRAWS)
    labels = [row["label"] for row in data_of(path.read_text(encoding="utf-8"))]
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=4000", "--dump-dom",
        f"file://{path}#sessions?label={labels[0]}&q=cmd",
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    assert f"{labels.count(labels[0])} of 3 sessions" in dom
    shown = dom.split('id="detail"')[1].split('<script type="application/json"')[0]
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in shown and "<img" not in shown
