import threading

import pytest
from aske_helpers import PACK, asker_by_turn, failed, in_turn, played, solved, stop, turn

from aske import Label, Rules, Samplings, Seats, Slot, play
from aske.game import Seat
from aske.labels import Reason
from aske.play import derive
from selfevolve.sampling import Prompt, Reply, Sampling, ScriptedSampler

RULES = Rules(probes=1, checks=3)


def slot(i: int, pair: tuple[str, str] = ("a", "b"), flip: bool = False) -> Slot:
    return Slot(f"asker/{pair[0]}+{pair[1]}/{i}", pair, i, flip)


class Drawing:
    """A sampler whose reply is a number drawn from the seed, the prompt's place and the sample."""

    def __init__(self, name: str, write) -> None:
        self.name, self.write = name, write
        self.calls: list[tuple[int, Sampling]] = []

    def sample(self, prompts, sampling: Sampling) -> list[list[Reply]]:
        self.calls.append((len(prompts), sampling))
        return [[stop(self.write(prompt, derive(sampling.seed, place, i) % 1000)) for i in range(sampling.n)]
                for place, prompt in enumerate(prompts)]  # fmt: skip


def drawn(slots, seed: int, **more):
    def ask(prompt: Prompt, number: int) -> str:
        return turn(f"question {number}") if number % 3 else "no headers"

    def solve(prompt: Prompt, number: int) -> str:
        return solved(str(number % 2))

    seats = Seats(Drawing("m", ask), {n: Drawing(n, solve) for n in ("a", "b", "c")}, Drawing("x", solve), **more)
    return play(slots, "asker", seats, PACK, RULES, Samplings(), seed=seed), seats


def plain(rows):
    return [{**row.to_json(), "calls": [{**c.to_json(), "seconds": 0} for c in row.calls]} for row in rows]


MANY = [slot(i, pair, bool(i % 2)) for pair in (("a", "b"), ("a", "c"), ("b", "c")) for i in range(4)]


def test_the_same_wave_gives_the_same_records():
    first, again = drawn(MANY, 7)[0], drawn(MANY, 7)[0]
    assert plain(first) == plain(again)
    assert plain(first) != plain(drawn(MANY, 8)[0])
    assert len({row.label for row in first}) > 2 and {row.malformed for row in first} >= {0, 1}


def test_records_come_in_order_and_bear_their_slots():
    rows, _ = drawn(MANY, 7)
    assert [(r.id, r.pair, r.slot, r.flip, r.asker) for r in rows] == [
        (s.id, s.pair, s.slot, s.flip, "asker") for s in MANY
    ]


def test_side_by_side_gives_the_same_records():
    assert plain(drawn(MANY, 7, side_by_side=True)[0]) == plain(drawn(MANY, 7)[0])


def test_solvers_are_asked_at_the_same_time():
    """Both scripts wait for each other: one after the other would time out."""
    meet = threading.Barrier(2, timeout=60)

    def script(prompt: Prompt, index: int) -> str:
        meet.wait()
        return solved("4")

    (row,) = played(
        asker_by_turn(turn("q")), script, script, in_turn(stop(solved("4"))), rules=Rules(0, 1), side_by_side=True
    )
    assert row.label is Label.TOO_EASY


def test_one_batch_a_solver_and_turn():
    _, seats = drawn(MANY, 7)
    for name in ("a", "b", "c"):
        assert len(seats.solvers[name].calls) <= 2  # one a turn, over all pairs and seats
    asked = seats.asker.calls
    assert [n for n, _ in asked] == [len(MANY)] * 2 and all(s.n == 1 for _, s in asked)
    assert [s.n for _, s in seats.cross_check.calls] == [3]
    seeds = [s.seed for sampler in (seats.asker, *seats.solvers.values(), seats.cross_check) for _, s in sampler.calls]
    assert len(set(seeds)) == len(seeds)


def test_settings_are_those_of_the_seat():
    samplings = Samplings(
        Sampling(temperature=0.1, max_tokens=11),
        Sampling(temperature=0.2, max_tokens=12, n=5),
        Sampling(temperature=0.3, max_tokens=13),
    )
    (row,) = played(asker_by_turn(turn("q")), in_turn(stop(solved("4"))), in_turn(stop(solved("4"))),
                    in_turn(*[stop(solved("4"))] * 3), rules=Rules(0, 3), samplings=samplings)  # fmt: skip
    by_seat = {c.seat: c.sampling for c in row.calls}
    assert [(by_seat[s].temperature, by_seat[s].max_tokens, by_seat[s].n) for s in Seat] == [
        (0.1, 11, 1),
        (0.2, 12, 1),
        (0.2, 12, 1),
        (0.3, 13, 3),
    ]


def test_a_solver_paired_with_itself_is_drawn_twice():
    rows, _ = drawn([slot(i, ("a", "a")) for i in range(30)], 3)
    pairs = [(c.replies[0].text, d.replies[0].text) for r in rows for c, d in zip(r.calls, r.calls[1:], strict=False)
             if (c.seat, d.seat) == (Seat.BOUNDARY_A, Seat.BOUNDARY_B)]  # fmt: skip
    assert len(pairs) >= 30 and 0 < sum(one != other for one, other in pairs) < len(pairs)


def test_sessions_in_all_states_at_once():
    """Beside each other: a failed asker, a lost probe, a failed solver, no final question, and whole ones."""
    opening = PACK.open(1, 200)[-1].content
    turns = {1: [failed(), ""], 2: ["no headers", turn("two")], 3: [turn("boom"), ""], 4: [turn("four"), "no headers"],
             5: [turn("five"), turn("last")]}  # fmt: skip
    order = iter([1, 2, 3, 4, 5, 2, 4, 5])  # the third session's solver fails, the first one's asker did

    def ask(prompt: Prompt, index: int):
        number = next(order)
        assert prompt[1].content == opening
        return turns[number][sum(m.role == "assistant" for m in prompt)]

    def solve(prompt: Prompt, index: int):
        return failed() if "boom" in prompt[-1].content else stop(solved("4"))

    rows = played(ask, solve, solve, solve, slots=[slot(i) for i in range(5)], rules=Rules(1, 1))
    assert [(r.label, r.grade.reason) for r in rows] == [
        (Label.UNGRADABLE, Reason.HTTP), (Label.TOO_EASY, None), (Label.UNGRADABLE, Reason.HTTP), (Label.NO_QUESTION, None),
        (Label.TOO_EASY, None),
    ]  # fmt: skip
    assert [len(r.calls) for r in rows] == [1, 5, 3, 4, 7]
    assert [r.malformed for r in rows] == [0, 1, 0, 1, 0]


def test_a_wave_of_nothing():
    assert played(in_turn(), in_turn(), in_turn(), in_turn(), slots=[]) == []


@pytest.mark.parametrize(
    ("context", "fits"), [(2047, 0), (2048 + 99, 0), (2048 + 100, 1), (2048 + 199, 1), (2048 + 200, 2)]
)
def test_the_context_with_a_counter(context, fits):
    """A prompt counts 100 tokens an asker's turn and may be answered with 2,048: the turns that fit are played."""
    asked = []

    def count(prompt: Prompt) -> int:
        return 100 * (1 + sum(m.role == "assistant" for m in prompt))

    def ask(prompt: Prompt, index: int):
        asked.append(count(prompt))
        return turn("q")

    (row,) = played(
        ask, lambda p, i: solved("4"), lambda p, i: solved("4"), lambda p, i: solved("4"), context=context, count=count
    )
    assert len(asked) == fits
    if fits == 2:
        assert row.label is Label.TOO_EASY
    else:
        assert row.grade.reason is Reason.CONTEXT_EXHAUSTED
        assert (
            row.grade.detail
            == f"turn {fits + 1} needs {100 * (fits + 1) + 2048 - context} tokens more than the context has"
        )


@pytest.mark.parametrize(("context", "played_turns"), [(2100, 0), (4000, 1), (20_000, 2)])
def test_the_context_without_a_counter(context, played_turns):
    """Estimated at two characters a token: the opening has about 2,500, a result of 2,000 characters a solver 2,000."""

    def solve(prompt: Prompt, index: int) -> str:
        return "x" * 5000 + "\\boxed{4}"

    (row,) = played(asker_by_turn(turn("q"), turn("q")), solve, solve, solve, context=context)
    assert sum(c.seat is Seat.ASKER for c in row.calls) == played_turns
    assert (row.grade.reason is Reason.CONTEXT_EXHAUSTED) is (played_turns < 2)


def test_progress_is_told():
    told = []
    seats = Seats(ScriptedSampler(lambda p, i: turn("q")), {n: ScriptedSampler(lambda p, i: solved("4")) for n in "ab"},
                  ScriptedSampler(lambda p, i: solved("4")))  # fmt: skip
    play(
        [slot(0), slot(1)],
        "asker",
        seats,
        PACK,
        Rules(1, 1),
        Samplings(),
        seed=0,
        progress=lambda *what: told.append(what),
    )
    assert told[0] == ("asker, turn 1", 0, 2) and told[-1] == ("cross-check", 0, 2)
    assert [what for what, _, _ in told] == [
        *("asker, turn 1", "boundary solvers, turn 1"),
        *("asker, turn 2", "boundary solvers, turn 2", "cross-check"),
    ]
