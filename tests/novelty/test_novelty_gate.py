import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from novelty import ExhaustiveGate, KSampledGate, NoveltyDecision, NoveltyResult, SameType, pass_probability

SAME, DIFFERENT, UNDECIDED = SameType.SAME, SameType.DIFFERENT, SameType.UNDECIDED
NOVEL, REPEATED = NoveltyDecision.NOVEL, NoveltyDecision.REPEATED


class TypeJudge:
    """Questions are "TYPE NUMBER"; equal types are the same exercise, a type "?" cannot be judged."""

    def __init__(self) -> None:
        self.waves: list[list[tuple[str, str]]] = []

    def same_type(self, pairs: Sequence[tuple[str, str]]) -> list[SameType]:
        self.waves.append(list(pairs))
        kinds = [(a.split()[0], b.split()[0]) for a, b in pairs]
        return [UNDECIDED if "?" in pair else SAME if pair[0] == pair[1] else DIFFERENT for pair in kinds]

    @property
    def asked(self) -> int:
        return sum(map(len, self.waves))


def _batch(sizes: dict[str, int], seed: int = 0) -> list[str]:
    questions = [f"{kind} {number}" for kind, size in sizes.items() for number in range(size)]
    random.Random(seed).shuffle(questions)
    return questions


def _judge_all(questions: list[str], index: int, references: list[int]) -> tuple[NoveltyDecision, int | None, int]:
    """Judge every reference, one by one, without stopping."""
    verdicts = [TypeJudge().same_type([(questions[index], questions[other])])[0] for other in references]
    unreadable = verdicts.count(UNDECIDED)
    if SAME in verdicts:
        return REPEATED, references[verdicts.index(SAME)], unreadable
    return (NoveltyDecision.UNDECIDED if verdicts and unreadable == len(verdicts) else NOVEL), None, unreadable


@pytest.mark.parametrize("k", [1, 3, 8, 16])
def test_stopping_at_the_first_match_decides_as_judging_all_k(k: int) -> None:
    questions = _batch({"a": 20, "b": 8, "c": 2, "?": 5, **{f"s{i}": 1 for i in range(25)}})
    gate, judge = KSampledGate(k), TypeJudge()
    results = gate.decide(questions, judge, seed=11)
    seen = set()
    for index, result in enumerate(results):
        assert result is not None
        references = gate.draw(len(questions), index, 11)
        decision, match, unreadable = _judge_all(questions, index, references)
        assert (result.decision, result.match) == (decision, None if match is None else str(match))
        assert result.references == tuple(map(str, references))
        assert result.compared == (k if match is None else references.index(match) + 1)
        assert result.unreadable == unreadable or match is not None
        seen.add(decision)
    assert seen == set(NoveltyDecision)
    assert judge.asked == sum(result.compared for result in results if result)
    assert judge.asked < k * len(questions) or k == 1


def test_waves_take_one_reference_of_every_open_candidate() -> None:
    questions = ["a 0", "a 1", "b 0", "c 0"]
    gate, judge = KSampledGate(3), TypeJudge()
    results = gate.decide(questions, judge, seed=0)
    assert len(judge.waves) == 3
    assert len(judge.waves[0]) == 4
    for number, wave in enumerate(judge.waves):
        expected = [
            (questions[i], questions[gate.draw(4, i, 0)[number]])
            for i, result in enumerate(results)
            if result and result.compared > number
        ]
        assert wave == expected


def test_results_in_a_batch_worked_out_by_hand() -> None:
    """With K as large as the batch allows every other question is a reference."""
    results = KSampledGate(8).decide(["a 0", "a 1", "b 0", "? 0"], TypeJudge(), seed=3, ids=["p", "q", "r", "s"])
    assert [result and result.decision.value for result in results] == ["repeated", "repeated", "novel", "undecided"]
    assert [result and result.match for result in results] == ["q", "p", None, None]
    novel, undecided = results[2], results[3]
    assert novel is not None and undecided is not None
    assert (novel.compared, novel.unreadable, set(novel.references)) == (3, 1, {"p", "q", "s"})
    assert (undecided.compared, undecided.unreadable) == (3, 3)


def test_a_lone_question_is_novel_and_costs_nothing() -> None:
    judge = TypeJudge()
    expected = [NoveltyResult(NOVEL, 0, None, 0, ())]
    assert KSampledGate().decide(["a 0"], judge, seed=0) == expected
    assert ExhaustiveGate().decide(["a 0"], judge, seed=0) == expected
    assert KSampledGate().decide([], judge, seed=0) == []
    assert ExhaustiveGate().decide([], judge, seed=0) == []
    assert judge.waves == []


def test_references_are_others_without_repetition() -> None:
    for batch in (2, 5, 9, 300):
        for index in range(batch):
            drawn = KSampledGate(8).draw(batch, index, 5)
            assert len(drawn) == len(set(drawn)) == min(8, batch - 1)
            assert index not in drawn
            assert all(0 <= other < batch for other in drawn)


def test_draws_do_not_depend_on_who_is_eligible_and_the_ineligible_cost_nothing() -> None:
    questions = _batch({"a": 10, "b": 10, "c": 10})
    everyone = KSampledGate().decide(questions, TypeJudge(), seed=4)
    eligible = [index % 3 == 0 for index in range(30)]
    judge = TypeJudge()
    some = KSampledGate().decide(questions, judge, seed=4, eligible=eligible)
    assert some == [result if ok else None for result, ok in zip(everyone, eligible, strict=True)]
    assert {candidate for wave in judge.waves for candidate, _ in wave} == set(questions[::3])
    references = {reference for wave in judge.waves for _, reference in wave}
    assert references - set(questions[::3])  # the ineligible are references all the same


def test_another_seed_draws_others_and_indices_draw_apart() -> None:
    gate = KSampledGate(8)
    assert gate.draw(500, 3, 1) == gate.draw(500, 3, 1)
    assert gate.draw(500, 3, 1) != gate.draw(500, 3, 2)
    assert gate.draw(500, 12, 1) != gate.draw(500, 2, 11)
    assert gate.draw(500, 1, 12) != gate.draw(500, 11, 2)
    drawn = {other for index in range(400, 500) for other in gate.draw(500, index, 1)}
    assert len(drawn) > 300  # 100 draws of 8 from 499: about 399 expected, 8 or so if they shared one draw


def _chi_square_limit(cells: int, deviations: float = 4.0) -> float:
    """Return the chi-square value `deviations` standard deviations out (Wilson and Hilferty)."""
    freedom = cells - 1
    return freedom * (1 - 2 / (9 * freedom) + deviations * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("index", [0, 7, 19])
def test_draws_are_uniform(index: int) -> None:
    """Every other question is drawn equally often, and first equally often; fixed seeds, so the outcome is fixed."""
    draws, k, batch = 6000, 4, 20

    def chi_square(counts: Sequence[int], expected: float) -> float:
        return sum((count - expected) ** 2 / expected for count in counts)

    drawn = [KSampledGate(k).draw(batch, index, seed) for seed in range(draws)]
    first = Counter(references[0] for references in drawn)
    counts = Counter(other for references in drawn for other in references)
    others = [other for other in range(batch) if other != index]
    cells = batch - 1
    assert chi_square([first[other] for other in others], draws / cells) < _chi_square_limit(cells)
    statistic = chi_square([counts[other] for other in others], draws * k / cells)
    # without replacement the counts vary less: by the factor (cells - k) / (cells - 1)
    assert statistic * (cells - 1) / (cells - k) < _chi_square_limit(cells)
    pairs = Counter(frozenset(references[:2]) for references in drawn)
    cells = cells * (cells - 1) // 2
    assert len(pairs) == cells
    assert chi_square(list(pairs.values()), draws / cells) < _chi_square_limit(cells)


@pytest.mark.parametrize(("same", "k"), [(3, 8), (12, 8), (12, 16), (30, 4)])
def test_the_gate_passes_as_often_as_the_exact_formula_says(same: int, k: int) -> None:
    """Candidates of one type of `same` + 1 questions in a batch of 60, over many seeds; within four standard errors."""
    questions = [f"a {i}" for i in range(same + 1)] + [f"s{i} 0" for i in range(60 - same - 1)]
    eligible = [index == 0 for index in range(60)]
    seeds = 4000
    passed = 0
    for seed in range(seeds):
        result = KSampledGate(k).decide(questions, TypeJudge(), seed=seed, eligible=eligible)[0]
        passed += result is not None and result.decision is NOVEL
    expected = pass_probability(60, same, k)
    assert abs(passed / seeds - expected) < 4 * math.sqrt(expected * (1 - expected) / seeds)


@pytest.mark.parametrize("wave", [1, 2, 7, 100])
def test_the_exhaustive_gate_passes_only_what_has_no_match_at_all(wave: int) -> None:
    questions = _batch({"a": 5, "b": 2, "?": 3, "c": 1, "d": 1})
    kinds = [question.split()[0] for question in questions]
    results = ExhaustiveGate(wave).decide(questions, TypeJudge(), seed=0)
    counts = Counter(kinds)
    for kind, index, result in zip(kinds, range(12), results, strict=True):
        assert result is not None
        assert result.references == ()
        if kind == "?":
            assert (result.decision, result.compared, result.unreadable) == (NoveltyDecision.UNDECIDED, 11, 11)
        elif counts[kind] == 1:
            assert (result.decision, result.compared, result.unreadable) == (NOVEL, 11, 3)
        else:
            following = [(index + step) % 12 for step in range(1, 12)]
            match = next(other for other in following if kinds[other] == kind)
            assert (result.decision, result.match) == (REPEATED, str(match))
            place = following.index(match) + 1
            assert result.compared == min(11, -(-place // wave) * wave)


def test_the_exhaustive_gate_agrees_with_a_sample_of_all() -> None:
    questions = _batch({"a": 5, "b": 2, "c": 1, "d": 1})
    sampled = KSampledGate(8).decide(questions, TypeJudge(), seed=0)
    exhaustive = ExhaustiveGate().decide(questions, TypeJudge())
    assert [r and r.decision for r in sampled] == [r and r.decision for r in exhaustive]


def test_the_record() -> None:
    assert NoveltyResult(REPEATED, 2, "x", 1, ("y", "x", "z")).to_json() == {
        "decision": "repeated",
        "compared": 2,
        "match": "x",
        "unreadable": 1,
        "references": ["y", "x", "z"],
    }


class ShortJudge:
    def same_type(self, pairs: Sequence[tuple[str, str]]) -> list[SameType]:
        return [DIFFERENT] * (len(pairs) - 1)


def test_wrong_lengths_and_sizes_are_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="eligible has 1 entries for 2"):
        KSampledGate().decide(["a 0", "b 0"], TypeJudge(), seed=0, eligible=[True])
    with pytest.raises(ValueError, match="ids has 3 entries for 2"):
        ExhaustiveGate().decide(["a 0", "b 0"], TypeJudge(), ids=["x", "y", "z"])
    with pytest.raises(ValueError, match="1 verdicts for 2 pairs"):
        KSampledGate().decide(["a 0", "b 0"], ShortJudge(), seed=0)
    with pytest.raises(ValueError, match="k is 0"):
        KSampledGate(0)
    with pytest.raises(ValueError, match="wave is 0"):
        ExhaustiveGate(0)
