"""Golden sessions: played once by scripted seats, and the same in every adapter. Run this file to write them anew.

``sessions.json`` holds, for each, the whole record and the reward without diversity; null where it is ungradable.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aske_helpers import PACK, asker_by_turn, cut, failed, in_turn, solved, turn

from aske import Rules, Samplings, Seats, SessionRecord, Slot, play
from aske.play import derive
from aske.reward import score
from selfevolve.sampling import ScriptedSampler

PATH = Path(__file__).parent / "golden" / "sessions.json"
RULES = Rules(probes=2, checks=3)
PAIR = ("a", "b")
ok, other, none = solved("24"), solved("25"), "Summary: I could not do it."
long = turn(" ".join(f"word{i}" for i in range(250)))

# asker's turns, replies of a, of b, of the cross-check
SCRIPTS: tuple[tuple[list[Any], list[Any], list[Any], list[Any]], ...] = (
    ([turn("What is 2+2?"), turn("What is 4!?"), turn("What is 4! again?")], [ok, ok, ok], [ok, none, other], [ok] * 3),
    (["no sections", turn("What is 4!?"), turn("What is 4! again?")], [ok, ok], [other, ok], [ok] * 3),
    ([long, turn("q2"), "#Question#\nWhat is 5! - 96?"], [other, "<think>hm</think>" + ok, none], [ok, ok, other], [ok] * 3),
    ([turn("q1"), cut(turn("q2")), "#Reasoning#\nnothing left to ask"], [ok], [ok], []),
    ([turn("q1"), turn("q2"), turn("Pick a number.")], [ok] * 3, [ok] * 3, [ok, ok, other]),
    ([turn("q1"), turn("q2"), turn("q3")], [ok, ok, cut("It is 2")], [ok] * 3, [ok] * 3),
    ([turn("q1"), turn("q2")], [ok, ok], [ok, failed("500 Internal Server Error")], []),
    ([turn("q1"), turn("q2"), turn("Half of 48?")], [cut("so far"), ok, "\\boxed{48/2}"], [ok, ok, "\\boxed{26}"], [ok] * 3),
)  # fmt: skip


def flip(slot: int) -> bool:
    """Return whether the asker knows b as Solver 1, drawn as the verifiers environment draws it under seed 0."""
    return bool(derive(0, "flip", f"a+b/{slot}") % 2)


def golden() -> list[tuple[SessionRecord, dict[str, Any] | None]]:
    """Play the scripts."""
    found = []
    for i, (asker, a, b, checks) in enumerate(SCRIPTS):
        seats = Seats(
            ScriptedSampler(asker_by_turn(*asker), "asker"),
            {"a": ScriptedSampler(in_turn(*a), "a"), "b": ScriptedSampler(in_turn(*b), "b")},
            ScriptedSampler(in_turn(*checks), "check"),
        )
        (row,) = play([Slot(f"asker/a+b/{i}", PAIR, i, flip(i))], "asker", seats, PACK, RULES, Samplings(), seed=0)
        (reward,) = score([row.label], [row.malformed], [row.question])
        found.append((row, None if reward is None else {"total": round(reward.total, 9), "terms": reward.terms}))
    return found


def plain(row: SessionRecord) -> dict[str, Any]:
    """Return a record's values without its times."""
    written = row.to_json()
    return {**written, "calls": [{**call, "seconds": 0.0} for call in written["calls"]]}


def load() -> list[tuple[SessionRecord, dict[str, Any] | None]]:
    """Return the golden sessions as they are stored: records and rewards."""
    rows = json.loads(PATH.read_text(encoding="utf-8"))
    return [(SessionRecord.from_json(row["record"]), row["reward"]) for row in rows]


if __name__ == "__main__":
    stored = [{"record": plain(row), "reward": reward} for row, reward in golden()]
    PATH.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row, reward in golden():
        print(row.label.value, row.malformed, row.flip, reward)
