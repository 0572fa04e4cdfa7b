"""A server process of the run: started, waited for, watched and stopped by its handle."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from selfevolve.config.backends import Backend
from selfevolve.errors import UserError
from selfevolve.sampling._http_client import is_loopback
from selfevolve.train.launch import die_with_parent

logger = logging.getLogger(__name__)

ANYWHERE = ("0.0.0.0", "::")  # addresses that mean all of the machine's
GRACE = 15.0  # seconds between asking a server to end and ending it
TAIL = 30  # last lines of the log that an error repeats
PORTS = 4  # ports tried where another process takes the chosen one first
TAKEN = ("address already in use", "errno 98", "eaddrinuse")  # as servers write it, lower case

# what a launcher of processes tells its workers: a server that read it would wait for workers of its own
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LAUNCHER_PREFIXES = ("ACCELERATE_", "SELFEVOLVE_", "TORCHELASTIC_", "GROUP_", "ROLE_", "FSDP_")


class ServerError(UserError):
    """A server that the run started does not serve, or an endpoint does not answer."""


def command_line(backend: Backend, model: str, dtype: str, port: int, trusted: bool) -> list[str]:
    """Return the command that serves ``model`` on a port: vLLM's server, or the backend's own.

    ``--generation-config vllm`` keeps the server from filling in sampling settings of the model's own.
    """
    if backend.command:
        values = {"{model}": model, "{host}": backend.host, "{port}": str(port), "{dtype}": dtype}
        return [_filled(word, values) for word in backend.command]
    # not `vllm serve`: it needs a distribution of that very name, which CPU builds are not
    line = [backend.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    line += ["--model", model, "--host", backend.host, "--port", str(port)]
    line += ["--generation-config", "vllm", "--dtype", dtype, "--load-format", "safetensors"]
    if backend.gpu_memory is not None:
        line += ["--gpu-memory-utilization", f"{backend.gpu_memory:g}"]
    if trusted:
        line += ["--trust-remote-code"]
    return [*line, *backend.arguments]


def server_environment(base: Mapping[str, str], devices: str | None, python: str | None) -> dict[str, str]:
    """Return a server's environment: ours without what a launcher told us, its devices, its interpreter's programs."""
    result = {n: v for n, v in base.items() if not _of_launcher(n)}
    result["PYTHONUNBUFFERED"] = "1"
    if devices is not None:
        result["CUDA_VISIBLE_DEVICES"] = devices
    if python is not None and os.path.dirname(python):  # engines call compilers and tools of their own environment
        result["PATH"] = os.pathsep.join(filter(None, [os.path.dirname(python), result.get("PATH")]))
    return result


def _of_launcher(variable: str) -> bool:
    return variable in LAUNCHER or variable.startswith(LAUNCHER_PREFIXES)


@contextmanager
def without_launcher() -> Iterator[None]:
    """Hide what a launcher told this process, for an engine that starts processes of its own in the block.

    torch's launcher says that it keeps the store where processes meet: an engine would wait for one at its own address.
    """
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if _of_launcher(name)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def free_port(host: str) -> int:
    """Return a port that is free now; another process may still take it first."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """One replica: at most one live process at a time."""

    def __init__(
        self, backend: Backend, model: str, name: str, log: Path, *, dtype: str, trusted: bool, replica: int = 0
    ) -> None:
        """Keep how it is started; `start` does it.

        Args:
            backend: its settings, of kind "server".
            model: folder or hub id.
            name: for messages.
            log: file that its output is added to.
            dtype: arithmetic, as the recipe names it.
            trusted: the model's repository may bring code.
            replica: its number, from 0.
        """
        self.backend, self.model, self.name, self.log = backend, model, name, log
        self.dtype, self.trusted = dtype, trusted
        self.devices = backend.devices[replica % len(backend.devices)] if backend.devices else None
        self.port = 0  # 0: not chosen yet
        self.tries = 0  # ports tried
        self._child: subprocess.Popen[bytes] | None = None
        self._from = 0  # where the last start's output begins in the log, in bytes

    @property
    def url(self) -> str:
        """Where to ask it, up to /v1."""
        host = "127.0.0.1" if self.backend.host in ANYWHERE else self.backend.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    @property
    def pid(self) -> int | None:
        """The process's number; None: it was not started."""
        return self._child.pid if self._child else None

    @property
    def alive(self) -> bool:
        """True while the process runs, whether or not it answers."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the process, on the port that it had before, and do not wait for it.

        Linux ends the process with the *thread* that started it: call this from one that lives as long as the run.

        Raises:
            ServerError: the program cannot be run.
        """
        if not self.port:
            self.port, self.tries = free_port(self.backend.host), self.tries + 1
        line = command_line(self.backend, self.model, self.dtype, self.port, self.trusted)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if not _is_loopback(self.backend.host):
            logger.warning("%s: the server listens on %s, where others can reach it", self.name, self.backend.host)
        with self.log.open("ab") as log:
            self._write(log, f"$ {' '.join(line)}\n")
            self._from = log.tell()
            try:
                self._child = subprocess.Popen(
                    line,
                    env=server_environment(os.environ, self.devices, self.backend.python),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # its own process group, so that its workers end with it
                    preexec_fn=die_with_parent,
                )
            except OSError as error:
                raise ServerError(
                    f"{self.name}: the server cannot be started: {error}",
                    "set python (or command) of its backend to a program that is there",
                ) from None
        logger.info("%s: server process %d starts on %s, log %s", self.name, self._child.pid, self.url, self.log)

    def choose_another_port(self) -> bool:
        """Start anew on another port if the process ended because its port was taken; return False if it was not."""
        if self.tries >= PORTS or not any(mark in self.tail().lower() for mark in TAKEN):
            return False
        logger.warning("%s: port %d was taken by another process; trying another", self.name, self.port)
        self.port = 0
        self.start()
        return True

    def ended(self, what: str) -> ServerError:
        """Return the error for a process that ended, with its status and last lines."""
        status = None if self._child is None else self._child.poll()
        return ServerError(
            f"{self.name}: the server {what} (status {status}); the last lines of {self.log}:\n{self.tail()}",
            "mend what the log tells (memory: lower gpu_memory or --max-model-len; no module vllm: set python), "
            "then go on with `selfevolve resume`",
        )

    def tail(self) -> str:
        """Return the last lines that the last start wrote."""
        with self.log.open("rb") as log:
            log.seek(max(self._from, log.seek(0, os.SEEK_END) - 200 * TAIL))
            lines = log.read().decode(errors="replace").splitlines()[-TAIL:]
        return "\n".join(lines) or "(no output)"

    def stop(self) -> None:
        """End the process and what it started: ask, wait `GRACE` seconds, then end it; a second call does nothing."""
        child = self._child
        if child is None:
            return
        for request in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(child.pid, request)
            except ProcessLookupError:
                break
            try:
                child.wait(GRACE)
            except subprocess.TimeoutExpired:
                continue
        child.wait()
        self._child = None

    @staticmethod
    def _write(log: IO[bytes], text: str) -> None:
        log.write(text.encode(errors="replace"))
        log.flush()


def stop_all(processes: Sequence[ServerProcess]) -> None:
    """End several processes, at the same time."""
    for process in processes:
        if process.pid is not None and process.alive:
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
    for process in processes:
        process.stop()


def _is_loopback(host: str) -> bool:
    return is_loopback(f"http://{f'[{host}]' if ':' in host else host}")


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
