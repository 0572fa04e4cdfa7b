"""Replies of profiles: rates of guesses, slips and flags as stated, worked steps that the oracle confirms."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from selfevolve.answers import extract
from selfevolve.testbed.profiles import BASE, CLEAN, PROFILES
from selfevolve.testbed.tasks import (
    Worker,
    draw_exercise,
    exercise,
    guess_chance,
    hardness,
    judge_reply,
    solve_reply,
    step_cost,
)

VALID = "what is 12 + 7 - 5?"
FLAWED = "what is 3 + 4 - 9?"


def test_flawless_work_is_right() -> None:
    rng = Random(0)
    for _ in range(400):
        question = draw_exercise(rng, BASE.asking, uniform=True)
        if question.truth.valid and "guess" not in (reply := solve_reply(rng, CLEAN, question)):
            assert extract(reply) == question.truth.answer, (question.text, reply)


def test_the_written_form() -> None:
    assert solve_reply(Random(1), CLEAN, exercise(VALID)) == "<think> 12 + 7 = 19 ; 19 - 5 = 14</think>\\boxed{ 14}"
    flagged = solve_reply(Random(1), CLEAN, exercise(FLAWED), checking=True)
    assert flagged == "<think> 3 + 4 = 7 ; 7 - 9 flaw</think>\\boxed{ INVALID}"


def test_chances_are_those_of_the_profile() -> None:
    rng = Random(2)
    profile = replace(BASE, guess_easy=0.3, guess_hard=0.3, flags_invalid=0.25, flags_valid=0.05)
    n = 4000
    guesses = sum("guess" in solve_reply(rng, profile, exercise(VALID)) for _ in range(n))
    flags = sum("INVALID" in solve_reply(rng, profile, exercise(FLAWED), checking=True) for _ in range(n))
    false = sum("INVALID" in solve_reply(rng, profile, exercise(VALID), checking=True) for _ in range(n))
    for count, chance in ((guesses, 0.3), (flags, 0.25), (false, 0.05)):
        assert abs(count / n - chance) < 4 * (chance * (1 - chance) / n) ** 0.5


def test_harder_exercises_are_guessed_at_more() -> None:
    easy, hard = exercise("what is 3 + 4 - 2?"), exercise("what is 9 * 12 + 85?")
    # two one-digit steps cost 0.4 each; a product of 9 and 12 costs 1.4 and a two-digit sum 1
    assert (step_cost("+", 3, 4), step_cost("*", 9, 12), step_cost("+", 99, 2)) == (0.4, 1.4, 1.0)
    assert hardness(easy) == 0.8 / 4 and hardness(hard) == 2.4 / 4
    assert guess_chance(BASE, easy) < guess_chance(BASE, hard)
    numbers = PROFILES["numbers"]
    shop = exercise("anna buys 3 rolls for 4 coins each and 2 pears for 5 coins each. how many coins is that?")
    assert guess_chance(numbers, shop) > guess_chance(numbers, hard)


def test_a_careless_worker_slips_and_goes_on_with_what_it_wrote() -> None:
    worker = Worker(Random(3), slip=1.0, strict=False, checks=False)
    first = worker("+", 20, 20)
    second = worker("*", first, 3)
    assert worker.lines == [f"20 + 20 = {first}", f"{first} * 3 = {second}"]
    assert first != 40 and second != 3 * first


def test_the_judge_errs_at_its_rate() -> None:
    rng, one, other = Random(4), exercise(VALID), exercise("what is 3 + 4 - 2?")
    said = [judge_reply(rng, replace(BASE, judge_error=0.1), one, other) for _ in range(3000)]
    assert abs(said.count("DIFFERENT") / 3000 - 0.1) < 0.025
    garbled = exercise("what what is")
    assert judge_reply(rng, CLEAN, garbled, garbled) == "DIFFERENT"
