"""The sampler on vLLM against a stand-in for the package."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from selfevolve.sampling import FinishReason, Sampler, Sampling, user
from tests.sampling import fake_vllm
from tests.tiny_model import tiny_tokenizer

pytest.importorskip("torch")

from selfevolve.sampling.transformers_sampler import PromptFormat
from selfevolve.sampling.vllm_sampler import VllmSampler

STOP, LENGTH, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake_vllm.module(tiny_tokenizer(60))
    monkeypatch.setitem(sys.modules, "vllm", module)
    return module


def test_what_the_engine_is_told(vllm: Any) -> None:
    sampler = VllmSampler("folder", engine={"max_model_len": 40, "gpu_memory_utilization": 0.3})
    assert isinstance(sampler, Sampler) and sampler.name == "folder" and sampler.format is PromptFormat.CHAT
    told = {"gpu_memory_utilization": 0.3, "trust_remote_code": False, "load_format": "safetensors"}
    assert sampler.engine.options == told
    groups = sampler.sample([user("w1 w2"), user("w3")], Sampling(3, 0.7, 0.9, 0, 11, seed=5))
    ((prompts, params, tqdm),) = vllm.log
    words = sampler.formatter.tokenizer.convert_ids_to_tokens
    assert [words(prompt["prompt_token_ids"]) for prompt in prompts] == [["w1", "w2"], ["w3"]]
    assert tqdm is False
    assert [(p.n, p.temperature, p.top_p, p.top_k, p.max_tokens) for p in params] == [(3, 0.7, 0.9, -1, 11)] * 2
    assert abs(params[0].seed - params[1].seed) > 3  # samples are seeded by seed + index
    assert [group[0].seed for group in groups] == [p.seed for p in params]
    assert [reply.text for reply in groups[0]] == [f"w1 w2 w{(params[0].seed + i) % 50}" for i in range(3)]
    assert {(r.finish_reason, r.prompt_tokens, r.completion_tokens) for r in groups[0]} == {(STOP, 2, 4)}
    sampler.sample([user("w1 w2"), user("w3")], Sampling(3, 0.7, 0.9, 20, 11, seed=5))
    assert [p.top_k for p in vllm.log[1][1]] == [20, 20]
    assert [p.seed for p in vllm.log[1][1]] == [p.seed for p in params]


def test_keys_stand_in_for_places_and_later_samples_continue_the_draw(vllm: Any) -> None:
    sampler, prompts = VllmSampler("m"), [user("w1"), user("w2")]
    whole = sampler.sample(prompts, Sampling(n=5, seed=3))
    assert sampler.sample_keyed(prompts[::-1], Sampling(n=5, seed=3), [1, 0]) == whole[::-1]
    assert sampler.sample_keyed(prompts[1:], Sampling(n=2, seed=3, first=3), [1]) == [whole[1][3:]]


def test_on_a_cpu_prompts_are_read_whole(vllm: Any) -> None:
    vllm.on_cpu = True
    assert VllmSampler("m").engine.options["enable_chunked_prefill"] is False
    assert VllmSampler("m", engine={"enable_chunked_prefill": True}).engine.options["enable_chunked_prefill"] is True


def test_plain_format_and_a_loaded_engine(vllm: Any) -> None:
    engine = fake_vllm.LLM("m", tiny_tokenizer(60, chat=False), 40, [])
    sampler = VllmSampler(engine)
    assert sampler.format is PromptFormat.PLAIN and sampler.engine is engine and sampler.name == "LLM"
    assert sampler.sample([user("w1", "w2")], Sampling(max_tokens=20))[0][0].text.startswith("w2 w1 ")
    assert '"format": "plain"' in sampler.identity


def test_a_reply_ends_where_the_template_ends_a_turn(vllm: Any) -> None:
    sampler = VllmSampler("m")
    tokenizer = sampler.formatter.tokenizer
    given: list[dict[str, Any]] = []
    inner = sampler._params
    sampler._params = lambda **keys: given.append(keys) or inner(**keys)
    sampler.sample([user("w1")], Sampling(max_tokens=5))
    tokenizer.add_special_tokens({"additional_special_tokens": ["w5"]})
    tokenizer.chat_template = "{{ messages[0]['content'] }} {{ messages[-1]['content'] }} w5"
    del sampler.formatter.turn_end  # found once; the template is another one now
    sampler.sample([user("w1")], Sampling(max_tokens=5))
    assert [keys.get("stop_token_ids") for keys in given] == [None, [tokenizer.convert_tokens_to_ids("w5")]]


def test_a_thinking_block_that_the_template_opens_stands_before_the_reply(vllm: Any) -> None:
    sampler = VllmSampler("m")
    tokenizer = sampler.formatter.tokenizer
    tokenizer.add_tokens(["<think>"])
    tokenizer.chat_template = "{{ messages[0]['content'] }} <think>"
    (reply,) = sampler.sample([user("w1")], Sampling(max_tokens=11))[0]
    assert reply.text.startswith("<think>w1 ") and reply.prompt_tokens == 2


def test_finish_reasons(vllm: Any) -> None:
    sampler = VllmSampler("m")
    cut, aborted = sampler.sample([user("w1 w2 w3"), user("w12")], Sampling(n=2, max_tokens=3))
    assert [(r.finish_reason, r.completion_tokens, r.text) for r in cut] == [(LENGTH, 3, "w1 w2 w3")] * 2
    assert [(r.finish_reason, r.error) for r in aborted] == [(ERROR, "finish reason abort"), (STOP, None)]


def test_greedy_is_drawn_once(vllm: Any) -> None:
    ((one, two),) = VllmSampler("m").sample([user("w1")], Sampling(n=2, temperature=0, max_tokens=9))
    assert one == two and one.finish_reason is STOP
    assert vllm.log[0][1][0].n == 1


def test_prompts_that_do_not_fit_are_replies(vllm: Any) -> None:
    sampler = VllmSampler("m")
    long = user(" ".join(["w1"] * 31))
    groups = sampler.sample([user(""), user("w1"), long], Sampling(n=2, max_tokens=10))
    assert [group[0].finish_reason for group in groups] == [ERROR, STOP, ERROR]
    assert [group[0].prompt_tokens for group in groups] == [0, 1, 31]
    assert "31 tokens, at most 30 fit" in (groups[2][1].error or "")
    assert [len(prompts) for prompts, _, _ in vllm.log] == [1]
    assert VllmSampler("m", max_prompt_tokens=3).prompt_limit(Sampling(max_tokens=10)) == 3
    assert sampler.sample([user("")], Sampling())[0][0].finish_reason is ERROR
    assert len(vllm.log) == 1  # nothing was left to ask


def test_an_engine_that_fails_gives_replies(vllm: Any, caplog: pytest.LogCaptureFixture) -> None:
    groups = VllmSampler("m").sample([user("w1"), user("w13")], Sampling(n=2, max_tokens=9))
    assert all(r.finish_reason is ERROR and "RuntimeError: CUDA error" in (r.error or "") for g in groups for r in g)
    assert "the engine failed" in caplog.text


def test_code_of_a_repository_runs_only_where_allowed(vllm: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert VllmSampler("org/model").engine.options["trust_remote_code"] is False
    assert not caplog.records
    assert VllmSampler("org/model", trust_remote_code=True).engine.options["trust_remote_code"] is True
    assert "org/model" in caplog.text and "trust_remote_code" in caplog.text


def test_without_vllm_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ValueError, match=r"install selfevolve\[vllm\]"):
        VllmSampler("m")
