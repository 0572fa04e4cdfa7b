"""The cache of replies: what is asked again, what never is, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selfevolve.sampling import FinishReason, Message, Prompt, Reply, Sampling, ScriptedSampler, user
from selfevolve.sampling.cache import CachedSampler, ReplyCache, StreamingSampler
from selfevolve.sampling.http_sampler import Endpoint, HttpSampler
from tests.sampling.fake_server import FakeServer

ROOT = Path(__file__).resolve().parents[2]


class Drawn:
    """A sampler whose text names the draw: (seed, place in the list, index of the sample), as in-process ones draw."""

    name = "drawn"
    identity = "weights 1"

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], int, int]] = []  # prompts, n, seed
        self.fails: set[int] = set()  # sample indices

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        self.calls.append(([prompt[-1].content for prompt in prompts], sampling.n, sampling.seed))
        return [
            [
                Reply("", FinishReason.ERROR, 1, 0, "boom")
                if i in self.fails
                else Reply(f"{prompt[-1].content}/{sampling.seed}/{place}/{i}", FinishReason.STOP, 1, 1)
                for i in range(sampling.n)
            ]
            for place, prompt in enumerate(prompts)
        ]


class Keyed:
    """The same as a keyed sampler: the text names (seed, key, number of the sample)."""

    name = "keyed"
    identity = "weights 1"

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], Sampling, list[int]]] = []

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        self.asked.append(([prompt[-1].content for prompt in prompts], sampling, list(keys)))
        return [
            [
                Reply(f"{prompt[-1].content}/{sampling.seed}/{key}/{sampling.first + i}", FinishReason.STOP, 1, 1)
                for i in range(sampling.n)
            ]
            for prompt, key in zip(prompts, keys, strict=True)
        ]


@pytest.fixture
def inner() -> Drawn:
    return Drawn()


@pytest.fixture
def cached(inner: Drawn, tmp_path: Path) -> CachedSampler:
    return CachedSampler(inner, ReplyCache(tmp_path / "deep" / "replies.sqlite"))


def texts(groups: list[list[Reply]]) -> list[list[str]]:
    return [[reply.text for reply in group] for group in groups]


def test_an_empty_cache_changes_nothing_and_a_full_one_asks_nothing(inner: Drawn, cached: CachedSampler) -> None:
    prompts, sampling = [user("a"), user("b")], Sampling(n=2, seed=9)
    first = cached.sample(prompts, sampling)
    assert first == Drawn().sample(prompts, sampling)
    again = cached.sample(prompts, sampling)
    assert again == first and len(inner.calls) == 1
    assert not any(r.cached for g in first for r in g) and all(r.cached for g in again for r in g)
    assert len(cached.cache) == 4
    assert cached.sample([], sampling) == [] and len(inner.calls) == 1


def test_more_samples_ask_for_what_is_missing_without_repeating_a_draw(inner: Drawn, cached: CachedSampler) -> None:
    three = texts(cached.sample([user("a")], Sampling(n=3, seed=9)))
    five = texts(cached.sample([user("a")], Sampling(n=5, seed=9)))
    assert five[0][:3] == three[0] and len(set(five[0])) == 5
    assert [(n, seed == 9) for _, n, seed in inner.calls] == [(3, True), (2, False)]
    assert texts(cached.sample([user("a")], Sampling(n=4, seed=9)))[0] == five[0][:4]
    assert len(inner.calls) == 2


def test_only_the_prompts_that_miss_are_asked(inner: Drawn, cached: CachedSampler) -> None:
    cached.sample([user("a"), user("b")], Sampling(n=2))
    cached.sample([user("b")], Sampling(n=3))
    got = cached.sample([user("c"), user("b"), user("a"), user("d")], Sampling(n=3))
    assert [reply.text.split("/")[0] for group in got for reply in group] == [*"cccbbbaaaddd"]
    assert [(prompts, n) for prompts, n, _ in inner.calls[2:]] == [(["c", "d"], 3), (["a"], 1)]


def test_equal_prompts_of_one_call_are_samples_of_their_own(inner: Drawn, cached: CachedSampler) -> None:
    prompts = [user("a"), user("b"), user("a")]
    got = cached.sample(prompts, Sampling(n=2))
    assert got == Drawn().sample(prompts, Sampling(n=2))
    assert len({r.text for r in [*got[0], *got[2]]}) == 4
    assert cached.sample([user("a"), user("a")], Sampling(n=2)) == [got[0], got[2]]
    assert len(inner.calls) == 1
    more = texts(cached.sample([user("a"), user("a")], Sampling(n=4)))
    assert len({*more[0], *more[1]}) == 8


def test_a_keyed_sampler_continues_its_draws(cached: CachedSampler, inner: Drawn) -> None:
    keyed = Keyed()
    cached.inner = keyed
    prompts = [user("a"), user("b"), user("a")]
    five = Keyed().sample(prompts, Sampling(n=5, seed=9))
    assert texts(cached.sample(prompts, Sampling(n=3, seed=9))) == [row[:3] for row in texts(five)]
    assert texts(cached.sample(prompts, Sampling(n=5, seed=9))) == texts(five)
    assert [(sampling.first, sampling.n) for _, sampling, _ in keyed.asked] == [(0, 3), (3, 2)]
    assert texts(cached.sample(prompts[:1], Sampling(n=2, seed=9, first=3))) == [texts(five)[0][3:]]
    assert len(keyed.asked) == 2


def test_a_list_that_was_broken_off_ends_as_it_would_have(cached: CachedSampler) -> None:
    keyed = Keyed()
    cached.inner = keyed
    prompts = [user(name) for name in "abcd"]
    cached.cache.put(
        {
            cached.address(prompts[i], Sampling(n=2), k): Keyed().sample(prompts, Sampling(n=2))[i][k]
            for i, k in [(0, 0), (0, 1), (2, 1)]
        }
    )
    assert cached.sample(prompts, Sampling(n=2)) == Keyed().sample(prompts, Sampling(n=2))
    assert [(names, (s.first, s.n), keys) for names, s, keys in keyed.asked] == [
        (["b", "d"], (0, 2), [1, 3]),
        (["c"], (0, 1), [2]),
    ]


def test_keys_are_part_of_the_address(cached: CachedSampler) -> None:
    keyed = Keyed()
    cached.inner = keyed
    one = cached.sample_keyed([user("a"), user("a")], Sampling(n=2), [70, 71])
    assert one == Keyed().sample_keyed([user("a"), user("a")], Sampling(n=2), [70, 71])
    assert cached.sample_keyed([user("a")], Sampling(n=2), [71]) == one[1:] and len(keyed.asked) == 1
    cached.sample_keyed([user("a")], Sampling(n=2), [72])
    assert len(keyed.asked) == 2
    greedy = Sampling(n=2, temperature=0)
    both = cached.sample_keyed([user("a"), user("a")], greedy, [70, 71]) + cached.sample([user("a")], greedy)
    assert len({text for row in texts(both) for text in row}) == 1 and len(keyed.asked) == 3


def test_greedy_is_asked_once(inner: Drawn, cached: CachedSampler) -> None:
    got = texts(cached.sample([user("a"), user("a")], Sampling(n=3, temperature=0)))
    assert len({text for row in got for text in row}) == 1 and [len(row) for row in got] == [3, 3]
    cached.sample([user("a")], Sampling(n=7, temperature=0, seed=5))
    assert [(prompts, n) for prompts, n, _ in inner.calls] == [(["a"], 1)]


@pytest.mark.parametrize("change", [{"seed": 1}, {"temperature": 0.5}, {"top_p": 0.5}, {"top_k": 5}, {"max_tokens": 5}])
def test_every_setting_is_part_of_the_address(inner: Drawn, cached: CachedSampler, change: dict[str, Any]) -> None:
    cached.sample([user("a")], Sampling())
    cached.sample([user("a")], replace(Sampling(), **change))
    assert len(inner.calls) == 2 and len(cached.cache) == 2


def test_prompt_and_identity_are_part_of_the_address(inner: Drawn, cached: CachedSampler) -> None:
    prompts = [user("a"), user("a", "s"), (Message("system", "a"),), (Message("user", "a"), Message("user", "")), ()]
    addresses = {cached.address(prompt, Sampling(), i) for prompt in prompts for i in range(2)}
    other = CachedSampler(inner, cached.cache, identity="weights 2")
    addresses |= {other.address(user("a"), Sampling(), 0)}
    assert len(addresses) == 11
    assert cached.address(user("a"), Sampling(n=1, temperature=1), 0) == cached.address(user("a"), Sampling(n=3), 0)


def test_failures_are_never_kept_and_asked_again(inner: Drawn, cached: CachedSampler) -> None:
    inner.fails = {1}
    first = cached.sample([user("a")], Sampling(n=3))
    assert [reply.finish_reason.value for reply in first[0]] == ["stop", "error", "stop"]
    assert len(cached.cache) == 2
    inner.fails = set()
    second = texts(cached.sample([user("a")], Sampling(n=5)))
    assert second[0][0] == first[0][0].text and second[0][2] == first[0][2].text
    assert len(set(second[0])) == 5
    assert [n for _, n, _ in inner.calls] == [3, 1, 2]  # samples 1 alone, and 3 and 4


def test_kinds_of_replies(tmp_path: Path) -> None:
    kept = {
        "stop": Reply("\ud800 é\n", FinishReason.STOP, 3, 4, None, 1.5, 77),
        "length": Reply("", FinishReason.LENGTH, 3, 4),
    }
    lost = {"timeout": Reply("x", FinishReason.TIMEOUT), "error": Reply("x", FinishReason.ERROR, error="e")}
    cache = ReplyCache(tmp_path / "c")
    cache.put(kept | lost)
    cache.put({"stop": Reply("another", FinishReason.STOP)})  # the first stays
    cache.close()
    found = ReplyCache(tmp_path / "c").get([*kept, *lost, "none"])
    assert found == kept
    assert (found["stop"].seconds, found["stop"].seed, found["stop"].cached) == (1.5, 77, True)


def test_many_addresses_and_many_threads(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "c")
    reply = Reply("x", FinishReason.STOP)
    threads = [
        threading.Thread(target=lambda k=k: [cache.put({f"{k}/{i}": reply}) for i in range(50)]) for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 400
    cache.put({f"more/{i}": reply for i in range(2000)})
    assert len(cache.get(f"more/{i}" for i in range(3000))) == 2000


def test_weights_without_a_name_are_refused(tmp_path: Path) -> None:
    nameless = ScriptedSampler(lambda prompt, i: "x", name="policy")
    with pytest.raises(ValueError, match="'policy' does not say which weights"):
        CachedSampler(nameless, ReplyCache(tmp_path / "c"))
    assert CachedSampler(nameless, ReplyCache(tmp_path / "c"), identity="round 3").name == "policy"


@pytest.mark.parametrize("kind", ["text", "table", "layout"])
def test_another_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "text":
        path.write_text("no database at all, " * 100)
    else:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine (x)" if kind == "table" else "PRAGMA user_version=9")
        other.close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="name another file"):
        ReplyCache(path)
    assert path.read_bytes() == before


def test_through_http_each_prompt_is_kept_as_it_comes(tmp_path: Path) -> None:
    with FakeServer(delay=0.01) as server:
        sampler = HttpSampler(Endpoint(server.urls, server.model, concurrency=2))
        assert isinstance(sampler, StreamingSampler)
        cached = CachedSampler(sampler, ReplyCache(tmp_path / "c"))
        sizes: list[int] = []
        put = cached.cache.put
        cached.cache.put = lambda replies: (put(replies), sizes.append(len(cached.cache)))[0]  # type: ignore[method-assign]
        prompts = [user(f"p{i}") for i in range(6)]
        first = cached.sample(prompts, Sampling(n=2))
        assert sizes == [2, 4, 6, 8, 10, 12]
        assert cached.sample(prompts, Sampling(n=2)) == first
        assert server.stats["requests"] == 6


KILLED = """
import sys, time
from selfevolve.sampling import FinishReason, Reply
from selfevolve.sampling.cache import ReplyCache
cache = ReplyCache(sys.argv[1])
for i in range(10**6):
    cache.put({f"{i}/{k}": Reply("x" * 500, FinishReason.STOP) for k in range(3)})
    print(i, flush=True)
"""


def test_what_was_put_is_there_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "c"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert child.stdout is not None
    told = 0
    for line in child.stdout:
        told = int(line)
        if told >= 40:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate()
    cache = ReplyCache(path)
    assert len(cache) % 3 == 0  # whole groups
    found = cache.get(f"{i}/{k}" for i in range(told + 1) for k in range(3))
    assert len(found) == 3 * (told + 1)
    cache.put({"after": Reply("x", FinishReason.STOP)})
    assert cache.get(["after"])
