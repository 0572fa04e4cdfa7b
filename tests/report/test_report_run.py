"""The report of one run: what it says, that it says so of unfinished and unjudged runs, and that it trusts no text."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fake_run import assessed, write_fake_run

from selfevolve.errors import UserError
from selfevolve.report import round_table, write_report
from selfevolve.report.digest import digest_run
from selfevolve.report.load import load_run
from selfevolve.report.markdown import fenced

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>]]>--> `````` | </pre>\u2028"


class Elements(HTMLParser):
    """Collects the elements of a page and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake_run(tmp_path_factory.mktemp("runs") / "run", "r_zero_code", rounds=3, questions=60)


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return write_report(run)[0].read_text(encoding="utf-8")


def packed(page: str) -> dict[str, list[Any]]:
    text = Elements(page).scripts[0]
    columns: dict[str, list[Any]] = json.loads(gzip.decompress(base64.b64decode(text)))
    return columns


def edit_lines(path: Path, change: Any) -> None:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(change(row)) + "\n" for row in rows), encoding="utf-8")


def test_headline_and_sections(page: str) -> None:
    for text in (
        "r_zero_code",
        "testbed:base-m",
        "3 of 3",
        "oracle (exact)",
        "Question validity",
        "Top-five share",
        "Pseudo-label accuracy",
        "Solver accuracy",
        "Best reward",
        "At the edge of the window",
    ):
        assert text in page
    assert "Unfinished" not in page


def test_the_page_needs_no_network_and_runs_only_its_own_script(page: str) -> None:
    found = Elements(page)
    assert not [tag for tag, attrs in found.tags if tag in ("link", "img", "iframe") or attrs.get("src")]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    policy = next(attrs["content"] for tag, attrs in found.tags if tag == "meta" and "http-equiv" in attrs)
    digest = base64.b64encode(hashlib.sha256(found.scripts[1].encode()).digest()).decode()
    assert policy and f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_every_assessed_question_is_in_the_table(run: Path, page: str) -> None:
    columns = packed(page)
    assert len(columns["id"]) == len(set(columns["id"])) == 3 * (60 + 30)
    row = columns["id"].index("r02-assessment-s00-000007")
    lines = (run / "rounds/02/assessment/assessed.jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[7])
    assert columns["question"][row] == record["question"]
    assert columns["decision"][row] == record["decision"]
    assert columns["reason"][row] == record["reason"]
    truths = [json.loads(x) for x in (run / "rounds/02/diagnostics/truths.jsonl").read_text().splitlines()]
    assert truths[7]["id"] == "r02-assessment-s00-000007"
    assert columns["pattern"][row] == truths[7]["truth"]["pattern"]


def test_untrusted_text_stays_text(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", rounds=1, questions=40)

    def poison(row: dict[str, Any]) -> dict[str, Any]:
        row |= {"reply": EVIL, "reason": EVIL, "own_answer": EVIL, "id": row["id"] + EVIL}
        row["question"] = EVIL if row["question"] else None
        if row["solutions"]:
            row["solutions"] |= {"replies": [EVIL], "answer": EVIL, "clusters": [[EVIL, 5]]}
        if row["reward"]:
            row["reward"]["terms"] = {EVIL: 1.0}
        return row

    for stage in ("questioner", "assessment"):
        edit_lines(folder / "rounds/01" / stage / "assessed.jsonl", poison)
    edit_lines(
        folder / "metrics.jsonl",
        lambda item: (
            item
            | {
                "decisions": {EVIL: 3},
                "pattern_shares": {"pool": [[EVIL, 3]], "kept": []},
                "seconds_by_stage": {EVIL: 1.0},
            }
        ),
    )
    edit_lines(
        folder / "rounds/01/diagnostics/truths.jsonl",
        lambda row: {"id": row["id"] + EVIL, "truth": {"source": EVIL, "pattern": EVIL, "valid": True}},
    )
    (folder / "config.yaml").write_text(json.dumps({"name": EVIL, "backbone": EVIL, "seed": EVIL}), encoding="utf-8")
    html_path, md_path = write_report(folder)
    page = html_path.read_text(encoding="utf-8")
    found = Elements(page)
    assert [attrs.get("type") for tag, attrs in found.tags if tag == "script"] == ["text/plain", None]
    assert not [attrs for _, attrs in found.tags if any(name.startswith("on") for name in attrs)]
    assert "img" not in {tag for tag, _ in found.tags}
    columns = packed(page)
    assert EVIL in columns["question"] and EVIL in columns["pattern"]
    outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", md_path.read_text(encoding="utf-8"))
    assert "<script" not in outside.replace("\\<", "") and "<img" not in outside.replace("\\<", "")


@pytest.mark.parametrize("text", ["a\n```\n# head", "a\n``````\nb", "plain"])
def test_no_text_closes_its_fence(text: str) -> None:
    first, *inside, last = fenced(text).split("\n")
    assert first == f"{last}text" and set(last) == {"`"} and len(last) >= 3
    assert "\n".join(inside) == text
    assert not any(line.startswith(last) for line in inside)


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", rounds=2, questions=30, planned=5)
    stage = folder / "rounds/03/questioner"
    stage.mkdir(parents=True)
    (stage / "DONE.json").write_text("{}")
    shutil.copy(folder / "rounds/02/questioner/assessed.jsonl", stage)
    (folder / "rounds/03/candidates.partial").mkdir()
    html_path, md_path = write_report(folder)
    for text in (html_path.read_text(encoding="utf-8"), md_path.read_text(encoding="utf-8")):
        assert "2 of 5 rounds are complete. Round 3 has begun; its last complete stage is questioner." in text
        assert "Unfinished run" in text


def test_a_run_that_has_only_begun_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("name: r_quest\nrounds: 4\n")
    page = write_report(tmp_path)[0].read_text(encoding="utf-8")
    assert "0 of 4 rounds are complete" in page
    assert "No question has been assessed yet" in page
    assert "0.0%" not in page


def test_shares_of_patterns_say_that_questions_without_one_are_left_out(page: str) -> None:
    for note in ("Share of the parsed questions with a pattern", "Share of the kept questions with a pattern"):
        assert note in page
    assert "Share of the five commonest, of questions with a pattern" in page


def test_without_a_referee_figures_are_not_measured(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", rounds=2, questions=30)
    empty = {"value": None, "k": 0, "n": 0, "low": None, "high": None}
    judged = (
        "valid_rate",
        "valid_rate_kept",
        "pseudo_label_accuracy",
        "label_right_rate",
        "top5_share",
        "top5_share_kept",
    )
    edit_lines(folder / "metrics.jsonl", lambda item: item | dict.fromkeys(judged, empty) | {"pattern_shares": None})
    edit_lines(folder / "metrics.jsonl", lambda item: item | {"referee": None})
    for place in ("01", "02"):
        (folder / "rounds" / place / "diagnostics/truths.jsonl").unlink()
    page = write_report(folder)[0].read_text(encoding="utf-8")
    assert "none, so figures that need the truth are not measured" in page
    tiles = re.findall(r'<div class="tile"><span>([^<]*)</span><strong[^>]*>([^<]*)<', page)
    assert dict(tiles)["Question validity"] == dict(tiles)["Pseudo-label accuracy"] == "not measured"
    assert "Not measured: Question validity; Top-five share; Pseudo-label accuracy." in page
    assert set(packed(page)["valid"]) == {None}


def test_a_model_as_referee_is_marked(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", rounds=1, questions=20)
    edit_lines(folder / "metrics.jsonl", lambda item: item | {"referee": "some-model"})
    assert "model some-model (an opinion, not the truth)" in write_report(folder)[0].read_text(encoding="utf-8")


def test_only_the_questions_that_the_referee_saw_have_a_truth(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", rounds=1, questions=20)
    truth = {"source": "oracle", "pattern": "p", "valid": False, "error_type": None, "answer": None}
    (folder / "rounds/01/diagnostics/truths.jsonl").write_text(
        json.dumps({"id": "r01-assessment-s00-000002", "truth": None})
        + "\n"
        + json.dumps({"id": "r01-assessment-s00-000003", "truth": truth})
        + "\n"
    )
    columns = packed(write_report(folder)[0].read_text(encoding="utf-8"))
    assert columns["valid"][columns["id"].index("r01-assessment-s00-000003")] is False
    assert columns["valid"].count(None) == len(columns["valid"]) - 1


def test_the_start_is_shown_where_it_was_measured(run: Path, page: str) -> None:
    assert [item["round"] for item in load_run(run).metrics] == [0, 1, 2, 3]
    assert "since the start" in page
    row = re.search(r"Solver accuracy, sampled</th>(<td.*?</td>)", page)
    assert row and "59.0%" in row[1]
    validity = re.search(r"Question validity</th>(<td.*?</td>)", page)
    assert validity and 'class="none"' in validity[1]


def test_ask_es_labels_have_a_chart_and_changes_of_the_machinery_a_line(tmp_path: Path, page: str) -> None:
    assert "Ask-E&#x27;s labels" not in page and "Changed as the run went on" not in page
    run = write_fake_run(tmp_path / "run", rounds=2)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        for key, k in (("calibrated_rate", 31), ("too_easy_rate", 45), ("too_hard_rate", 24)):
            row[key] = {"value": k / 100, "k": k, "n": 100, "low": 0.1, "high": 0.6}
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    change = {"at": "2026-01-02T03:04:05+00:00", "overrides": ["micro_batch=1"], "changed": ["micro_batch: 8 -> 1"]}
    (run / "changes.jsonl").write_text(json.dumps(change) + "\n")
    html, markdown = write_report(run)
    text = html.read_text()
    assert "Ask-E&#x27;s labels" in text and "31.0%" in text
    assert "micro_batch: 8 -&gt; 1 (2026-01-02)" in text and "micro" in markdown.read_text()


def test_collapse_warnings_name_figure_bound_and_rounds(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", "r_zero_code", rounds=3, questions=60)
    low = {1: 0.7, 2: 0.45, 3: 0.30}
    edit_lines(
        folder / "metrics.jsonl",
        lambda item: (
            item | {"valid_rate": {"value": low.get(item["round"]), "k": 1, "n": 2, "low": None, "high": None}}
        ),
    )
    page = write_report(folder)[0].read_text(encoding="utf-8")
    assert "question validity below its bound of 0.5 in rounds 2, 3 (lowest 0.3)" in page


def test_examples_are_the_ones_promised(run: Path) -> None:
    found = load_run(run)
    picks = digest_run(found).picks[2]
    asked = [json.loads(x) for x in (run / "rounds/02/questioner/assessed.jsonl").read_text().splitlines()]
    pool = [json.loads(x) for x in (run / "rounds/02/assessment/assessed.jsonl").read_text().splitlines()]
    totals = [row["reward"]["total"] for row in asked]
    assert picks.best and picks.best["reward"]["total"] == max(totals)
    assert picks.worst and picks.worst["reward"]["total"] == min(totals)
    assert picks.boundary and picks.boundary["solutions"]["share"] in (0.3, 0.8)
    assert set(picks.rejected) == {row["decision"] for row in pool} - {"kept"}
    assert picks.repeated and picks.repeated["novelty"]["match"] is not None
    means = picks.mean_terms()
    assert means["uncertainty"] == pytest.approx(
        sum(row["reward"]["terms"]["uncertainty"] for row in asked) / len(asked)
    )


def test_above_the_limit_all_candidates_stay_and_the_rest_is_named(run: Path) -> None:
    digest = digest_run(load_run(run), limit=200)
    assert digest.columns["stage"].count("assessment") == 180
    assert digest.columns["stage"].count("questioner") == 20
    assert {1, 2, 3} == {
        r for r, s in zip(digest.columns["round"], digest.columns["stage"], strict=True) if s == "questioner"
    }
    assert digest.left_out and "270 assessed questions" in digest.left_out and "it has 20" in digest.left_out
    assert digest_run(load_run(run), limit=10).columns["stage"].count("assessment") == 180


def test_torn_lines_are_noted_not_fatal(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", rounds=2, questions=20)
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"round": 3, "valid_r')
    found = load_run(folder)
    assert [item["round"] for item in found.metrics] == [0, 1, 2]
    assert found.notes == ("metrics.jsonl, line 3: no JSON object; the line is left out",)


def test_metrics_of_rounds_stand_in_for_a_missing_file(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "run", rounds=2, questions=20)
    (folder / "metrics.jsonl").unlink()
    assert [item["round"] for item in load_run(folder).metrics] == [0, 1, 2]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run folder"):
        write_report(tmp_path)


def test_the_report_is_the_same_twice(run: Path) -> None:
    first = [path.read_bytes() for path in write_report(run)]
    assert first == [path.read_bytes() for path in write_report(run)]
    assert not list(run.glob("*.partial"))


def test_the_round_table_fits_and_shows_what_is_missing() -> None:
    rate = {"value": 0.6543, "k": 1, "n": 2, "low": 0.1, "high": 0.9}
    full = {
        key: rate
        for key in (
            "valid_rate",
            "valid_rate_kept",
            "top5_share",
            "pseudo_label_accuracy",
            "balanced_accuracy",
            "invalid_recall",
            "solver_accuracy",
            "solver_accuracy_greedy",
        )
    }
    text = round_table(
        [
            {"round": 0, "solver_accuracy": rate},
            full | {"round": 10, "kept": 12345, "reward_mean": -0.1234, "seconds": 1234.56},
        ]
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[3].split() == ["start", "-", "-", "-", "-", "-", "-", "65.4/-", "-", "-", "-"]
    assert lines[4].split() == ["10", *["65.4"] * 6, "65.4/65.4", "12345", "-0.123", "1234.6"]
    assert lines[5] == "- not measured"


def test_assessed_records_of_the_fake_run_have_the_recorded_form() -> None:
    import random

    from fake_run import SHAPES

    record = assessed(random.Random(1), SHAPES["r_quest"], 1, 2, "assessment", 0)
    assert set(record) == {
        "id",
        "round",
        "stage",
        "step",
        "index",
        "reply",
        "finish_reason",
        "question",
        "parse_failure",
        "own_answer",
        "validity",
        "solutions",
        "novelty",
        "reward",
        "decision",
        "reason",
        "truth",
    }


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_search_and_filters_work_in_a_browser(run: Path, page: str, tmp_path: Path) -> None:
    columns = packed(page)
    wanted = sum(
        decision == "kept" and valid is False and pattern == "train_meeting"
        for decision, valid, pattern in zip(columns["decision"], columns["valid"], columns["pattern"], strict=True)
    )
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=4000",
        "--dump-dom",
        f"file://{run}/report.html#table?q=train_meeting&truth=kept_invalid",
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    assert f"of {wanted} questions" in dom
