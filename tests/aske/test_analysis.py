"""The analysis of a bench folder, against numbers worked out by hand."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fake_bench import PACK, Seat, play_bench, write_bench, write_lines

from aske import AskeError, Rules, Samplings, Seats, Slot, play
from aske.analysis import Analysis, AskerAnalysis, analyse
from aske.report._page import headline
from selfevolve.sampling import FinishReason, Reply

DRAWS = 200
LABELS = ("calibrated", "too_easy", "too_hard", "no_question", "bad_cross_check", "ungradable")


def row(slot: int, label: str, pair: tuple[str, str] = ("a", "b"), asker: str = "x", **more: Any) -> dict[str, Any]:
    """Return a line of sessions.jsonl with what the label needs; marks default to the first solver being right."""
    marks = {"calibrated": ["right", "wrong"], "too_easy": ["right"] * 2, "too_hard": ["wrong"] * 2}.get(label, [])
    graded = bool(marks)
    return {
        "id": f"{asker}/{pair[0]}+{pair[1]}/{slot}", "asker": asker, "pair": list(pair), "slot": slot, "flip": False,
        "prompts": "standard", "rules": {"probes": 0, "checks": 3, "question_words": 200, "reply_chars": 2000},
        "label": label, "reason": "http" if label == "ungradable" else None, "detail": "",
        "question": None if label == "no_question" else "What is 1 + 1?", "answer": "2" if graded else None,
        "answers": ["2", "3"] if graded else [], "marks": marks, "turns": [], "transcript": [], "calls": [], **more,
    }  # fmt: skip


def draws(
    session: dict[str, Any], *right: int, m: int = 4, solvers: tuple[str, ...] = ("a", "b")
) -> list[dict[str, Any]]:
    return [
        {"session": session["id"], "solver": s, "right": k, "wrong": m - k, "undecided": 0, "m": m}
        for s, k in zip(solvers, right, strict=True)
    ]


def bench(folder: Path, sessions: list[dict[str, Any]], config: dict[str, Any] | None = None, **files: Any) -> Analysis:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {}), encoding="utf-8")
    write_lines(folder / "sessions.jsonl", sessions)
    for name, rows in files.items():
        write_lines(folder / f"{name.replace('__', '-')}.jsonl", rows)
    return analyse(folder, draws=DRAWS)


def only(found: Analysis) -> AskerAnalysis:
    assert len(found.askers) == 1
    return found.askers[0]


def test_rate_leaves_out_ungradable_and_counts_the_other_failures(tmp_path: Path) -> None:
    one = only(bench(tmp_path, [row(i, label) for i, label in enumerate([*LABELS, "calibrated"])]))
    assert one.labels == {**dict.fromkeys(LABELS, 1), "calibrated": 2}
    assert (one.rate.k, one.rate.n, one.rate.asked) == (2, 6, 7)
    assert one.rate.ungradable_share == pytest.approx(1 / 7)
    assert one.reasons == {"http": 1}
    # Wilson by hand, z = 1.96: (p + z2/2n +- z sqrt(pq/n + z2/4n2)) / (1 + z2/n)
    assert one.rate.low == pytest.approx(0.0968, abs=1e-4)
    assert one.rate.high == pytest.approx(0.7000, abs=1e-4)


def test_chance_line_and_excess_by_hand(tmp_path: Path) -> None:
    s = [row(0, "calibrated"), row(1, "calibrated"), row(2, "too_easy"), row(3, "no_question"), row(4, "ungradable")]
    one = only(bench(tmp_path, s, resamples=draws(s[0], 4, 0) + draws(s[1], 2, 2) + draws(s[2], 4, 4)))
    assert one.chance is not None and one.excess is not None and one.stability is not None
    # 2k(m-k)/(m(m-1)): 0, 2*2*2/12 = 2/3, 0; the lost session adds 0; the ungradable one is in no denominator
    assert one.chance.copies.value == pytest.approx(2 / 3 / 4)
    assert one.chance.copies.n == 4
    assert one.chance.pair.value == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert one.excess.value == pytest.approx((1 + 1 / 3 + 0 + 0) / 4)
    assert one.excess.value == pytest.approx(one.rate.value - one.chance.copies.value)
    assert one.stability.solutions == 4
    assert one.stability.flips.value == pytest.approx((0 + 0.5 + 0) / 3)
    assert one.stability.flips_calibrated.value == pytest.approx(0.25)
    # u = 2/3 for both solvers: u + u - 1.5 u u = 2/3
    assert one.stability.redraws.value == pytest.approx((0 + 2 / 3 + 0) / 3)
    assert (one.stability.stable.k, one.stability.stable.n) == (1, 4)
    assert (one.stability.stable_calibrated.k, one.stability.stable_calibrated.n) == (1, 2)
    cell = one.cells[0]
    assert cell.chance is not None and cell.chance.value == pytest.approx(one.chance.copies.value)


def test_excess_covers_only_what_was_resampled(tmp_path: Path) -> None:
    s = [row(0, "calibrated"), row(1, "too_easy"), row(2, "too_easy")]
    one = only(bench(tmp_path, s, resamples=draws(s[0], 4, 0)))
    assert one.excess is not None and one.chance is not None
    assert (one.excess.value, one.excess.n, one.excess.asked) == (1.0, 1, 3)
    assert one.chance.copies.n == 1


def test_lost_sessions_count_as_far_as_a_control_has_come(tmp_path: Path) -> None:
    # a killed control: the file's order is that of the sessions, so what is lost behind the last draw has to wait
    s = [row(0, "calibrated"), row(1, "bad_cross_check"), row(2, "too_easy"), row(3, "no_question"), row(4, "too_hard")]
    first = draws(s[0], 2, 2)
    one = only(bench(tmp_path / "begun", s, resamples=first, shuffled=draws(s[0], 2, 2, solvers=("c", "d"))))
    assert one.chance is not None and one.excess is not None and one.stability is not None and one.shuffled is not None
    assert (one.chance.copies.value, one.chance.copies.n) == (pytest.approx(2 / 3), 1)
    assert one.excess.value == pytest.approx(1 / 3)
    assert (one.shuffled.other.value, one.shuffled.other.n) == (0.5, 1) and one.stability.stable.n == 1
    assert one.cells[0].chance is not None and one.cells[0].chance.n == 1
    more = only(bench(tmp_path / "more", s, resamples=first + draws(s[2], 2, 2)))
    assert more.chance is not None and more.cells[0].chance is not None
    assert (more.chance.copies.value, more.chance.copies.n) == (pytest.approx((2 / 3 + 0 + 2 / 3) / 3), 3)
    assert more.cells[0].chance.value == more.chance.copies.value
    whole = only(bench(tmp_path / "whole", s, resamples=first + draws(s[2], 2, 2) + draws(s[4], 0, 0)))
    assert whole.chance is not None and whole.chance.copies.n == 5


def test_lost_sessions_alone_are_no_chance_line(tmp_path: Path) -> None:
    s = [row(0, "calibrated"), row(1, "bad_cross_check"), row(2, "too_easy")]
    for name, drawn in (("none", []), ("one", draws(s[0], 1, 0, m=1) + draws(s[2], 1, 1, m=1))):
        found = bench(tmp_path / name, s, resamples=drawn)
        one = only(found)
        assert one.chance is None and one.excess is None and one.cells[0].chance is None
        assert any("2 of 2 graded questions (100%) lack two decided" in line for line in found.warnings)
        why = "no question has two fresh solutions" if drawn else "the solvers were not resampled"
        assert why in headline(one)


def test_draws_are_matched_to_the_pair_whatever_their_order(tmp_path: Path) -> None:
    s = [row(0, "calibrated"), row(1, "calibrated")]
    rows = draws(s[0], 4, 1)[::-1] + draws(s[1], 4, 1)
    found = bench(tmp_path, s, resamples=rows)
    assert found.ability == {"a": 1.0, "b": 0.25}
    stability = only(found).stability
    assert stability is not None and stability.gap.value == pytest.approx(0.75)


def test_same_model_and_shuffled_controls(tmp_path: Path) -> None:
    s = [row(0, "calibrated"), row(1, "too_easy"), row(2, "bad_cross_check")]
    same = [row(i, label, ("a", "a")) for i, label in enumerate(["calibrated", "too_easy", "ungradable"])]
    same.append(row(0, "too_hard", ("b", "b")))
    other = draws(s[0], 2, 4, solvers=("a", "c")) + draws(s[1], 4, 0, solvers=("c", "d"))
    own = draws(s[0], 4, 0) + draws(s[1], 4, 2)
    one = only(bench(tmp_path, s, same_model=same, shuffled=other, resamples=own))
    assert one.same_model is not None and (one.same_model.k, one.same_model.n, one.same_model.asked) == (1, 3, 4)
    assert {name: (rate.k, rate.n) for name, rate in one.same_model_cells.items()} == {"a": (1, 2), "b": (0, 1)}
    assert one.shuffled is not None
    assert one.shuffled.other.value == pytest.approx((0.5 + 1 + 0) / 3)
    assert one.shuffled.own.value == pytest.approx((1 + 0.5 + 0) / 3)
    assert one.shuffled.aimed.value == pytest.approx(0.0)


def test_no_probing_runs_over_questions_and_pairs(tmp_path: Path) -> None:
    config = {"pool": {"solvers": [{"name": n} for n in "abc"]}}
    unprobed = [
        {"asker": "x", "index": 0, "question": "q", "answer": "2", "label_without_pair": None,
         "marks": {"a": "right", "b": "wrong", "c": "right"}},
        {"asker": "x", "index": 1, "question": "q", "answer": "2", "label_without_pair": None,
         "marks": {"a": "right", "b": "undecided", "c": "right"}},
        {"asker": "x", "index": 2, "question": None, "answer": None, "label_without_pair": "no_question", "marks": {}},
        {"asker": "x", "index": 3, "question": "q", "answer": None, "label_without_pair": "ungradable", "marks": {}},
        {"asker": "other", "index": 0, "question": "q", "answer": "2", "label_without_pair": None,
         "marks": {"a": "right", "b": "wrong", "c": "wrong"}},
    ]  # fmt: skip
    found = bench(tmp_path, [row(0, "calibrated")], config, no_probing=unprobed)
    one = only(found)
    # question 0: ab and bc; question 1: ac is both right, ab and bc undecided; question 2: three times nothing
    assert one.no_probing is not None and (one.no_probing.k, one.no_probing.n, one.no_probing.asked) == (2, 7, 12)
    assert one.no_probing_clustered is not None and one.no_probing_clustered.value == pytest.approx(2 / 7)
    assert found.ability_source == "the unprobed questions"
    assert found.ability == {"a": 1.0, "b": 0.0, "c": pytest.approx(2 / 3)}


def test_direction_by_stated_ability(tmp_path: Path) -> None:
    config = {"pool": {"solvers": [{"name": "a", "ability": 1}, {"name": "b", "ability": 2.5}]}}
    weak = [row(i, "calibrated") for i in range(5)]
    strong = row(5, "calibrated", marks=["wrong", "right"])
    found = bench(tmp_path, [*weak, strong, row(6, "too_easy"), row(7, "too_hard")], config)
    way = only(found).direction
    assert way is not None and found.ability_source == "the configuration" and found.solvers == ("b", "a")
    assert (way.strong_only, way.weak_only, way.both, way.neither) == (1, 5, 1, 1)
    assert way.p == pytest.approx(2 * (1 + 6) / 64)  # Binomial(6, 1/2), one or fewer, both sides


def test_no_order_of_strength_no_direction(tmp_path: Path) -> None:
    found = bench(tmp_path, [row(0, "calibrated")])
    assert found.ability == {} and only(found).direction is None and found.solvers == ("a", "b")


def sensitive(tmp_path: Path, b: Reply, checks: list[str]) -> dict[str, tuple[int, int]]:
    """Play one session without probes: a answers 2, b as given, the cross-check by sample."""
    ask = "#Reasoning#\nr\n#Draft#\n\\boxed{2}\n#Question#\nWhat is 1 + 1?"
    left = list(checks)
    seats = Seats(
        Seat("asker", lambda p, r: ask),
        {"a": Seat("a", lambda p, r: "\\boxed{2}"), "b": Seat("b", lambda p, r: b)},
        Seat("judge", lambda p, r: left.pop(0)),
    )
    done = play([Slot("x/a+b/0", ("a", "b"), 0, False)], "x", seats, PACK, Rules(0, len(checks)), Samplings(), seed=1)
    one = only(bench(tmp_path, [r.to_json() for r in done]))
    return {name: (rate.k, rate.n) for name, rate in one.sensitivity}


def test_sensitivity_to_truncation(tmp_path: Path) -> None:
    found = sensitive(tmp_path, Reply("so", FinishReason.LENGTH), ["\\boxed{2}"] * 3)
    assert found == {
        "truncated left out (as played)": (0, 0), "truncated counted as wrong": (1, 1),
        "truncated counted as right": (0, 1), "one cross-check in place of all": (0, 0),
    }  # fmt: skip


def test_sensitivity_to_the_number_of_cross_checks(tmp_path: Path) -> None:
    found = sensitive(tmp_path, Reply("\\boxed{3}", FinishReason.STOP), ["\\boxed{2}", "\\boxed{2}", "\\boxed{3}"])
    assert found["truncated left out (as played)"] == (0, 1)  # a bad cross-check counts, and is not calibrated
    assert found["one cross-check in place of all"] == (1, 1)


def test_a_failed_call_stays_ungradable_under_every_count(tmp_path: Path) -> None:
    found = sensitive(tmp_path, Reply("", FinishReason.ERROR, error="HTTP 500"), ["\\boxed{2}"] * 3)
    assert set(found.values()) == {(0, 0)}


def test_oracle_regrade_and_difficulty(tmp_path: Path) -> None:
    s = [row(0, "calibrated"), row(1, "calibrated"), row(2, "too_easy"), row(3, "ungradable")]
    truth = [{"session": x["id"], "valid": v, "answer": "2", "cross_check_true": t}
             for x, v, t in zip(s, (True, False, True, True), (True, False, None, None), strict=True)]  # fmt: skip
    again = [{"session": x["id"], "label": label, "reason": None, "answer": "2", "marks": []}
             for x, label in zip(s, ("calibrated", "too_hard", "ungradable", "calibrated"), strict=True)]  # fmt: skip
    hard = draws(s[0], 4, 0, 2, solvers=("a", "b", "c")) + draws(s[1], 4, 4, 4, solvers=("a", "b", "c"))
    one = only(bench(tmp_path, s, truths=truth, regrade__strict=again, difficulty=hard))
    assert one.cross_check is not None
    assert (one.cross_check.true.k, one.cross_check.true.n, one.cross_check.true.asked) == (1, 2, 3)
    assert (one.cross_check.true_calibrated.k, one.cross_check.true_calibrated.n) == (1, 2)
    assert (one.cross_check.valid.k, one.cross_check.valid.n) == (3, 4)
    (regrade,) = one.regrades
    assert (regrade.name, regrade.agreement.k, regrade.agreement.n) == ("strict", 1, 2)
    assert (regrade.rate.k, regrade.rate.n) == (2, 3)
    assert regrade.shift.value == pytest.approx(-0.5) and regrade.shift.n == 2
    assert one.difficulty["calibrated"].value == pytest.approx((0.5 + 1) / 2) and "too_easy" not in one.difficulty


def test_askers_are_compared_on_shared_cells(tmp_path: Path) -> None:
    x = [row(i, "calibrated", asker="x") for i in range(6)]
    y = [row(i, "too_easy", asker="y") for i in range(5)] + [
        row(5, "ungradable", asker="y"),
        row(9, "calibrated", asker="y"),
    ]
    (pair,) = bench(tmp_path, [*x, *y]).comparisons
    one = pair.comparison
    assert (one.difference, one.n, one.first_only, one.second_only, one.ungradable, one.unmatched) == (
        1.0,
        5,
        5,
        0,
        1,
        1,
    )
    assert one.p == pytest.approx(2 / 2**5) and one.p_holm == one.p
    assert pair.needed is not None and pair.to_ask is not None and pair.to_ask >= pair.needed


def test_one_pair_or_one_slot_still_gives_the_difference_an_interval(tmp_path: Path) -> None:
    labels = {"x": ["calibrated", "calibrated", "too_easy", "calibrated"], "y": ["too_easy"] * 3 + ["calibrated"]}
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d")]
    one_pair = [row(i, label, asker=name) for name, given in labels.items() for i, label in enumerate(given)]
    one_slot = [row(0, label, pairs[i], name) for name, given in labels.items() for i, label in enumerate(given)]
    ends = []
    for place, rows in enumerate((one_pair, one_slot)):
        (found,) = bench(tmp_path / str(place), rows).comparisons
        assert found.comparison.difference == 0.5
        ends.append((found.comparison.low, found.comparison.high))
    assert ends[0] == ends[1] == (0.0, 1.0)


def test_equal_askers_need_no_number_of_sessions(tmp_path: Path) -> None:
    rows = [row(i, "calibrated", asker=name) for name, i in product("xy", range(3))]
    (pair,) = bench(tmp_path, rows).comparisons
    assert pair.needed is None and pair.comparison.difference == 0


def test_cost_counts_every_call(tmp_path: Path) -> None:
    played = play_bench({"prober": 1.0}, sessions=1)
    one = only(bench(tmp_path, [s.to_json() for s in played]))
    assert one.cost.new_tokens == sum(s.tokens() for s in played)
    assert one.cost.calls == sum(len(s.calls) for s in played)
    by_seat = {seat.seat: seat for seat in one.cost.seats}
    cross = [c for s in played for c in s.calls if c.seat == "cross_check"]
    assert (by_seat["cross_check"].calls, by_seat["cross_check"].replies) == (len(cross), 3 * len(cross))
    assert by_seat["boundary"].calls == 2 * sum(t.question is not None for s in played for t in s.turns)
    assert one.cost.calibrated == one.rate.k


def test_intervals_say_what_they_resample(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    both = [row(i, "calibrated" if (i + k) % 2 else "too_easy", p) for k, p in enumerate(pairs) for i in range(3)]
    assert only(bench(tmp_path / "both", both)).clusters == "pairs and slots"
    one_pair = only(bench(tmp_path / "pair", [r for r in both if r["pair"] == ["a", "b"]]))
    assert one_pair.clusters == "slots" and one_pair.clustered.low is not None
    one_slot = only(bench(tmp_path / "slot", [r for r in both if r["slot"] == 0]))
    assert one_slot.clusters == "pairs" and one_slot.clustered.low is not None


def test_all_calibrated_falls_back_to_wilson(tmp_path: Path) -> None:
    one = only(bench(tmp_path, [row(i, "calibrated") for i in range(4)]))
    assert one.clustered.low is None
    assert (one.best_interval.low, one.best_interval.high) == (one.rate.low, one.rate.high)


def test_all_ungradable_has_no_rate_and_warns(tmp_path: Path) -> None:
    found = bench(tmp_path, [row(i, "ungradable") for i in range(4)])
    assert only(found).rate.value is None and only(found).best_interval.value is None
    assert any("4 of 4 sessions (100%) are ungradable (http 4)" in line for line in found.warnings)


def test_missing_controls_name_the_command(tmp_path: Path) -> None:
    found = bench(tmp_path, [row(0, "calibrated")], {"controls": {"resamples": 8, "same_model": 0}})
    commands = {one.name: one.command for one in found.missing}
    assert len(commands) == 7
    assert commands["Resampled solvers"] == f"aske resume {tmp_path}"  # asked for and not there: go on
    assert commands["Same model twice"] == "aske bench CONFIG --out NEW controls.same_model=10"
    assert commands["Another cross-check"].startswith(f"aske regrade {tmp_path} ")


def test_nothing_to_draw_is_not_blamed_on_a_missing_run(tmp_path: Path) -> None:
    found = bench(tmp_path, [row(0, "no_question")], {"controls": {"resamples": 8, "no_probing": 5}})
    commands = {one.name: one.command for one in found.missing}
    assert commands["Resampled solvers"] == "nothing to draw: no final question was graded"
    assert commands["No probing"] == f"aske resume {tmp_path}"


def test_unfinished_bench_says_so(tmp_path: Path) -> None:
    config = {"askers": [{"name": "x"}], "pool": {"solvers": [{"name": "a"}, {"name": "b"}]}, "sessions": 5}
    found = bench(tmp_path, [row(0, "calibrated")], config)
    assert (found.played, found.planned) == (1, 5) and any("1 of 5" in line for line in found.warnings)


def test_torn_and_repeated_lines_are_told(tmp_path: Path) -> None:
    bench(tmp_path, [row(0, "calibrated"), row(0, "too_easy")])
    with (tmp_path / "sessions.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "x/a+b/1", "ask')
    found = analyse(tmp_path, draws=DRAWS)
    assert found.played == 1 and only(found).labels["too_easy"] == 1
    assert any("left out line 3" in note for note in found.notes) and any("stand twice" in n for n in found.notes)


def test_resampling_that_does_not_fit_warns(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "d"), ("c", "d")]
    s = [row(i, "calibrated", p) for p in pairs for i in range(4)]
    rows = [d for k, x in enumerate(s) for d in draws(x, 4, 3 + k % 2, solvers=tuple(x["pair"]))]
    assert any("seem to be drawn otherwise" in line for line in bench(tmp_path, s, resamples=rows).warnings)


def test_no_bench_folder_is_a_clean_error(tmp_path: Path) -> None:
    with pytest.raises(AskeError, match="no bench folder"):
        analyse(tmp_path)


def test_summary_is_plain_json(tmp_path: Path) -> None:
    write_bench(tmp_path, {"prober": 1.0}, sessions=1)
    found = analyse(tmp_path, draws=DRAWS)
    back = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert back["askers"][0]["rate"]["k"] == found.askers[0].rate.k and not found.missing
