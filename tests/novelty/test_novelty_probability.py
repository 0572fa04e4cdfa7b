from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from novelty import approximate_pass_probability, pass_probability, plot_pass_probability


@pytest.mark.parametrize(("batch", "same", "k"), [(6, 2, 2), (8, 3, 4), (9, 1, 3), (7, 5, 1), (5, 2, 4), (7, 4, 3)])
def test_against_counting_every_draw(batch: int, same: int, k: int) -> None:
    draws = list(combinations(range(batch - 1), k))
    free = [draw for draw in draws if all(other >= same for other in draw)]  # others 0..same-1 are of the same type
    assert pass_probability(batch, same, k) == float(Fraction(len(free), len(draws)))


def test_values_by_hand() -> None:
    assert pass_probability(11, 3, 2) == pytest.approx(7 / 10 * 6 / 9, rel=1e-15)
    assert pass_probability(2048, 1, 8) == pytest.approx(1 - 8 / 2047, rel=1e-14)


def test_edges() -> None:
    assert pass_probability(2048, 0, 8) == 1.0
    assert pass_probability(2048, 2047, 8) == 0.0
    assert pass_probability(2048, 5, 0) == 1.0
    assert pass_probability(1, 0, 8) == 1.0  # nothing to compare with
    assert pass_probability(9, 1, 8) == 0.0  # all others are references
    assert pass_probability(5, 1, 8) == 0.0  # fewer others than K: all of them
    assert pass_probability(5, 0, 8) == 1.0
    assert pass_probability(20, 12, 8) == 0.0  # seven strangers cannot fill eight places


@pytest.mark.parametrize(
    ("share", "k", "percent"), [(0.05, 8, 66.3), (0.05, 16, 44.0), (0.20, 8, 16.8), (0.20, 16, 2.8), (0.10, 8, 43.0)]
)
def test_the_papers_figures(share: float, k: int, percent: float) -> None:
    assert 100 * approximate_pass_probability(share, k) == pytest.approx(percent, abs=0.06)
    assert 100 * pass_probability(2048, round(share * 2047), k) == pytest.approx(percent, abs=0.4)


@pytest.mark.parametrize(("batch", "same", "k"), [(0, 0, 8), (10, -1, 8), (10, 10, 8), (10, 2, -1)])
def test_impossible_numbers_are_refused(batch: int, same: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"must be|or more"):
        pass_probability(batch, same, k)


def test_the_plot_is_written(tmp_path: Path) -> None:
    picture = plot_pass_probability(tmp_path / "pass.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in plot_pass_probability(tmp_path / "pass.svg", batch=30, budgets=(4,)).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="batch is 1"):
        plot_pass_probability(tmp_path / "none.png", batch=1)
