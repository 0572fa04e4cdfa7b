"""The cuts of the draw are exact: the largest values are torch's own, ties and broken rows included."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from selfevolve.sampling.drawing import largest  # noqa: E402


@pytest.mark.parametrize(("width", "count"), [(1, 1), (5, 5), (471, 40), (471, 471), (3000, 32)])
def test_largest_values_are_those_of_topk(width: int, count: int) -> None:
    torch.manual_seed(width + count)
    for values in (torch.randn(7, width), torch.randint(0, 3, (7, width)).float()):  # the second is full of ties
        assert torch.equal(largest(values, count), values.topk(count, dim=-1).values)


def test_largest_value_of_a_broken_row_is_not_a_number() -> None:
    values = torch.tensor([[1.0, float("nan"), 3.0], [float("-inf"), 2.0, float("-inf")]])
    found = largest(values, 2)
    assert found[0, 0].isnan() and found[0, 1] == 3.0
    assert found[1].tolist() == [2.0, float("-inf")]


def test_other_types_go_to_torch() -> None:
    values = torch.randn(3, 50).bfloat16()
    assert torch.equal(largest(values, 4), values.topk(4, dim=-1).values)
