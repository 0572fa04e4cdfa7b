"""What our layer costs over a real vLLM: tokens a second through our samplers against the engine called bare.

    SELFEVOLVE_VLLM_PYTHON=.venv-vllm/bin/python python tests/sampling/bench_vllm.py [--model FOLDER] [--prompts 96]
        [--samples 8] [--tokens 72] [--repeats 3]

Four ways to answer the same prompts under the same seeds: ``LLM.generate`` bare and `VllmSampler` in one process; a bare
HTTP client with ready bodies and `HttpSampler` against one server. They take turns, and the fastest of the repeats
counts. Seconds of wall time tell little on a busy machine, so processor seconds of client and engine together are told
as well. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from selfevolve.sampling import Prompt, Sampling, user
from tests.sampling import vllm_real

CONTEXT = 1024
WORDS = "Solve step by step: a shop sells {} pens a day for {} days. How many pens is that?"


def prompts_of(model: str, count: int) -> list[Prompt]:
    """Return distinct prompts of like length, in the testbed's wording for its backbones."""
    if "testbed" in model:
        from selfevolve.prompts import TESTBED
        from selfevolve.testbed.exam import exam

        return [TESTBED.solve(question) for question, _ in exam()[:count]]
    return [user(WORDS.format(3 + i, 5 + i % 7)) for i in range(count)]


def processor_seconds(pid: int) -> float:
    """Return user and system seconds of a process and all its children."""
    root = psutil.Process(pid)
    return sum(sum(process.cpu_times()[:2]) for process in (root, *root.children(recursive=True)))


def measure(ways: dict[str, Callable[[], int]], pids: Sequence[int], repeats: int) -> dict[str, Any]:
    """Let the ways take turns; return tokens, wall and processor seconds of each way's fastest turn."""
    best: dict[str, dict[str, float]] = {}
    for turn in range(repeats + 1):
        for name, work in ways.items():
            wall, cpu = time.perf_counter(), sum(map(processor_seconds, pids))
            tokens = work()
            row = {"tokens": tokens, "wall": time.perf_counter() - wall}
            row["cpu"] = sum(map(processor_seconds, pids)) - cpu
            if turn and (name not in best or row["cpu"] < best[name]["cpu"]):  # turn 0 warms up
                best[name] = row
    for row in best.values():
        row["tokens_a_second"] = round(row["tokens"] / row["wall"], 1)
        row["tokens_a_cpu_second"] = round(row["tokens"] / row["cpu"], 1)
    return {name: {key: round(value, 2) for key, value in row.items()} for name, row in best.items()}


def inside(options: argparse.Namespace) -> dict[str, Any]:
    """Measure in process; run by the python that has vLLM."""
    import os

    import vllm

    from selfevolve.sampling._derive import draw_seed
    from selfevolve.sampling.vllm_sampler import VllmSampler

    engine = {"dtype": "float32", "enforce_eager": True, "max_model_len": CONTEXT}
    sampler = VllmSampler(options.model, engine=engine)
    prompts = prompts_of(options.model, options.prompts)
    sampling = Sampling(n=options.samples, max_tokens=options.tokens)
    ids = [{"prompt_token_ids": one} for one in sampler.formatter.ids(prompts)]
    params = [
        vllm.SamplingParams(n=sampling.n, temperature=1.0, max_tokens=sampling.max_tokens, seed=draw_seed(0, key, 0))
        for key in range(len(prompts))
    ]

    def bare() -> int:
        outputs = sampler.engine.generate(ids, params, use_tqdm=False)
        return sum(len(c.token_ids) for output in outputs for c in output.outputs)

    def ours() -> int:
        return sum(reply.completion_tokens for group in sampler.sample(prompts, sampling) for reply in group)

    return measure({"engine bare": bare, "VllmSampler": ours}, [os.getpid()], options.repeats)


def over_http(options: argparse.Namespace, log: Path) -> dict[str, Any]:
    """Measure against a server."""
    import os

    import httpx

    from selfevolve.sampling._completions import request_body
    from selfevolve.sampling._derive import draw_seed
    from selfevolve.sampling.http_sampler import Endpoint, HttpSampler

    prompts = prompts_of(options.model, options.prompts)
    sampling = Sampling(n=options.samples, max_tokens=options.tokens)
    server = vllm_real.Server(options.model, log, max_model_len=CONTEXT, options=("--generation-config", "vllm"))
    try:
        server.wait()
        endpoint = Endpoint((server.url,), server.model)
        sampler = HttpSampler(endpoint)
        bodies = [
            request_body(endpoint, p, sampling, sampling.n, draw_seed(0, key, 0)) for key, p in enumerate(prompts)
        ]
        with httpx.Client(trust_env=False, timeout=600, headers={"content-type": "application/json"}) as client:

            def one(body: bytes) -> int:
                answer = client.post(f"{server.url}/chat/completions", content=body)
                return int(answer.json()["usage"]["completion_tokens"])

            def bare() -> int:
                with ThreadPoolExecutor(64) as pool:
                    return sum(pool.map(one, bodies))

            def ours() -> int:
                return sum(reply.completion_tokens for group in sampler.sample(prompts, sampling) for reply in group)

            ways = {"bare HTTP client": bare, "HttpSampler": ours}
            return measure(ways, [os.getpid()], options.repeats)  # the server is a child of ours
    finally:
        server.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    from selfevolve.backbones import resolve_backbone

    parser.add_argument("--model", default="testbed:base", type=resolve_backbone)
    parser.add_argument("--prompts", type=int, default=96)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=72)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        options.inside.write_text(json.dumps(inside(options)))  # the engine writes to stdout, too
        return
    if not vllm_real.PYTHON:
        parser.error(vllm_real.NO_PYTHON)
    command = [vllm_real.PYTHON, __file__, "--model", options.model]
    for name in ("prompts", "samples", "tokens", "repeats"):
        command += [f"--{name}", str(getattr(options, name))]
    with tempfile.TemporaryDirectory() as folder:
        words, told = Path(folder, "engine.log"), Path(folder, "result.json")
        command += ["--inside", str(told)]
        with words.open("wb") as log:
            done = subprocess.run(command, env=vllm_real.environment(), stdout=log, stderr=log, check=False)
        if done.returncode:
            sys.exit(f"the engine failed:\n{words.read_text(errors='replace')[-3000:]}")
        result = json.loads(told.read_text())
        result |= over_http(options, Path(folder, "server.log"))
    for name, row in result.items():
        print(f"{name}: {row}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
