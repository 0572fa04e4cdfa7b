import json
from dataclasses import replace

import golden_sessions
import pytest
from aske_helpers import PACK, asker_by_turn, cut, failed, in_turn, late, played, solved, stop, turn

from aske import Grade, Label, Rules, SessionRecord, Slot, record, replay
from aske.game import Seat, Session
from aske.labels import Mark, Reason
from selfevolve.answers import Equivalence
from selfevolve.sampling import FinishReason, Reply

FULL = Reply("", FinishReason.ERROR, error="context_exhausted")
GOOD = asker_by_turn(turn("q1"), turn("q2"))
RULES = Rules(probes=1, checks=3)
ok = stop(solved("4"))

# every way through a session: asker, boundary a, boundary b, cross-check, label, reason
PATHS = {
    "calibrated": (GOOD, [ok, ok], [ok, stop(solved("5"))], [ok] * 3, Label.CALIBRATED, None),
    "too easy": (GOOD, [ok, ok], [ok, ok], [ok] * 3, Label.TOO_EASY, None),
    "too hard": (GOOD, [ok, stop("?")], [ok, stop(solved("5"))], [ok] * 3, Label.TOO_HARD, None),
    "no question": (asker_by_turn(turn("q1"), "done"), [ok], [ok], [], Label.NO_QUESTION, None),
    "final turn cut": (asker_by_turn(turn("q1"), cut(turn("q2"))), [ok], [ok], [], Label.NO_QUESTION, None),
    "probe lost": (asker_by_turn("hello", turn("q2")), [ok], [stop("?")], [ok] * 3, Label.CALIBRATED, None),
    "checks disagree": (GOOD, [ok, ok], [ok, ok], [ok, ok, stop(solved("5"))], Label.BAD_CROSS_CHECK, None),
    "check without answer": (GOOD, [ok, ok], [ok, ok], [ok, stop("?"), ok], Label.BAD_CROSS_CHECK, None),
    "check cut": (GOOD, [ok, ok], [ok, ok], [ok, cut("x"), ok], Label.UNGRADABLE, Reason.TRUNCATED),
    "solver cut": (GOOD, [ok, cut("x")], [ok, ok], [ok] * 3, Label.UNGRADABLE, Reason.TRUNCATED),
    "solver late": (GOOD, [ok, ok], [ok, late()], [ok] * 3, Label.UNGRADABLE, Reason.TIMEOUT),
    "probe cut": (GOOD, [cut("x"), ok], [ok, stop("?")], [ok] * 3, Label.CALIBRATED, None),
    "probe failed": (GOOD, [ok], [failed()], [], Label.UNGRADABLE, Reason.HTTP),
    "asker failed": (asker_by_turn(failed()), [], [], [], Label.UNGRADABLE, Reason.HTTP),
    "asker late": (asker_by_turn(turn("q1"), late()), [ok], [ok], [], Label.UNGRADABLE, Reason.TIMEOUT),
    "asker full": (asker_by_turn(turn("q1"), FULL), [ok], [ok], [], Label.UNGRADABLE, Reason.CONTEXT_EXHAUSTED),
    "no room": (GOOD, [ok], [ok], [], Label.UNGRADABLE, Reason.CONTEXT_EXHAUSTED),
}  # fmt: skip


def path(name: str, flip: bool = False) -> SessionRecord:
    asker, a, b, checks, label, reason = PATHS[name]
    seats = (
        {"context": 2000, "count": lambda p: 1000 * sum(m.role == "assistant" for m in p)} if name == "no room" else {}
    )
    slots = [Slot("asker/a+b/0", ("a", "b"), 0, flip)]
    (row,) = played(asker, in_turn(*a), in_turn(*b), in_turn(*checks), slots=slots, rules=RULES, **seats)
    assert (row.label, row.grade.reason) == (label, reason)
    return row


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("name", PATHS)
def test_a_replay_is_the_original(name, flip):
    row = path(name, flip)
    assert replay(row, PACK) == row


@pytest.mark.parametrize("name", PATHS)
def test_json_and_back(name):
    row = path(name)
    once = SessionRecord.from_json(json.loads(json.dumps(row.to_json())))
    seconds = tuple(replace(c, seconds=round(c.seconds, 4)) for c in row.calls)  # stored to four places
    assert once == replace(row, calls=seconds)
    assert SessionRecord.from_json(json.loads(json.dumps(once.to_json()))) == once
    assert replay(once, PACK).grade == row.grade


def test_what_stands_in_a_record():
    row = path("probe lost")
    assert [(c.seat, c.turn, c.model, len(c.replies)) for c in row.calls] == [
        (Seat.ASKER, 1, "model-asker", 1), (Seat.ASKER, 2, "model-asker", 1), (Seat.BOUNDARY_A, 2, "model-a", 1),
        (Seat.BOUNDARY_B, 2, "model-b", 1), (Seat.CROSS_CHECK, 2, "model-check", 3),
    ]  # fmt: skip
    assert [c.messages for c in row.calls][:2] == [2, 4]  # prefixes of the transcript
    assert row.calls[2].messages == row.calls[4].messages == PACK.solver("q2")
    assert (row.malformed, row.question, row.pair, row.prompts) == (1, "q2", ("a", "b"), "standard")
    assert (row.grade.marks, row.grade.answers, row.grade.answer) == ((Mark.RIGHT, Mark.WRONG), ("4", None), "4")
    assert row.tokens(Seat.CROSS_CHECK) == 15 and row.tokens() == row.tokens(Seat.ASKER) + 2 * 5 + 15


def test_the_prefix_is_what_the_asker_was_sent():
    row = path("calibrated")
    session = Session("s", PACK, RULES)
    assert row.transcript[: row.calls[0].messages] == session.asker_prompt()
    assert len(row.transcript) == row.calls[3].messages + 1


@pytest.mark.parametrize(
    ("mode", "label"), [("excluded", "ungradable"), ("wrong", "calibrated"), ("right", "too_easy")]
)
def test_a_replay_may_count_cut_off_replies(mode, label):
    assert replay(path("solver cut"), PACK, truncated=mode).label == label


def test_a_replay_with_fewer_or_other_cross_checks():
    row = path("checks disagree")
    assert replay(row, PACK, checks=2).label is Label.TOO_EASY
    assert replay(row, PACK, checks=1).rules.checks == 1
    assert replay(row, PACK, checks=9) == row
    other = [stop(solved("5"))] * 2
    again = replay(row, PACK, cross_checks=other)
    assert (again.label, again.rules.checks, again.calls) == (Label.TOO_HARD, 2, row.calls)
    assert replay(path("calibrated"), PACK, cross_checks=other, checks=1).grade.marks == (Mark.WRONG, Mark.RIGHT)
    assert replay(path("no question"), PACK, cross_checks=other).label is Label.NO_QUESTION


def test_a_replay_with_another_comparison():
    def never(one: str, other: str) -> Equivalence:
        return Equivalence.UNDECIDED

    assert replay(path("calibrated"), PACK, equal=never).grade.reason is Reason.GRADER


def test_a_torn_record_is_refused():
    row = path("calibrated")
    with pytest.raises(ValueError, match="the calls end while the session waits for cross_check"):
        replay(replace(row, calls=row.calls[:-1]), PACK)
    with pytest.raises(ValueError, match="a call to boundary_b while the session waits for asker"):
        replay(replace(row, calls=row.calls[2:]), PACK)
    with pytest.raises(ValueError, match="waits for boundary"):
        replay(replace(row, calls=row.calls[:2] + row.calls[3:]), PACK)


def test_a_session_that_is_not_over_has_no_record():
    with pytest.raises(RuntimeError, match="waits for asker"):
        record(Session("s", PACK), "asker", ("a", "b"), 0, [])


def test_hostile_texts_survive_json():
    nasty = '\0\ud800\u2028 {"a": \\boxed{4}}'
    (row,) = played(
        asker_by_turn(turn(nasty), turn(nasty)),
        in_turn(stop(nasty), ok),
        in_turn(stop(nasty), ok),
        in_turn(ok),
        rules=Rules(1, 1),
    )
    again = SessionRecord.from_json(json.loads(json.dumps(row.to_json())))
    assert again.transcript == row.transcript and replay(again, PACK).grade == row.grade
    assert isinstance(row.grade, Grade)


def test_the_golden_sessions():
    """Labels and rewards by hand; the stored records are what the core plays today, and what it replays from them."""
    stored = golden_sessions.load()
    assert [(row.label.value, row.malformed, reward and reward["total"]) for row, reward in stored] == [
        ("calibrated", 0, 1.0), ("too_easy", 1, 0.15), ("too_hard", 1, -0.25), ("no_question", 2, -0.1),
        ("bad_cross_check", 0, 0.0), ("ungradable", 0, None), ("ungradable", 0, None), ("calibrated", 0, 1.0),
    ]  # fmt: skip
    assert len({row.flip for row, _ in stored}) == 2
    for (row, reward), (played_now, reward_now) in zip(stored, golden_sessions.golden(), strict=True):
        assert golden_sessions.plain(played_now) == golden_sessions.plain(row) and reward_now == reward
        assert replay(row, PACK) == row
