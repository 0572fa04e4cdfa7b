"""Servers of tests: one engine for all, and commands of small servers that hand requests on to it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.engine import Engine
from tests.tiny_model import tiny_model, tiny_tokenizer

FRONT = Path(__file__).with_name("front.py")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    torch = pytest.importorskip("torch")
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Engine(lambda folder: TransformersSampler(folder, batch=256, dtype=torch.float32)) as started:
        yield started
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten what a test would wait for."""
    from selfevolve.serving import process, served

    monkeypatch.setattr(served, "BACKOFF", 0.05)
    monkeypatch.setattr(served, "RETRIES", 3)
    monkeypatch.setattr(served, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(process, "GRACE", 1.0)


@pytest.fixture
def command(engine: Engine) -> Callable[..., list[str]]:
    def make(faults: Path | None = None) -> list[str]:
        words = [sys.executable, "-S", str(FRONT), "--engine", engine.url, "--model", "{model}"]
        words += ["--host", "{host}", "--port", "{port}"]
        return [*words, "--faults", str(faults)] if faults else words

    return make


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two tiny models, with a chat template and without."""
    top = tmp_path_factory.mktemp("models")
    model: Any = tiny_model(words=20, hidden=32, layers=1)
    for name, chat in (("chat", True), ("plain", False)):
        model.save_pretrained(top / name)
        tiny_tokenizer(20, chat=chat).save_pretrained(top / name)
    return {name: str(top / name) for name in ("chat", "plain")}


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Return True once the process is no more, or a zombie of somebody else's."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
