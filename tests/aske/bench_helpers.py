"""A small world for the tests of the benchmark: sums, solvers that solve a share of them, and askers that ask them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aske.play import derive
from aske.settings import Bench, Entry, parse_bench
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampler, Sampling

_SUM = re.compile(r"(\d+) \+ (\d+)")
Write = Callable[[Prompt, float, int], "str | Reply"]  # (prompt, number in [0, 1) of this draw, sample index)


class Keyed:
    """Draws hang on (seed, key, sample) alone, as those of in-process models do."""

    def __init__(self, name: str, write: Write) -> None:
        self.name, self.write = name, write
        self.asked = 0  # replies
        self.batches: list[tuple[int, Sampling]] = []  # (prompts, sampling) of each call
        self.before: Callable[[], None] = lambda: None

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        self.before()
        self.batches.append((len(prompts), sampling))
        self.asked += len(prompts) * sampling.n
        return [[self._reply(p, sampling, k, i) for i in range(sampling.n)] for p, k in zip(prompts, keys, strict=True)]

    def _reply(self, prompt: Prompt, sampling: Sampling, key: int, index: int) -> Reply:
        text = self.write(prompt, derive(sampling.seed, key, index) / 2**62, index)
        return text if isinstance(text, Reply) else Reply(text, FinishReason.STOP, 10, 5)


class ByPlace:
    """The same without keys: draws hang on the place in the list, as those of a server may."""

    def __init__(self, inner: Keyed) -> None:
        self.inner, self.name = inner, inner.name

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        return self.inner.sample(prompts, sampling)


def right_answer(prompt: Prompt) -> int:
    found = _SUM.search(prompt[-1].content)
    assert found, prompt
    return int(found.group(1)) + int(found.group(2))


def solver(name: str, share: float) -> Keyed:
    """Solve this share of the draws; else be off by one."""
    return Keyed(name, lambda prompt, u, i: f"Summary: added.\n\\boxed{{{right_answer(prompt) + (u >= share)}}}")


def truncated(name: str) -> Keyed:
    return Keyed(name, lambda prompt, u, i: Reply("so far", FinishReason.LENGTH, 10, 5))


def failing(name: str, error: str = "status 500") -> Keyed:
    return Keyed(name, lambda prompt, u, i: Reply("", FinishReason.ERROR, error=error))


def question(u: float) -> str:
    return f"What is {int(u * 1000)} + {int(u * 1_000_000) % 1000}?"


def asker(name: str, lost: float = 0.0) -> Keyed:
    """Ask a sum in each turn; this share of the turns holds no question."""

    def write(prompt: Prompt, u: float, i: int) -> str:
        if u < lost:
            return "no sections"
        return f"#Reasoning#\nr\n#Draft#\nd \\boxed{{1}}\n#Question#\n{question(u)}"

    return Keyed(name, write)


@dataclass
class World:
    """Samplers by the entry's name."""

    samplers: dict[str, Any] = field(
        default_factory=lambda: {
            "first": asker("first"),
            "second": asker("second", lost=0.1),
            "weak": solver("weak", 0.3),
            "middle": solver("middle", 0.6),
            "strong": solver("strong", 0.9),
            "judge": solver("judge", 1.0),
        }
    )

    def __call__(self, entry: Entry) -> Sampler:
        found: Sampler = self.samplers[entry.name]
        return found

    def before_call(self, number: int, act: Callable[[], None]) -> None:
        """Do something before the n-th call of any sampler, from 1."""
        calls = 0

        def before() -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                act()

        for one in self.samplers.values():
            getattr(one, "inner", one).before = before

    def by_place(self) -> World:
        return World({name: ByPlace(one) for name, one in self.samplers.items()})


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "model": f"models/{name}", **more}


def settings(**more: Any) -> Bench:
    data = {
        "askers": [entry("first"), entry("second")],
        "pool": {"solvers": [entry("weak"), entry("middle"), entry("strong")]},
        "cross_check": entry("judge"),
        "rules": {"probes": 2, "checks": 2},
        "sessions": 4,
        "wave": 5,
        "controls": {"resamples": 3, "shuffled": True, "difficulty": 2, "same_model": 2, "no_probing": 4},
        "truth": "bench_helpers:truth",
    }
    return parse_bench({**data, **more}, "test")


@dataclass(frozen=True)
class Truth:
    valid: bool
    answer: str | None


def truth(text: str) -> Truth:
    found = _SUM.search(text)
    return Truth(True, str(int(found.group(1)) + int(found.group(2)))) if found else Truth(False, None)


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    import json

    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def timeless(value: Any) -> Any:
    """Return rows without wall times, which no two runs share."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k != "seconds"}
    return [timeless(v) for v in value] if isinstance(value, list) else value


FILES = (
    "sessions.jsonl", "same_model.jsonl", "no_probing.jsonl", "resamples.jsonl", "shuffled.jsonl", "difficulty.jsonl",
    "truths.jsonl",
)  # fmt: skip


def contents(folder: Path) -> dict[str, Any]:
    return {name: timeless(lines(folder, name)) for name in FILES}


def nothing_is_valid(text: str) -> Truth:
    return Truth(False, None)
