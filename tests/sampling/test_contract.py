"""What every sampler keeps, run on all of them: scripted, transformers, HTTP (chat, plain), vLLM, each also cached.

The slow cases are a real vLLM, as a server and in process; they need SELFEVOLVE_VLLM_PYTHON (see ``vllm_real.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from selfevolve.sampling import (
    FinishReason,
    KeyedSampler,
    Prompt,
    Reply,
    Sampler,
    Sampling,
    ScriptedSampler,
    sample_more,
    user,
)
from selfevolve.sampling.cache import CachedSampler, ReplyCache
from selfevolve.sampling.http_sampler import Endpoint, HttpSampler
from tests.sampling import fake_vllm
from tests.sampling.fake_server import FakeServer
from tests.tiny_model import tiny_model, tiny_tokenizer

FAILED = (FinishReason.TIMEOUT, FinishReason.ERROR)
PROMPTS = [user("w1 w2"), user("w3"), user("w4 w5 w6 w7"), user("w1 w2", "w8 ")]
LENGTHS = [2, 1, 4, 3]  # tokens, in every one of the backends: a word is a token, templates add nothing


@dataclass
class Backend:
    """A sampler, and what is particular about it."""

    sampler: Any
    refused: Prompt  # a prompt that it cannot answer
    seeded: bool = True  # draws follow the seed
    cuts: bool = True  # replies are cut at max_tokens


def scripted(stack: ExitStack, patch: pytest.MonkeyPatch) -> Backend:
    def script(prompt: Prompt, index: int) -> str | Reply:
        if prompt[-1].content == "boom":
            return Reply("", FinishReason.ERROR, error="boom")
        return f"{prompt[-1].content} {index}"

    return Backend(ScriptedSampler(script), user("boom"), seeded=False, cuts=False)


def transformers(stack: ExitStack, patch: pytest.MonkeyPatch) -> Backend:
    torch = pytest.importorskip("torch")
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stack.callback(torch.set_num_threads, threads)
    model = tiny_model(words=20, hidden=32, layers=1)  # nearly uniform: an end token in 24
    return Backend(TransformersSampler(model, tiny_tokenizer(20)), user(" ".join(["w1"] * 600)))


def http(stack: ExitStack, patch: pytest.MonkeyPatch, api: str = "chat") -> Backend:
    def script(body: dict[str, Any], index: int) -> str | dict[str, Any]:
        turn = body["messages"][-1]["content"] if api == "chat" else body["prompt"]
        draw = body["seed"] + index
        words = [turn, str(draw), *["on"] * (draw % 40)]
        return {"text": None} if "boom" in turn else " ".join(words)

    server = stack.enter_context(FakeServer(script, token_ids=True))  # each choice brings its count
    limits: dict[str, Any] = {"max_retries": 1, "backoff_seconds": 0.001}
    return Backend(HttpSampler(Endpoint(server.urls, server.model, api=api, **limits)), user("boom"))  # type: ignore[arg-type]


def plain_http(stack: ExitStack, patch: pytest.MonkeyPatch) -> Backend:
    return http(stack, patch, "completions")


def vllm(stack: ExitStack, patch: pytest.MonkeyPatch) -> Backend:
    pytest.importorskip("torch")
    from selfevolve.sampling.vllm_sampler import VllmSampler

    patch.setitem(sys.modules, "vllm", fake_vllm.module(tiny_tokenizer(60), 600))
    return Backend(VllmSampler("folder"), user(" ".join(["w1"] * 599)))


def served_by_vllm(request: pytest.FixtureRequest, api: str) -> Backend:
    start = request.getfixturevalue("start_server")  # first: it skips
    server = start(request.getfixturevalue("tiny_folder"), 512, "--generation-config", "vllm")
    options: dict[str, Any] = {"extra_body": {"return_token_ids": True}}  # each choice brings its count
    return Backend(HttpSampler(Endpoint((server.url,), server.model, api=api, **options)), user(" ".join(["w1"] * 600)))  # type: ignore[arg-type]


def vllm_server(request: pytest.FixtureRequest) -> Backend:
    return served_by_vllm(request, "chat")


def plain_vllm_server(request: pytest.FixtureRequest) -> Backend:
    return served_by_vllm(request, "completions")


def vllm_engine(request: pytest.FixtureRequest) -> Backend:
    start = request.getfixturevalue("start_engine")
    engine = start(request.getfixturevalue("tiny_folder"), 512)
    return Backend(engine, user(" ".join(["w1"] * 600)))


BACKENDS = {f.__name__: f for f in (scripted, transformers, http, plain_http, vllm)}
REAL = {f.__name__: f for f in (vllm_server, plain_vllm_server, vllm_engine)}  # skipped without vLLM
NAMES = [*BACKENDS, *REAL]
CASES = [*NAMES, *(f"cached {name}" for name in NAMES)]
MARKS = {case: [pytest.mark.slow] if case.split()[-1] in REAL else [] for case in CASES}


@pytest.fixture(scope="module", params=[pytest.param(case, marks=MARKS[case]) for case in CASES])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    name = request.param.split()[-1]
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        made = REAL[name](request) if name in REAL else BACKENDS[name](stack, patch)
        if request.param != name:
            file: Path = tmp_path_factory.mktemp("cache") / "replies"
            made.sampler = CachedSampler(made.sampler, ReplyCache(file), identity=name)
        yield made


def test_it_is_a_sampler_with_a_name(backend: Backend) -> None:
    assert isinstance(backend.sampler, Sampler)
    assert backend.sampler.name and isinstance(backend.sampler.name, str)


def test_n_order_counts_and_reasons(backend: Backend) -> None:
    groups = backend.sampler.sample(PROMPTS, Sampling(n=3, max_tokens=30, seed=1))
    assert [len(group) for group in groups] == [3] * 4
    assert [[reply.prompt_tokens for reply in group] for group in groups] == [[length] * 3 for length in LENGTHS]
    for reply in (reply for group in groups for reply in group):
        assert isinstance(reply.text, str) and reply.error is None
        assert reply.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert 1 <= reply.completion_tokens <= 30
        assert reply.complete == (reply.finish_reason is FinishReason.STOP)
        assert reply.seconds >= 0
        if reply.finish_reason is FinishReason.LENGTH:
            assert reply.completion_tokens == 30
    assert len({reply.text for group in groups for reply in group}) > 6


def test_nothing_asked_nothing_answered(backend: Backend) -> None:
    assert backend.sampler.sample([], Sampling(n=3)) == []


def test_short_limits_cut_and_long_ones_do_not(backend: Backend) -> None:
    short = backend.sampler.sample(PROMPTS, Sampling(n=2, max_tokens=1, seed=2))
    long = backend.sampler.sample(PROMPTS, Sampling(n=2, max_tokens=400, seed=2))
    if backend.cuts:
        reasons = [reply.finish_reason for group in short for reply in group]
        assert reasons.count(FinishReason.LENGTH) >= 6
        assert {reply.completion_tokens for group in short for reply in group} == {1}
    assert all(reply.complete and reply.completion_tokens < 400 for group in long for reply in group)


def test_a_refused_prompt_is_a_reply_and_harms_no_other(backend: Backend) -> None:
    sampling = Sampling(n=2, max_tokens=20, seed=3)
    groups = backend.sampler.sample([PROMPTS[0], backend.refused, PROMPTS[1]], sampling)
    assert [len(group) for group in groups] == [2, 2, 2]
    assert all(reply.finish_reason in FAILED and reply.error and not reply.complete for reply in groups[1])
    assert all(reply.finish_reason not in FAILED for group in (groups[0], groups[2]) for reply in group)


def test_the_seed_decides_the_draws(backend: Backend) -> None:
    one = backend.sampler.sample(PROMPTS, Sampling(n=2, max_tokens=20, seed=4))
    assert backend.sampler.sample(PROMPTS, Sampling(n=2, max_tokens=20, seed=4)) == one
    if backend.seeded:
        assert backend.sampler.sample(PROMPTS, Sampling(n=2, max_tokens=20, seed=5)) != one


def test_keys_stand_in_for_places(backend: Backend) -> None:
    sampling = Sampling(n=2, max_tokens=20, seed=6)
    places = backend.sampler.sample(PROMPTS, sampling)
    assert isinstance(backend.sampler, KeyedSampler)
    assert backend.sampler.sample_keyed(PROMPTS[::-1], sampling, [3, 2, 1, 0]) == places[::-1]
    assert backend.sampler.sample_keyed(PROMPTS[2:], sampling, [2, 3]) == places[2:]


def test_later_samples_continue_the_draw(backend: Backend) -> None:
    whole = backend.sampler.sample_keyed(PROMPTS, Sampling(n=5, max_tokens=20, seed=7), range(4))
    begun = backend.sampler.sample_keyed(PROMPTS[1:], Sampling(n=2, max_tokens=20, seed=7), range(1, 4))
    more = sample_more(backend.sampler, PROMPTS[1:], Sampling(n=3, max_tokens=20, seed=7, first=2), range(1, 4))
    assert [a + b for a, b in zip(begun, more, strict=True)] == whole[1:]


def test_greedy_replies_are_copies(backend: Backend) -> None:
    if not backend.seeded:
        pytest.skip("a script decides")
    groups = backend.sampler.sample(PROMPTS, Sampling(n=3, temperature=0, max_tokens=12))
    assert all(len(group) == 3 and len(set(group)) == 1 for group in groups)
