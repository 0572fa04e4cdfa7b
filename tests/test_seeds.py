"""Derived seeds are part of every record: the same path gives the same number, in every version."""

from __future__ import annotations

import pytest

from selfevolve import seeds
from selfevolve.sampling import _derive


@pytest.mark.parametrize(
    ("path", "seed"),
    [
        ((0,), 872845860),
        ((1, 2, "questioner", 3), 1539111802),
        ((7, 0, "initialisation", 0), 431828272),
        ((2**31 - 1, "evaluation"), 297130537),
        ((0, "held out"), 1437265438),
        ((5, "é/ü", None, 1.5), 766711661),
    ],
)
def test_known_seeds_stay(path, seed):
    assert seeds.derive(*path) == seed


@pytest.mark.parametrize(("call", "seed"), [((0, 0, 0), 867600841), ((0, 0, 3), 867600844), ((123, 45, 6), 425200217)])
def test_known_seeds_of_calls_stay(call, seed):
    assert _derive.draw_seed(*call) == seed


def test_there_is_one_rule():
    assert seeds.derive is _derive.derive
