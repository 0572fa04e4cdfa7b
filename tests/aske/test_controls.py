"""Each control against numbers worked out by hand, with solvers whose shares are known."""

import math
from collections import Counter

import pytest
from bench_helpers import World, entry, lines, right_answer, settings, solver, truncated
from hypothesis import given
from hypothesis import strategies as st

from aske import SessionRecord
from aske.bench import start
from aske.controls import cycle
from aske.labels import Label

SOLVERS = {"weak", "middle", "strong"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("controls")
    start(settings(), folder, World())
    return folder


def graded(folder):
    return {r["id"]: r for r in lines(folder, "sessions.jsonl") if r["label"] in ("calibrated", "too_easy", "too_hard")}


def test_resamples_are_of_both_solvers_of_every_graded_session(whole):
    rows = lines(whole, "resamples.jsonl")
    sessions = graded(whole)
    assert 0 < len(sessions) < 24  # `second` loses some final questions
    assert {(r["session"], r["solver"]) for r in rows} == {(i, s) for i, r in sessions.items() for s in r["pair"]}
    for row in rows:
        session = sessions[row["session"]]
        assert (row["asker"], row["pair"], row["slot"]) == (session["asker"], session["pair"], session["slot"])
        assert (row["question"], row["answer"]) == (session["question"], session["answer"])
        assert row["m"] == 3 == row["right"] + row["wrong"] + row["undecided"]
        assert row["marks"].count("right") == row["right"] == row["answers"].count(row["answer"])
        assert row["tokens"] == 15


def test_resamples_are_draws_of_their_own(tmp_path):
    """A solver that is right half of the time is right in half of the further replies, whatever the session's was."""
    world = World()
    world.samplers["weak"] = solver("weak", 0.5)
    controls = {"resamples": 20, "shuffled": False, "difficulty": 0, "same_model": 0, "no_probing": 0}
    start(settings(askers=[entry("first")], sessions=25, controls=controls), tmp_path, world)
    sessions = graded(tmp_path)
    right = {True: [0, 0], False: [0, 0]}
    for row in lines(tmp_path, "resamples.jsonl"):
        if row["solver"] == "weak":
            session = sessions[row["session"]]
            was_right = session["marks"][session["pair"].index("weak")] == "right"
            right[was_right][0] += row["right"]
            right[was_right][1] += row["m"]
    for k, n in right.values():
        assert abs(k / n - 0.5) < 4 * math.sqrt(0.25 / n)
    assert lines(tmp_path, "shuffled.jsonl") == lines(tmp_path, "difficulty.jsonl") == []


def test_cut_off_replies_are_undecided(tmp_path):
    world = World()
    start(settings(askers=[entry("first")]), tmp_path, World())  # sessions with whole replies
    (tmp_path / "resamples.jsonl").unlink()
    world.samplers["weak"] = truncated("weak")
    start(settings(askers=[entry("first")]), tmp_path, world)
    for row in lines(tmp_path, "resamples.jsonl"):
        if row["solver"] == "weak":
            assert (row["right"], row["wrong"], row["undecided"], row["answers"]) == (0, 0, 3, [None] * 3)
        else:
            assert row["undecided"] == 0


def test_shuffled_questions_go_to_another_pair_each_to_one(whole):
    rows = lines(whole, "shuffled.jsonl")
    sessions = graded(whole)
    shown = {}
    for row in rows:
        assert row["pair"] == sessions[row["session"]]["pair"] != row["shown_pair"]
        assert row["solver"] in row["shown_pair"]
        assert row["m"] == 3
        shown.setdefault((row["slot"], tuple(row["pair"])), set()).add(tuple(row["shown_pair"]))
    assert len(rows) == 2 * len(sessions)
    assert all(len(pairs) == 1 for pairs in shown.values())  # the same for both askers
    for slot in range(4):
        targets = [pair for (s, _), pairs in shown.items() if s == slot for pair in pairs]
        assert len(set(targets)) == len(targets)


def test_a_pool_of_two_has_no_other_pair(tmp_path):
    pool = {"solvers": [entry("weak"), entry("strong")]}
    start(settings(pool=pool), tmp_path, World())
    assert not (tmp_path / "shuffled.jsonl").exists()
    assert lines(tmp_path, "resamples.jsonl")


@given(st.integers(2, 12), st.integers(0, 2**31))
def test_a_cycle_moves_every_pair(number, seed):
    pairs = [(str(i), str(i + 1)) for i in range(number)]
    found = cycle(pairs, seed)
    assert sorted(found) == sorted(found.values()) == sorted(pairs)
    assert all(a != b for a, b in found.items())


def test_difficulty_covers_the_pool_and_asks_only_who_was_not_asked(whole, tmp_path):
    rows = lines(whole, "difficulty.jsonl")
    assert {(r["session"], r["solver"]) for r in rows} == {(i, s) for i in graded(whole) for s in SOLVERS}
    known = {(r["session"], r["solver"]): r for r in lines(whole, "shuffled.jsonl")}
    known.update({(r["session"], r["solver"]): r for r in lines(whole, "resamples.jsonl")})
    for row in rows:
        old = known.get((row["session"], row["solver"]))
        if old is None:
            assert row["m"] == 2
        else:
            assert row["taken_over"] is True
            assert [row[k] for k in ("right", "wrong", "undecided", "m")] == [
                old[k] for k in ("right", "wrong", "undecided", "m")
            ]
    # without shuffled pairs one of three solvers is left to ask
    controls = {"resamples": 3, "shuffled": False, "difficulty": 2, "same_model": 0, "no_probing": 0}
    start(settings(controls=controls), tmp_path, World())
    drawn = [r for r in lines(tmp_path, "difficulty.jsonl") if "taken_over" not in r]
    assert len(drawn) == len(graded(tmp_path))
    assert all(r["solver"] not in r["pair"] and len(r["answers"]) == 2 for r in drawn)


def test_same_model_sessions_are_played_with_two_copies(whole):
    rows = lines(whole, "same_model.jsonl")
    assert Counter((r["asker"], *r["pair"]) for r in rows) == {
        (a, s, s): 2 for a in ("first", "second") for s in SOLVERS
    }
    assert {r["control"] for r in rows} == {"same_model"}
    assert not {r["id"] for r in rows} & {r["id"] for r in lines(whole, "sessions.jsonl")}
    assert SessionRecord.from_json(rows[0]).pair == ("weak", "weak")


@pytest.mark.parametrize("keyed", [True, False])
def test_two_copies_draw_apart(tmp_path, keyed):
    """At a share of 0.5 two independent copies differ half of the time: 2 p (1 - p)."""
    world = World()
    world.samplers["weak"] = solver("weak", 0.5)
    controls = {"resamples": 0, "difficulty": 0, "same_model": 200, "no_probing": 0}
    bench = settings(askers=[entry("first")], controls=controls, rules={"probes": 0, "checks": 1}, wave=600)
    start(bench, tmp_path, world if keyed else world.by_place())
    labels = Counter(r["label"] for r in lines(tmp_path, "same_model.jsonl") if r["pair"] == ["weak", "weak"])
    assert abs(labels["calibrated"] - 100) < 4 * math.sqrt(50)
    assert abs(labels["too_easy"] - 50) < 4 * math.sqrt(37.5)


def test_questions_without_probes_are_marked_for_the_whole_pool(tmp_path):
    world = World()
    world.samplers |= {"weak": solver("weak", 0.0), "middle": solver("middle", 1.0)}
    start(settings(), tmp_path, world)
    rows = lines(tmp_path, "no_probing.jsonl")
    assert [(r["asker"], r["index"]) for r in rows] == [(a, i) for a in ("first", "second") for i in range(4)]
    for row in rows:
        record = SessionRecord.from_json(row["session"])
        assert record.rules.probes == 0
        assert len(record.turns) == 1
        if record.label is Label.NO_QUESTION:
            assert (row["label_without_pair"], row["question"], row["marks"]) == ("no_question", None, {})
        else:
            assert row["label_without_pair"] is None
            assert set(row["marks"]) == SOLVERS
            assert (row["marks"]["weak"], row["marks"]["middle"]) == ("wrong", "right")
            assert len(row["others"]) == 1  # the pair of the session answers within it
            assert right_answer(record.calls[1].messages) == int(row["answer"])
    assert {tuple(r["session"]["pair"]) for r in rows if r["asker"] == "first"} == {
        ("weak", "middle"), ("weak", "strong"), ("middle", "strong")
    }  # fmt: skip


def test_without_probes_a_cut_off_solver_is_undecided_and_the_others_count(tmp_path):
    world = World()
    world.samplers["weak"] = truncated("weak")
    start(settings(askers=[entry("first")]), tmp_path, world)
    for row in lines(tmp_path, "no_probing.jsonl"):
        assert row["label_without_pair"] is None
        assert row["marks"]["weak"] == "undecided"
        assert {row["marks"][s] for s in ("middle", "strong")} <= {"right", "wrong"}


def test_without_probes_a_bad_cross_check_is_one_for_every_pair(tmp_path):
    world = World()
    judge = world.samplers["judge"]
    judge.write = lambda prompt, u, i: f"\\boxed{{{i}}}"  # no two agree
    start(settings(askers=[entry("first")]), tmp_path, world)
    for row in lines(tmp_path, "no_probing.jsonl"):
        assert (row["label_without_pair"], row["answer"], row["marks"]) == ("bad_cross_check", None, {})
    assert lines(tmp_path, "resamples.jsonl") == []


def test_truths_of_all_final_questions(tmp_path):
    world = World()
    half = solver("judge", 0.5)
    world.samplers["judge"] = half
    start(settings(rules={"probes": 1, "checks": 2}), tmp_path, world)
    rows = {r["session"]: r for r in lines(tmp_path, "truths.jsonl")}
    sessions = {r["id"]: r for r in lines(tmp_path, "sessions.jsonl")}
    assert set(rows) == {i for i, r in sessions.items() if r["question"] is not None}
    for name, row in rows.items():
        given_answer = sessions[name]["answer"]
        assert row["valid"] is True
        expected = None if given_answer is None else given_answer == row["answer"]
        assert row["cross_check_true"] is expected
    assert {r["cross_check_true"] for r in rows.values()} == {True, False, None}


def test_an_answer_to_an_invalid_question_is_not_true(tmp_path):
    start(settings(truth="bench_helpers:nothing_is_valid"), tmp_path, World())
    rows = lines(tmp_path, "truths.jsonl")
    assert rows
    assert {(r["valid"], r["answer"], r["cross_check_true"]) for r in rows} == {(False, None, False)}


def test_controls_can_be_left_out(tmp_path):
    none = {"resamples": 0, "shuffled": True, "difficulty": 0, "same_model": 0, "no_probing": 0}
    start(settings(controls=none, truth=None), tmp_path, World())
    assert sorted(p.name for p in tmp_path.glob("*.jsonl")) == ["sessions.jsonl"]
