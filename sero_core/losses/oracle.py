"""SERO's oracle loss (arXiv 2610.19397): weighted imitation of oracle branches."""

from __future__ import annotations

from typing import Literal

import torch

from sero_core.losses import LossPart
from sero_core.types import SeroError


def oracle_loss(
    logprobs_N: torch.Tensor,
    scored_N: torch.Tensor,
    row_N: torch.Tensor,
    weights_B: torch.Tensor,
    *,
    normalizer: Literal["sum_weights", "rows"],
) -> LossPart:
    """L = (1/Z) sum_b w_b (1/|M_b|) sum_{i in M_b} -log pi(y_i); the caller divides by Z = `count`.

    `logprobs_N` and `scored_N` (N,) belong to the tokens of row `row_N` (N,) in 0..B-1; M_b are the
    scored tokens of row b, at least one. `weights_B` (B,) are constants: w_0 = 1, w_k =
    prod_{j<k} c_j under the frozen behavior policy. Z is sum_b w_b or the number of rows.
    Metrics: `nll`, the sum over rows of the unweighted mean -log pi.
    Errors: `SeroError` if the weights carry a gradient (docs/correctness.md S3).
    """
    if weights_B.requires_grad:
        raise SeroError("oracle weights must be constants, got a tensor that requires a gradient")
    num_rows = len(weights_B)
    zeros_B = torch.zeros(num_rows, dtype=logprobs_N.dtype, device=logprobs_N.device)
    scored = scored_N.to(logprobs_N.dtype)
    nll_B = zeros_B.index_add(0, row_N, -logprobs_N * scored) / zeros_B.index_add(0, row_N, scored)
    weights = weights_B.to(logprobs_N)
    count = float(weights_B.sum()) if normalizer == "sum_weights" else float(num_rows)
    return LossPart((weights * nll_B).sum(), count, {"nll": float(nll_B.detach().sum())})
