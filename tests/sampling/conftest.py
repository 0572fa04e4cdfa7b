"""Real vLLM processes, started when a test asks for one and kept until the tests end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sampling import vllm_real
from tests.tiny_model import save_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a random model that vLLM takes; its generation config would cut every draw (top_k 1)."""
    plain = save_tiny(tmp_path_factory.mktemp("tiny") / "plain", words=20, hidden=128, layers=1)
    return vllm_real.picky_copy(plain, plain.with_name("tiny"))


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., vllm_real.Server]]:
    """Return a function that starts a server, once for each model folder."""
    if not vllm_real.PYTHON:
        pytest.skip(vllm_real.NO_PYTHON)
    running: dict[str, vllm_real.Server] = {}

    def start(model: Path | str, max_model_len: int, *options: str) -> vllm_real.Server:
        if str(model) not in running:
            log = tmp_path_factory.mktemp("vllm") / "server.log"
            server = vllm_real.Server(model, log, max_model_len=max_model_len, options=options)
            running[str(model)] = server
            server.wait()
        return running[str(model)]

    yield start
    for server in running.values():
        server.stop()


@pytest.fixture(scope="session")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., vllm_real.Engine]]:
    """Return a function that starts an in-process sampler in a process of its own, once for each model folder."""
    if not vllm_real.PYTHON:
        pytest.skip(vllm_real.NO_PYTHON)
    running: dict[str, vllm_real.Engine] = {}

    def start(model: Path | str, max_model_len: int) -> vllm_real.Engine:
        if str(model) not in running:
            log = tmp_path_factory.mktemp("vllm") / "engine.log"
            engine = {"dtype": "float32", "enforce_eager": True, "max_model_len": max_model_len}
            running[str(model)] = vllm_real.Engine(model, log, engine=engine)
        return running[str(model)]

    yield start
    for engine in running.values():
        engine.stop()
