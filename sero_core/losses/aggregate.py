"""From one loss per token to one number: the aggregation modes under the literature's names.

    token-mean                 sum of all tokens / number of tokens           (DAPO, 2503.14476)
    seq-mean-token-sum         mean over rows of the row's sum
    seq-mean-token-mean        mean over rows of the row's mean               (GRPO, 2402.03300)
    seq-mean-token-sum-norm    mean over rows of the row's sum / a constant   (Dr.GRPO, 2503.20783)

A row is one step's answer. Sums and denominators are apart, because only the denominator of the
whole minibatch (all micro-batches, all ranks) makes accumulation equal to one big batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from sero_core.losses import LossPart
from sero_core.sections import Aggregation
from sero_core.types import SeroError

EmptyRows = Literal["skip", "count"]
"""Whether a row without a token in the mask counts as a row (of loss 0): verl skips, TRL counts."""


def aggregate(
    values_N: torch.Tensor,
    mask_N: torch.Tensor,
    row_N: torch.Tensor,
    num_rows: int,
    *,
    mode: Aggregation,
    norm_length: int = 0,
    empty_rows: EmptyRows = "skip",
) -> LossPart:
    """The numerator of `mode` with its own denominator as `count`; loss = sum / count.

    `values_N` (N,) are per-token losses, `mask_N` (N,) bool the tokens that count, `row_N` (N,)
    int64 each token's row in 0..num_rows-1. `norm_length` >= 1 is the constant L of
    `seq-mean-token-sum-norm`. A batch without any token is sum 0, count 0.
    Errors: `SeroError` for `seq-mean-token-sum-norm` without `norm_length`.
    """
    kept_N = torch.where(mask_N, values_N, 0.0)
    tokens_B = row_sums(mask_N.to(values_N.dtype), row_N, num_rows)
    if mode == "seq-mean-token-mean":
        kept_N = kept_N / tokens_B.clamp(min=1.0)[row_N]
    elif mode == "seq-mean-token-sum-norm":
        if norm_length < 1:
            raise SeroError(f"{mode}: norm_length is {norm_length}, expected at least 1")
        kept_N = kept_N / norm_length
    count = denominator([int(tokens) for tokens in tokens_B.tolist()], mode, empty_rows)
    return LossPart(kept_N.sum(), count, {})


def denominator(
    tokens_B: Sequence[int], mode: Aggregation, empty_rows: EmptyRows = "skip"
) -> float:
    """What `aggregate` divides by, from the number of masked-in tokens of each row.

    Sums over micro-batches and ranks: tokens for `token-mean`, else rows.
    """
    if mode == "token-mean":
        return float(sum(tokens_B))
    return float(len(tokens_B) if empty_rows == "count" else sum(tokens > 0 for tokens in tokens_B))


def row_sums(values_N: torch.Tensor, row_N: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Sum of each row's values, (num_rows,); a row without values is 0."""
    zeros_B = torch.zeros(num_rows, dtype=values_N.dtype, device=values_N.device)
    return zeros_B.index_add(0, row_N, values_N)


def row_means(
    values_N: torch.Tensor, mask_N: torch.Tensor, row_N: torch.Tensor, num_rows: int
) -> torch.Tensor:
    """Mean of each row's values over its tokens in the mask, (num_rows,); 0 without tokens."""
    total_B = row_sums(torch.where(mask_N, values_N, 0.0), row_N, num_rows)
    return total_B / row_sums(mask_N.to(values_N.dtype), row_N, num_rows).clamp(min=1.0)
