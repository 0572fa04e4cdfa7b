"""The benchmark with scripted seats: what it writes, and that a kill at any moment changes nothing."""

import json
from collections import Counter

import pytest
from bench_helpers import (
    FILES,
    World,
    asker,
    contents,
    entry,
    failing,
    lines,
    settings,
    solver,
    truncated,
)

from aske import AskeError, SessionRecord
from aske.bench import start
from aske.game import Seat
from aske.run import read_config

CALLS = 4 * 2 * 3  # sessions x askers x pairs


class Stop(BaseException):
    """A kill."""


def kill() -> None:
    raise Stop


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    start(settings(), folder, World())
    return folder


def test_every_pair_is_played_n_times_by_every_asker(whole):
    rows = lines(whole, "sessions.jsonl")
    assert Counter((r["asker"], *r["pair"]) for r in rows) == {
        (a, *pair): 4
        for a in ("first", "second")
        for pair in (("weak", "middle"), ("weak", "strong"), ("middle", "strong"))
    }
    assert len({r["id"] for r in rows}) == CALLS
    assert [r["id"] for r in rows[:2]] == ["first/weak+middle/0", "first/weak+strong/0"]


def test_equal_slots_of_two_askers_have_the_pair_in_the_same_order(whole):
    flips = {}
    for row in lines(whole, "sessions.jsonl"):
        flips.setdefault((*row["pair"], row["slot"]), set()).add(row["flip"])
    assert all(len(found) == 1 for found in flips.values())
    assert {flip for found in flips.values() for flip in found} == {True, False}


def test_the_records_tell_what_was_asked_and_how(whole):
    record = SessionRecord.from_json(lines(whole, "sessions.jsonl")[0])
    assert [c.seat for c in record.calls] == [Seat.ASKER, Seat.BOUNDARY_A, Seat.BOUNDARY_B] * 3 + [Seat.CROSS_CHECK]
    assert [len(c.replies) for c in record.calls] == [1] * 9 + [2]
    assert record.calls[1].sampling.temperature == 0.7
    assert record.calls[0].sampling.max_tokens == 2048


def test_labels_follow_from_what_solvers_can(tmp_path):
    world = World()
    world.samplers |= {"weak": solver("weak", 0.0), "middle": solver("middle", 1.0), "strong": solver("strong", 1.0)}
    start(settings(askers=[entry("first")]), tmp_path, world)
    found = Counter((tuple(r["pair"]), r["label"]) for r in lines(tmp_path, "sessions.jsonl"))
    assert found == {
        (("weak", "middle"), "calibrated"): 4,
        (("weak", "strong"), "calibrated"): 4,
        (("middle", "strong"), "too_easy"): 4,
    }


def test_the_folder_says_what_it_was_made_with(whole):
    config = json.loads((whole / "config.json").read_text())
    assert config["pool"]["solvers"][0]["limits"]["concurrency"] == 64
    assert "{question}" in config["pack"]["solve"]
    bench, pack = read_config(whole)
    assert bench == settings()
    assert pack.name == "standard"
    environment = json.loads((whole / "environment.json").read_text())
    assert environment["packages"]["pydantic"]
    done = json.loads((whole / "DONE.json").read_text())
    assert done["rows"] == {f.removesuffix(".jsonl"): len(lines(whole, f)) for f in FILES}


def test_a_second_start_asks_nothing(whole):
    world = World()
    run = start(settings(), whole, world)
    assert sum(run.written.values()) == 0
    assert all(one.asked == 0 for one in world.samplers.values())


def number_of_calls(tmp_path):
    world = World()
    start(settings(), tmp_path, world)
    return sum(len(one.batches) for one in world.samplers.values())


def test_a_kill_at_any_call_leaves_a_folder_that_goes_on_to_the_same_records(whole, tmp_path):
    expected = contents(whole)
    calls = number_of_calls(tmp_path / "count")
    for number in range(1, calls + 1, max(1, calls // 8)):
        folder = tmp_path / str(number)
        world = World()
        world.before_call(number, kill)
        with pytest.raises(Stop):
            start(settings(), folder, world)
        assert not (folder / "DONE.json").exists()
        start(settings(), folder, World())
        assert contents(folder) == expected, number


@pytest.mark.parametrize("keep", [0, 1, 3, 12])
def test_a_torn_wave_is_played_again_and_only_missing_records_are_added(whole, tmp_path, keep):
    """A kill while a wave is written leaves whole lines and half of one."""
    start(settings(), tmp_path, World())
    path = tmp_path / "sessions.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:keep]) + rows[keep][: len(rows[keep]) // 2])
    world = World()
    start(settings(), tmp_path, world)
    assert contents(tmp_path)["sessions.jsonl"] == contents(whole)["sessions.jsonl"]
    # each asker plays 12 sessions in waves of 5, and a wave is played whole
    torn = "first" if keep < 12 else "second"
    assert world.samplers[torn].batches[0][0] == 5
    if torn == "second":
        assert world.samplers["first"].asked == 0


def test_samplers_without_keys_give_the_same_records_after_a_kill_too(tmp_path):
    start(settings(), tmp_path / "a", World().by_place())
    world = World().by_place()
    world.before_call(60, kill)
    with pytest.raises(Stop):
        start(settings(), tmp_path / "b", world)
    start(settings(), tmp_path / "b", World().by_place())
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_without_keys_two_waves_do_not_repeat_each_other(tmp_path):
    bench = settings(askers=[entry("first")], wave=3)
    start(bench, tmp_path, World().by_place())
    openings = [r["turns"][0]["question"] for r in lines(tmp_path, "sessions.jsonl")]
    assert len(set(openings)) == len(openings)
    unprobed = [r["question"] for r in lines(tmp_path, "no_probing.jsonl")]
    assert len(set(unprobed)) == 4


def test_with_keys_a_session_does_not_hang_on_its_wave(whole, tmp_path):
    start(settings(wave=24), tmp_path, World())
    assert contents(tmp_path)["sessions.jsonl"] == contents(whole)["sessions.jsonl"]


def test_another_seed_gives_other_sessions(whole, tmp_path):
    start(settings(seed=1), tmp_path, World())
    first, second = (lines(f, "sessions.jsonl")[0]["turns"][0]["question"] for f in (whole, tmp_path))
    assert first != second


def test_changed_settings_are_refused_with_the_difference(whole):
    changed = settings(sessions=5, cross_check="strong", pool={
        "solvers": [entry("weak"), entry("middle", sampling={"temperature": 0.1}), entry("strong")]
    })  # fmt: skip
    with pytest.raises(AskeError) as caught:
        start(changed, whole, World())
    text = str(caught.value)
    assert "sessions: 4 -> 5" in text
    assert "pool.solvers.1.sampling.temperature: None -> 0.1" in text
    assert "cross_check: 'not set' -> 'strong'" in text
    assert "--out" in text


def test_how_hard_endpoints_are_used_may_change(whole):
    pool = {"solvers": [entry("weak", limits={"concurrency": 3}, batch=7), entry("middle"), entry("strong")]}
    run = start(settings(pool=pool), whole, World())
    assert sum(run.written.values()) == 0


def test_a_folder_from_before_a_setting_existed_goes_on(whole):
    path = whole / "config.json"
    config = json.loads(path.read_text())
    del config["pool"]["solvers"][0]["engine"], config["rules"]["probes"], config["askers"][0]["limits"]
    path.write_text(json.dumps(config))
    assert settings().rules.probes == 2  # not the default, so it counts as changed
    with pytest.raises(AskeError, match=r"settings .*:\n  rules\.probes: 4 -> 2\n"):
        start(settings(), whole, World())
    config["rules"]["probes"] = 2
    path.write_text(json.dumps(config))
    run = start(settings(), whole, World())
    assert sum(run.written.values()) == 0


def test_changed_prompts_are_refused(whole, tmp_path):
    pack = tmp_path / "pack.yaml"
    pack.write_text("solve: 'Solve this: {question}'\n")
    with pytest.raises(AskeError, match=r"pack\.solve"):
        start(settings(prompts=str(pack)), whole, World())


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(AskeError, match="not empty"):
        start(settings(), tmp_path, World())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["thesis.txt"]


def test_one_process_a_folder(tmp_path):
    world = World()
    seen = []

    def again() -> None:
        with pytest.raises(AskeError, match="in use by process"):
            start(settings(), tmp_path, World())
        seen.append(True)

    world.before_call(3, again)
    start(settings(), tmp_path, world)
    assert seen == [True]


def test_a_dead_endpoint_stops_the_benchmark_before_a_wave_is_written(tmp_path):
    world = World()
    world.samplers["first"] = failing("first", "status 503: gone")
    with pytest.raises(AskeError, match=r"5 of 5 calls failed.*5 times: status 503: gone"):
        start(settings(), tmp_path, world)
    assert lines(tmp_path, "sessions.jsonl") == []
    start(settings(), tmp_path, World())
    assert len(lines(tmp_path, "sessions.jsonl")) == CALLS


def test_an_endpoint_that_dies_midway_stops_the_benchmark(tmp_path):
    """Few calls fail, since each session ends with its first failure; but no session is left."""
    world = World()
    good = asker("first")

    def write(prompt, u, i):
        from selfevolve.sampling import FinishReason, Reply

        probed = len(prompt) > 3  # system, first turn, reply, what both solvers said
        return Reply("", FinishReason.ERROR, error="no connection") if probed else good.write(prompt, u, i)

    world.samplers["first"].write = write
    with pytest.raises(AskeError, match=r"ended all 5 sessions; 5 times: asker, turn 2: no connection"):
        start(settings(), tmp_path, world)
    assert lines(tmp_path, "sessions.jsonl") == []


def test_few_failures_are_records(tmp_path):
    world = World()
    good = asker("first")

    def write(prompt, u, i):
        from selfevolve.sampling import FinishReason, Reply

        return Reply("", FinishReason.TIMEOUT, error="late") if u < 0.1 else good.write(prompt, u, i)

    world.samplers["first"].write = write
    start(settings(askers=[entry("first")], sessions=20), tmp_path, world)
    reasons = Counter(r["reason"] for r in lines(tmp_path, "sessions.jsonl") if r["label"] == "ungradable")
    assert set(reasons) == {"timeout"}
    assert 0 < reasons["timeout"] < 30


def test_a_spent_budget_stops_at_once(tmp_path):
    world = World()
    world.samplers["strong"] = failing("strong", "budget: 10 requests were sent, 10 are allowed")
    with pytest.raises(AskeError, match="budget: 10 requests") as caught:
        start(settings(), tmp_path, world)
    assert "limits.budget" in str(caught.value)


def test_cut_off_solvers_are_no_failures(tmp_path):
    world = World()
    world.samplers["weak"] = truncated("weak")
    start(settings(askers=[entry("first")]), tmp_path, world)
    found = Counter((r["label"], r["reason"]) for r in lines(tmp_path, "sessions.jsonl") if "weak" in r["pair"])
    assert found == {("ungradable", "truncated"): 8}


def test_an_entry_has_its_own_sampling(tmp_path):
    world = World()
    pool = {"solvers": [entry("weak", sampling={"temperature": 0.0, "max_tokens": 9}), entry("middle")]}
    start(settings(pool=pool, askers=[entry("first", sampling={"top_p": 0.9})]), tmp_path, world)
    assert {(s.temperature, s.max_tokens) for _, s in world.samplers["weak"].batches} == {(0.0, 9)}
    assert {(s.temperature, s.max_tokens) for _, s in world.samplers["middle"].batches} == {(0.7, 4096)}
    assert {(s.temperature, s.top_p) for _, s in world.samplers["first"].batches} == {(1.0, 0.9)}


def test_the_askers_context_is_checked_before_each_turn(tmp_path):
    bench = settings(askers=[entry("first", context=2500)])  # 2048 for the reply, the rest is soon full
    start(bench, tmp_path, World())
    assert {(r["label"], r["reason"]) for r in lines(tmp_path, "sessions.jsonl")} == {
        ("ungradable", "context_exhausted")
    }
