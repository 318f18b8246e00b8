"""Aggregation by hand, and that parts add up: rows may be cut into micro-batches anywhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sero_core.losses.aggregate import aggregate, denominator
from sero_core.sections import Aggregation
from sero_core.types import SeroError

MODES: list[tuple[Aggregation, int]] = [
    ("token-mean", 0),
    ("seq-mean-token-sum", 0),
    ("seq-mean-token-mean", 0),
    ("seq-mean-token-sum-norm", 8),
]
VALUES_N = torch.tensor([1.0, 2.0, 3.0, 10.0, 7.0, 7.0])
MASK_N = torch.tensor([True, True, False, True, False, False])
ROW_N = torch.tensor([0, 0, 0, 1, 2, 2])


@pytest.mark.parametrize(
    ("mode", "norm_length", "total", "count", "count_with_empty"),
    [
        ("token-mean", 0, 13.0, 3.0, 3.0),
        ("seq-mean-token-sum", 0, 13.0, 2.0, 3.0),
        ("seq-mean-token-mean", 0, 11.5, 2.0, 3.0),
        ("seq-mean-token-sum-norm", 8, 13.0 / 8, 2.0, 3.0),
    ],
)
def test_by_hand(
    mode: Aggregation, norm_length: int, total: float, count: float, count_with_empty: float
) -> None:
    part = aggregate(VALUES_N, MASK_N, ROW_N, 3, mode=mode, norm_length=norm_length)
    assert (float(part.sum), part.count) == (pytest.approx(total), count)
    with_empty = aggregate(
        VALUES_N, MASK_N, ROW_N, 3, mode=mode, norm_length=norm_length, empty_rows="count"
    )
    assert with_empty.count == count_with_empty


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    cut=st.integers(0, 6),
    seed=st.integers(0, 10_000),
)
@pytest.mark.parametrize(("mode", "norm_length"), MODES)
def test_two_parts_are_the_whole(
    mode: Aggregation, norm_length: int, lengths: list[int], cut: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    row_N = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    values_N = torch.randn(len(row_N), generator=generator, dtype=torch.float64)
    mask_N = torch.rand(len(row_N), generator=generator) < 0.6
    whole = aggregate(values_N, mask_N, row_N, len(lengths), mode=mode, norm_length=norm_length)
    tokens = [int(mask_N[row_N == row].sum()) for row in range(len(lengths))]
    assert denominator(tokens, mode) == whole.count
    total = count = 0.0
    for is_left in (True, False):
        kept_N = (row_N < cut) == is_left
        part = aggregate(
            values_N[kept_N],
            mask_N[kept_N],
            row_N[kept_N],
            len(lengths),
            mode=mode,
            norm_length=norm_length,
        )
        total, count = total + float(part.sum), count + part.count
    assert total == pytest.approx(float(whole.sum), abs=1e-12)
    assert count == whole.count


def test_the_norm_needs_a_length() -> None:
    with pytest.raises(SeroError, match="norm_length is 0"):
        aggregate(VALUES_N, MASK_N, ROW_N, 3, mode="seq-mean-token-sum-norm")
