"""What our layer costs around each engine: seconds of ours over those of the same engine called bare.

    python tests/benchmarks/bench_overhead.py [--only transformers http vllm] [--questions 60] [--repeats 7]

Both ways are measured in turn in one process, and the median ratio is told with its quartiles; CPU seconds are the figure
to read on a busy machine. What is compared, on the testbed's base model and questions:

* ``sample``: `TransformersSampler.sample` against the bare engine from text to text: the tokenizer on the rendered prompts,
  the decoding loop (`Decoder.decode`) with the same draws, the tokenizer on the new tokens.
* ``sample_over_decoding``: the same against the decoding loop alone, on token ids.
* ``assess``: a whole assessment with the questioner's reward (prompts, votes, novelty, solutions, vote over answers)
  against the bare engine, from text to text, on the very calls that it made.
* ``generate``: `TransformersSampler.sample_ids` against ``model.generate``: the same prompts, batch and number of new
  tokens; no reply ends early, so neither the shared prefixes nor the dropped rows of ours are paid for by a shorter reply.
* ``http``: `HttpSampler.sample` against bare httpx (a client a thread, body ready, JSON read) on the same server, a
  process of its own, with as many threads. CPU seconds without a delay of the server; wall seconds with one.
* ``vllm``: `VllmSampler.sample` against ``LLM.generate`` on the same token ids and parameters.

The last line is one JSON object; ``worst`` is the largest median ratio of ``sample``, ``assess``, ``http`` (wall) and
``vllm``, and the aim is at most 1.05.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from novelty import KSampledGate, ModelJudge
from selfevolve.assess import AssessmentSettings, Assessor
from selfevolve.backbones import resolve_backbone
from selfevolve.prompts import load_pack
from selfevolve.questions import read_candidate
from selfevolve.records import Candidate
from selfevolve.rewards import RewardRule, Uncertainty
from selfevolve.sampling import Sampling, user
from selfevolve.sampling.transformers_sampler import TransformersSampler
from selfevolve.stages.initialisation import read_initialisation_data
from tests.benchmarks.pairs import paired


class Recorder(TransformersSampler):
    """Keeps what it was asked for, with the prompts as text, to be asked again bare."""

    calls: list[tuple[list[str], Sampling, Any]]

    def sample_keyed(self, prompts: Any, sampling: Sampling, keys: Any) -> Any:
        """Keep the call and make it."""
        self.calls.append(([self.formatter.text(prompt) for prompt in prompts], sampling, list(keys)))
        return super().sample_keyed(prompts, sampling, keys)


def bare(sampler: TransformersSampler, texts: list[str], sampling: Sampling, keys: Any) -> list[str]:
    """Answer texts with texts, with no layer of ours but the decoding loop."""
    ids = sampler.tokenizer(texts, add_special_tokens=False)["input_ids"]
    groups = sampler.decoder.decode(ids, sampling, keys)
    new = [list(completion.ids) for group in groups for completion in group]
    found: list[str] = sampler.tokenizer.batch_decode(new, skip_special_tokens=True)
    return found


def loaded(batch: int) -> TransformersSampler:
    """Return a sampler of the testbed's base."""
    return TransformersSampler(resolve_backbone("testbed:base"), name="base", batch=batch, device="cpu")


def written(count: int) -> list[Candidate]:
    """Return candidates as a questioner of the testbed writes them, valid and invalid ones."""
    questions = [example.question for example in read_initialisation_data("testbed")[:count]]
    texts = [f"<question> {question} </question> \\boxed{{ 1 }}" for question in questions]
    return [read_candidate(1, "questioner", 1, i, text, "stop") for i, text in enumerate(texts)]


def assessor(sampler: TransformersSampler, sampling: Sampling) -> Assessor:
    """Return R-Quest's assessor with the recipe's counts, all seats taken by one model."""
    settings = AssessmentSettings(
        votes=9, solutions=10, share_low=0.3, share_high=0.8, denominator="answered", min_answered=0.5,
        min_answered_votes=0.5, sampling=sampling,
    )  # fmt: skip
    rule = RewardRule(Uncertainty.MIN, repetition=False, validity_gate=True, novelty_gate=True)
    judge = ModelJudge(sampler, load_pack("testbed").same_type, Sampling(max_tokens=4))
    return Assessor(load_pack("testbed"), sampler, settings, rule, sampler, KSampledGate(8), judge)


def transformers_part(count: int, repeats: int, batch: int, tokens: int) -> dict[str, Any]:
    """Measure the in-process sampler and the assessment on it."""
    found: dict[str, Any] = {}
    sampler, pack, candidates = loaded(batch), load_pack("testbed"), written(count)
    prompts = [pack.solve(c.question or "") for c in candidates]
    ids, sampling = sampler.prompt_ids(prompts), Sampling(n=10, max_tokens=72)
    made = sum(r.completion_tokens for group in sampler.sample(prompts, sampling) for r in group)
    texts = [sampler.formatter.text(prompt) for prompt in prompts]
    both = paired(lambda: sampler.sample(prompts, sampling), lambda: bare(sampler, texts, sampling, None), repeats)
    found["sample"] = both.to_json() | rates(both.to_json()["cpu_seconds"], tokens=made)
    both = paired(lambda: sampler.sample(prompts, sampling), lambda: sampler.decoder.decode(ids, sampling), repeats)
    found["sample_over_decoding"] = both.to_json()

    recorder = Recorder(sampler.model, sampler.tokenizer, name="base", batch=batch)
    recorder.calls = []
    draws = Sampling(max_tokens=72)
    whole = assessor(recorder, draws)
    whole.assess(candidates, seed=1, rewarded=True)
    calls, made = list(recorder.calls), sum(whole.usage.tokens.values())

    def all_bare() -> None:
        for call in calls:
            bare(sampler, *call)

    # a new assessor each time, whose judge remembers nothing
    both = paired(lambda: assessor(sampler, draws).assess(candidates, seed=1, rewarded=True), all_bare, repeats)
    found["assess"] = both.to_json() | rates(both.to_json()["cpu_seconds"], questions=count, tokens=made)

    sampler.decoder.end_ids = ()
    fixed = Sampling(n=10, max_tokens=tokens)
    both = paired(
        lambda: sampler.sample_ids(ids, fixed), lambda: generate(sampler, ids, fixed, batch), max(2, repeats // 2)
    )
    found["generate"] = both.to_json() | rates(both.to_json()["cpu_seconds"], tokens=count * 10 * tokens)
    return found


def generate(sampler: TransformersSampler, prompts: list[list[int]], sampling: Sampling, batch: int) -> None:
    """Answer the prompts with ``model.generate``, ``batch`` rows at once, padded on the left."""
    part = max(1, batch // sampling.n)
    ordered = sorted(prompts, key=len)
    for start in range(0, len(ordered), part):
        rows = ordered[start : start + part]
        width = len(rows[-1])
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        sampler.model.generate(
            ids, attention_mask=mask, max_new_tokens=sampling.max_tokens, eos_token_id=None, do_sample=True, top_k=0,
            num_return_sequences=sampling.n,
        )  # fmt: skip


def rates(seconds: list[float], **counts: int) -> dict[str, Any]:
    """Return how many of each a CPU second, [ours, bare]."""
    return {f"{name}_a_cpu_second": [round(count / s, 1) for s in seconds] for name, count in counts.items()}


def http_part(count: int, repeats: int, threads: int, delay: float) -> dict[str, Any]:
    """Measure the HTTP sampler against bare httpx on a fake server in a process of its own."""
    import httpx

    from selfevolve.sampling._completions import request_body
    from selfevolve.sampling._derive import draw_seed
    from selfevolve.sampling.http_sampler import Endpoint, HttpSampler
    from tests.sampling.fake_server import FakeServer

    found: dict[str, Any] = {}
    prompts = [user(f"what is {i} + {i}? " + "think step by step. " * 20) for i in range(count)]
    sampling = Sampling(n=8, max_tokens=256)
    for name, wait in (("http_cpu", 0.0), ("http_wall", delay)):
        with FakeServer("tests.benchmarks.bench_overhead:long_reply", process=True, delay=wait) as server:
            sampler = HttpSampler(Endpoint(server.urls, server.model, concurrency=threads))
            bodies = [
                request_body(sampler.endpoint, prompt, sampling, sampling.n, draw_seed(sampling.seed, i, 0))
                for i, prompt in enumerate(prompts)
            ]
            clients = [
                httpx.Client(trust_env=False, headers={"content-type": "application/json"}) for _ in range(threads)
            ]
            url = f"{server.url}/chat/completions"
            both = paired(
                lambda s=sampler: s.sample(prompts, sampling),  # type: ignore[misc]
                lambda b=bodies, u=url, c=clients: post_all(c, u, b),  # type: ignore[misc]
                repeats,
            )
            found[name] = both.to_json() | {"requests": count, "threads": threads, "server_delay_seconds": wait}
            ours, theirs = (s / count * 1000 for s in both.to_json()["cpu_seconds"])
            found[name]["cpu_ms_a_request"] = [round(ours, 3), round(theirs, 3)]
            for client in clients:
                client.close()
            sampler.close()
    return found


def long_reply(body: dict[str, Any], index: int) -> str:
    """Answer with about 100 words, as a solution has them."""
    return "so we add the two numbers and look at the sum again, " * 9 + f"\\boxed{{{body['seed'] + index}}}"


def post_all(clients: list[Any], url: str, bodies: list[bytes]) -> None:
    """Post all bodies, a thread a client, and read the JSON of every answer."""
    waiting: SimpleQueue[bytes] = SimpleQueue()
    for body in bodies:
        waiting.put(body)

    def work(client: Any) -> None:
        while True:
            try:
                body = waiting.get_nowait()
            except Empty:
                return
            json.loads(client.post(url, content=body, timeout=60.0).content)["choices"]

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def vllm_part(count: int, repeats: int) -> dict[str, Any]:
    """Measure the vLLM sampler against the bare engine; a line where vLLM is not installed."""
    from selfevolve.sampling.vllm_sampler import VllmSampler, load_vllm

    try:
        load_vllm()
    except ValueError as error:
        print(f"vllm: skipped, {error}", flush=True)
        return {}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # vLLM's CPU build cannot go on with a seeded prompt that was read in two parts: let all fit into one
    engine_options = {"dtype": "float32", "enforce_eager": True, "max_num_batched_tokens": 16384}
    sampler = VllmSampler(resolve_backbone("testbed:base"), name="base", engine=engine_options)
    pack = load_pack("testbed")
    prompts, sampling = [pack.solve(c.question or "") for c in written(count)], Sampling(n=10, max_tokens=72)
    kept: list[Any] = []
    engine = sampler.engine.generate

    def keep(*args: Any, **options: Any) -> Any:
        kept.append((args, options))
        return engine(*args, **options)

    sampler.engine.generate = keep
    made = sum(r.completion_tokens for group in sampler.sample(prompts, sampling) for r in group)
    sampler.engine.generate = engine
    args, options = kept[0]
    both = paired(lambda: sampler.sample(prompts, sampling), lambda: engine(*args, **options), repeats)
    seconds = both.to_json()
    return {"vllm": seconds | rates(seconds["cpu_seconds"], tokens=made)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["transformers", "http", "vllm"])
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32, help="new tokens a reply against model.generate")
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--delay", type=float, default=0.25, help="seconds that the fake server takes for an answer")
    o = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"benchmark": "overhead", "reference": "the same engine called bare, on the same prompts"}
    if "transformers" in o.only:
        found |= transformers_part(o.questions, o.repeats, o.batch, o.tokens)
    if "http" in o.only:
        found |= http_part(o.requests, o.repeats, o.threads, o.delay)
    if "vllm" in o.only:
        found |= vllm_part(o.questions, o.repeats)
    for name, part in found.items():
        if isinstance(part, dict):
            print(f"{name}: {part}", flush=True)
    ratios = [found[name]["cpu_ratio"]["median"] for name in ("sample", "assess", "vllm") if name in found]
    ratios += [found["http_wall"]["wall_ratio"]["median"]] if "http_wall" in found else []
    found["worst"] = max(ratios, default=None)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
