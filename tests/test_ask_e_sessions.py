"""Sessions and self-checked questions as conversations of a policy in training; solvers and policy are scripted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aske import Label, Rules, load_pack, replay
from aske.records import SessionRecord
from aske.reward import RewardSettings
from selfevolve.ask_e import AskEJudge, Table
from selfevolve.assess import AssessmentSettings, Assessor
from selfevolve.prompts import TESTBED
from selfevolve.questions import parse_question
from selfevolve.records import ParseFailure
from selfevolve.rewards import AskERule
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling, ScriptedSampler
from selfevolve.stages.ask_e import candidate, result
from selfevolve.stages.ask_e_sessions import AskeConversations, Outcome, SelfChecked
from selfevolve.train import CONTEXT_EXHAUSTED, TrainRow

PACK = load_pack("testbed")
# what each solver answers, and the policy as its own cross-check
ANSWERS = {"weak": {"q": "1", "p": "1"}, "strong": {"q": "2", "p": "1"}, "policy": {"q": "2", "p": "1"}}


def solver(name: str) -> ScriptedSampler:
    def script(prompt: Prompt, index: int) -> str:
        asked = prompt[-1].content.removeprefix("<solve> ")
        if name == "policy" and asked == "q" and index == 2:
            return "<think> slip</think>\\boxed{ 9}"  # the third of several drawn cross-checks
        return f"<think> {name}'s work</think>\\boxed{{ {ANSWERS[name][asked]}}}"

    return ScriptedSampler(script, name)


def turn(question: str) -> Reply:
    return Reply(f"#Reasoning#<change>#Draft# 1 + 1 = 2\\boxed{{ 2}}#Question# {question}", FinishReason.STOP, 9, 7)


def game(**changes: Any) -> AskeConversations:
    pairs = changes.pop("pairs", (("weak", "strong"),))
    checks = changes.pop("checks", 1)
    names = {name for pair in pairs for name in pair}
    table = Table(pairs, {n: solver(n) for n in sorted(names)}, Sampling(temperature=0.7, max_tokens=9), checks=checks)
    settings: dict[str, Any] = {"group": 2, "seed": 5, "asker": Sampling(max_tokens=30), "prefix": "r01", **changes}
    return AskeConversations(PACK, Rules(probes=1), table, **settings)


def rows(count: int) -> list[TrainRow]:
    return [TrainRow(PACK.open(1, 200))] * count


def play(conversations: AskeConversations, places: Sequence[int], turns: Sequence[Mapping[int, Reply]]) -> list[Any]:
    """Play all turns, and return what the world said after each, with the outcomes last."""
    policy = solver("policy")
    conversations.begin(1, places, rows(len(places)))
    said: list[Any] = [conversations.answer(replies, policy) for replies in turns]
    return [*said, conversations.outcomes(places)]


def test_a_session_by_hand() -> None:
    conversations = game()
    assert list(conversations.begin(1, [0, 1], rows(2))) == [PACK.open(1, 200)] * 2
    first, second, outcomes = play(game(), [0, 1], [{0: turn("p"), 1: turn("p")}, {0: turn("q"), 1: turn("p")}])
    for place in (0, 1):
        assert first[place].startswith("<result> <solver1>") and first[place].endswith("<ask>")
        assert "weak's work" in first[place] and "strong's work" in first[place]
    assert second == {0: None, 1: None}
    records = [o.record for o in outcomes]
    assert [r.label for r in records] == [Label.CALIBRATED, Label.TOO_EASY]
    assert records[0].id == "r01-s01-000000" and records[0].pair == ("weak", "strong")
    assert [c.seat.value for c in records[0].calls] == [
        "asker", "boundary_a", "boundary_b", "asker", "boundary_a", "boundary_b", "cross_check",
    ]  # fmt: skip
    assert records[0].calls[-1].sampling.temperature == 0.0 and records[0].calls[-1].model == "policy"
    for r in records:  # the record is whole: it gives the same grade without a call
        assert replay(SessionRecord.from_json(r.to_json()), PACK).grade == r.grade


def test_who_is_solver_one_is_drawn_and_told_apart() -> None:
    places = list(range(40))
    said, _, outcomes = play(game(), places, [dict.fromkeys(places, turn("p")), dict.fromkeys(places, turn("q"))])
    order = ["weak" in said[place].split("<solver2>")[0] for place in places]
    assert 8 < sum(order) < 32
    assert [not o.record.flip for o in outcomes] == order


def test_all_sessions_of_a_group_face_one_pair() -> None:
    pairs = (("weak", "strong"), ("strong", "policy"), ("weak", "policy"))
    places = list(range(60))
    conversations = game(pairs=pairs, group=3)
    conversations.begin(1, places, rows(60))
    faced = [conversations.playing[place].pair for place in places]
    assert all(len(set(faced[i : i + 3])) == 1 for i in range(0, 60, 3)) and set(faced) == set(pairs)
    conversations.begin(2, places, rows(60))
    assert [conversations.playing[place].pair for place in places] != faced  # drawn anew at each step


def test_outcomes_do_not_hang_on_which_places_are_played_together() -> None:
    """As in several processes, each with its own places."""
    places = list(range(8))
    questions = ["q" if place % 3 else "p" for place in places]

    def final(group: Sequence[int]) -> list[SessionRecord]:
        turns = [{place: turn("p") for place in group}, {place: turn(questions[place]) for place in group}]
        return [outcome.record for outcome in play(game(), group, turns)[-1]]

    def without_times(records: list[SessionRecord]) -> list[Any]:
        rows = [r.to_json() for r in records]
        for row in rows:
            for call in row["calls"]:
                call.pop("seconds")
        return rows

    assert without_times(final(places)) == without_times(final(places[:3]) + final(places[3:]))


def test_lost_probes_and_final_turns() -> None:
    broken, cut = Reply("no sections", FinishReason.STOP), Reply("#Reasoning#", FinishReason.LENGTH)
    first, second, outcomes = play(game(), [0, 1], [{0: cut, 1: broken}, {0: turn("q"), 1: broken}])
    assert first == {0: "<result> <wrong> <ask>", 1: "<result> <wrong> <ask>"}
    assert second == {0: None, 1: None}
    assert [o.record.label for o in outcomes] == [Label.CALIBRATED, Label.NO_QUESTION]
    assert [o.record.malformed for o in outcomes] == [1, 2]


def test_no_room_for_a_turn_is_ungradable() -> None:
    full = Reply("", FinishReason.ERROR, 900, 0, CONTEXT_EXHAUSTED)
    said, outcomes = play(game(), [0], [{0: full}])
    assert said == {0: None}
    assert outcomes[0].record.label is Label.UNGRADABLE and outcomes[0].record.grade.reason == "context_exhausted"


def test_a_fixed_cross_check_is_asked_in_place_of_the_policy() -> None:
    fixed = solver("weak")
    outcomes = play(game(cross_check=fixed), [0], [{0: turn("p")}, {0: turn("q")}])[-1]
    assert len(fixed.calls) == 1 and outcomes[0].record.calls[-1].model == "weak"
    assert [m.value for m in outcomes[0].record.grade.marks] == ["right", "wrong"]


def test_the_audit_is_measured_beside_the_label() -> None:
    conversations = game(audit=3)
    policy = solver("policy")
    conversations.begin(1, [0, 1], rows(2))
    conversations.answer({0: turn("p"), 1: turn("p")}, policy)
    conversations.answer({0: turn("q"), 1: turn("p")}, policy)
    outcomes: Sequence[Outcome] = conversations.outcomes([0, 1])
    assert [o.record.label for o in outcomes] == [Label.CALIBRATED, Label.TOO_EASY]
    audits = [o.audit.label if o.audit else None for o in outcomes]
    assert audits == [Label.BAD_CROSS_CHECK, Label.TOO_EASY]  # on "q" the third of three answers differs
    assert [(s.n, s.temperature) for _, s in policy.calls] == [(1, 0.0), (3, 0.7)]


def test_the_hook_is_called_once_a_step() -> None:
    seen: list[tuple[int, str]] = []
    conversations = game(hook=lambda step, policy: seen.append((step, policy.name)))
    policy = solver("policy")
    for step in (1, 2):
        conversations.begin(step, [0], rows(1))
        conversations.answer({0: turn("p")}, policy)
        conversations.answer({0: turn("q")}, policy)
    assert seen == [(1, "policy"), (2, "policy")]


def test_a_session_becomes_a_candidate_with_its_result() -> None:
    conversations = game()
    broken = Reply("no sections", FinishReason.STOP)
    turns = [{0: turn("p"), 1: broken}, {0: turn("q"), 1: broken}]
    done, lost = (o.record for o in play(conversations, [0, 1], turns)[-1])
    one = candidate(3, 2, 17, done)
    assert (one.id, one.question, one.own_answer, one.parse_failure) == ("r03-questioner-s02-000017", "q", "2", None)
    assert one.reply == turn("q").text
    game_result = result(done, conversations.table)
    assert [r.text[-3:] for r in game_result.boundary] == [" 1}", " 2}"] and len(game_result.checks) == 1
    assert game_result.to_json()["session"]["id"] == done.id
    none = candidate(3, 2, 18, lost)
    assert (none.question, none.own_answer, none.parse_failure) == (None, None, ParseFailure.NO_QUESTION)
    assert result(lost, conversations.table).boundary == () and result(lost, conversations.table).malformed == 2


def test_sessions_go_through_gates_and_reward_as_candidates() -> None:
    """Per turn two solvers; the asker's 4-token replies are the trainer's, solvers' replies are words counted."""
    conversations = game(group=2)
    broken = Reply("no sections", FinishReason.STOP)
    turns = [{0: turn("p"), 1: broken, 2: broken}, {0: turn("q"), 1: turn("p"), 2: broken}]
    done = [o.record for o in play(conversations, [0, 1, 2], turns)[-1]]
    settings = AssessmentSettings(
        votes=1, solutions=2, share_low=0.3, share_high=0.8, denominator="answered", min_answered=0.5,
        min_answered_votes=0.5, sampling=Sampling(),
    )  # fmt: skip
    rule = AskERule(validity_gate=False, novelty_gate=False, sessions=True)
    judge = AskEJudge(conversations.table, TESTBED.solve, 2, None, RewardSettings(alpha=0.0))
    assessor = Assessor(TESTBED, solver("weak"), settings, rule, ask_e=judge)
    found = assessor.assess(
        [candidate(1, 1, i, r) for i, r in enumerate(done)],
        seed=1, rewarded=True, played=[result(r, conversations.table) for r in done],
    )  # fmt: skip
    totals = [a.reward.total for a in found if a.reward]
    assert totals == pytest.approx([1.0, 0.2 - 0.05, -0.1])  # calibrated; too easy and a lost probe; two lost turns
    assert [a.decision.value for a in found] == ["calibrated", "too_easy", "malformed"]
    assert assessor.usage.replies == {"boundary": 2 + 2 + 2, "cross_check": 2}


@pytest.mark.parametrize(("checks", "temperature"), [(1, 0.0), (3, 0.7)])
def test_a_policy_checks_its_own_single_questions(checks: int, temperature: float) -> None:
    def read(reply: Reply) -> str | None:
        return parse_question(reply.text, reply.finish_reason.value)[0]

    policy = solver("policy")
    table = Table((("weak", "strong"),), {}, Sampling(temperature=0.7), checks=checks)
    world = SelfChecked(read, TESTBED.solve, table, seed=1)
    assert list(world.begin(1, [4, 5], [TrainRow(TESTBED.ask())] * 2)) == [TESTBED.ask()] * 2
    asked = Reply("<question> q</question>\\boxed{ 3}", FinishReason.STOP)
    said = world.answer({4: asked, 5: Reply("no block", FinishReason.STOP)}, policy)
    assert said == {4: None, 5: None}
    first, second = world.outcomes([4, 5])
    assert first.reply == asked and first.checks is not None and len(first.checks) == checks
    assert second.checks is None
    [(prompts, sampling)] = policy.calls
    assert prompts == (TESTBED.solve("q"),) and sampling.temperature == temperature
