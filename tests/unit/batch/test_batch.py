"""Rows to tensors: lengths, padding, token budget, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sero_core.batch import (
    BatchError,
    OracleRow,
    PolicyRow,
    build_batch,
    build_oracle_batch,
    microbatches,
    pad,
)

ROW = PolicyRow((3, 4), (5, 6, 2), 0.5, (-0.1, -0.2, -0.3))
ORACLE = OracleRow((3, 4), (5, 6, 2), (True, True, False), 0.25)


def test_ids_are_the_sampled_ids() -> None:
    """T1: nothing between the sampler and the tensors touches a token id."""
    batch = build_batch([ROW, replace(ROW, prompt_ids=(9,), temperature=0.7)])
    assert [ids.tolist() for ids in batch.input_ids] == [[3, 4, 5, 6, 2], [9, 5, 6, 2]]
    assert batch.prompt_lens == (2, 1)
    assert batch.temperatures.tolist() == pytest.approx([1.0, 0.7])
    assert [mask.tolist() for mask in batch.masks] == [[True] * 3] * 2
    assert batch.advantages[0].tolist() == [0.5] * 3


def test_an_advantage_per_token_stays_on_its_token() -> None:
    batch = build_batch([replace(ROW, advantage=(0.5, 0.0, -1.0))])
    assert batch.advantages[0].tolist() == [0.5, 0.0, -1.0]


def test_padded_rows_predict_their_own_next_token() -> None:
    """T18: the last token of one row is never followed by the first of the next."""
    ids = [torch.tensor([3, 4, 5, 6, 2]), torch.tensor([9, 8, 2])]
    padded = pad(ids, [2, 1], torch.device("cpu"))
    assert padded.input_ids_BL.tolist() == [[3, 4, 5, 6, 2], [9, 8, 2, 0, 0]]
    assert padded.row_N.tolist() == [0, 0, 0, 1, 1]
    assert padded.position_ids_BL is None
    assert padded.slot_N.tolist() == [1, 2, 3, 5, 6]
    assert padded.target_N.tolist() == [5, 6, 2, 8, 2]


@given(
    st.lists(st.integers(1, 40), max_size=30),
    st.integers(1, 200),
)
def test_microbatches_cover_every_row_once_within_the_budget(
    lengths: list[int], budget: int
) -> None:
    groups = microbatches(lengths, range(len(lengths)), budget)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or max(lengths[row] for row in group) * len(group) <= budget


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (replace(ROW, prompt_ids=()), "row 1: expected a prompt and an answer"),
        (replace(ROW, token_ids=(), old_logprobs=()), "row 1: expected a prompt and an answer"),
        (replace(ROW, old_logprobs=(-0.1,)), "old_logprobs has 1 entries"),
        (replace(ROW, mask=(True,)), "mask has 1 entries"),
        (replace(ROW, advantage=float("nan")), "advantage is nan"),
        (replace(ROW, advantage=(0.1, 0.2)), "advantage has 2 entries"),
        (replace(ROW, old_logprobs=(-0.1, -0.2, float("-inf"))), "not finite"),
        (replace(ROW, temperature=0.0), "temperature is 0.0"),
    ],
)
def test_policy_rows_that_cannot_be_trained_on(row: PolicyRow, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        build_batch([ROW, row])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (replace(ORACLE, token_ids=(), scored=()), "expected a prompt and an answer"),
        (replace(ORACLE, scored=(True,)), "scored has 1 entries"),
        (replace(ORACLE, scored=(False,) * 3), "no token is scored"),
        (replace(ORACLE, weight=-0.1), "weight is -0.1"),
        (replace(ORACLE, weight=float("nan")), "weight is nan"),
    ],
)
def test_oracle_rows_that_cannot_be_trained_on(row: OracleRow, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        build_oracle_batch([row])


def test_no_oracle_rows_are_no_batch() -> None:
    assert build_oracle_batch([]) is None
    batch = build_oracle_batch([ORACLE])
    assert batch is not None
    assert batch.weights.tolist() == [0.25]
    assert batch.scored[0].tolist() == [True, True, False]
