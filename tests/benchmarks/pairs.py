"""Two ways of one job, measured in turn, so that other work on the machine meets both alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True)
class Paired:
    """Seconds of both ways, a repeat a place; CPU seconds are those of this process with all its threads."""

    cpu_a: tuple[float, ...]
    cpu_b: tuple[float, ...]
    wall_a: tuple[float, ...]
    wall_b: tuple[float, ...]

    def ratio(self, wall: bool = False) -> dict[str, float]:
        """Return the median of a over b within a repeat, and the quarter and three-quarter points of the ratios."""
        a, b = (self.wall_a, self.wall_b) if wall else (self.cpu_a, self.cpu_b)
        ratios = sorted(x / y for x, y in zip(a, b, strict=True))
        last = len(ratios) - 1
        low, high = ratios[round(last * 0.25)], ratios[round(last * 0.75)]
        return {"median": round(median(ratios), 3), "low": round(low, 3), "high": round(high, 3)}

    def to_json(self) -> dict[str, Any]:
        """Return both ratios and the median CPU seconds of each way."""
        return {
            "cpu_ratio": self.ratio(),
            "wall_ratio": self.ratio(wall=True),
            "cpu_seconds": [round(median(self.cpu_a), 4), round(median(self.cpu_b), 4)],
            "repeats": len(self.cpu_a),
        }


def once(work: Work) -> tuple[float, float]:
    """Return the CPU and wall seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def paired(a: Work, b: Work, repeats: int) -> Paired:
    """Measure both ways ``repeats`` times, after one call of each; the order within a repeat changes each time."""
    a(), b()
    taken: dict[str, list[tuple[float, float]]] = {"a": [], "b": []}
    for repeat in range(repeats):
        for name, work in (("a", a), ("b", b)) if repeat % 2 == 0 else (("b", b), ("a", a)):
            taken[name].append(once(work))
    columns = [tuple(pair[i] for pair in taken[name]) for i in (0, 1) for name in ("a", "b")]
    return Paired(*columns)


def resident_mib() -> float:
    """Return the resident memory of this process in MiB (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
