"""Sessions for the asker's pre-training: the game's own texts, the stated policy, and batches that learn turns only."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from aske import Label, Rules, Seats, Slot, State, load_pack, parse_turn, play
from selfevolve.answers import extract
from selfevolve.backbones import SHIPPED
from selfevolve.sampling import FinishReason, Prompt, Reply, ScriptedSampler
from selfevolve.testbed.measure_asker import (
    SAMPLINGS,
    Told,
    playing,
    resamples,
    sampler_of,
    seats,
    sessions,
    told,
    transcript,
)
from selfevolve.testbed.oracle import read
from selfevolve.testbed.patterns import FIELDS, PATTERNS
from selfevolve.testbed.pretrain import SESSION_TOKENS, SHIPPED_TRUNK, Schedule, batches, session_batches, train
from selfevolve.testbed.profiles import NUMBER_FIELDS, PROFILES
from selfevolve.testbed.sessions import (
    Move,
    Policy,
    Probe,
    decide,
    demonstrate,
    draw_solver,
    pieces,
    token_ids,
    turn,
)
from selfevolve.testbed.tasks import exercise, solve_reply
from selfevolve.testbed.vocabulary import UNK, build_tokenizer

ASKER = PROFILES["asker"]
PATTERN = {p.name: p for p in PATTERNS}
TURNS = (
    "#Reasoning#<change>#Question# what is 3 + 4 - 2?#Draft# 3 + 4 = 7 ; 7 - 2 = 5\\boxed{ 5}",
    "#Reasoning#<solver1> 5 : 5<wrong><solver2> 1 : 5<right><keep>#Question# compute 9 + 4 - 1?#Draft# 9 + 4 = 13 ; 13 - 1 = 12\\boxed{ 12}",
)


def solver_reply(prompt: Prompt, right: bool) -> str:
    """Answer as a backbone does: worked, or a guess."""
    question = exercise(prompt[-1].content.removeprefix("<solve> "))
    if right:
        return solve_reply(Random(0), PROFILES["rung-4"], question)
    return "<think> guess</think>\\boxed{ 1}"


def scripted_play() -> tuple[list, dict]:
    """Play two probes-and-final sessions with scripted texts: solver a is right, b guesses; flipped in the second."""
    asker = ScriptedSampler(lambda prompt, _: TURNS[min(1, sum(m.role == "assistant" for m in prompt))], "asker")
    a = ScriptedSampler(lambda prompt, _: solver_reply(prompt, True), "a")
    b = ScriptedSampler(lambda prompt, _: solver_reply(prompt, False), "b")
    seats = Seats(asker, {"a": a, "b": b}, a)
    slots = [Slot("x/a+b/0", ("a", "b"), 0, False), Slot("x/a+b/1", ("a", "b"), 1, True)]
    return play(slots, "asker", seats, load_pack("testbed"), Rules(probes=1), SAMPLINGS, seed=0), {"a": a, "b": b}


def test_a_played_session_renders_to_the_ids_of_training() -> None:
    tokenizer = build_tokenizer()
    record = scripted_play()[0][0]
    rendered = tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in record.transcript], tokenize=False
    )
    assert rendered == (
        f"<session><reply>{TURNS[0]}<eos>"
        "<result> <solver1> 3 + 4 = 7 ; 7 - 2 = 5 \\boxed{ 5} <solver2> guess \\boxed{ 1} <ask>"
        f"<reply>{TURNS[1]}<eos>"
    )
    from aske import Session

    session = Session("same texts", load_pack("testbed"), Rules(probes=1), messages=list(record.transcript))
    ids, own = token_ids(pieces(session), tokenizer)
    assert ids == tokenizer(rendered)["input_ids"]
    # what the asker wrote, and nothing else, is marked as its own
    assert [tokenizer.decode([ids[i] for i in run]) for run in runs(own)] == [TURNS[0] + "<eos>", TURNS[1] + "<eos>"]


def runs(own: list[bool]) -> list[list[int]]:
    """Return the index runs where `own` is true."""
    found: list[list[int]] = []
    for i, mine in enumerate(own):
        if mine and (i == 0 or not own[i - 1]):
            found.append([])
        if mine:
            found[-1].append(i)
    return found


@pytest.mark.parametrize("probes", [0, 2, 4])
def test_a_demonstration_renders_to_its_ids_and_a_sampled_turn_comes_back_as_written(probes: int) -> None:
    tokenizer, rng = build_tokenizer(), Random(probes)
    for _ in range(25):
        session = demonstrate(rng, ASKER, probes=probes)
        messages = [{"role": m.role, "content": m.content} for m in session.messages]
        ids, own = token_ids(pieces(session), tokenizer)
        assert ids == tokenizer(tokenizer.apply_chat_template(messages, tokenize=False))["input_ids"]
        assert tokenizer.convert_tokens_to_ids(UNK) not in ids
        assert len(ids) < 1024 - 128
        # the sampler decodes a turn without its end mark: that text must be the one that was trained
        written = [m.content for m in session.messages if m.role == "assistant"]
        sampled = [tokenizer.decode([ids[i] for i in run], skip_special_tokens=True) for run in runs(own)]
        assert sampled == written


def test_demonstrated_turns_are_wellformed_but_for_the_lost_ones() -> None:
    rng = Random(1)
    lost = [demonstrate(rng, ASKER, Policy(lost=1.0), probes=2) for _ in range(5)]
    assert all(s.malformed == 2 and s.final_question for s in lost)
    assert {m.content for s in lost for m in s.messages if m.role == "user"} == {
        "<session>", "<result> <wrong>", "<result> <wrong> <ask>"
    }  # fmt: skip
    whole = [demonstrate(rng, ASKER, Policy(lost=0.0), probes=3) for _ in range(40)]
    assert all(s.malformed == 0 and s.state is State.BOUNDARY and len(s.turns) == 4 for s in whole)


def test_marks_say_what_was_shown_and_are_false_as_often_as_stated() -> None:
    def marks_and_truth(policy: Policy) -> list[tuple[bool, bool]]:
        rng, found = Random(5), []
        for _ in range(150):
            session = demonstrate(rng, ASKER, policy, probes=2)
            messages = session.messages
            for i in range(2, len(messages) - 1, 2):
                draft = extract(messages[i - 1].content)
                shown = messages[i].content.partition("<solver1>")[2].partition("<solver2>")
                given = [extract(shown[0]), extract(shown[2])]
                form = rf"#Reasoning#<solver1> {given[0]} : {draft}(<\w+>)<solver2> {given[1]} : {draft}(<\w+>)<"
                said = re.match(form, messages[i + 1].content)
                assert said is not None, (form, messages[i + 1].content)
                found += [(mark == "<right>", own == draft) for mark, own in zip(said.groups(), given, strict=True)]
        return found

    assert all(said == true for said, true in marks_and_truth(Policy(reads=1.0, lost=0.0, cut=0.0)))
    noisy = marks_and_truth(Policy(reads=0.8, lost=0.0, cut=0.0))
    assert 0.75 < sum(said == true for said, true in noisy) / len(noisy) < 0.85  # n = 600, sd 0.016


def rates(probes: list[Probe], final: bool) -> Counter[Move]:
    rng = Random(2)
    return Counter(decide(rng, ASKER.asking, Policy(), probes, final)[0] for _ in range(2000))


@pytest.mark.parametrize(
    ("marks", "final", "move", "rate"),
    [
        (("<right>", "<wrong>"), False, Move.KEEP, 0.35),
        (("<wrong>", "<right>"), False, Move.KEEP, 0.35),
        (("<right>", "<wrong>"), True, Move.KEEP, 0.30),
        (("<right>", "<right>"), False, Move.HARDER, 0.25),
        (("<wrong>", "<wrong>"), False, Move.EASIER, 0.25),
    ],
)
def test_the_policy_acts_as_often_as_stated(marks: tuple[str, str], final: bool, move: Move, rate: float) -> None:
    counts = rates([Probe(PATTERN["travel"], 2, 0, marks)], final)
    assert set(counts) == {move, Move.CHANGE}
    assert abs(counts[move] / 2000 - rate) < 0.04  # sd 0.011


def test_moves_lead_where_they_say() -> None:
    always = Policy(keeps=1.0, returns=1.0, harder=1.0, easier=1.0)
    travel, pairs = PATTERN["travel"], PATTERN["pairs"]
    split, hard = Probe(travel, 2, 1, ("<right>", "<wrong>")), Probe(pairs, 4, 2, ("<right>", "<right>"))
    rng = Random(0)

    def go(*probes: Probe, final: bool = False) -> tuple[Move, str, int, int]:
        move, probe = decide(rng, ASKER.asking, always, list(probes), final)
        return move, probe.pattern.name, probe.level, probe.wording

    assert go(split) == (Move.KEEP, "travel", 2, 1)
    assert go(split, hard, final=True) == (Move.KEEP, "travel", 2, 1)  # back to the one that split
    assert go(replace(hard, level=3)) == (Move.HARDER, "pairs", 4, 2)
    assert go(replace(hard, marks=("<wrong>", "<wrong>"))) == (Move.EASIER, "pairs", 3, 2)
    for _ in range(200):
        move, name, *_ = go(hard)  # there is no level 5
        assert move is Move.CHANGE and name != "pairs"


def test_a_turn_is_about_its_question() -> None:
    rng, right, total = Random(3), 0, 0
    for _ in range(200):
        probe = Probe(rng.choice(PATTERNS), rng.choice((1, 2, 3, 4)), rng.randrange(3))
        text, question = turn(rng, ASKER, "<solver1> 5 : 5<right><solver2> 8 : 5<wrong>", Move.KEEP, probe)
        parsed = parse_turn(Reply(text, FinishReason.STOP))
        assert parsed.malformed is None and parsed.question == question.text
        assert text.startswith("#Reasoning#<solver1> 5 : 5<right><solver2> 8 : 5<wrong><keep>#Question# ")
        reading = read(question.text)
        assert reading is not None and reading.pattern is probe.pattern
        if question.truth.valid:
            right, total = right + (parsed.draft_answer == question.truth.answer), total + 1
    assert total > 180 and right / total > 0.9  # the profile guesses at 0 to 5%


def test_solvers_differ_in_strength_and_fields() -> None:
    drawn = [draw_solver(Random(i)) for i in range(300)]
    guesses = [s.guess_hard for s in drawn]
    assert min(guesses) < 0.1 and max(guesses) > 0.9
    strong = [{f for f, v in s.fields.items() if v < 0} for s in drawn if s.fields]
    assert 110 < len(strong) < 190
    assert set(NUMBER_FIELDS) in strong and set(FIELDS) - set(NUMBER_FIELDS) in strong


def test_batches_are_bounded_learn_turns_only_and_come_in_the_stated_share() -> None:
    tokenizer = build_tokenizer()
    schedule = Schedule(steps=1, batch=8)
    pad, reply = 0, tokenizer.convert_tokens_to_ids("<reply>")
    batch = session_batches(ASKER, schedule, tokenizer)
    for _ in range(4):
        ids, labels = next(batch)
        assert ids.numel() <= SESSION_TOKENS
        learnt = labels != -100
        assert (labels[learnt] == ids[learnt]).all() and not (ids[learnt] == pad).any()
        for row, mine in zip(ids.tolist(), learnt.tolist(), strict=True):
            for run in runs(mine):
                assert row[run[0] - 1] == reply and tokenizer.decode(row[run[-1]]) == "<eos>"
            assert sum(token == reply for token in row) == len(runs(mine))
    session = tokenizer.convert_tokens_to_ids("<session>")
    stream = batches(ASKER, schedule, tokenizer)
    kinds = [bool((next(stream)[0][:, 0] == session).all()) for _ in range(120)]
    assert 0.57 < sum(kinds) / 120 < 0.83  # 0.7, sd 0.042
    stream = batches(PROFILES["base"], schedule, tokenizer)
    assert not any(bool((next(stream)[0] == session).any()) for _ in range(20))


def test_the_first_batches_show_what_moves_mean_and_the_others_the_weak_policy() -> None:
    tokenizer = build_tokenizer()
    moves = dict(zip(tokenizer.convert_tokens_to_ids(list(Move)), Move, strict=True))
    stream = session_batches(
        ASKER, Schedule(steps=1, batch=16), tokenizer
    )  # the first draw of sessions is the diligent
    counts = [Counter(moves.get(i) for i in next(stream)[1].flatten().tolist()) for _ in range(24)]
    changes = [sum(c[Move.CHANGE] for c in part) / sum(sum(c[m] for m in Move) for c in part)
               for part in (counts[:5], counts[-8:])]  # fmt: skip
    assert changes[0] < 0.6 and changes[1] > 0.75, changes


def test_a_tuning_with_sessions_runs_from_the_shipped_trunk(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(SHIPPED_TRUNK).float()
    last = train(model, ASKER, Schedule(steps=2, batch=4), tmp_path / "log.jsonl")
    assert last["profile"] == "asker" and 1 < last["loss"] < 10  # its marks have no meaning yet


def test_what_the_card_counts() -> None:
    records, solvers = scripted_play()
    first, second = ([*told(r)] for r in records)
    # solver a is right, b guesses; the second session shows b as solver 1, and the asker says <wrong><right> in both
    assert [t.agreed for t in first] == [None, (True, False)] and [t.agreed for t in second] == [None, (False, True)]
    assert [t.said for t in first] == [None, (False, True)]
    assert [t.move for t in first] == [Move.CHANGE, Move.KEEP]
    assert [t.final for t in first] == [False, True] and [t.split for t in first] == [False, True]
    assert [t.repeats for t in first] == [None, True]
    figures = playing([*first, *second])
    assert figures["wellformed"]["value"] == figures["valid"]["value"] == figures["draft_right"]["value"] == 1.0
    assert (figures["reads_right"]["k"], figures["reads_right"]["n"]) == (1, 2)
    assert (figures["reads_both"]["k"], figures["reads_both"]["n"]) == (1, 2)
    assert figures["keeps_at_final_after_split"]["value"] == 1.0
    assert figures["keeps_after_split"]["n"] == 0
    fresh = resamples(records, solvers, load_pack("testbed"), m=3)
    assert [(f.right_a, f.counted_a, f.right_b, f.counted_b) for f in fresh if f] == [(3, 3, 0, 3)] * 2
    assert "calibrated" in transcript(records[0]) and "compute 9 + 4 - 1?" in transcript(records[0])


def test_a_turn_without_marks_is_not_counted_as_a_wrong_reading() -> None:
    bare = Told(False, True, "q", None, "1", (True, False), None, Move.CHANGE, True, None)
    figures = playing([bare])
    assert figures["reads_right"]["n"] == figures["reads_wrong"]["n"] == 0
    assert (figures["states_what_it_read"]["k"], figures["states_what_it_read"]["n"]) == (0, 1)


def test_the_card_has_the_abilities_that_training_needs() -> None:
    card = json.loads((SHIPPED / "asker" / "abilities.json").read_text())
    figures = card["sessions"]["playing"]
    assert figures["wellformed"]["value"] > 0.97 and figures["valid"]["value"] > 0.70
    assert figures["draft_right"]["value"] > 0.85 and figures["reads_both"]["value"] > 0.90
    assert 0.2 < figures["keeps_after_split"]["value"] < 0.4  # room to learn
    assert figures["same_pattern_when_it_says_so"]["value"] > 0.7
    assert card["solving"]["greedy"]["value"] > 0.93  # it is its own cross-check
    for probes in (4, 3, 0):
        outcome = card["sessions"][f"probes_{probes}"]
        assert sum(outcome["labels"].values()) == 300 and len(outcome["pairs"]) == 15
        assert outcome["chance"] < outcome["calibrated"]["low"] < 0.6


def test_the_shipped_asker_plays() -> None:
    pool = {name: sampler_of(SHIPPED / name) for name in ("rung-1", "rung-4")}
    records = sessions(seats(sampler_of(SHIPPED / "asker"), pool), probes=2, each=24, seed=5)
    assert (
        sum(r.label is Label.CALIBRATED for r in records) >= 7
    )  # 65% on the card with 4 probes; 7 of 24 is 3.6 sd below
    figures = playing([t for r in records for t in told(r)])
    assert figures["wellformed"]["k"] >= 66 and figures["reads_both"]["k"] >= 38  # of 72 and 48
    again = sessions(seats(sampler_of(SHIPPED / "asker"), pool), probes=2, each=24, seed=5)
    assert [r.transcript for r in again] == [r.transcript for r in records]
