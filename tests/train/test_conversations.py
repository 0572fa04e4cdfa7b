"""Conversations of several turns: their ids, their masks, and learning from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from selfevolve.sampling import FinishReason, KeyedSampler, Prompt, Reply, Sampler, Sampling, user
from selfevolve.sampling.transformers_sampler import Formatter, TransformersSampler, end_ids
from selfevolve.train import (
    CONTEXT_EXHAUSTED,
    LogRow,
    RolloutBatch,
    TrainingError,
    TrainRow,
    TrainSpec,
    rollouts,
    train,
    train_conversations,
)
from selfevolve.train.advantages import group_advantages
from selfevolve.train.conversations import ConversationMaker
from selfevolve.train.rollouts import Clock, LocalRollouts, Stage, make_plan
from tests.chat_tokenizer import CHATML, chat_tokenizer
from tests.tiny_model import save_tiny, tiny_model, tiny_tokenizer
from tests.train.worlds import Interview, Recorder

SPEC = TrainSpec(
    steps=2,
    prompts=4,
    responses=4,
    global_batch=2,
    micro_batch=8,
    learning_rate=3e-3,
    kl=0.01,
    max_prompt_tokens=20,
    max_new_tokens=6,
    loss_type="cispo",
    device="cpu",
)
ROWS = [TrainRow(user(f"w{i} w{i + 1} w{2 * i}"), {"number": i}) for i in range(6)]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("policy") / "base", words=60, hidden=32, layers=2, spread=8.0)


def variety(step: int, outcomes: Sequence[tuple[int, list[str]]]) -> list[float | None]:
    """Reward different words; mask every fifth conversation."""
    return [float(len(set(" ".join(texts).split()))) if place % 5 else None for place, texts in outcomes]


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def played(
    tokenizer: Any, world: Any, rows: Sequence[TrainRow] = ROWS, spec: TrainSpec = SPEC, **config: Any
) -> tuple[ConversationMaker, LocalRollouts, Recorder]:
    """Play one batch with a random model that fits the tokenizer, without a trainer."""
    end = tokenizer.eos_token_id
    model = tiny_model(
        words=len(tokenizer) - 4, hidden=32, layers=1, spread=8.0, **{"eos_token_id": end, "pad_token_id": end} | config
    )
    model.generation_config.eos_token_id = [end, *range(9, len(tokenizer), 6)]  # so that replies do end
    sampler = Recorder(model, tokenizer, batch=5)
    formatter = Formatter(tokenizer)
    ids = formatter.ids([row.prompt for row in rows])
    plan = make_plan(rows, ids, spec, model.config.max_position_embeddings)
    context = model.config.max_position_embeddings
    stage = Stage(rows, plan, spec, (0, 1), Clock(), formatter, end_ids(model, tokenizer), context)
    maker = ConversationMaker(stage, world, variety)
    return maker, maker.make(1, sampler), sampler


def tokenizer_of(kind: str) -> Any:
    if kind == "testbed":
        from selfevolve.testbed.vocabulary import build_tokenizer

        return build_tokenizer()
    return {"words": tiny_tokenizer, "plain": lambda: chat_tokenizer(None), "chatml": lambda: chat_tokenizer(CHATML)}[
        kind
    ]()


@pytest.mark.parametrize("kind", ["testbed", "chatml", "plain", "words"])
def test_every_prompt_begins_with_the_last_one_and_the_sampled_ids(kind: str) -> None:
    world = Interview(most=3)
    maker, local, sampler = played(tokenizer_of(kind), world)
    assert sorted(sampler.calls) == list(range(16))
    for place, calls in sampler.calls.items():
        assert len(calls) == place % 3 + 2  # an opening, and so many further questions
        mask: list[int] = []
        for (prompt, reply), (longer, _) in pairwise(calls):
            known = [*prompt, *reply.ids]
            assert longer[: len(known)] == known and len(longer) > len(known)
            assert longer[len(known) :] == maker.turns.glue(
                reply.ids, f"w{place % 9} w{calls.index((prompt, reply)) + 1}"
            )
            mask += [1] * len(reply.ids) + [0] * (len(longer) - len(known))
        prompt, reply = calls[-1]
        assert local.prompt_ids[place] + local.completion_ids[place] == [*prompt, *reply.ids]
        assert local.prompt_ids[place] == calls[0][0]
        mask += [1] * len(reply.ids)
        assert local.mask[place] == (mask if place % 5 else [0] * len(mask))
        texts = sampler.texts([reply for _, reply in calls])
        for (prompt, completion), told in zip(calls, world.replies[place], strict=True):
            assert told.text == texts[completion.ids] and told.prompt_tokens == len(prompt)
            assert told.finish_reason is (FinishReason.STOP if completion.stopped else FinishReason.LENGTH)
            assert told.completion_tokens == len(completion.ids)
    assert {reply.finish_reason for said in world.replies.values() for reply in said} == {
        FinishReason.STOP,
        FinishReason.LENGTH,
    }
    facts = maker.facts
    assert facts["turns"] == sum(len(calls) for calls in sampler.calls.values()) / 16
    assert facts["completion_tokens"] == sum(len(r.ids) for calls in sampler.calls.values() for _, r in calls)
    total = sum(len(ids) for ids in local.completion_ids)
    assert facts["world_tokens"] == total - facts["completion_tokens"] > 0
    assert facts["masked"] == 4 and facts["exhausted"] == 0
    assert local.advantages == group_advantages(variety(1, world.outcomes(range(16))), 4)


def test_a_thinking_block_that_the_template_opens_stands_before_each_reply() -> None:
    tokenizer = chat_tokenizer(CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif"))
    world = Interview(most=3)
    heard: list[str] = []
    answer = world.answer

    def listening(replies: Any, policy: Any) -> Any:
        heard.extend(reply.text for reply in replies.values() if reply.error is None)
        return answer(replies, policy)

    world.answer = listening  # type: ignore[method-assign]
    played(tokenizer, world, spec=replace(SPEC, max_prompt_tokens=100))
    assert len(heard) > 16 and all(text.startswith("<think>\n") for text in heard)


def test_replies_hang_on_seed_step_place_and_turn() -> None:
    world = Interview()
    maker, first, sampler = played(tiny_tokenizer(), world)
    calls = sampler.calls
    sampler.calls = {}
    assert maker.make(1, sampler) == first and sampler.calls == calls
    other = maker.make(2, sampler)
    assert other.completion_ids != first.completion_ids
    seeds = {maker.sampling(step, turn).seed for step in (1, 2) for turn in (1, 2, 3)}
    assert len(seeds) == 6
    # the same place alone says the same: nothing hangs on its neighbours
    alone = sampler.sample_ids([calls[3][2][0]], maker.sampling(1, 3), keys=[3])
    assert alone[0][0] == calls[3][2][1]


def test_a_conversation_without_room_is_not_asked_again() -> None:
    world = Interview(most=20)  # place 15 would be asked 16 further questions
    _, local, sampler = played(tiny_tokenizer(), world, max_position_embeddings=40)
    ended = {place: said for place, said in world.replies.items() if said[-1].finish_reason is FinishReason.ERROR}
    assert 15 in ended and 0 not in ended
    for place, said in ended.items():
        last = said[-1]
        assert (last.text, last.completion_tokens, last.error) == ("", 0, CONTEXT_EXHAUSTED)
        assert last.prompt_tokens > 40 - 6 and len(sampler.calls[place]) == len(said) - 1
        assert all(reply.finish_reason is not FinishReason.ERROR for reply in said[:-1])
        prompt, reply = sampler.calls[place][-1]
        assert local.prompt_ids[place] + local.completion_ids[place] == [*prompt, *reply.ids]  # no glue at the end
    assert all(len(prompt) <= 40 - 6 for calls in sampler.calls.values() for prompt, _ in calls)


def test_conversations_without_a_reply_do_no_harm(policy: Path, tmp_path: Path) -> None:
    # openings that leave no room for a reply, in all places but one group: TRL reads the last id of each completion
    class Long(Interview):
        def begin(self, step: int, places: Sequence[int], rows: Sequence[TrainRow]) -> Sequence[Prompt]:
            opened = super().begin(step, places, rows)
            return [prompt if place < 4 else user("w1 " * 510) for place, prompt in zip(places, opened, strict=True)]

    _, local, _ = played(tiny_tokenizer(), Long())
    assert local.mask[4:] == [[0]] * 12 and all(len(ids) == 1 for ids in local.completion_ids[4:])
    result = train_conversations(policy, ROWS, Long(), variety, SPEC, tmp_path / "out")
    row = result.log[0]
    assert row.exhausted == 12 and row.world_tokens >= 12 and row.turns == (2 + 3 + 2 + 3) / 16
    assert any("24 of 32 conversations ended because the model's context" in note for note in result.notes)
    with pytest.raises(TrainingError, match="place 2 has no tokens"):
        broken = Interview()
        broken.openings = [user("" if place == 2 else "w1") for place in range(16)]
        train_conversations(policy, ROWS, broken, variety, SPEC, tmp_path / "none")


def test_a_stage(policy: Path, tmp_path: Path) -> None:
    world, seen, asked = Interview(), [], []

    def reward(step: int, outcomes: Sequence[Any]) -> list[float | None]:
        asked.append((step, [place for place, _ in outcomes]))
        return variety(step, outcomes)

    made: list[Recorder] = []

    def sampler(model: Any, tokenizer: Any) -> Recorder:
        made.append(Recorder(model, tokenizer))
        return made[-1]

    result = train_conversations(policy, ROWS, world, reward, SPEC, tmp_path / "out", seen.append, sampler)
    assert world.steps == [1, 2] and asked == [(1, list(range(16))), (2, list(range(16)))]
    assert tuple(seen) == result.log and len(made) == 1
    first: LogRow = result.log[0]
    assert first.completions == 16 and first.masked == 4 and first.turns == 2.5 and first.updates == 2
    assert first.world_tokens > 0 and first.prompt_tokens == 48
    assert first.kl is not None and first.ratio_clipped == 0.0 and first.grad_norm > 0
    assert 0 <= first.seconds_world < first.seconds
    assert result.tokens == sum(
        len(reply.ids) for calls in made[0].calls.values() for _, reply in calls
    )  # what was sampled, and nothing of the world's
    assert weights(policy) != weights(result.checkpoint)


def test_same_seed_same_weights(policy: Path, tmp_path: Path) -> None:
    found = []
    for i, spec in enumerate((SPEC, SPEC, replace(SPEC, seed=1))):
        torch.manual_seed(i)  # the caller's random state plays no part
        found.append(
            weights(train_conversations(policy, ROWS, Interview(), variety, spec, tmp_path / str(i)).checkpoint)
        )
    assert found[0] == found[1] != found[2]


def test_a_conversation_of_one_turn_is_a_rollout(policy: Path, tmp_path: Path) -> None:
    class OneTurn(Interview):
        def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
            return dict.fromkeys(super().answer(replies, policy))

    def reward(batch: RolloutBatch) -> list[float | None]:
        return variety(batch.step, [(place, [rollout.text]) for place, rollout in enumerate(batch.rollouts)])

    spec = replace(SPEC, loss_type="dapo")
    one = train_conversations(policy, ROWS, OneTurn(), variety, spec, tmp_path / "a")
    other = train(policy, ROWS, reward, spec, tmp_path / "b")
    assert weights(one.checkpoint) == weights(other.checkpoint)
    assert one.log[1].reward_mean == other.log[1].reward_mean and one.log[1].world_tokens == 0


@pytest.mark.parametrize("loss_type", ["cispo", "dapo"])
def test_first_update_is_the_policy_gradient_over_sampled_tokens(policy: Path, tmp_path: Path, loss_type: Any) -> None:
    # one update at ratio 1, KL off: the gradient of -sum(A * log p) / tokens over what the policy wrote, nothing else
    from transformers import AutoModelForCausalLM

    made: list[Recorder] = []

    def sampler(model: Any, tokenizer: Any) -> Recorder:
        made.append(Recorder(model, tokenizer))
        return made[-1]

    world = Interview()
    spec = replace(SPEC, steps=1, global_batch=4, kl=0.0, temperature=0.8, loss_type=loss_type)
    result = train_conversations(policy, ROWS, world, variety, spec, tmp_path / "out", None, sampler)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    rewards = variety(1, world.outcomes(range(16)))
    total, tokens, credit = torch.zeros(()), 0, 0.0
    for place, advantage in enumerate(group_advantages(rewards, 4)):
        if rewards[place] is None:
            continue
        for prompt, reply in made[0].calls[place]:
            logits = model(torch.tensor([[*prompt, *reply.ids]])).logits[0, len(prompt) - 1 : -1] / 0.8
            total = total - advantage * logits.log_softmax(-1)[range(len(reply.ids)), list(reply.ids)].sum()
            tokens, credit = tokens + len(reply.ids), credit + advantage * len(reply.ids)
    (total / tokens).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert result.log[0].grad_norm == pytest.approx(float(norm), rel=1e-4)
    loss = float(total.detach()) if loss_type == "cispo" else -credit  # dapo: ratio 1 times the advantage
    assert result.log[0].loss == pytest.approx(loss / tokens, rel=1e-3)


class Guess:
    """Says w6 or w8 after the first reply; the policy should say w7 after w6, and w9 after w8."""

    def begin(self, step: int, places: Sequence[int], rows: Sequence[TrainRow]) -> Sequence[Prompt]:
        self.hidden = {place: 6 + 2 * (hash((step, place, 7)) % 2) for place in places}
        self.said: dict[int, list[str]] = {place: [] for place in places}
        return [row.prompt for row in rows]

    def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
        for place, reply in replies.items():
            self.said[place].append(reply.text)
        return {place: None if len(self.said[place]) == 2 else f"w{self.hidden[place]}" for place in replies}

    def outcomes(self, places: Sequence[int]) -> Sequence[Any]:
        return [(self.said[place][1], f"w{self.hidden[place] + 1}") for place in places]


def test_the_policy_learns_to_use_what_the_world_said(tmp_path: Path) -> None:
    start = save_tiny(tmp_path / "base", words=12, hidden=32, layers=2)
    spec = replace(
        SPEC,
        steps=20,
        prompts=4,
        responses=16,
        global_batch=4,
        micro_batch=64,
        learning_rate=1e-2,
        kl=0.0,
        max_new_tokens=1,
    )

    def reward(step: int, outcomes: Sequence[tuple[str, str]]) -> list[float | None]:
        return [float(said == wanted) for said, wanted in outcomes]

    log = train_conversations(start, [TrainRow(user("w1"))], Guess(), reward, spec, tmp_path / "out").log
    first, last = ([row.reward_mean or 0.0 for row in part] for part in (log[:2], log[-3:]))
    assert sum(first) / 2 < 0.2 and sum(last) / 3 > 0.8  # one of 16 words at first; always the same word: one half


def test_the_world_can_sample_from_the_current_weights(policy: Path, tmp_path: Path) -> None:
    class Checked(Interview):
        checks: list[Reply]

        def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
            found = policy.sample([user("w5 w6")], Sampling(temperature=0.0, max_tokens=8))
            self.checks = [*getattr(self, "checks", []), found[0][0]]
            assert isinstance(policy, KeyedSampler)
            return super().answer(replies, policy)

    world = Checked()
    train_conversations(policy, ROWS, world, variety, replace(SPEC, learning_rate=0.05), tmp_path / "out")
    base = TransformersSampler(policy, device="cpu").sample([user("w5 w6")], Sampling(temperature=0.0, max_tokens=8))
    half = len(world.checks) // 2
    assert world.checks[:half] == [base[0][0]] * half  # no update so far
    assert len({reply.text for reply in world.checks[half:]}) == 1 and world.checks[half] != base[0][0]


def test_mistakes_of_a_world(policy: Path, tmp_path: Path) -> None:
    class Silent(Interview):
        def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
            return {}

    class Short(Interview):
        def outcomes(self, places: Sequence[int]) -> Sequence[Any]:
            return []

    class Broken(Interview):
        def answer(self, replies: Mapping[int, Reply], policy: Sampler) -> Mapping[int, str | None]:
            raise RuntimeError("the solver is gone")

    for world, error, message in (
        (Silent(), TrainingError, "answered 0 conversations and was told the replies of 16"),
        (Short(), TrainingError, "0 outcomes for 16"),
        (Broken(), RuntimeError, "the solver is gone"),
    ):
        with pytest.raises(error, match=message):
            train_conversations(policy, ROWS, world, variety, SPEC, tmp_path / "out")
    with pytest.raises(TrainingError, match="1 values for 16"):
        train_conversations(policy, ROWS, Interview(), lambda *_: [1.0], SPEC, tmp_path / "out")


def test_parts_of_the_clock_count_for_the_inner_one(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0, 1, 5, 6, 8, 16])  # world begins, generate begins and ends, world begins and ends, world ends
    monkeypatch.setattr(rollouts, "perf_counter", lambda: float(next(times)))
    clock = Clock()
    with clock.part("world"):
        with clock.part("generate"):
            pass
        with clock.part("world"):
            pass
    assert clock.seconds == {"generate": 4.0, "world": 12.0}
