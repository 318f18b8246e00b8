"""What an update needs beside the sampled rows, computed once before its first step.

The trainer's own old log-probabilities, the reference policy's, and the weights and rejections
for the gap between engine and trainer: all under the weights that sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from sero_core.batch import Batch
from sero_core.distributed import max_over_ranks, sum_over_ranks
from sero_core.forward import Passes, score_rows
from sero_core.losses.mismatch import importance_weights, rejection_mask
from sero_core.policy import Policy
from sero_core.policy_gradient import loss_terms

if TYPE_CHECKING:
    from sero_core.config import PolicyLoss
    from sero_core.sections import EngineCorrection


def prepare_batch(
    policy: Policy, reference: Policy | None, batch: Batch, loss: PolicyLoss, passes: Passes
) -> tuple[Batch, dict[str, float]]:
    """The batch with old log-probabilities, reference and weights as the loss wants them, and
    numbers for the panel.

    With `old_logprobs = "recompute"`: numerics/engine_gap_mean and numerics/engine_gap_max, the abs
    difference of the engine's and the trainer's log-probabilities over all tokens; with weights
    numerics/is_weight_mean, is_weight_max, is_effective_size, is_share_cut; with rejection
    numerics/rejected, the share of tokens that were dropped.
    """
    metrics: dict[str, float] = {}
    if reference is not None and "kl" in loss_terms(loss):
        batch = replace(batch, ref_logprobs=tuple(_score(reference, batch, passes)))
    if loss.old_logprobs == "engine":
        return batch, metrics
    recomputed = _score(policy, batch, passes)
    gaps = [new - old for new, old in zip(recomputed, batch.old_logprobs, strict=True)]
    metrics |= _gap(gaps, batch.masks)
    batch = replace(batch, old_logprobs=tuple(recomputed))
    return _correct(batch, gaps, loss.correction, metrics)


def _score(policy: Policy, batch: Batch, passes: Passes) -> list[torch.Tensor]:
    temperatures = [float(value) for value in batch.temperatures]
    return score_rows(policy, batch.input_ids, batch.prompt_lens, temperatures, passes)


def _gap(gaps: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]) -> dict[str, float]:
    kept = torch.cat([torch.zeros(0), *(g[m] for g, m in zip(gaps, masks, strict=True))]).abs()
    total, tokens = sum_over_ranks([float(kept.double().sum()), len(kept)])
    (largest,) = max_over_ranks([float(kept.max()) if len(kept) else 0.0])
    return {
        "numerics/engine_gap_mean": total / max(tokens, 1.0),
        "numerics/engine_gap_max": largest,
    }


def _correct(
    batch: Batch,
    log_ratios: Sequence[torch.Tensor],
    correction: EngineCorrection,
    metrics: dict[str, float],
) -> tuple[Batch, dict[str, float]]:
    """Weights and masks from log pi_old - log mu of every answer token."""
    sizes = [len(values) for values in log_ratios]
    row_N = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
    log_ratio_N = torch.cat([torch.zeros(0), *log_ratios])
    mask_N = torch.cat([torch.zeros(0, dtype=torch.bool), *batch.masks])
    if correction.weights != "none":
        weights = importance_weights(
            log_ratio_N,
            mask_N,
            row_N,
            len(sizes),
            level=correction.weights,
            cap=correction.cap,
            floor=correction.floor or None,
            normalize=correction.normalize,
        )
        batch = replace(batch, weights=weights.weights_N.split(sizes))
        metrics |= {
            "numerics/is_weight_mean": weights.mean,
            "numerics/is_weight_max": weights.max,
            "numerics/is_effective_size": weights.effective_size,
            "numerics/is_share_cut": weights.share_cut,
        }
    if correction.reject != "none":
        kept_N = rejection_mask(
            log_ratio_N,
            mask_N,
            row_N,
            len(sizes),
            rule=correction.reject,
            upper=correction.reject_above,
            lower=correction.reject_below or None,
        )
        before, after = sum_over_ranks([float(mask_N.sum()), float(kept_N.sum())])
        batch = replace(batch, masks=kept_N.split(sizes))
        metrics["numerics/rejected"] = 1.0 - after / max(before, 1.0)
    return batch, metrics
