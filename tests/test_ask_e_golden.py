"""The golden sessions, told to the adapter that training uses: the same labels, marks, transcripts and rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aske import Seat, SessionRecord, load_pack
from aske.reward import score
from selfevolve.ask_e import Table
from selfevolve.sampling import Reply, Sampling, ScriptedSampler
from selfevolve.stages.ask_e_sessions import AskeConversations
from selfevolve.train import TrainRow

GOLDEN = json.loads((Path(__file__).parent / "aske" / "golden" / "sessions.json").read_text(encoding="utf-8"))
PACK = load_pack("standard")


def said(record: SessionRecord, seat: Seat) -> list[Reply]:
    return [reply for call in record.calls if call.seat is seat for reply in call.replies]


def in_order(replies: list[Reply], name: str) -> ScriptedSampler:
    left = list(replies)
    return ScriptedSampler(lambda prompt, index: left.pop(0), name)


@pytest.mark.parametrize("row", GOLDEN, ids=[row["record"]["label"] + " " + row["record"]["id"] for row in GOLDEN])
def test_training_gives_the_golden_label_and_reward(row: dict[str, Any]) -> None:
    wanted = SessionRecord.from_json(row["record"])
    table = Table(
        (wanted.pair,),
        {
            name: in_order(said(wanted, seat), name)
            for name, seat in zip(wanted.pair, (Seat.BOUNDARY_A, Seat.BOUNDARY_B), strict=True)
        },
        Sampling(max_tokens=99),
        checks=wanted.rules.checks,
    )
    check = in_order(said(wanted, Seat.CROSS_CHECK), "check")
    game = AskeConversations(
        PACK, wanted.rules, table, group=1, seed=0, asker=Sampling(max_tokens=99), cross_check=check
    )
    game.begin(1, [0], [TrainRow(PACK.open(wanted.rules.probes, wanted.rules.question_words))])
    game.playing[0].session.flip = wanted.flip
    told: list[str] = []
    for reply in said(wanted, Seat.ASKER):
        following = game.answer({0: reply}, check)[0]
        told += [] if following is None else [following]
    found = game.outcomes([0])[0].record
    assert (found.grade, found.turns, found.question) == (wanted.grade, wanted.turns, wanted.question)
    assert found.transcript == wanted.transcript
    users = [m.content for m in wanted.transcript if m.role == "user"]
    assert told == users[1:]  # what the trainer is given to append is what the transcript holds
    (reward,) = score([found.label], [found.malformed], [found.question])
    assert (None if reward is None else round(reward.total, 9)) == (row["reward"] and row["reward"]["total"])
