import pytest

from novelty import ModelJudge, NoveltyJudge, SameType, same_type_prompt
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling, ScriptedSampler

SAME, DIFFERENT, UNDECIDED = SameType.SAME, SameType.DIFFERENT, SameType.UNDECIDED
PAIRS = [("a", "b"), ("b", "a"), ("a", "b"), ("c", "d")]


def _answer(prompt: Prompt, _: int) -> str:
    return "SAME_TYPE" if "Question A:\na\n" in prompt[0].content else "DIFFERENT"


def test_pairs_are_asked_in_one_call_with_the_candidate_as_question_a() -> None:
    sampler = ScriptedSampler(_answer)
    judge = ModelJudge(sampler)
    assert isinstance(judge, NoveltyJudge)
    assert judge.same_type(PAIRS) == [SAME, DIFFERENT, SAME, DIFFERENT]
    assert len(sampler.calls) == 1
    assert sampler.calls[0][0] == tuple(same_type_prompt(a, b) for a, b in [("a", "b"), ("b", "a"), ("c", "d")])


def test_the_cache_remembers_pairs_in_their_order_and_the_counts_tell() -> None:
    sampler = ScriptedSampler(_answer)
    judge = ModelJudge(sampler)
    judge.same_type(PAIRS)
    assert judge.same_type([("a", "b"), ("c", "d")]) == [SAME, DIFFERENT]
    assert len(sampler.calls) == 1
    counts = judge.counts
    assert (counts.pairs, counts.asked, counts.from_cache, counts.calls) == (6, 3, 3, 1)
    assert (counts.completion_tokens, counts.unreadable, counts.failed) == (3, 0, 0)
    assert counts.prompt_tokens == sum(len(same_type_prompt(a, b)[0].content.split()) for a, b in PAIRS[:2] + PAIRS[3:])
    judge.forget()
    judge.same_type([("a", "b")])
    assert judge.counts.asked == 4


def test_without_the_cache_every_pair_is_asked() -> None:
    sampler = ScriptedSampler(_answer)
    judge = ModelJudge(sampler, cache=False)
    assert judge.same_type(PAIRS) == judge.same_type(PAIRS)
    assert [len(prompts) for prompts, _ in sampler.calls] == [4, 4]
    assert judge.counts.from_cache == 0


def test_nothing_to_judge_makes_no_call() -> None:
    sampler = ScriptedSampler(_answer)
    for cache in (True, False):
        assert ModelJudge(sampler, cache=cache).same_type([]) == []
    assert sampler.calls == []


def test_unreadable_truncated_and_failed_replies_are_undecided_and_a_failed_call_is_asked_again() -> None:
    replies = {
        "a": Reply("SAME_TYPE", FinishReason.LENGTH, 5, 2),
        "b": Reply("", FinishReason.ERROR, error="connection refused"),
        "c": Reply("no idea", FinishReason.STOP, 5, 2),
        "d": Reply("", FinishReason.TIMEOUT, error="deadline"),
    }
    sampler = ScriptedSampler(lambda prompt, _: replies[prompt[0].content.partition(" ")[0]])
    judge = ModelJudge(sampler, lambda a, b: same_type_prompt(a, b, "{question_a} {question_b}"))
    pairs = [(name, "x") for name in replies]
    assert judge.same_type(pairs) == [UNDECIDED] * 4
    assert (judge.counts.unreadable, judge.counts.failed) == (4, 2)
    judge.same_type(pairs)
    assert [len(prompts) for prompts, _ in sampler.calls] == [4, 2]


def test_draws_differ_between_batches_of_pairs_and_not_between_runs() -> None:
    sampler = ScriptedSampler(_answer)
    for judge in (ModelJudge(sampler, sampling=Sampling(seed=7)), ModelJudge(sampler, sampling=Sampling(seed=7))):
        judge.same_type([("a", "b")])
        judge.same_type([("a", "c")])
    seeds = [sampling.seed for _, sampling in sampler.calls]
    assert seeds[:2] == seeds[2:]
    assert seeds[0] != seeds[1]


def test_more_than_one_reply_a_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="n is 3"):
        ModelJudge(ScriptedSampler(_answer), sampling=Sampling(n=3))
