"""The HTTP sampler against a real server on 127.0.0.1 that misbehaves on demand, and its parts by hand."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from selfevolve.sampling import FinishReason, KeyedSampler, Sampling, user
from selfevolve.sampling._completions import read_answer
from selfevolve.sampling._limiter import BudgetSpent, CallStopped, Limiter, Window
from selfevolve.sampling._replicas import Replicas
from selfevolve.sampling._retry import backoff, retry_after_seconds
from selfevolve.sampling.endpoint import Api, Budget, Endpoint
from selfevolve.sampling.http_sampler import HttpSampler
from tests.sampling.fake_server import TRANSIENT, FakeServer, Fault, Faults, echo

STOP, LENGTH, TIMEOUT, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.TIMEOUT, FinishReason.ERROR
QUICK: dict[str, Any] = {
    "connect_seconds": 1.0,
    "read_seconds": 0.3,
    "total_seconds": 20.0,
    "backoff_seconds": 0.002,
    "backoff_max_seconds": 0.02,
}


def sampler_of(server: FakeServer, **settings: Any) -> HttpSampler:
    return HttpSampler(Endpoint(server.urls, server.model, **(QUICK | settings)))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


# the parts


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0.25", 0.25),
        (" 7 ", 7.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:28:30 -0000", 30.0),
        ("Wed, 21 Oct 2026 09:28:30 +0200", 30.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("-5", None),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)) == seconds


def test_backoff_doubles_is_bounded_and_is_seeded() -> None:
    for failures, full in [(1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (5000, 30.0)]:
        drawn = [backoff(0.5, 30.0, failures, seed) for seed in range(200)]
        assert all(full / 2 <= pause <= full for pause in drawn)
        assert max(drawn) - min(drawn) > 0.4 * full
    assert backoff(0.5, 30.0, 3, 11) == backoff(0.5, 30.0, 3, 11)


def test_window_is_exact() -> None:
    now = 0.0
    window = Window(10, 60.0, lambda: now)
    assert window.delay(10) == 0
    first = window.add(4)
    now = 20.0
    window.add(6)
    assert window.delay(1) == 40.0  # when the 4 leave, at 60
    assert window.delay(5) == 60.0  # when the 6 leave too, at 80
    window.settle(first, 1)  # 7 of 10 are used
    assert window.delay(3) == 0
    assert window.delay(4) == 40.0
    assert window.delay(99) == 60.0  # more than the whole limit waits for an empty window
    now = 60.0
    assert window.delay(4) == 0
    window.settle(first, 1000)  # too late: it has left
    assert window.delay(4) == 0
    now = 80.0
    assert window.delay(99) == 0


def test_limiter_holds_rates_and_concurrency() -> None:
    limiter = Limiter(3, requests_per_minute=10, span=0.4)
    inside, most, times = 0, 0, []
    lock = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with limiter.admit(1):
                with lock:
                    inside += 1
                    most = max(most, inside)
                    times.append(time.monotonic())
                time.sleep(0.002)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    assert most == 3 and len(times) == 25
    assert all(later - earlier > 0.38 for earlier, later in zip(times, times[10:], strict=False))
    assert times[-1] - times[0] < 3


def test_tokens_a_minute_are_estimated_then_settled() -> None:
    limiter = Limiter(4, tokens_per_minute=100, span=0.3)
    start = time.monotonic()
    for _ in range(4):  # 30 used and 70 expected fit once more
        with limiter.admit(70) as permit:
            permit.tokens, permit.completion_tokens = 10, 7
    assert time.monotonic() - start < 0.2
    with limiter.admit(70):  # 40 used: waits until the first has left
        pass
    assert time.monotonic() - start > 0.28
    assert limiter.completion_tokens == 28


def test_a_caller_that_stops_leaves_the_queue() -> None:
    limiter = Limiter(1, requests_per_minute=1, span=30)
    stop = threading.Event()
    with limiter.admit(1):
        stop.set()
        with pytest.raises(CallStopped), limiter.admit(1, stop):
            pass
    with pytest.raises(CallStopped), limiter.admit(1, stop):
        pass


def test_budget_of_requests_is_exact() -> None:
    limiter = Limiter(4, budget=Budget(requests=2))
    for _ in range(2):
        with limiter.admit(1):
            pass
    with pytest.raises(BudgetSpent, match="budget: 2 requests"), limiter.admit(1):
        pass


def test_replicas() -> None:
    now = 0.0
    replicas = Replicas(3, lambda: now)
    assert [replicas.take() for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    replicas.give_back(1)
    assert replicas.take() == 1  # the fewest under way
    replicas.give_back(1)
    assert replicas.take(avoid=1) == 0  # the request failed there
    replicas.rest(1, 5)
    assert replicas.rest_left() == 0
    assert replicas.take() == 2
    replicas.rest(0, 2)
    replicas.rest(2, 9)
    assert replicas.rest_left() == 2
    assert replicas.take() == 0  # all rest: the one that wakes first
    now = 6.0  # 0 and 1 are awake
    assert replicas.take(avoid=1) == 0
    assert replicas.take(avoid=0) == 1


def chat(*choices: Any, **usage: Any) -> bytes:
    return json.dumps({"choices": list(choices), "usage": usage or None}).encode()


def choice(text: Any = "a b", reason: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"message": {"content": text}, "finish_reason": reason, **more}


@pytest.mark.parametrize(
    ("content", "asked", "replies", "problem"),
    [
        (chat(choice(), completion_tokens=2, prompt_tokens=5), 1, [("a b", STOP, 5, 2)], None),
        (chat(choice(reason="length"), completion_tokens=2), 1, [("a b", LENGTH, 0, 2)], None),
        (chat(choice(None, "length")), 1, [("", LENGTH, 0, 0)], None),  # cut off while it was thinking
        (chat(choice("", "stop")), 1, [("", STOP, 0, 0)], None),
        (chat(choice(None, "tool_calls")), 1, [("", ERROR, 0, 0)], None),
        (chat(choice("a", "content_filter")), 1, [("a", ERROR, 0, 0)], None),
        (chat(choice("a", None)), 1, [("a", ERROR, 0, 0)], None),
        # eight tokens over three replies: 3, 3, 2
        (chat(*[choice()] * 3, completion_tokens=8), 3, [("a b", STOP, 0, 3), ("a b", STOP, 0, 3), ("a b", STOP, 0, 2)], None),
        # own counts, in the order of the indices; and more choices than asked
        (chat(choice("b", index=1, token_ids=[7]), choice("a", index=0, token_ids=[1, 2, 3]), completion_tokens=4), 2, [("a", STOP, 0, 3), ("b", STOP, 0, 1)], None),
        (chat(choice("a", logprobs={"content": [{}, {}]}), completion_tokens=9), 1, [("a", STOP, 0, 2)], None),
        (chat(choice("a"), choice("b"), choice("c"), completion_tokens=6), 2, [("a", STOP, 0, 2), ("b", STOP, 0, 2)], None),
        (chat(choice("a"), completion_tokens=6), 3, [("a", STOP, 0, 6)], "1 choices came, 3"),
        (chat(choice("a"), choice(None), completion_tokens=6), 2, [("a", STOP, 0, 3)], "null content"),
        (chat(choice("a"), completion_tokens="six", prompt_tokens=-1), 1, [("a", STOP, 0, 0)], None),
        # half of a character, which no file could hold
        (chat(choice("a\ud83d b")), 1, [("a\N{REPLACEMENT CHARACTER} b", STOP, 0, 0)], None),
        (chat(choice("\ud83d\ude00")), 1, [("\U0001f600", STOP, 0, 0)], None),
        (chat(choice(7)), 1, [], "wrong type"),
        (chat(choice("a", 7)), 1, [], "wrong type"),
        (chat({"message": "a", "finish_reason": "stop"}), 1, [], "without a message"),
        (chat("a"), 1, [], "without a message"),
        (chat(), 1, [], "empty choices"),
        (b'{"error": {"message": "overloaded"}}', 1, [], "no choices.*overloaded"),
        (b'{"choices": {"0": 1}}', 1, [], "no choices"),
        (b"[]", 1, [], "list came"),
        (b'{"choices": [{"mess', 1, [], "broken JSON"),
        (b"\xff\xfe", 1, [], "broken JSON"),
        (b"[" * 100_000, 1, [], "broken JSON"),
        (b"", 1, [], "broken JSON"),
    ],
)  # fmt: skip
def test_read_answer(content: bytes, asked: int, replies: list[Any], problem: str | None) -> None:
    answer = read_answer(content, Api.CHAT, asked)
    assert [(r.text, r.finish_reason, r.prompt_tokens, r.completion_tokens) for r in answer.replies] == replies
    assert all((reply.error is not None) == (reply.finish_reason is ERROR) for reply in answer.replies)
    if problem is None:
        assert answer.problem is None
    else:
        assert answer.problem is not None and re.search(problem, answer.problem)


# settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"base_urls": ()}, "at least one address"),
        ({"base_urls": ("http://a/v1", "http://a/v1/")}, "each once"),
        ({"base_urls": ("localhost:8000/v1",)}, "reads like http"),
        ({"base_urls": ("https://sk-secret@host/v1",)}, "api_key_env"),
        ({"base_urls": ("https://host/v1?key=sk-secret",)}, "api_key_env"),
        ({"model": ""}, "under /models"),
        ({"concurrency": 0}, "at least 1"),
        ({"tokens_per_minute": 0}, "at least 1"),
        ({"read_seconds": 0}, "above 0 and finite"),
        ({"total_seconds": float("inf")}, "above 0 and finite"),
        ({"max_retries": -1}, "0 or more"),
        ({"backoff_seconds": 40.0}, "first <= max"),
        ({"extra_body": {"n": 3, "seed": 1}}, "sets n, seed"),
        ({"extra_body": {"a": float("nan")}}, "JSON"),
        ({"api": "telnet"}, "telnet"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        Endpoint(**({"base_urls": ("http://127.0.0.1:9/v1",), "model": "m"} | settings))
    assert "sk-secret" not in str(caught.value)


def test_one_limiter_an_endpoint() -> None:
    endpoint = Endpoint("http://127.0.0.1:9/limits/v1", "one", concurrency=5)  # type: ignore[arg-type]
    assert endpoint.base_urls == ("http://127.0.0.1:9/limits/v1",)
    one = HttpSampler(endpoint)
    other = HttpSampler(Endpoint(endpoint.base_urls, "two", concurrency=5))
    assert one._limiter is other._limiter
    with pytest.raises(ValueError, match="concurrency is 5 there and 6 here"):
        HttpSampler(Endpoint(endpoint.base_urls, "two", concurrency=6))
    del one, other
    assert HttpSampler(Endpoint(endpoint.base_urls, "two", concurrency=6))._limiter.slots._value == 6  # type: ignore[attr-defined]


# what is sent


def test_requests_carry_the_sampling() -> None:
    with FakeServer() as server:
        sampler = sampler_of(server, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
        (group,) = sampler.sample([user("hi there", "be brief")], Sampling(3, 0.7, 0.9, 20, 50, seed=4))
        assert server.bodies == [
            {
                "chat_template_kwargs": {"enable_thinking": False},
                "model": "fake-model",
                "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi there"}],
                "n": 3,
                "temperature": 0.7,
                "top_p": 0.9,
                "top_k": 20,
                "max_tokens": 50,
                "seed": group[0].seed,
            }
        ]
        assert [reply.text for reply in group] == [f"hi there draw {(group[0].seed or 0) + i}" for i in range(3)]
        assert {(r.prompt_tokens, r.completion_tokens, r.finish_reason) for r in group} == {(4, 4, STOP)}
        assert all(0 < reply.seconds < 10 for reply in group)

        sampler.sample([user("x")], Sampling())
        assert "top_k" not in server.bodies[1]
        bare = sampler_of(server, send_seed=False, max_tokens_field="max_completion_tokens")
        (lone,) = bare.sample([user("\ud800")], Sampling(max_tokens=7))
        assert lone[0].finish_reason is STOP and lone[0].seed is None
        assert server.bodies[2].keys() == {"model", "messages", "n", "temperature", "top_p", "max_completion_tokens"}


def test_plain_completions_join_the_turns() -> None:
    with FakeServer() as server:
        ((reply,),) = sampler_of(server, api="completions").sample([user("b", "a")], Sampling())
        assert server.bodies[0]["prompt"] == "a\n\nb"
        assert "messages" not in server.bodies[0]
        assert reply.text.endswith(f"draw {reply.seed}")


def test_greedy_replies_are_one_request_for_one_reply() -> None:
    with FakeServer() as server:
        (group,) = sampler_of(server).sample([user("x")], Sampling(n=4, temperature=0))
        assert [body["n"] for body in server.bodies] == [1]
        assert len(group) == 4 and len(set(group)) == 1


def seeds_sent(seed: int, prompts: int) -> list[int]:
    with FakeServer(never_n=True) as server:
        sampler_of(server).sample([user(f"p{i}") for i in range(prompts)], Sampling(n=2, seed=seed))
        bodies = sorted(server.bodies, key=lambda body: (body["messages"][0]["content"], -body["n"]))
        return [body["seed"] for body in bodies]


def test_seeds_depend_on_seed_place_and_number_of_the_sample() -> None:
    first = seeds_sent(0, 4)
    assert len(set(first)) == 8 and all(0 <= seed < 2**31 for seed in first)
    assert first[1::2] == [seed + 1 for seed in first[::2]]
    assert seeds_sent(0, 4) == first
    assert seeds_sent(0, 2) == first[:4]
    assert not set(seeds_sent(1, 4)) & set(first)


def test_keys_stand_in_for_places_and_later_samples_continue_the_draw() -> None:
    prompts = [user("a"), user("b"), user("c")]
    with FakeServer() as server:
        sampler = sampler_of(server)
        assert isinstance(sampler, KeyedSampler)
        whole = sampler.sample(prompts, Sampling(n=5, seed=3))
        assert sampler.sample_keyed(prompts[::-1], Sampling(n=5, seed=3), [2, 1, 0]) == whole[::-1]
        more = sampler.sample_keyed(prompts[1:], Sampling(n=3, seed=3, first=2), [1, 2])
        assert more == [group[2:] for group in whole[1:]]


def test_a_choice_that_was_no_use_is_not_drawn_again() -> None:
    broken = []

    def script(body: dict[str, Any], index: int) -> str | dict[str, Any]:
        broken.append(index) if not broken else None
        return {"text": None} if len(broken) == 1 and index == 0 and body["n"] == 3 else echo(body, index)

    with FakeServer(script) as server:
        (group,) = sampler_of(server).sample([user("q")], Sampling(n=3))
        start = server.bodies[0]["seed"]
        assert [reply.text for reply in group] == [f"q draw {start + i}" for i in (1, 2, 3)]


# faults, one at a time


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_fault_is_mended(fault: Fault) -> None:
    with FakeServer(faults=Faults(schedule=(fault, fault, None))) as server:
        (group,) = sampler_of(server).sample([user("q")], Sampling(n=3))
    assert [reply.finish_reason for reply in group] == [STOP] * 3
    assert len({reply.text for reply in group}) == 3
    with FakeServer() as server:
        assert sampler_of(server).sample([user("q")], Sampling(n=3)) == [group]
    assert all(reply.prompt_tokens == 1 for reply in group)


@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_fault_that_stays_is_a_reply(fault: Fault) -> None:
    with FakeServer(faults=Faults(rate=1.0, kinds=(fault,), hang_seconds=0.2)) as server:
        sampler = sampler_of(server, max_retries=2, read_seconds=0.1)
        (group,) = sampler.sample([user("q")], Sampling(n=3))
        requests = server.stats["requests"]
    if fault in (Fault.N_IGNORED, Fault.N_EXCEEDED):
        assert [reply.finish_reason for reply in group] == [STOP] * 3
        assert requests == (3 if fault is Fault.N_IGNORED else 1)
        return
    assert requests == 3  # the first and two retries
    assert [reply.finish_reason for reply in group] == [TIMEOUT if fault is Fault.HANG else ERROR] * 3
    assert all(reply.error is not None and "3 requests in vain, the last" in reply.error for reply in group)


@pytest.mark.parametrize(
    ("fault", "words"),
    [(Fault.CONTENT_FILTER, "content_filter"), (Fault.NULL_REASON, "null"), (Fault.BAD_REQUEST, "status 400: it went")],
)
def test_what_no_retry_mends_is_not_retried(fault: Fault, words: str) -> None:
    with FakeServer(faults=Faults(rate=1.0, kinds=(fault,))) as server:
        (group,) = sampler_of(server).sample([user("q")], Sampling(n=2))
        assert server.stats["requests"] == 1
    assert [reply.finish_reason for reply in group] == [ERROR] * 2
    assert all(words in (reply.error or "") for reply in group)


def test_partial_results_are_kept() -> None:
    def script(body: dict[str, Any], index: int) -> str | dict[str, Any]:
        text = echo(body, index)
        return {"text": None} if "bad" in text and index else text

    with FakeServer(script) as server:
        sampler = sampler_of(server, max_retries=1)
        good, bad = sampler.sample([user("good"), user("bad")], Sampling(n=3))
        assert [reply.finish_reason for reply in good] == [STOP] * 3
        # each request for the bad one brings its sample 0: asked for 3, then 2, then 1
        assert [reply.finish_reason for reply in bad] == [STOP] * 3
        assert [b["n"] for b in server.bodies if b["messages"][0]["content"] == "bad"] == [3, 2, 1]
    with FakeServer(never_n=True, faults=Faults(schedule=(None, *[Fault.SERVER_ERROR] * 9))) as server:
        (group,) = sampler_of(server, max_retries=1).sample([user("q")], Sampling(n=3))
        assert [reply.finish_reason for reply in group] == [STOP, ERROR, ERROR]
        assert group[1].prompt_tokens == 1 and group[1].completion_tokens == 0


def test_a_new_reply_begins_the_retries_anew() -> None:
    with FakeServer(never_n=True, faults=Faults(schedule=(Fault.SERVER_ERROR, None) * 4)) as server:
        (group,) = sampler_of(server, max_retries=1).sample([user("q")], Sampling(n=4))
        assert [reply.finish_reason for reply in group] == [STOP] * 4
        assert server.stats["requests"] == 8


def test_a_silent_server_times_out_and_so_does_one_that_drips() -> None:
    with FakeServer(faults=Faults(rate=1.0, kinds=(Fault.HANG,), hang_seconds=3)) as server:
        start = time.monotonic()
        ((reply,),) = sampler_of(server, read_seconds=5, total_seconds=0.3).sample([user("q")], Sampling())
        assert reply.finish_reason is TIMEOUT and 0.25 < time.monotonic() - start < 2
    with FakeServer(faults=Faults(rate=1.0, kinds=(Fault.DRIP,))) as server:
        start = time.monotonic()
        ((reply,),) = sampler_of(server, read_seconds=0.2, total_seconds=0.4).sample([user("q")], Sampling())
        assert reply.finish_reason is TIMEOUT and 0.35 < time.monotonic() - start < 2
        assert "total_seconds" in (reply.error or "")


def test_retry_after_is_kept_by_all_prompts() -> None:
    arrivals: list[float] = []

    def script(body: dict[str, Any], index: int) -> str:
        arrivals.append(time.monotonic())
        return "ok"

    with FakeServer(script, Faults(schedule=(Fault.TOO_MANY,), retry_after="0.3")) as server:
        sampler = sampler_of(server, concurrency=1)
        replies = sampler.sample([user("a"), user("b"), user("c")], Sampling())
    assert [group[0].text for group in replies] == ["ok"] * 3
    assert arrivals[1] - arrivals[0] > 0.29  # the script runs for the refused request too


def test_a_retry_after_beyond_the_deadline_ends_at_once() -> None:
    with FakeServer(faults=Faults(schedule=(Fault.TOO_MANY,), retry_after="3600")) as server:
        sampler = sampler_of(server, total_seconds=5)
        start = time.monotonic()
        replies = sampler.sample([user("a"), user("b"), user("c")], Sampling())
        assert time.monotonic() - start < 2
        failed = [group[0] for group in replies if group[0].finish_reason is not STOP]
        assert failed and {reply.finish_reason for reply in failed} == {TIMEOUT}
        assert any("status 429: slow down" in (reply.error or "") for reply in failed)
        ((later,),) = sampler.sample([user("d")], Sampling())
        assert later.finish_reason is TIMEOUT and "can be asked again in 3" in (later.error or "")


def test_a_wrong_model_is_a_reply_and_a_clear_error_of_check() -> None:
    with FakeServer(models=("qwen", "llama")) as server:
        sampler = HttpSampler(Endpoint(server.urls, "mistral", **QUICK))
        ((reply,),) = sampler.sample([user("q")], Sampling())
        assert reply.finish_reason is ERROR and "`mistral` does not exist" in (reply.error or "")
        with pytest.raises(ValueError, match=r"does not serve 'mistral'; it serves qwen, llama"):
            sampler.check()
        HttpSampler(Endpoint(server.urls, "llama", **QUICK)).check()
        wrong = server.url.replace("/v1", "/v2/extra")
        with pytest.raises(ValueError, match=f"{wrong}/elsewhere/models answers 404"):
            HttpSampler(Endpoint((f"{wrong}/elsewhere",), "llama", **QUICK)).check()


def test_nothing_listens() -> None:
    sampler = HttpSampler(Endpoint((f"http://127.0.0.1:{free_port()}/v1",), "m", max_retries=1, **QUICK))
    ((reply,),) = sampler.sample([user("q")], Sampling())
    assert reply.finish_reason is ERROR and "no connection" in (reply.error or "")
    with pytest.raises(ValueError, match="no server answers at http://127"):
        sampler.check()


# keys


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("FAKE_KEY", "sk-very-secret")
    with FakeServer(key="sk-very-secret") as server:
        sampler = sampler_of(server, api_key_env="FAKE_KEY")
        sampler.check()
        ((reply,),) = sampler.sample([user("q")], Sampling())
        assert reply.finish_reason is STOP
        assert server.core.keys == ["Bearer sk-very-secret"] * 2
        monkeypatch.setenv("FAKE_KEY", "sk-another-one")  # the server repeats it in its refusal
        refused = sampler_of(server, api_key_env="FAKE_KEY")
        ((reply,),) = refused.sample([user("q")], Sampling())
        assert reply.finish_reason is ERROR and "401" in (reply.error or "") and "[key]" in (reply.error or "")
        with pytest.raises(ValueError, match="the key in FAKE_KEY is not accepted") as caught:
            refused.check()
        with pytest.raises(ValueError, match="api_key_env"):
            HttpSampler(Endpoint((server.url + "/.",), server.model, **QUICK)).check()
    shown = [
        repr(sampler),
        repr(refused),
        repr(vars(sampler._client)),
        sampler.identity,
        repr(reply),
        str(caught.value),
    ]
    shown += [record.getMessage() for record in caplog.records]
    assert not [text for text in shown if "secret" in text or "another" in text]


def test_a_key_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_KEY", raising=False)
    with pytest.raises(ValueError, match="FAKE_KEY is not set"):
        HttpSampler(Endpoint(("http://127.0.0.1:9/v1",), "m", api_key_env="FAKE_KEY"))


def test_a_key_over_plain_http_is_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("FAKE_KEY", "k")
    HttpSampler(Endpoint(("http://127.0.0.1:9/plain/v1",), "m", api_key_env="FAKE_KEY"))
    assert "unencrypted" not in caplog.text
    HttpSampler(Endpoint(("http://host.example/v1",), "m", api_key_env="FAKE_KEY"))
    assert "unencrypted" in caplog.text


# budget, replicas, stopping


def test_a_spent_budget_leaves_errors() -> None:
    with FakeServer() as server:
        sampler = sampler_of(server, budget=Budget(requests=5), concurrency=2)
        groups = sampler.sample([user(f"p{i}") for i in range(12)], Sampling(n=2))
        assert server.stats["requests"] == 5
        assert Counter(group[0].finish_reason for group in groups) == {STOP: 5, ERROR: 7}
        assert all((g[0].error or "budget").startswith("budget") and g[0] == g[1] for g in groups if g[0].error)
        assert sampler.spent == (5, 5 * 2 * 3)
    with FakeServer() as server:  # 3 words a reply
        sampler = sampler_of(server, budget=Budget(completion_tokens=13), concurrency=1)
        groups = sampler.sample([user(f"p{i}") for i in range(12)], Sampling())
        assert Counter(group[0].finish_reason for group in groups) == {STOP: 5, ERROR: 7}


def test_replicas_are_used_evenly_and_a_dead_one_is_left_alone() -> None:
    with FakeServer() as one, FakeServer() as two:
        endpoint = Endpoint((one.url, two.url), "fake-model", concurrency=8, **QUICK)
        HttpSampler(endpoint).check()
        replies = HttpSampler(endpoint).sample([user(f"p{i}") for i in range(100)], Sampling())
        assert all(group[0].finish_reason is STOP for group in replies)
        shares = [server.stats["requests"] for server in (one, two)]
        assert sum(shares) == 100 and min(shares) >= 40
        dead = f"http://127.0.0.1:{free_port()}/v1"
        half = HttpSampler(
            Endpoint((dead, one.url), "fake-model", concurrency=8, **(QUICK | {"backoff_seconds": 0.02}))
        )
        start = time.monotonic()
        replies = half.sample([user(f"p{i}") for i in range(100)], Sampling())
        assert all(group[0].finish_reason is STOP for group in replies)
        assert time.monotonic() - start < 10
        with pytest.raises(ValueError, match=dead):
            half.check()


def test_a_caller_that_leaves_early_stops_the_rest() -> None:
    with FakeServer(delay=0.02) as server:
        sampler = sampler_of(server, concurrency=2)
        stream = sampler.sample_each([user(f"p{i}") for i in range(200)], Sampling(), range(200))
        index, (reply,) = next(stream)
        assert reply.text.startswith(f"p{index} ")
        stream.close()
        time.sleep(0.2)  # what was under way ends
        sent = server.stats["requests"]
        time.sleep(0.3)
        assert server.stats["requests"] == sent < 100


def test_many_callers_at_once() -> None:
    with FakeServer() as server:
        sampler = sampler_of(server, concurrency=4)
        texts: dict[int, str] = {}

        def call(i: int) -> None:
            texts[i] = sampler.sample([user(f"p{i}")], Sampling(seed=i))[0][0].text

        threads = [threading.Thread(target=call, args=(i,)) for i in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(texts[i].startswith(f"p{i} draw ") for i in range(30))


# everything at once


def test_thirty_percent_faults_change_no_reply() -> None:
    """Against a server in a process of its own; the replies equal those of a server without faults."""
    prompts, sampling = [user(f"question {i}") for i in range(400)], Sampling(n=2, seed=3)
    faults = Faults(rate=0.3, seed=5, hang_seconds=0.5)
    with FakeServer("tests.sampling.fake_server:echo", faults, process=True) as server:
        sampler = sampler_of(server, concurrency=32, max_retries=14, read_seconds=0.25)
        sampler.check()
        groups = sampler.sample(prompts, sampling)
        stats = server.stats
    with FakeServer() as server:
        assert sampler_of(server).sample(prompts, sampling) == groups
    assert all(stats[fault.value] > 5 for fault in TRANSIENT)
    assert 0.25 < sum(stats[fault.value] for fault in TRANSIENT) / stats["requests"] < 0.35


def test_choices_bounds_a_request_and_seeds_do_not_depend_on_it() -> None:
    sampling = Sampling(n=5, temperature=1.0, max_tokens=8, seed=3)
    with FakeServer() as server:
        two = sampler_of(server, choices=2).sample([user("a"), user("b")], sampling)
        assert sorted(body["n"] for body in server.bodies) == [1, 1, 2, 2, 2, 2]
    with FakeServer() as server:
        one = sampler_of(server, choices=1).sample([user("a")], sampling)[0]
        # the third sample of five is asked for under the seed that it has when it is asked for alone
        [third] = sampler_of(server, choices=1).sample([user("a")], Sampling(1, 1.0, max_tokens=8, seed=3, first=2))[0]
        assert [body["n"] for body in server.bodies] == [1] * 6
        assert len({reply.seed for reply in one}) == 5 and third.seed == one[2].seed
    assert [len(replies) for replies in two] == [5, 5] and all(r.finish_reason is STOP for g in two for r in g)
    with pytest.raises(ValueError, match="choices is 0; give at least 1"):
        Endpoint(("http://127.0.0.1:1/v1",), "m", choices=0)
