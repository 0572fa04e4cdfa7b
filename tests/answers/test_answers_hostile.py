# ruff: noqa: RUF001
"""Replies are untrusted: no hang, no crash, no false SAME, nothing in them runs, and the workers keep serving."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from selfevolve.answers import (
    Equivalence,
    _workers,
    compare,
    explain,
    extract,
    extract_choice,
    extract_final_number,
    read_json,
    read_label,
    vote,
)
from selfevolve.answers.equivalence import unsafe

LIMIT_S = 10.0
HOSTILE = [
    "9^{9^{9^{9}}}",
    "((9!)!)!",
    "100000000!",
    "2^{2^{2^{2^{2^{2}}}}}",
    "1e99999",
    "__import__('os').getpid()",
    "().__class__.__bases__[0]",
    "lambda: 0",
    "5\0",
    "\0",
    "{" * 5000,
    "}" * 5000,
    "9" * 100_000,
    "1+" * 50_000 + "1",
    "x^" * 3000 + "x",
    "=" * 3000,
    "1/" * 3000 + "1",
    "[1," * 400 + "]" * 400,
    "\\frac" * 2000,
    "\\sqrt{" * 500 + "2" + "}" * 500,
    "\\boxed{" * 1000,
    "\\begin{pmatrix}" * 100,
    "0." + "3" * 9000 + "...",
    "\\sum_{k=1}^{5000}\\sum_{j=1}^{5000} kj",
    "\\prod_{k=1}^{5000} k^{100}",
    "\\binom{10^9}{5\\cdot10^8}",
    "\\sin(10^{1000})",
    "e^{e^{e^{e^{e}}}}",
    "1" + " " * 3000 + "x",
    "\u00bd" * 19_000,
    "5 ft " * 3000,
    "[1,3[\\cup " * 300,
    "one hundred and " * 500,
    "\\phantom{" * 2000,
    "5 base " * 300,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: t[:20].replace("\0", "NUL"))
def test_one_reply_costs_at_most_its_own_score(text: str) -> None:
    start = time.monotonic()
    assert compare("5", text) is not Equivalence.SAME
    assert compare(text, "5") is not Equivalence.SAME
    assert compare(text, r"\frac{1}{2}") is not Equivalence.SAME
    assert vote(["5", text, "5"]).answer == "5"
    assert time.monotonic() - start < LIMIT_S
    assert compare("6", r"\int_0^{12} \frac{1}{2} dx") is Equivalence.SAME  # the worker still serves


def test_deep_brackets_keep_their_value() -> None:
    assert compare("(" * 3000 + "1" + ")" * 3000, "1") is Equivalence.SAME


def test_a_hanging_tool_is_killed_and_replaced() -> None:
    start = time.monotonic()
    with pytest.raises(_workers.WorkerFailed, match=r"no verdict|died"):
        _workers.ask(r"\frac{1}{2}", "100000000!", limit_s=1.0)
    assert time.monotonic() - start < LIMIT_S + 10  # the start of a process included
    assert _workers.ask("x+x", "2x")[0] is True


def test_a_timeout_is_undecided_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from selfevolve.answers import equivalence

    def slow(*_: object) -> tuple[bool | None, str]:
        raise _workers.WorkerFailed("no verdict within 5 s (comparing)")

    monkeypatch.setattr(_workers, "ask", slow)
    equivalence._cached_verdict.cache_clear()
    found = explain("3", r"\int_0^3 1 dt")
    equivalence._cached_verdict.cache_clear()
    assert found.verdict is Equivalence.UNDECIDED and "no verdict within" in found.reason


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "os.system", "print(1)", "x.real", "open('a','w')", "a if b else c", "[].append", "exec"],
)
def test_no_program_reaches_a_symbolic_parser(text: str) -> None:
    assert unsafe(text)


def test_workers_are_few_and_end_with_the_interpreter() -> None:
    code = (
        "from selfevolve.answers import compare, _workers\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pairs = [(str(k), rf'\\int_0^{k} 1 dt') for k in range(1, 9)]\n"
        "with ThreadPoolExecutor(8) as pool: print([str(v) for v in pool.map(lambda p: compare(*p), pairs)])\n"
        "print([w.process.pid for w in _workers._pool.workers])\n"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    verdicts, pids = (eval(line) for line in run.stdout.splitlines())
    assert verdicts == ["same"] * 8
    assert 1 <= len(pids) <= _workers.WORKERS
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_workers_of_its_own() -> None:
    assert compare("4", r"\int_0^4 1 dt") is Equivalence.SAME
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, str(_workers.ask("x+x+x", "3x")[0]).encode())
            _workers.shutdown()
        finally:
            os._exit(0)
    os.close(write_end)
    assert os.read(read_end, 100) == b"True"
    os.close(read_end)
    os.waitpid(child, 0)
    assert _workers.ask("y+y", "2y")[0] is True


def test_importing_loads_nothing_heavy() -> None:
    heavy = ("sympy", "mpmath", "math_verify", "mathruler", "numpy")
    code = f"import sys, selfevolve.answers; print([m for m in {heavy} if m in sys.modules])"
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


PIECES = [
    r"1",
    r"2",
    r"3",
    r"10",
    r"999",
    r".",
    r",",
    r";",
    r":",
    r"!",
    r"%",
    r"^",
    r"_",
    r"{",
    r"}",
    r"(",
    r")",
    r"[",
    r"]",
    r"+",
    r"-",
    r"*",
    r"/",
    r"=",
    r"<",
    r">",
    r"|",
    r"&",
    r"$",
    r"\frac",
    r"\sqrt",
    r"\boxed",
    r"\text",
    r"\pm",
    r"\infty",
    r"\cup",
    r"\pi",
    r"\le",
    r"\begin{pmatrix}",
    r"\end{pmatrix}",
    r"\\",
    r"\left",
    r"\right",
    r"\{",
    r"\}",
    r"x",
    r"y",
    r"e",
    r"i",
    r"n!",
    r"^{",
    r"_{",
    r"1/2",
    r"and",
    r"or",
    r"cm",
    r"%",
    r"None",
    r"INVALID",
    r"f(x)",
    r"\sum_{k=1}",
    r"\int",
    r"\log",
    r"\sin",
    r"\binom",
    r"0.",
    r"...",
    r"°",
    r"−",
    r"√",
    r"\in",
    r"\mathbb{R}",
    r"\cdot",
    r"\times",
    r"~",
    r"'",
    r"@",
    r"import",
    r"sum",
    r"yes",
    r"é",
    r"三",
]


def test_fuzz() -> None:
    """2,000 random strings of marks and commands: every function returns, comparisons are symmetric and reflexive."""
    rng = random.Random(20240607)
    texts = [
        "".join(rng.choice(PIECES) + rng.choice(["", " "]) for _ in range(rng.randint(1, 14))) for _ in range(2000)
    ]
    start = time.monotonic()
    for text in texts:
        extract(text), extract("\\boxed{" + text + "}"), extract_final_number(text), extract_choice(text)
        read_label(text, ["YES", "NO"]), read_json(text)
        assert compare(text, text) is not Equivalence.DIFFERENT
    for a, b in itertools.pairwise(texts):
        if unsafe(a) or unsafe(b):  # what could reach a worker is compared below, a few only
            assert compare(a, b) is compare(b, a), (a, b)
            assert compare(a, "918273") is not Equivalence.SAME, a
    for at in range(0, 2000, 10):
        found = vote(texts[at : at + 10])
        assert found.counted == sum(size for _, size in found.clusters) <= found.asked == 10
    assert time.monotonic() - start < 120


def test_fuzz_damaged_answers() -> None:
    """A character dropped, doubled or swapped in a real form never raises and stays symmetric."""
    rng = random.Random(7)
    forms = [
        r"\frac{12}{35}",
        r"\left[-1, \frac{1}{2}\right)",
        r"x^2+3x-\sqrt{5}",
        r"\{1, 2, 3\}",
        "3:45 pm",
        "1,234.5 km",
    ]
    for _ in range(400):
        form = rng.choice(forms)
        at = rng.randrange(len(form))
        damaged = rng.choice(
            [form[:at] + form[at + 1 :], form[:at] + form[at] + form[at:], form[:at] + "\\" + form[at:]]
        )
        assert explain(form, damaged).verdict is explain(damaged, form).verdict


def test_boxes_within_boxes_end() -> None:
    assert extract("\\boxed{" * 3000 + "1" + "}" * 3000) is None
    assert extract("\\boxed{" * 8 + "1" + "}" * 8) == "1"
    assert extract("\\boxed{" * 3000) is None
