"""Where a testbed round's time goes, and how its parts grow with the number of questions. CPU seconds, one thread.

    python tests/benchmarks/bench_round.py [--full] [--profile] [--growth 30] [--no-model]

* One round of testbed/r_quest at a small size (``--full``: at the shipped size), stage by stage: CPU seconds, the share
  inside the engine (decoding; forward and backward passes and optimiser of training) and the share inside the network
  itself (decoding without the draw of tokens, the cache and the bookkeeping of rows).
* ``--profile``: the round runs under cProfile, and the costliest functions of ours are listed by their own time. The
  profiler makes Python slower than tensors, so shares are then too low.
* Growth: CPU time a question at 1, 2, 4 and 8 times ``--growth`` questions for a whole assessment, and at 8 times as many
  for the novelty gate without its model, the grouping by pattern and the clusters by BLEU (pairs of questions, so its time
  a question must grow in the end).

The last line is one JSON object: ``in_engine`` is the round's share inside the engine.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from novelty import KSampledGate, LabelGrouper, SameType, bleu_clusters, group_patterns
from selfevolve.config import load_recipe
from selfevolve.round import initialise, play_round
from selfevolve.rundir import STAGES, RunDir, Stage
from selfevolve.sampling import Sampling
from selfevolve.sampling.decoding import Decoder
from selfevolve.stages import Context
from selfevolve.testbed import oracle
from selfevolve.train.rollouts import Clock
from tests.benchmarks.bench_overhead import assessor, loaded, written

SMALL = [
    "questioner.steps=2", "questioner.prompts=16", "questioner.global_batch=8", "candidates=100", "solver.steps=2",
    "solver.prompts=16", "solver.global_batch=16", "diagnostics.heldout=60", "diagnostics.solver_samples=1",
]  # fmt: skip
PASSES = ("forward", "backward", "optimiser")  # parts of the trainer's clock
OURS = ("selfevolve", "aske", "validity", "novelty")


class Times:
    """CPU seconds by (stage, part), collected from the outside."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.seconds: Counter[tuple[str, str]] = Counter()
        self.stage = ""
        self.depth = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the block's CPU seconds to a part of the stage at work."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[self.stage, name] += time.process_time() - start

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time stages, decoding, the network inside it, and the trainer's passes, for the block."""
        from transformers import Qwen3ForCausalLM

        enter, leave = Stage.__enter__, Stage.__exit__
        decode, forward, clocked = Decoder.decode, Qwen3ForCausalLM.forward, Clock.part
        times = self
        began = 0.0

        def entering(stage: Stage) -> Stage:
            nonlocal began
            times.stage, began = stage.name, time.process_time()
            return enter(stage)

        def leaving(stage: Stage, *error: Any) -> None:
            times.seconds[stage.name, "all"] += time.process_time() - began
            leave(stage, *error)

        def decoding(decoder: Decoder, *args: Any, **options: Any) -> Any:
            times.depth += 1
            try:
                with times.part("decoding"):
                    return decode(decoder, *args, **options)
            finally:
                times.depth -= 1

        def going_forward(model: Any, *args: Any, **options: Any) -> Any:
            if not times.depth:
                return forward(model, *args, **options)
            with times.part("network"):
                return forward(model, *args, **options)

        @contextmanager
        def part(clock: Clock, name: str) -> Iterator[None]:
            with clocked(clock, name):
                if name not in PASSES:
                    yield
                else:
                    with times.part(name):
                        yield

        Stage.__enter__, Stage.__exit__, Decoder.decode, Clock.part = entering, leaving, decoding, part  # type: ignore
        Qwen3ForCausalLM.forward = going_forward
        try:
            yield
        finally:
            Stage.__enter__, Stage.__exit__, Decoder.decode, Clock.part = enter, leave, decode, clocked  # type: ignore
            Qwen3ForCausalLM.forward = forward

    def shares(self, stages: tuple[str, ...]) -> dict[str, Any]:
        """Return CPU seconds, and the shares inside the engine and the network, of some stages together."""

        def of(*parts: str) -> float:
            return sum(self.seconds[stage, part] for stage in stages for part in parts)

        whole = of("all")
        return {
            "cpu_seconds": round(whole, 2),
            "in_engine": round(of("decoding", *PASSES) / whole, 3) if whole else None,
            "in_network": round(of("network", *PASSES) / whole, 3) if whole else None,
        }


def one_round(overrides: list[str], profile: bool) -> dict[str, Any]:
    """Play a round in a temporary folder and return the shares by stage."""
    import selfevolve.train.trl_backend  # noqa: F401  # its import takes seconds, once a process

    recipe = load_recipe("testbed/r_quest", ["rounds=1", "initialisation.steps=2", "monitor.min_kept=1", *overrides])
    times = Times()
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run", recipe)
        with run.lock():
            initialise(Context(run, 0))
            profiler = cProfile.Profile(time.process_time)
            with times.watching():
                if profile:
                    profiler.enable()
                play_round(Context(run, 1))
                profiler.disable()
    if profile:
        print_ours(pstats.Stats(profiler))
    found = {stage: times.shares((stage,)) for stage in STAGES} | {"round": times.shares(STAGES)}
    for name, row in found.items():
        print(f"{name:<12} {row}", flush=True)
    return found


def print_ours(stats: Any, most: int = 15) -> None:
    """Print the functions of ours that take most CPU time themselves."""
    root = Path(__file__).resolve().parents[2]
    rows = []
    for (file, line, name), (_, calls, own, cumulative, _) in stats.stats.items():
        path = Path(file)
        if path.is_relative_to(root) and path.relative_to(root).parts[0] in OURS:
            rows.append((own, cumulative, calls, f"{path.relative_to(root)}:{line} {name}"))
    print(f"{'own s':>8} {'with callees':>12} {'calls':>8}  function, of {stats.total_tt:.1f} s in all")
    for own, cumulative, calls, where in sorted(rows, reverse=True)[:most]:
        print(f"{own:8.3f} {cumulative:12.3f} {calls:8d}  {where}")


class OracleJudge:
    """Says at once whether two questions have one pattern: what is left is the gate's own time."""

    def __init__(self, questions: list[str]) -> None:
        """Ask the oracle beforehand."""
        self.pattern = {question: oracle(question).pattern for question in questions}

    def same_type(self, pairs: Any) -> list[SameType]:
        """Return the verdicts."""
        return [SameType.SAME if self.pattern[a] == self.pattern[b] else SameType.DIFFERENT for a, b in pairs]


def growth(base: int, assess: bool) -> dict[str, Any]:
    """Return CPU milliseconds a question at 1, 2, 4 and 8 times ``base`` questions, without a model at 8 times those."""
    everything = written(64 * base)
    texts = [candidate.question or "" for candidate in everything]
    judge, draws = OracleJudge(texts), Sampling(max_tokens=72)
    parts: dict[str, Callable[[int], Any]] = {
        "novelty_gate": lambda n: KSampledGate(8).decide(texts[:n], judge, seed=1),
        "grouping": lambda n: group_patterns(texts[:n], LabelGrouper(judge.pattern.get), orderings=3, seed=1),
        "bleu_clusters": lambda n: bleu_clusters(texts[:n]),
    }
    if assess:
        sampler = loaded(1024)
        assessor(sampler, draws).assess(everything[:4], seed=1, rewarded=True)  # what only a first call costs
        parts["assessment"] = lambda n: assessor(sampler, draws).assess(everything[:n], seed=1, rewarded=True)
    found: dict[str, Any] = {}
    for name, work in parts.items():
        whole = name == "assessment"
        counts = [base * factor * (1 if whole else 8) for factor in (1, 2, 4, 8)]
        times = []
        for count in counts:
            taken = []
            for _ in range(1 if whole else 3):
                start = time.process_time()
                work(count)
                taken.append(time.process_time() - start)
            times.append(min(taken) / count * 1000)
        found[name] = {"questions": counts, "cpu_ms_a_question": [round(t, 4) for t in times]}
        found[name]["growth"] = round(times[-1] / times[0], 2)
        print(f"{name:<14} {found[name]}", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="a round at the shipped size")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--growth", type=int, default=30, help="questions at the smallest size; 0 leaves growth out")
    parser.add_argument("--no-model", action="store_true", help="only the growth of what needs no model")
    o = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"benchmark": "round", "reference": "the whole round; 1 times the questions"}
    found["size"] = "shipped" if o.full else "small"
    if not o.no_model:
        found["stages"] = one_round([] if o.full else SMALL, o.profile)
        found["in_engine"] = found["stages"]["round"]["in_engine"]
    if o.growth:
        found["growth"] = growth(o.growth, not o.no_model)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
