"""The child process that asks mathruler and math-verify; run by path, so it imports nothing of this package.

Reads one JSON object a line (``{"a": text, "b": text, "limit": seconds}``) and writes one (``{"verdict": true, false
or null, "by": name}``). A timer of the kernel ends the process when a job passes its limit, whatever the library does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from typing import Any

MEMORY_BYTES = 2 * 1024**3
_FALSE_FRIENDS = re.compile(r"degree|meter|mile|second|minute|hour|day|week|month|year|foot|feet|inch|yard|%|\\text")


def _by_math_verify(a: str, b: str) -> bool | None:
    """Return math-verify's verdict; None where it can read one of the two not at all."""
    from math_verify import parse, verify

    read = [parse(f"${text}$", parsing_timeout=None, raise_on_error=False) for text in (a, b)]
    if not all(any(not isinstance(part, str) for part in found) for found in read):
        return None
    both = (verify(read[0], read[1], timeout_seconds=None), verify(read[1], read[0], timeout_seconds=None))
    return bool(both[0]) if both[0] == both[1] else None


def _by_mathruler(a: str, b: str) -> bool:
    """Return True where mathruler finds the two equal in both directions; it cannot tell different from unreadable.

    Mathruler also drops unit words, percent signs and the case of letters, so such pairs are kept from it.
    """
    if _FALSE_FRIENDS.search(a + " " + b) or a.lower() == b.lower():
        return False
    from mathruler.grader import grade_answer

    return bool(grade_answer(a, b)) and bool(grade_answer(b, a))


def judge(a: str, b: str) -> dict[str, Any]:
    """Return the verdict on one pair and who gave it."""
    try:
        if _by_mathruler(a, b):
            return {"verdict": True, "by": "mathruler"}
    except (Exception, SystemExit) as error:
        failed = f"mathruler: {type(error).__name__}"
    else:
        failed = ""
    try:
        verdict = _by_math_verify(a, b)
    except (Exception, SystemExit) as error:
        return {"verdict": None, "by": f"{failed} math-verify: {type(error).__name__}".strip()}
    return {"verdict": verdict, "by": "math-verify" if verdict is not None else "neither tool reads both answers"}


def main() -> None:
    """Serve until the input closes."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # the wall limit still holds
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of the run is the parent's to handle
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints does not reach the answers
    import logging

    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401
    import mathruler.grader  # noqa: F401

    out.write(json.dumps({"ready": True}) + "\n")
    out.flush()
    for line in sys.stdin:
        job = json.loads(line)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, float(job["limit"]))
        answer = judge(job["a"], job["b"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
