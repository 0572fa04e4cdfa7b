"""Other cross-checks on recorded sessions, and scoring without a call."""

import json
from collections import Counter

import pytest
import yaml
from bench_helpers import World, entry, failing, lines, settings, solver

from aske import AskeError, Label
from aske.bench import start
from aske.regrade import regrade, rescore
from selfevolve.sampling import FinishReason, Reply


@pytest.fixture
def whole(tmp_path):
    start(settings(), tmp_path, World())
    return tmp_path


def test_the_same_cross_check_gives_the_same_labels(whole):
    moved = regrade(whole, "strong", "strong", World({**World().samplers, "strong": solver("strong", 1.0)}))
    assert all(before == now for before, now in moved)
    rows = {r["session"]: r for r in lines(whole, "regrade-strong.jsonl")}
    for session in lines(whole, "sessions.jsonl"):
        row = rows[session["id"]]
        assert (row["label"], row["reason"], row["answer"], row["marks"]) == (
            session["label"], session["reason"], session["answer"], session["marks"]
        )  # fmt: skip


def test_a_wrong_cross_check_turns_right_into_wrong(whole, tmp_path):
    """A judge that is off by one agrees with nobody who is right, and with everybody who is off by one."""
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(entry("wrong")))
    world = World({**World().samplers, "wrong": solver("wrong", 0.0)})
    moved = regrade(whole, str(path), "wrong", world)
    turned = {"too_easy": "too_hard", "too_hard": "too_easy"}
    assert {(b, n) for b, n in moved} <= {(label, turned.get(label, label)) for label in map(str, Label)}
    assert moved["too_easy", "too_hard"] > 0
    # the boundary solvers' replies are those on record: only the cross-check is asked
    assert all(one.asked == 0 for name, one in world.samplers.items() if name != "wrong")
    assert world.samplers["wrong"].asked == 2 * sum(r["question"] is not None for r in lines(whole, "sessions.jsonl"))


def test_sessions_without_a_final_question_keep_their_label(whole):
    before = [r["id"] for r in lines(whole, "sessions.jsonl") if r["label"] == "no_question"]
    assert before
    regrade(whole, "weak", "weak", World())
    now = {r["session"]: r["label"] for r in lines(whole, "regrade-weak.jsonl")}
    assert {now[name] for name in before} == {"no_question"}


def test_regrading_goes_on_where_it_was_stopped(whole):
    regrade(whole, "weak", "weak", World())
    path = whole / "regrade-weak.jsonl"
    expected = path.read_bytes()
    path.write_bytes(expected[: len(expected) // 2])
    world = World()
    regrade(whole, "weak", "weak", world)
    assert path.read_bytes() == expected
    assert 0 < world.samplers["weak"].asked < 48
    again = World()
    regrade(whole, "weak", "weak", again)
    assert again.samplers["weak"].asked == 0


def test_a_name_stands_for_one_cross_check(whole):
    regrade(whole, "weak", "other", World())
    with pytest.raises(AskeError, match=r"regrade other was made with another cross-check: cross_check.name"):
        regrade(whole, "strong", "other", World())


def test_a_regrade_from_before_a_setting_existed_goes_on(whole):
    first = regrade(whole, "weak", "old", World())
    path = whole / "regrade-old.json"
    made = json.loads(path.read_text())
    del made["cross_check"]["engine"]
    path.write_text(json.dumps(made))
    assert regrade(whole, "weak", "old", World()) == first


@pytest.mark.parametrize(("who", "name"), [("nobody", "x"), ("weak", "a/b"), ("weak", "")])
def test_mistakes(whole, who, name):
    with pytest.raises(AskeError):
        regrade(whole, who, name, World())
    assert not list(whole.glob("regrade-*"))


def test_a_folder_that_is_no_benchmark(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(AskeError, match="is no benchmark"):
            regrade(folder, "weak", "x", World())


def test_a_failed_cross_check_stops_before_it_writes(whole):
    with pytest.raises(AskeError, match="calls failed"):
        regrade(whole, "weak", "x", World({**World().samplers, "weak": failing("weak")}))
    assert lines(whole, "regrade-x.jsonl") == []


# ------------------------------------------------------------ offline


def test_all_records_score_as_they_did(whole):
    found = rescore(whole)
    assert found.differing == ()
    assert found.moved == 0
    assert found.total == 24 + 12 + 8  # sessions, same-model pairs, questions without probes


def edit(folder, change):
    path = folder / "sessions.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    row = next(r for r in rows if r["label"] == "too_easy")
    change(row)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return row["id"]


def test_a_label_that_was_changed_by_hand_is_found(whole):
    name = edit(whole, lambda row: row.update(label="calibrated"))
    found = rescore(whole)
    assert found.differing == (name,)
    assert found.labels[Label.CALIBRATED, Label.TOO_EASY] == found.moved == 1


def test_a_reply_that_was_changed_by_hand_is_found(whole):
    name = edit(whole, lambda row: row["calls"][1]["replies"][0].update(text="\\boxed{12}"))  # in a probe
    assert rescore(whole).differing == (name,)
    assert rescore(whole).moved == 0


def test_a_call_that_was_taken_out_is_found(whole):
    edit(whole, lambda row: row["calls"].pop(1))
    with pytest.raises(AskeError, match="a record is not whole"):
        rescore(whole)


def test_truncated_as_wrong_and_as_right(tmp_path):
    """The weak solver is cut off in the final turn; the strong one is right, so one reading says calibrated."""
    world = World()
    world.samplers |= {"weak": solver("weak", 1.0), "strong": solver("strong", 1.0)}

    def write(prompt, u, i):
        return Reply("so far", FinishReason.LENGTH, 10, 5)

    world.samplers["weak"].write = write
    pool = {"solvers": [entry("weak"), entry("strong")]}
    start(settings(askers=[entry("first")], pool=pool, controls={"same_model": 0, "no_probing": 0}), tmp_path, world)
    assert Counter(r["label"] for r in lines(tmp_path, "sessions.jsonl")) == {"ungradable": 4}
    assert rescore(tmp_path).labels == {(Label.UNGRADABLE, Label.UNGRADABLE): 4}
    assert rescore(tmp_path, "wrong").labels == {(Label.UNGRADABLE, Label.CALIBRATED): 4}
    assert rescore(tmp_path, "right").labels == {(Label.UNGRADABLE, Label.TOO_EASY): 4}


def test_one_cross_check_in_place_of_two(tmp_path):
    """The second cross-check never agrees with the first: with the first alone all sessions are graded."""
    world = World()
    judge = solver("judge", 1.0)
    right = judge.write
    judge.write = lambda prompt, u, i: right(prompt, u, i) if i == 0 else "\\boxed{0}"
    world.samplers["judge"] = judge
    start(settings(askers=[entry("first")], controls={"same_model": 0, "no_probing": 0}), tmp_path, world)
    assert set(rescore(tmp_path).labels) == {(Label.BAD_CROSS_CHECK, Label.BAD_CROSS_CHECK)}
    alone = rescore(tmp_path, checks=1)
    assert alone.total == alone.moved == 12
    assert {now for _, now in alone.labels} <= {Label.CALIBRATED, Label.TOO_EASY, Label.TOO_HARD}


def test_a_folder_holds_its_own_prompts(tmp_path):
    """Replay does not mind what became of the file of prompts."""
    pack = tmp_path / "pack.yaml"
    pack.write_text("lost: 'Lost. {left} left.'\n")
    folder = tmp_path / "out"
    start(settings(prompts=str(pack)), folder, World())
    pack.unlink()
    assert rescore(folder).differing == ()
