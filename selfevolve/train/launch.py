"""Run a stage in child processes under ``accelerate launch``, on one machine or as one of several."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from selfevolve.train.spec import TrainingError

_TAIL = 30  # last lines of the child's output that an error repeats
_GRACE = 10.0  # seconds between asking a child to end and ending it
_POLL = 0.5  # seconds between two looks at whether a child shall go on
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_STARTED_BY = "SELFEVOLVE_STARTED_BY"  # to the workers: the process that called `launch`


class LaunchError(TrainingError):
    """A child process failed; the message ends with its last lines."""


@dataclass(frozen=True)
class Meeting:
    """Where the processes of several machines meet, and as which of the machines this one comes."""

    machines: int  # 2 or more
    rank: int  # of this machine, from 0; machine 0 holds the main process
    address: str  # of machine 0, as the others reach it
    port: int  # free on machine 0
    stop: Callable[[], str | None]  # asked now and then: None, or why this machine's part shall end at once


def command(
    module_args: list[str], processes: int, accelerate_config: Path | None, cpu: bool, meeting: Meeting | None = None
) -> list[str]:
    """Return the command line that runs ``python -m module_args...`` under accelerate.

    ``accelerate launch --cpu --num_processes 2`` silently runs one process. Several processes on a CPU are asked for as
    ``--multi_gpu`` with ``ACCELERATE_USE_CPU`` in the environment, see `environment`; the flag would set aside what a
    file says about sharding, so such a file goes without it. With a meeting, ``processes`` are those of all machines.
    """
    line = [sys.executable, "-m", "accelerate.commands.launch"]
    if accelerate_config is not None:
        line += ["--config_file", str(accelerate_config)]
    line += ["--num_processes", str(processes), "--num_machines", str(meeting.machines if meeting else 1)]
    if meeting is not None:
        line += ["--machine_rank", str(meeting.rank)]
        line += ["--main_process_ip", meeting.address, "--main_process_port", str(meeting.port)]
        # each machine starts its own processes; DeepSpeed would start all of them over ssh
        line += ["--deepspeed_multinode_launcher", "standard"]
    elif processes > 1:
        line += ["--main_process_port", "0"]  # a free one, so that two runs can share a machine
    if processes > 1 and (accelerate_config is None or _needs_flag(accelerate_config, cpu)):
        line += ["--multi_gpu"]
    if accelerate_config is None:
        line += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    return [*line, "-m", *module_args]


def _needs_flag(accelerate_config: Path, cpu: bool) -> bool:
    """Return whether accelerate would start one process, where several are asked for with this configuration.

    On a CPU it does without the flag; elsewhere under a file that says ``distributed_type: NO``, as single_gpu.yaml.
    """
    settings = yaml.safe_load(accelerate_config.read_text(encoding="utf-8")) if accelerate_config.is_file() else None
    kind = settings.get("distributed_type") if isinstance(settings, dict) else None
    if cpu:
        return kind not in ("FSDP", "DEEPSPEED")
    return kind in ("NO", False)  # without quotes YAML reads NO as false


def refuse_missing_gpus(processes: int) -> None:
    """Refuse more processes than this machine has GPUs: they would share some and then fail, or wait for ever.

    Raises:
        LaunchError: torch sees fewer GPUs.
    """
    import torch

    if processes > (seen := torch.cuda.device_count()):
        raise LaunchError(
            f"{processes} training processes on this machine need a GPU each, and torch sees {seen}",
            "Lower processes (selfevolve resume RUN processes=N), let CUDA_VISIBLE_DEVICES name more GPUs, or hide all "
            "of them (CUDA_VISIBLE_DEVICES=) to train on CPUs.",
        )


def environment(processes: int, cpu: bool, base: Mapping[str, str]) -> dict[str, str]:
    """Return the child's environment: CPU mode, and the cores shared between this machine's processes."""
    result = dict(base)
    if cpu:
        result["ACCELERATE_USE_CPU"] = "true"
        result.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    result["PYTHONUNBUFFERED"] = "1"
    result[_STARTED_BY] = str(os.getpid())
    return result


def launch(
    module_args: list[str],
    processes: int,
    accelerate_config: Path | None = None,
    *,
    cpu: bool | None = None,
    echo: Callable[[str], None] | None = None,
    meeting: Meeting | None = None,
) -> None:
    """Run ``python -m module_args...`` on ``processes`` processes and wait for its end.

    Args:
        module_args: a module's name and its arguments.
        processes: training processes, of all machines together.
        accelerate_config: accelerate's own configuration file, or None.
        cpu: whether to stay off GPUs; None: where torch sees none.
        echo: gets each line of output; None: standard output does.
        meeting: this machine's part in a stage on several machines; None: all processes run here.

    Raises:
        LaunchError: the child failed, with the last lines of its output; or the meeting asked for its end.
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
    here = processes // (meeting.machines if meeting else 1)
    if not cpu and here > 1:
        refuse_missing_gpus(here)
    line = command(module_args, processes, accelerate_config, cpu, meeting)
    tail: deque[str] = deque(maxlen=_TAIL)
    child = subprocess.Popen(
        line,
        env=environment(here, cpu, os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # its own process group, so that the workers can be ended with it
        preexec_fn=die_with_parent,
    )
    watch = _Watch(child, meeting.stop) if meeting else None
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
        if watch is not None:
            watch.close()
        _end(child)
    if watch is not None and watch.reason is not None:
        raise LaunchError(watch.reason)
    if status != 0:
        raise LaunchError(
            f"{module_args[0]} ended with status {status} under accelerate ({processes} processes); its last lines:\n"
            + "\n".join(tail)
        )


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent dies; elsewhere do nothing.

    `launch` asks for it on behalf of the launcher; a stage's own module asks for it first thing, so that a killed run
    leaves no worker behind. A worker whose run was killed before it came to ask ends here.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        started_by = os.environ.get(_STARTED_BY)
        if started_by is not None and not _lives(int(started_by)):
            sys.exit("the run that started this worker is gone")


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class _Watch:
    """Ends a child, from a thread of its own, as soon as it is told a reason to."""

    def __init__(self, child: subprocess.Popen[str], stop: Callable[[], str | None]) -> None:
        self.reason: str | None = None  # why the child was ended; None: it was not
        self._child, self._stop = child, stop
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(_POLL):
            self.reason = self._stop()
            if self.reason is not None:
                _end_processes(self._child)
                return

    def close(self) -> None:
        """Look no more."""
        self._done.set()
        self._thread.join()


def _end(child: subprocess.Popen[str]) -> None:
    """End the child and what it started, if any of it still runs."""
    _end_processes(child)
    if child.stdout is not None:
        child.stdout.close()


def _end_processes(child: subprocess.Popen[str]) -> None:
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
