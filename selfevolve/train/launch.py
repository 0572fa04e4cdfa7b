"""Run a stage in a child process under ``accelerate launch``, on one or several processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from selfevolve.train.spec import TrainingError

_TAIL = 30  # last lines of the child's output that an error repeats
_GRACE = 10.0  # seconds between asking a child to end and ending it
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class LaunchError(TrainingError):
    """A child process failed; the message ends with its last lines."""


def command(module_args: list[str], processes: int, accelerate_config: Path | None, cpu: bool) -> list[str]:
    """Return the command line that runs ``python -m module_args...`` under accelerate.

    ``accelerate launch --cpu --num_processes 2`` silently runs one process. Several processes on a CPU are asked for as
    ``--multi_gpu`` with ``ACCELERATE_USE_CPU`` in the environment, see `environment`.
    """
    line = [sys.executable, "-m", "accelerate.commands.launch"]
    if accelerate_config is not None:
        line += ["--config_file", str(accelerate_config)]
    line += ["--num_processes", str(processes), "--num_machines", "1"]
    if processes > 1:
        line += ["--main_process_port", "0"]  # a free one, so that two runs can share a machine
        if accelerate_config is None or cpu:
            line += ["--multi_gpu"]
    if accelerate_config is None:
        line += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    return [*line, "-m", *module_args]


def environment(processes: int, cpu: bool, base: Mapping[str, str]) -> dict[str, str]:
    """Return the child's environment: CPU mode, and the cores shared between the processes."""
    result = dict(base)
    if cpu:
        result["ACCELERATE_USE_CPU"] = "true"
        result.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    result["PYTHONUNBUFFERED"] = "1"
    return result


def launch(
    module_args: list[str],
    processes: int,
    accelerate_config: Path | None = None,
    *,
    cpu: bool | None = None,
    echo: Callable[[str], None] | None = None,
) -> None:
    """Run ``python -m module_args...`` on ``processes`` processes and wait for its end.

    Args:
        module_args: a module's name and its arguments.
        processes: training processes.
        accelerate_config: accelerate's own configuration file, or None.
        cpu: whether to stay off GPUs; None: where torch sees none.
        echo: gets each line of output; None: standard output does.

    Raises:
        LaunchError: the child failed; with the last lines of its output.
    """
    if processes < 1:
        raise LaunchError(f"processes is {processes}; it must be at least 1")
    if accelerate_config is not None and not accelerate_config.is_file():
        raise LaunchError(
            f"accelerate's config {accelerate_config} does not exist", "Name a file in recipes/accelerate."
        )
    if cpu is None:
        import torch

        cpu = not torch.cuda.is_available()
    line = command(module_args, processes, accelerate_config, cpu)
    tail: deque[str] = deque(maxlen=_TAIL)
    child = subprocess.Popen(
        line,
        env=environment(processes, cpu, os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # its own process group, so that the workers can be ended with it
        preexec_fn=die_with_parent,
    )
    try:
        assert child.stdout is not None
        for text in child.stdout:
            tail.append(text.rstrip("\n"))
            if echo is None:
                sys.stdout.write(text)
                sys.stdout.flush()
            else:
                echo(text.rstrip("\n"))
        status = child.wait()
    finally:
        _end(child)
    if status != 0:
        raise LaunchError(
            f"{module_args[0]} ended with status {status} under accelerate ({processes} processes); its last lines:\n"
            + "\n".join(tail)
        )


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent dies; elsewhere do nothing.

    `launch` asks for it on behalf of the launcher; a stage's own module asks for it first thing, so that a killed run
    leaves no worker behind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(child: subprocess.Popen[str]) -> None:
    """End the child and what it started, if any of it still runs."""
    for request in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, request)
        except ProcessLookupError:
            break
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            continue
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
