"""The in-process sampler against `model.generate` and transformers' own warpers, on a random tiny model."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from selfevolve.sampling import FinishReason, Prompt, Reply, Sampler, Sampling, sample_more, user
from tests.tiny_model import tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")

from scipy import stats  # noqa: E402
from transformers import TopKLogitsWarper, TopPLogitsWarper  # noqa: E402

from selfevolve.sampling.drawing import choose, token_probabilities, uniforms  # noqa: E402
from selfevolve.sampling.transformers_sampler import Formatter, PromptFormat, TransformersSampler, end_ids  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    """Keep to one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(words=60, hidden=32, layers=2, spread=12.0)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer(60)


def some_prompts(count: int, seed: int = 0, longest: int = 30) -> list[Prompt]:
    rng = random.Random(seed)
    return [user(" ".join(f"w{rng.randrange(60)}" for _ in range(rng.randint(2, longest)))) for _ in range(count)]


def ending(tokenizer: Any) -> Any:
    """Give a tokenizer a template that ends an assistant's turn with a control token of its own, not its end token."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["w5"]})
    tokenizer.chat_template = (
        "{{ messages[0]['content'] }}{% if messages | length > 1 %} {{ messages[1]['content'] }} w5{% endif %}"
    )
    return tokenizer


def test_a_reply_ends_where_the_template_ends_a_turn() -> None:
    """As of base models that come with a template: their end token is another one."""
    tokenizer = ending(tiny_tokenizer(20))
    end = tokenizer.convert_tokens_to_ids("w5")
    assert Formatter(tokenizer).turn_end == end != tokenizer.eos_token_id
    model = tiny_model(words=20)
    assert end in end_ids(model, tokenizer) and end not in end_ids(model, tiny_tokenizer(20))
    sampler = TransformersSampler(model, tokenizer, device="cpu")
    (drawn,) = sampler.sample_ids(sampler.formatter.ids([user("w1")]), Sampling(n=200, max_tokens=20, seed=1), keys=[0])
    ended = [c for c in drawn if end in c.ids]
    assert len(ended) > 20 and all(c.stopped and c.ids.index(end) == len(c.ids) - 1 for c in ended)


@pytest.mark.parametrize(
    "template", [None, "{{ messages[0]['content'] }} {{ messages[-1]['content'] }}", "{{ raise_exception('no') }}"]
)
def test_a_template_without_such_a_token_adds_none(template: str | None) -> None:
    tokenizer = tiny_tokenizer(20)
    tokenizer.chat_template = template
    assert Formatter(tokenizer).turn_end is None


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_key_value_heads": 4},
        {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6, "use_sliding_window": True},
        {"attn_implementation": "eager"},
        {"slow_attention": True},
    ],
    ids=["grouped", "ungrouped", "sliding", "eager", "sdpa"],
)
def test_greedy_equals_generate(tokenizer: Any, config: dict[str, Any]) -> None:
    config = dict(config)
    slow = config.pop("slow_attention", False)
    model = tiny_model(words=60, hidden=32, layers=2, spread=12.0, **config)
    sampler = TransformersSampler(model, tokenizer, batch=7, prefill_tokens=64)
    sampler.decoder.fast_attention = not slow
    prompts = some_prompts(20)
    ids = sampler.prompt_ids(prompts)
    got = sampler.sample_ids(ids, Sampling(temperature=0.0, max_tokens=20))
    for prompt, (completion,) in zip(ids, got, strict=True):
        expected = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20)[0, len(prompt) :].tolist()
        assert list(completion.ids) == expected
        assert completion.stopped == (expected[-1] == 1)


def test_grouped_keys_are_not_copied_on_any_device() -> None:
    from selfevolve.sampling.decoding import decoding_mode

    model = tiny_model(words=60, hidden=32, layers=1, spread=12.0).to("meta")  # stands for a GPU
    with decoding_mode(model):
        assert model.config._attn_implementation == "selfevolve_decode"
    assert model.config._attn_implementation == "sdpa"


def test_autocast_keeps_no_keys_in_float32(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from selfevolve.sampling.decoding import RoomyLayer

    kept: set[Any] = set()
    update = RoomyLayer.update

    def spy(self: Any, *tensors: Any, **options: Any) -> Any:
        found = update(self, *tensors, **options)
        kept.update(tensor.dtype for tensor in found)
        return found

    monkeypatch.setattr(RoomyLayer, "update", spy)
    model = tiny_model(words=60, hidden=32, layers=2, spread=12.0)
    ids = TransformersSampler(model, tokenizer).prompt_ids(some_prompts(4))
    for fast in (True, False):
        sampler = TransformersSampler(model, tokenizer)
        sampler.decoder.fast_attention = fast
        with torch.autocast("cpu", torch.bfloat16):
            sampler.sample_ids(ids, Sampling(n=2, max_tokens=6))
    assert kept == {torch.bfloat16}


def test_sampled_log_probabilities_match_a_forward_pass(model: Any, tokenizer: Any) -> None:
    # With top-k 1 every draw is the argmax of the model on prompt + completion so far, computed without any cache.
    sampler = TransformersSampler(model, tokenizer, batch=5)
    ids = sampler.prompt_ids(some_prompts(6, seed=3))
    for prompt, group in zip(ids, sampler.sample_ids(ids, Sampling(n=3, top_k=1, max_tokens=9)), strict=True):
        assert len({completion.ids for completion in group}) == 1
        whole = torch.tensor([[*prompt, *group[0].ids]])
        with torch.no_grad():
            best = model(whole).logits[0].argmax(-1).tolist()
        assert best[len(prompt) - 1 : -1] == list(group[0].ids)


def test_replies_do_not_depend_on_batches(model: Any, tokenizer: Any) -> None:
    prompts = some_prompts(13, seed=1)
    sampling = Sampling(n=4, max_tokens=16, seed=5, top_p=0.95)
    replies = [
        TransformersSampler(model, tokenizer, batch=b, prefill_tokens=p).sample(prompts, sampling)
        for b, p in ((1, 40), (6, 100), (512, 5000))
    ]
    assert replies[0] == replies[1] == replies[2]
    assert TransformersSampler(model, tokenizer).sample(prompts, Sampling(n=4, max_tokens=16, seed=6)) != replies[0]


def test_keys_make_shares_of_a_list_equal_to_the_whole(model: Any, tokenizer: Any) -> None:
    sampler = TransformersSampler(model, tokenizer)
    ids = sampler.prompt_ids(some_prompts(8, seed=2))
    sampling = Sampling(n=3, max_tokens=10)
    whole = sampler.sample_ids(ids, sampling)
    assert sampler.sample_ids(ids[4:], sampling, keys=range(4, 8)) == whole[4:]


def test_more_samples_continue_the_draw(model: Any, tokenizer: Any) -> None:
    sampler = TransformersSampler(model, tokenizer)
    prompts = some_prompts(6)
    whole = sampler.sample(prompts, Sampling(5, max_tokens=8, seed=3))
    begun = sampler.sample(prompts, Sampling(3, max_tokens=8, seed=3))
    chosen = [4, 1]
    more = sample_more(sampler, [prompts[i] for i in chosen], Sampling(2, max_tokens=8, seed=3, first=3), chosen)
    assert [group[:3] for group in whole] == begun
    assert [whole[i][3:] for i in chosen] == more
    assert whole[1][3:] != whole[4][3:] != begun[4][:2]


def test_more_samples_of_a_plain_sampler_have_a_seed_of_their_own() -> None:
    class Plain:
        name = "plain"

        def sample(self, prompts: Any, sampling: Sampling) -> Any:
            self.asked = sampling
            return [[Reply("x", FinishReason.STOP)] * sampling.n for _ in prompts]

    plain = Plain()
    assert len(sample_more(plain, some_prompts(2), Sampling(2, seed=3, first=3), [0, 7])[1]) == 2
    assert plain.asked.first == 0 and plain.asked.seed != 3


def test_equal_prompts_are_prefilled_once_and_answered_independently(model: Any, tokenizer: Any) -> None:
    sampler = TransformersSampler(model, tokenizer, batch=64)
    prompt = some_prompts(1)[0]
    seen: list[tuple[int, ...]] = []
    handle = model.register_forward_pre_hook(
        lambda _m, _a, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        replies = sampler.sample([prompt] * 5, Sampling(n=4, max_tokens=6))
    finally:
        handle.remove()
    assert seen[0][0] == 1 and all(shape[1] == 1 for shape in seen[1:])
    assert seen[1][0] <= 20
    assert len({reply.text for group in replies for reply in group}) > 15


def test_finished_rows_leave_the_batch(tokenizer: Any) -> None:
    model = tiny_model(words=6, hidden=32, layers=2)  # ten tokens: an end token comes early
    sampler = TransformersSampler(model, tiny_tokenizer(6), batch=200)
    sizes: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda _m, _a, kwargs: sizes.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    try:
        group = sampler.sample([user("w1 w2")], Sampling(n=200, max_tokens=40))[0]
    finally:
        handle.remove()
    assert sizes[1] > 100 and sizes[-1] < 20
    for reply in group:
        assert reply.completion_tokens == 40 or reply.finish_reason is FinishReason.STOP
    assert {reply.finish_reason for reply in group} == {FinishReason.STOP, FinishReason.LENGTH} or len(sizes) < 41


@pytest.mark.parametrize("end", [1, [1, 2]], ids=["one end id", "two end ids"])
def test_finish_reasons_and_counts(end: Any) -> None:
    model = tiny_model(words=6, hidden=32, layers=2, eos_token_id=end)
    sampler = TransformersSampler(model, tiny_tokenizer(6))
    ends = {end} if isinstance(end, int) else set(end)
    completions = sampler.sample_ids([[5, 6]], Sampling(n=300, max_tokens=4))[0]
    for completion in completions:
        assert completion.stopped == (completion.ids[-1] in ends)
        assert not set(completion.ids[:-1]) & ends
        assert completion.stopped or len(completion.ids) == 4
    assert {c.ids[-1] for c in completions if c.stopped} == ends
    # an end token drawn as the last token allowed is a stop, not a cut
    assert any(c.stopped and len(c.ids) == 4 for c in completions)


def test_pad_equal_to_end(model: Any, tokenizer: Any) -> None:
    shared = tiny_tokenizer(60)
    shared.pad_token = "<eos>"
    prompts = some_prompts(12, seed=4)
    sampling = Sampling(n=8, max_tokens=30, temperature=2.0)
    replies = TransformersSampler(model, shared).sample(prompts, sampling)
    assert replies == TransformersSampler(model, tokenizer).sample(prompts, sampling)
    assert {reply.finish_reason for group in replies for reply in group} == {FinishReason.STOP, FinishReason.LENGTH}


def test_distribution_of_the_first_token(tokenizer: Any) -> None:
    model = tiny_model(words=6, hidden=32, layers=2, spread=4.0)
    sampler = TransformersSampler(model, tiny_tokenizer(6), batch=1000)
    with torch.no_grad():
        logits = model(torch.tensor([[4, 7, 5]])).logits[0, -1]
    for temperature in (1.0, 0.5):
        group = sampler.sample_ids([[4, 7, 5]], Sampling(n=4000, max_tokens=1, temperature=temperature))[0]
        counts = Counter(completion.ids[0] for completion in group)
        expected = (logits.double() / temperature).softmax(-1).numpy() * 4000
        observed = np.array([counts[token] for token in range(len(expected))])
        assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_second_token_is_drawn_given_the_first(tokenizer: Any) -> None:
    model = tiny_model(words=2, hidden=32, layers=2, spread=3.0)
    sampler = TransformersSampler(model, tiny_tokenizer(2), batch=500)
    group = sampler.sample_ids([[4, 5]], Sampling(n=6000, max_tokens=2))[0]
    counts = Counter(completion.ids for completion in group if completion.ids[0] != 1)
    with torch.no_grad():
        first = model(torch.tensor([[4, 5]])).logits[0, -1].double().softmax(-1)
        pairs = {
            (a, b): float(first[a] * after[b])
            for a in range(6)
            if a != 1
            for after in [model(torch.tensor([[4, 5, a]])).logits[0, -1].double().softmax(-1)]
            for b in range(6)
        }
    total = sum(counts.values())
    mass = sum(pairs.values())
    observed = np.array([counts[pair] for pair in pairs])
    expected = np.array([p / mass * total for p in pairs.values()])
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("spread", [0.3, 2.0, 8.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 0.9), (0, 0.99), (5, 1.0), (40, 1.0), (20, 0.7), (200, 0.5)])
def test_support_is_that_of_transformers(spread: float, top_k: int, top_p: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 150, generator=generator) * spread
    expected = logits / 0.8
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    got = token_probabilities(logits, Sampling(temperature=0.8, top_k=top_k, top_p=top_p))
    assert torch.equal(got > 0, torch.isfinite(expected))
    assert torch.allclose(got / got.sum(-1, keepdim=True), expected.softmax(-1), atol=1e-6)


def test_choose_inverts_the_cumulative_distribution() -> None:
    logits = torch.log(torch.tensor([[0.25, 0.0, 0.5, 0.25]] * 5))
    u = torch.tensor([0.0, 0.2499, 0.2501, 0.7501, 1 - 2.0**-52], dtype=torch.float64)
    assert choose(logits, Sampling(), u).tolist() == [0, 0, 2, 3, 3]
    assert choose(logits, Sampling(), None).tolist() == [2] * 5


@pytest.mark.parametrize("uniform", [None, torch.tensor([0.5, 0.5], dtype=torch.float64)])
def test_broken_logits_are_refused(uniform: Any) -> None:
    with pytest.raises(ValueError, match="NaN"):
        choose(torch.tensor([[0.0, 1.0], [float("nan"), 1.0]]), Sampling(), uniform)


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    keys, samples = np.arange(300, dtype=np.uint64), np.zeros(300, dtype=np.uint64)
    table = uniforms(3, keys, samples, 100)
    assert stats.kstest(table.ravel(), "uniform").pvalue > 1e-3
    other = uniforms(3, keys, samples + np.uint64(1), 100)
    reseeded = uniforms(4, keys, samples, 100)
    neighbours = [(table[:-1], table[1:]), (table[:, :-1], table[:, 1:]), (table, other), (table, reseeded)]
    for a, b in neighbours:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02
    assert len(np.unique(np.concatenate([table.ravel(), other.ravel()]))) == 60000


def test_long_and_empty_prompts_are_refused_never_cut(model: Any, tokenizer: Any) -> None:
    sampler = TransformersSampler(model, tokenizer, max_prompt_tokens=5)
    replies = sampler.sample([user("w1 " * 6), user("w1 w2"), user("")], Sampling(n=2, max_tokens=4))
    assert [reply.finish_reason for reply in replies[0]] == [FinishReason.ERROR] * 2
    assert replies[0][0].error is not None and "6 tokens" in replies[0][0].error and "5" in replies[0][0].error
    assert replies[0][0].prompt_tokens == 6 and replies[0][0].text == ""
    assert all(reply.finish_reason is not FinishReason.ERROR for reply in replies[1])
    assert replies[2][0].finish_reason is FinishReason.ERROR
    with pytest.raises(ValueError, match="6 tokens"):
        sampler.sample_ids([[4] * 6], Sampling())
    # the refused prompt does not shift the random numbers of the others
    assert sampler.sample([user("w3"), user("w1 w2")], Sampling(n=2, max_tokens=4))[1] == replies[1]


def test_context_length_bounds_the_prompt(tokenizer: Any) -> None:
    small = tiny_model(words=60, hidden=32, layers=1, max_position_embeddings=20)
    sampler = TransformersSampler(small, tokenizer)
    reply = sampler.sample([user("w1 " * 12)], Sampling(max_tokens=10))[0][0]
    assert reply.finish_reason is FinishReason.ERROR
    assert sampler.sample([user("w1 " * 12)], Sampling(max_tokens=8))[0][0].finish_reason is not FinishReason.ERROR


def test_training_mode_is_restored(model: Any, tokenizer: Any) -> None:
    model.train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    attention = model.config._attn_implementation
    during: list[bool] = []
    handle = model.register_forward_pre_hook(lambda module, _args: during.append(module.training))
    try:
        TransformersSampler(model, tokenizer).sample(some_prompts(2), Sampling(max_tokens=3))
        assert [module.training for module in model.modules()] == modes
        assert during and not any(during)
        assert model.config._attn_implementation == attention
        loss = model(torch.tensor([[4, 5, 6]]), labels=torch.tensor([[4, 5, 6]])).loss
        loss.backward()  # nothing made under inference mode is left in the model
    finally:
        handle.remove()
        model.zero_grad()
        model.eval()


def test_formats(model: Any, tokenizer: Any) -> None:
    chat = TransformersSampler(model, tokenizer)
    assert isinstance(chat, Sampler)
    assert chat.format is PromptFormat.CHAT
    assert chat.prompt_ids([user("w1 w2", system="w3 ")]) == [[7, 5, 6]]
    plain = TransformersSampler(model, tiny_tokenizer(60, chat=False))
    assert plain.format is PromptFormat.PLAIN
    assert plain.formatter.text(user("w1", system="w3")) == "w3\n\nw1"
    with pytest.raises(ValueError, match="tokenizer"):
        TransformersSampler(model)


def test_one_begin_token_and_no_end_token_in_plain_prompts(model: Any) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny_tokenizer(60, chat=False)
    tokenizer.bos_token = "<end>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<end> $A <eos>", special_tokens=[("<end>", 2), ("<eos>", 1)]
    )
    assert TransformersSampler(model, tokenizer).prompt_ids([user("w0 w1")]) == [[2, 4, 5]]
    tokenizer.chat_template = "<end> {{ messages[0]['content'] }}"
    assert TransformersSampler(model, tokenizer).prompt_ids([user("w0 w1")]) == [[2, 4, 5]]


@pytest.mark.parametrize(
    ("end", "opened"), [(" <think>", "<think>"), (" <think> </think>", ""), (" <think> w5", ""), ("", "")]
)
def test_a_thinking_block_that_the_template_opens_stands_before_the_reply(end: str, opened: str) -> None:
    tokenizer = tiny_tokenizer(60)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = "{{ messages[0]['content'] }}{% if add_generation_prompt %}" + end + "{% endif %}"
    sampler = TransformersSampler(tiny_model(words=62, hidden=32, layers=1, spread=12.0), tokenizer)
    ids = sampler.prompt_ids([user("w1 w2"), user("w3")])
    assert [sampler.formatter.opened(prompt) for prompt in ids] == [opened] * 2
    sampling = Sampling(n=2, max_tokens=4)
    words = sampler.texts([c for group in sampler.sample_ids(ids, sampling) for c in group])
    found = [reply.text for group in sampler.sample([user("w1 w2"), user("w3")], sampling) for reply in group]
    assert set(found) == {opened + text for text in words.values()}


def test_model_from_folder(tmp_path: Any, model: Any, tokenizer: Any) -> None:
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = TransformersSampler(tmp_path, device="cpu")
    sampling = Sampling(n=2, max_tokens=6)
    assert loaded.sample(some_prompts(3), sampling) == TransformersSampler(model, tokenizer).sample(
        some_prompts(3), sampling
    )
    assert loaded.name == str(tmp_path)


def test_greedy_copies_are_warned_of(model: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    replies = TransformersSampler(model, tokenizer).sample([user("w1")], Sampling(n=3, temperature=0.0, max_tokens=3))
    assert len(set(replies[0])) == 1 and "copies" in caplog.text
