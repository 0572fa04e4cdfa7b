"""A made-up bench folder: scripted seats in a small world, played through `aske.play` and written as `aske bench` does.

The world: a question of level d is a sum; a solver of strength s is right with probability 1 / (1 + exp(2 (d - s))).
An asker aims at a level between the two solvers, the better the more of the probes it uses.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from aske import Label, Rules, Samplings, Seats, SessionRecord, Slot, load_pack, play
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling

SOLVERS = {"rung-1": 1.0, "rung-2": 2.2, "rung-3": 3.4, "rung-4": 4.6, "fractions": 2.6, "ages": 3.0}
ASKERS = {"prober": 1.0, "guesser": 0.3, "easygoing": 0.0}
PACK = load_pack("standard")
QUESTION = re.compile(r"Level (-?[\d.]+): what is (\d+) \+ (\d+)\?")


class Seat:
    """A sampler that draws from (name, seed, place in the batch, sample)."""

    def __init__(self, name: str, answer: Callable[[Prompt, random.Random], str | Reply]) -> None:
        self.name, self.answer = name, answer

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        return [[self._reply(p, f"{sampling.seed}/{i}/{k}") for k in range(sampling.n)] for i, p in enumerate(prompts)]

    def _reply(self, prompt: Prompt, key: str) -> Reply:
        seed = int.from_bytes(hashlib.sha256(f"{self.name}/{key}".encode()).digest()[:8], "big")
        found = self.answer(prompt, random.Random(seed))
        if isinstance(found, Reply):
            return found
        return Reply(found, FinishReason.STOP, sum(len(m.content.split()) for m in prompt), len(found.split()))


def solver(strength: float, cut_off: float = 0.01, failing: float = 0.0) -> Callable[[Prompt, random.Random], Any]:
    def answer(prompt: Prompt, draw: random.Random) -> str | Reply:
        found = QUESTION.search(prompt[-1].content)
        if draw.random() < failing:
            return Reply("", FinishReason.ERROR, error="HTTP 503 after 6 tries")
        if draw.random() < cut_off:
            return Reply("I start by adding the tens, and then", FinishReason.LENGTH, 60, 4096)
        if found is None:
            return "I cannot find a question here."
        level, a, b = float(found[1]), int(found[2]), int(found[3])
        right = draw.random() < 1 / (1 + math.exp(min(50.0, 2 * (level - strength))))
        total = a + b if right else a + b + draw.choice([-10, -1, 1, 10])
        return f"First the tens, then the units: {a} + {b}.\nSummary: I added both numbers.\n\\boxed{{{total}}}"

    return answer


def asker(skill: float, lost: float = 0.03) -> Callable[[Prompt, random.Random], str]:
    def answer(prompt: Prompt, draw: random.Random) -> str:
        if draw.random() < lost:
            return "#Reasoning#\nLet me think about which question would be good here."
        level = draw.uniform(0.0, 5.0) if skill else draw.uniform(-1.0, 1.5)
        if draw.random() < skill and len(prompt) > 1:
            level = 2.8 + draw.uniform(-1, 1)
        a, b = draw.randint(11, 99), draw.randint(11, 99)
        return (
            f"#Reasoning#\nOne solver missed the last sum, so I stay near level {level:.1f}.\n"
            f"#Draft#\n{a} + {b} = \\boxed{{{a + b}}}\n#Question#\nLevel {level:.2f}: what is {a} + {b}?"
        )

    return answer


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def play_bench(
    askers: dict[str, float], sessions: int = 6, *, failing: float = 0.0, same: bool = False, probes: int = 3
) -> list[SessionRecord]:
    """Play all pairs, or all solvers against themselves."""
    seats = {name: Seat(name, solver(s, failing=failing)) for name, s in SOLVERS.items()}
    pairs = [(n, n) for n in SOLVERS] if same else list(combinations(SOLVERS, 2))
    found: list[SessionRecord] = []
    for name, skill in askers.items():
        slots = [
            Slot(f"{name}/{a}+{b}/{i}", (a, b), i, (i + len(a)) % 2 == 1) for a, b in pairs for i in range(sessions)
        ]
        table = Seats(Seat(name, asker(skill)), seats, Seat("judge", solver(6.5, cut_off=0.0, failing=failing)))
        found += play(slots, name, table, PACK, Rules(probes, 3), Samplings(), seed=7)
    return found


def config_of(askers: Sequence[str], sessions: int) -> dict[str, Any]:
    return {
        "name": "made-up", "description": "", "askers": [{"name": a, "model": a, "backend": "transformers"} for a in askers],
        "pool": {"solvers": [{"name": s, "model": s, "backend": "transformers"} for s in SOLVERS]},
        "cross_check": {"name": "judge", "model": "judge"}, "prompts": "standard",
        "rules": {"probes": 3, "checks": 3, "question_words": 200, "reply_chars": 2000}, "sessions": sessions, "seed": 7,
    }  # fmt: skip


def drawn(session: SessionRecord, name: str, m: int, kind: str) -> dict[str, Any]:
    """Return a row of fresh solutions."""
    draw = random.Random(f"{kind}/{session.id}/{name}")
    found = QUESTION.search(session.question or "")
    level = float(found[1]) if found else 9.0
    p = 1 / (1 + math.exp(min(50.0, 2 * (level - SOLVERS[name]))))
    right = sum(draw.random() < p for _ in range(m))
    return {
        "session": session.id, "asker": session.asker, "pair": list(session.pair), "slot": session.slot, "solver": name,
        "question": session.question, "answer": session.grade.answer, "right": right, "wrong": m - right, "undecided": 0,
        "m": m, "answers": [session.grade.answer] * right + ["0"] * (m - right),
    }  # fmt: skip


def unprobed_rows(askers: Sequence[str], questions: int) -> list[dict[str, Any]]:
    rows = []
    for name in askers:
        for index in range(questions):
            draw = random.Random(f"unprobed/{name}/{index}")
            level = draw.uniform(0, 5)
            marks = {
                s: "right" if draw.random() < 1 / (1 + math.exp(2 * (level - p))) else "wrong"
                for s, p in SOLVERS.items()
            }
            rows.append({"asker": name, "index": index, "question": f"Level {level:.2f}: what is 20 + 22?", "answer": "42",
                         "marks": marks, "session": f"{name}/unprobed/{index}"})  # fmt: skip
    return rows


def write_bench(
    folder: Path, askers: dict[str, float] | None = None, sessions: int = 6, m: int = 8, failing: float = 0.0
) -> list[SessionRecord]:
    """Write a bench folder with all controls and return its sessions."""
    askers = ASKERS if askers is None else askers
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(list(askers), sessions)), encoding="utf-8")
    played = play_bench(askers, sessions, failing=failing)
    write_lines(folder / "sessions.jsonl", [s.to_json() for s in played])
    graded = [s for s in played if s.label in (Label.CALIBRATED, Label.TOO_EASY, Label.TOO_HARD)]
    pairs = list(combinations(SOLVERS, 2))
    write_lines(folder / "resamples.jsonl", [drawn(s, name, m, "own") for s in graded for name in s.pair])
    shuffled = []
    for i, s in enumerate(graded):
        shown = [p for p in pairs if p != s.pair][i % (len(pairs) - 1)]
        shuffled += [{**drawn(s, name, m, "other"), "shown_pair": list(shown)} for name in shown]
    write_lines(folder / "shuffled.jsonl", shuffled)
    same = play_bench(askers, 2, same=True, failing=failing)
    write_lines(folder / "same_model.jsonl", [s.to_json() for s in same])
    write_lines(folder / "no_probing.jsonl", unprobed_rows(list(askers), 20))
    others = [(s, name) for s in graded for name in SOLVERS if name not in s.pair]
    write_lines(folder / "difficulty.jsonl", [{k: v for k, v in drawn(s, n, 1, "d").items() if k in ("session", "solver", "right", "m")}
                                              for s, n in others])  # fmt: skip
    write_lines(folder / "truths.jsonl", [
        {"session": s.id, "question": s.question, "valid": True, "answer": s.grade.answer, "cross_check_true": i % 25 != 0}
        for i, s in enumerate(graded)
    ])  # fmt: skip
    write_lines(folder / "regrade-strict.jsonl", [
        {"session": s.id, "label": "bad_cross_check" if i % 10 == 0 else s.label.value, "reason": None,
         "answer": s.grade.answer, "marks": [k.value for k in s.grade.marks]}
        for i, s in enumerate(played) if s.label.counted
    ])  # fmt: skip
    return played
