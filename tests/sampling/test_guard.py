"""Processes that end with the one that started them, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from selfevolve.sampling._guard import Guard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a guard reads /proc")
ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import multiprocessing, os, sys, time
from selfevolve.sampling._guard import Guard

if __name__ == "__main__":
    children = [multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)) for _ in range(2)]
    for child in children:
        child.start()
    guard = Guard([child.pid for child in children])
    if "ended" in sys.argv:
        guard.end()
    print(*(child.pid for child in children), flush=True)
    time.sleep(600)
"""


def alive(number: int) -> bool:
    """Return whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def within(seconds: float, numbers: list[int]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(alive, numbers)):
        time.sleep(0.1)
    return not any(map(alive, numbers))


@pytest.mark.parametrize("ended", [False, True])
def test_children_end_soon_after_their_parent_was_killed(ended: bool) -> None:
    words = [sys.executable, "-c", PARENT, *(["ended"] if ended else [])]
    parent = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = list(map(int, parent.stdout.readline().split()))
    try:
        assert len(children) == 2 and all(map(alive, children))
        parent.kill()
        parent.wait()
        if ended:  # nobody watches any more
            time.sleep(1.5)
            assert all(map(alive, children))
        else:
            assert within(20, children)
    finally:
        parent.stdout.close()
        for child in filter(alive, children):
            os.kill(child, signal.SIGKILL)


def test_a_number_that_belongs_to_another_process_by_now_is_left_alone() -> None:
    """The watcher looks when the process was born."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    guard = Guard([gone.pid])  # no process has it, so there is nothing to end
    guard.end()
    guard.end()


def test_an_engines_own_process_is_guarded_and_the_guard_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from selfevolve.sampling import vllm_sampler
    from tests.sampling import fake_vllm
    from tests.tiny_model import tiny_tokenizer

    module = fake_vllm.module(tiny_tokenizer(60))
    made, told = module.LLM, []
    child = SimpleNamespace(pid=123456)
    started: list[Any] = []

    def start(**keys: Any) -> Any:
        engine = made(**keys)
        engine.llm_engine.engine_core = SimpleNamespace(shutdown=lambda: told.append("shut down"))
        started.append(child)
        return engine

    monkeypatch.setattr(module, "LLM", start)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(vllm_sampler.multiprocessing, "active_children", lambda: list(started))
    guarded = lambda pids: told.append(pids) or SimpleNamespace(end=lambda: told.append("guard ended"))  # noqa: E731
    monkeypatch.setattr(vllm_sampler, "Guard", guarded)
    vllm_sampler.VllmSampler("m").close()
    assert told == [[123456], "shut down", "guard ended"]
