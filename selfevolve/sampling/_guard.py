"""Processes that a library starts end with this one, also when it is killed (ground floor: imports nothing of ours).

A small process of its own watches: a process that is killed can tell nobody. It knows a child by number and time of
birth, so that it ends no other one that has got the number since.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

_WATCH = """
import os, signal, sys, time
parent, children = int(sys.argv[1]), [int(number) for number in sys.argv[2:]]
def born(child):
    try:
        with open(f"/proc/{child}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return None
births = {child: born(child) for child in children}
print("watching", flush=True)
while os.getppid() == parent:
    time.sleep(0.5)
for child, birth in births.items():
    if birth is not None and born(child) == birth:
        os.kill(child, signal.SIGKILL)
"""


class Guard:
    """Ends some processes soon after this one is gone (Linux; elsewhere it does nothing)."""

    def __init__(self, children: Iterable[int]) -> None:
        """Start watching; returns once it does.

        Args:
            children: process numbers.
        """
        words = [sys.executable, "-S", "-c", _WATCH, str(os.getpid()), *map(str, children)]
        self._watch = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert self._watch.stdout is not None
        with self._watch.stdout as told:
            told.readline()

    def end(self) -> None:
        """Stop watching; a second call does nothing."""
        self._watch.kill()
        self._watch.wait()
