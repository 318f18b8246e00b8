"""Importance weights and rejection for the gap between the engine and the trainer.

The engine sampled y with log-probabilities mu(y); the trainer's own forward pass under the same
weights gives pi_old(y). Where they differ (another kernel, another precision) the loss is an
expectation under the wrong distribution; rho = pi_old / mu corrects it, truncated from above
(truncated importance sampling), or zero outside a band (IcePop). The weights are constants: they
change the measure, not the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from sero_core.distributed import sum_over_ranks
from sero_core.losses.aggregate import row_means, row_sums
from sero_core.sections import RejectionRule
from sero_core.types import SeroError

MAX_LOG_WEIGHT = 20.0
MIN_MEAN_WEIGHT = 1e-8
Level = Literal["token", "sequence"]


@dataclass(frozen=True, slots=True)
class ImportanceWeights:
    """`weights_N` (N,) without gradient, 0 outside the mask. `mean` and `effective_size` (the
    effective sample size as a share, (mean w)^2 / mean w^2) are those of the weights before
    normalisation; both are 0 where every weight is 0. `share_cut` is the share of tokens whose
    weight was truncated or zeroed."""

    weights_N: torch.Tensor
    mean: float
    effective_size: float
    share_cut: float
    max: float


@torch.no_grad()
def importance_weights(
    log_ratio_N: torch.Tensor,
    mask_N: torch.Tensor,
    row_N: torch.Tensor,
    num_rows: int,
    *,
    level: Level,
    cap: float,
    floor: float | None = None,
    normalize: bool = False,
) -> ImportanceWeights:
    """rho = exp(log pi_old - log mu) per token (`level` token), or the product over the row's
    tokens, the same on all of them (`level` sequence); logs are clamped to +-20 before exp.

    Without `floor`: min(rho, cap), truncation from above only. With it: rho inside [floor, cap],
    else 0. `normalize` divides by the mean weight (over tokens, or over rows with tokens at level
    sequence) of all ranks; all weights 0 stay 0.
    `log_ratio_N`, `mask_N` (bool) and `row_N` (int64, 0..num_rows-1) are (N,).
    """
    if level == "sequence":
        total_B = row_sums(torch.where(mask_N, log_ratio_N, 0.0), row_N, num_rows)
        log_ratio_N = total_B[row_N]
    raw_N = torch.where(mask_N, log_ratio_N.clamp(-MAX_LOG_WEIGHT, MAX_LOG_WEIGHT).exp(), 0.0)
    is_high_N = raw_N > cap
    is_cut_N = is_high_N if floor is None else is_high_N | (raw_N < floor)
    weights_N = raw_N.clamp(max=cap) if floor is None else torch.where(is_cut_N, 0.0, raw_N)
    sums = [weights_N.sum(), weights_N.square().sum(), (is_cut_N & mask_N).sum(), mask_N.sum()]
    total, squares, cut, tokens = sum_over_ranks([float(s) for s in sums])
    mean = total / max(tokens, 1.0)
    result = ImportanceWeights(
        weights_N=weights_N,
        mean=mean,
        effective_size=mean**2 / (squares / tokens) if squares else 0.0,
        share_cut=cut / max(tokens, 1.0),
        max=float(weights_N.max()) if len(weights_N) else 0.0,
    )
    if not normalize:
        return result
    if level == "sequence":
        weight_B = row_means(weights_N, mask_N, row_N, num_rows)
        has_tokens_B = row_sums(mask_N.to(weights_N.dtype), row_N, num_rows) > 0
        sums = [weight_B.sum(), has_tokens_B.sum()]
        total, rows = sum_over_ranks([float(s) for s in sums])
        mean = total / max(rows, 1.0)
    scale = mean if mean > MIN_MEAN_WEIGHT else 1.0
    return ImportanceWeights(
        weights_N / scale, result.mean, result.effective_size, result.share_cut, result.max
    )


@torch.no_grad()
def rejection_mask(
    log_ratio_N: torch.Tensor,
    mask_N: torch.Tensor,
    row_N: torch.Tensor,
    num_rows: int,
    *,
    rule: RejectionRule,
    upper: float,
    lower: float | None = None,
) -> torch.Tensor:
    """The tokens of `mask_N` that `rule` keeps, (N,) bool. Combine several rules with `&`.

    With l = clamp(log pi_old - log mu, +-20), a token's k1 = -l, k2 = l^2 / 2, k3 = e^l - l - 1.
    `token_*` judges each token, `seq_sum_*`, `seq_mean_*` and `seq_max_*` the row. k1 is kept where
    log(lower) <= k1 <= log(upper) (`lower` None = 1 / upper), k2 and k3 where they are <= `upper`.
    Errors: `SeroError` for bounds that are not positive, or a `lower` with k2 or k3.
    """
    how, _, estimator = rule.rpartition("_")
    if upper <= 0 or (lower is not None and lower <= 0):
        raise SeroError(f"{rule}: bounds are {lower} and {upper}, expected more than 0")
    if lower is not None and estimator != "k1":
        raise SeroError(f"{rule}: got a lower bound {lower}, only k1 rules have one")
    log_N = log_ratio_N.clamp(-MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)
    value_N = {
        "k1": -log_N,
        "k2": 0.5 * log_N.square(),
        "k3": log_N.exp() - log_N - 1.0,
    }[estimator]
    if how == "seq_sum":
        value_N = row_sums(torch.where(mask_N, value_N, 0.0), row_N, num_rows)[row_N]
    elif how == "seq_mean":
        value_N = row_means(value_N, mask_N, row_N, num_rows)[row_N]
    elif how == "seq_max":
        start_B = torch.zeros(num_rows, dtype=value_N.dtype, device=value_N.device)
        # k2 and k3 are never negative, so 0 is the maximum of a row without tokens
        kept_N = torch.where(mask_N, value_N, 0.0)
        value_N = start_B.scatter_reduce(0, row_N, kept_N, reduce="amax")[row_N]
    if estimator != "k1":
        return mask_N & (value_N <= upper)
    low = -math.log(upper) if lower is None else math.log(lower)
    return mask_N & (value_N >= low) & (value_N <= math.log(upper))
