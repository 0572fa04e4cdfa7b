"""The comparison of runs: statistics checked by hand, refusals, and what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_run import write_fake_run

from selfevolve.errors import UserError
from selfevolve.rates import Rate
from selfevolve.report import write_comparison, write_report
from selfevolve.report.compare import Pairing, compare_runs, difference, group_change, group_measure, least_p, subtract
from selfevolve.report.figures import KEPT, REWARD, SAMPLED, VALID, read_measure


def make(folder: Path, name: str, seed: int, valid: list[float], **config: Any) -> Path:
    """Write a run whose only figure is its validity by round, out of 100."""
    folder.mkdir(parents=True)
    settings = {"name": name, "seed": seed, "rounds": len(valid), "backbone": "testbed:m"} | config
    (folder / "config.yaml").write_text(json.dumps(settings))
    rounds = [{"round": i + 1, "valid_rate": Rate(round(100 * v), 100).to_json()} for i, v in enumerate(valid)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rounds))
    return folder


def judge(folder: Path, source: str) -> None:
    stage = folder / "rounds/01/assessment"
    stage.mkdir(parents=True)
    (stage / "assessed.jsonl").write_text(json.dumps({"id": "a", "truth": {"source": source, "valid": True}}) + "\n")


def test_the_interval_of_a_count_stays_above_zero(tmp_path: Path) -> None:
    for seed, kept in enumerate((10, 90)):
        folder = make(tmp_path / str(seed), "a", seed, [0.5])
        row = {"round": 1, "valid_rate": Rate(5, 10).to_json(), "kept": kept, "reward_mean": float(kept)}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    other = make(tmp_path / "b", "b", 0, [0.5])
    group = compare_runs([tmp_path / "0", tmp_path / "1", other]).groups[0]
    # mean 50, standard error 40, t(1) = 12.706
    assert (group_measure(group, 1, KEPT).low, group_measure(group, 1, KEPT).high) == (
        0.0,
        pytest.approx(558.2, abs=0.1),
    )
    assert group_measure(group, 1, REWARD).low == pytest.approx(-458.2, abs=0.1)


def test_the_difference_of_two_rates_is_newcombes() -> None:
    # Newcombe 1998, Statistics in Medicine 17, 873-890, table II, contrast (a), method 10: 56/70 - 48/80
    found = subtract(read_measure(Rate(56, 70).to_json()), read_measure(Rate(48, 80).to_json()))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_three_common_seeds_are_paired(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"a{s}", "a", s, [0.70, 0.80 + s / 100]) for s in (1, 2, 3)]
    paths += [make(tmp_path / f"b{s}", "b", s, [0.70, value]) for s, value in ((3, 0.60), (1, 0.61), (2, 0.56))]
    found = compare_runs(paths)
    assert [group.label for group in found.groups] == ["a", "b"]
    result = difference(found.groups[1], found.groups[0], VALID, found.last)
    # b - a by seed: 0.61 - 0.81, 0.56 - 0.82, 0.60 - 0.83: mean -0.23, deviation 0.03, t(2) = 4.3027
    half = 4.30265 * 0.03 / 3**0.5
    assert (result.value, result.low, result.high) == pytest.approx((-0.23, -0.23 - half, -0.23 + half), abs=1e-6)
    assert (result.pairing, result.pairs, result.p) == (Pairing.PAIRED, 3, 0.25)
    change = group_change(found.groups[0], 1, 2, VALID)
    assert (change.value, change.n) == (pytest.approx(0.12), 3)


def test_one_run_each_is_unpaired_with_the_samples_interval(tmp_path: Path) -> None:
    found = compare_runs([make(tmp_path / "a", "a", 1, [0.8]), make(tmp_path / "b", "b", 1, [0.6])])
    result = difference(found.groups[1], found.groups[0], VALID, 1)
    expected = subtract(read_measure(Rate(60, 100).to_json()), read_measure(Rate(80, 100).to_json()))
    assert (result.value, result.low, result.high) == (expected.value, expected.low, expected.high)
    assert result.pairing is Pairing.UNPAIRED and result.p is None


def test_least_p() -> None:
    assert [least_p(n) for n in (2, 3, 5, 6)] == [0.5, 0.25, 0.0625, 0.03125]


def test_the_mean_over_seeds_stays_a_share(tmp_path: Path) -> None:
    found = compare_runs([make(tmp_path / f"a{s}", "a", s, [v]) for s, v in ((1, 1.0), (2, 0.9))])
    measure = group_measure(found.groups[0], 1, VALID)
    assert measure.value == pytest.approx(0.95) and measure.high == 1.0 and measure.n == 2


def test_rounds_in_common_are_compared(tmp_path: Path) -> None:
    found = compare_runs([make(tmp_path / "a", "a", 1, [0.8, 0.7, 0.6]), make(tmp_path / "b", "b", 1, [0.8, 0.5])])
    assert (found.first, found.last) == (1, 2)
    assert any("different length (a: 3, b: 2)" in note for note in found.notes)


def test_a_figure_that_one_run_lacks_is_left_out_with_a_note(tmp_path: Path) -> None:
    full = write_fake_run(tmp_path / "full", rounds=1, questions=20)
    found = compare_runs([full, make(tmp_path / "b", "b", 1, [0.8])])
    assert found.figures == (VALID,)
    assert f"{SAMPLED.label} is not compared: not measured in b." in found.notes


def test_different_referees_are_refused(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", "a", 1, [0.8]), make(tmp_path / "b", "b", 1, [0.8])
    judge(a, "oracle")
    judge(b, "some-model")
    with pytest.raises(UserError, match=r"different referees \(a: oracle; b: some-model\)"):
        compare_runs([a, b])


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    a = make(tmp_path / "a", "a", 1, [0.8])
    with pytest.raises(UserError, match="1 run is given"):
        compare_runs([a])
    with pytest.raises(UserError, match="given twice"):
        compare_runs([a, tmp_path / "." / "a"])
    with pytest.raises(UserError, match="no round is complete in empty"):
        compare_runs([a, make(tmp_path / "empty", "b", 1, [])])
    bare = make(tmp_path / "bare", "b", 1, [0.5])
    (bare / "metrics.jsonl").write_text('{"round": 1, "seconds": 3}\n')
    with pytest.raises(UserError, match="no figure is measured in every run"):
        compare_runs([a, bare])


def test_other_settings_than_the_seed_are_told(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"a{s}", "a", s, [0.8], novelty={"k": k}) for s, k in ((1, 8), (2, 16))]
    assert any("differ in more than the seed (novelty.k)" in note for note in compare_runs(paths).notes)


def test_a_second_run_of_a_seed_is_its_own_group(tmp_path: Path) -> None:
    paths = [make(tmp_path / name, "a", 1, [0.8]) for name in ("x", "y")]
    assert [group.label for group in compare_runs(paths).groups] == ["a", "a (y)"]


def test_the_page_shows_links_table_and_the_limits_of_the_test(tmp_path: Path) -> None:
    paths = [
        write_fake_run(tmp_path / f"{name} {s}", name, s, 2, 40)
        for name in ("r_quest", "r_zero_code")
        for s in (1, 2, 3)
    ]
    write_report(paths[0])
    page = write_comparison(paths, tmp_path / "out").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "comparison.html").is_file()
    assert 'href="../r_quest%201/report.html"' in page
    assert page.count("no report yet") == 5
    assert "2^3 = 8 sign patterns, so its p cannot be below 0.25" in page
    assert "<code>novelty.k</code>" in page
    assert page.count('class="s1 thin"') == page.count('class="s2 thin"') > 0


def test_names_of_runs_are_escaped(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{s}", "<img src=x>", s, [0.8], note="<script>") for s in (1, 2)]
    paths.append(make(tmp_path / "3", "b", 1, [0.7], note="<b>"))
    page = write_comparison(paths, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<img" not in page and "<script>alert" not in page
    assert "&lt;img src=x&gt;" in page and '<td class="wrap">&lt;script&gt;</td>' in page
