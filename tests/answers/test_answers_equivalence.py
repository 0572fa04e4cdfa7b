"""Comparing two answers: a table of kinds, symmetry, and what it must not depend on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from selfevolve.answers import Equivalence, Route, compare, explain


def test_table(pair: dict[str, Any]) -> None:
    found = explain(pair["gold"], pair["predicted"])
    assert found.verdict == pair["expected"], (pair, found)
    assert compare(pair["predicted"], pair["gold"]) is found.verdict, "not symmetric"


def test_every_answer_of_the_table_equals_itself(pair: dict[str, Any]) -> None:
    for text in (pair["gold"], pair["predicted"]):
        missing = text.strip().lower() in ("", "none")
        assert compare(text, text) is (Equivalence.UNDECIDED if missing else Equivalence.SAME)


def test_plain_numbers_never_reach_a_symbolic_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    from selfevolve.answers import _workers

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(_workers, "ask", refuse)
    numbers = ["7", "7.0", "-7", "7/2", "3.5", "3 1/2", "1e3", "1,000", "50%", "0.5", "2^{10}", "10!", "\\sqrt{49}"]
    for a, b in itertools.product(numbers, numbers):
        assert explain(a, b).route is Route.FORM


def test_none_is_missing() -> None:
    assert compare(None, "5") is Equivalence.UNDECIDED
    assert "missing" in explain("5", None).reason


def test_same_verdict_from_threads_and_an_event_loop() -> None:
    pairs = [("6", "6.0"), ("1/2", r"\int_0^1 x dx"), ("2", r"\int_0^1 x dx"), ("(1,2)", "(2,1)")]
    expected = [compare(a, b) for a, b in pairs]
    assert expected == ["same", "same", "different", "different"]
    from selfevolve.answers import equivalence

    equivalence._cached_verdict.cache_clear()
    results: list[list[Equivalence]] = []
    threads = [threading.Thread(target=lambda: results.append([compare(a, b) for a, b in pairs])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4

    async def inside() -> list[Equivalence]:
        return [await asyncio.to_thread(compare, *pairs[1]), *(compare(a, b) for a, b in pairs)]

    assert asyncio.run(inside()) == [Equivalence.SAME, *expected]


def test_courtesies_do_not_chain() -> None:
    """35% is 0.35 and a bare 35 is forgiven, yet 35 is never 0.35."""
    assert compare("35%", "0.35") is compare("35%", "35") is Equivalence.SAME
    assert compare("35", "0.35") is Equivalence.DIFFERENT
    assert compare("18 cm", "18") is Equivalence.SAME
    assert compare("18 cm", "18 m") is Equivalence.DIFFERENT


def test_the_random_identity_test_agrees_with_sympy() -> None:
    sympy = pytest.importorskip("sympy")
    x, y = sympy.symbols("x y")
    forms = {
        "(x+y)^3": (x + y) ** 3,
        "x^3+3x^2y+3xy^2+y^3": x**3 + 3 * x**2 * y + 3 * x * y**2 + y**3,
        r"\frac{x^2-y^2}{x-y}": (x**2 - y**2) / (x - y),
        "x+y": x + y,
        r"\sin(x+y)": sympy.sin(x + y),
        r"\sin x\cos y+\cos x\sin y": sympy.sin(x) * sympy.cos(y) + sympy.cos(x) * sympy.sin(y),
        r"e^{x+y}": sympy.exp(x + y),
        r"e^x e^y": sympy.exp(x) * sympy.exp(y),
        r"\frac{1}{x}+\frac{1}{y}": 1 / x + 1 / y,
        r"\frac{x+y}{xy}": (x + y) / (x * y),
        "x-y": x - y,
    }
    for (a, left), (b, right) in itertools.combinations(forms.items(), 2):
        equal = sympy.simplify(sympy.expand_trig(left - right)) == 0
        assert (compare(a, b) is Equivalence.SAME) == equal, (a, b)
