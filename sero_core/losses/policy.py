"""The clipped surrogate of PPO and its family, per token: asymmetric clip, dual clip, ratios.

Everything here is one number per token; `aggregate` makes a loss of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sero_core.losses.aggregate import row_means

MAX_LOG_RATIO = 20.0
"""Bound of a token's log ratio, either side, as verl has it; outside of it there is no gradient."""
MAX_SEQUENCE_LOG_RATIO = 10.0
"""Upper bound of a sequence's log ratio (GSPO), as verl has it."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """Per token: the loss with its gradient, and constants: the ratio, whether the clip was active
    (`is_clipped_N`), whether the dual clip was (`is_bounded_N`)."""

    loss_N: torch.Tensor
    ratio_N: torch.Tensor
    is_clipped_N: torch.Tensor
    is_bounded_N: torch.Tensor


def token_log_ratio(
    logprobs_N: torch.Tensor,
    old_logprobs_N: torch.Tensor,
    *,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> torch.Tensor:
    """log r_t = logprob_t - old_t, clamped to +-`max_log_ratio` (no gradient outside).

    `None` is no clamp, as in TRL; even then values whose exponential would overflow are cut, at
    +-44 in float32 and +-354 in float64, so that an inactive branch never multiplies 0 by infinity.
    """
    finite = 0.5 * math.log(torch.finfo(logprobs_N.dtype).max)
    bound = finite if max_log_ratio is None else max_log_ratio
    return torch.clamp(logprobs_N - old_logprobs_N, -bound, bound)


def sequence_log_ratio(
    logprobs_N: torch.Tensor,
    old_logprobs_N: torch.Tensor,
    mask_N: torch.Tensor,
    row_N: torch.Tensor,
    num_rows: int,
    *,
    max_log_ratio: float | None = MAX_SEQUENCE_LOG_RATIO,
) -> torch.Tensor:
    """GSPO's ratio in token form (arXiv 2507.18071 eq. 7 and 14), as a log ratio per token (N,).

    log s = mean over the row's tokens in the mask of (logprob - old), and each token carries
    sg[log s] + logprob_t - sg[logprob_t]: the value of s, the gradient of its own token. Averaged
    by the row's own length this equals differentiating s itself. Capped from above at
    `max_log_ratio` (no gradient there); `None` is no cap but that of `token_log_ratio`.
    """
    log_s_B = row_means((logprobs_N - old_logprobs_N).detach(), mask_N, row_N, num_rows)
    log_s_N = log_s_B[row_N] + logprobs_N - logprobs_N.detach()
    finite = 0.5 * math.log(torch.finfo(logprobs_N.dtype).max)
    return torch.clamp(log_s_N, -finite, finite if max_log_ratio is None else max_log_ratio)


def clipped_surrogate(
    log_ratio_N: torch.Tensor,
    advantages_N: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> TokenLoss:
    """PPO's clipped objective as a loss per token (arXiv 1707.06347 eq. 7), r = exp(log_ratio):
    max(-A r, -A clip(r, 1 - low, 1 + high)), and for A < 0 at most -A dual_clip (1912.09729; None =
    no such bound). Arguments are (N,). At an exact tie each branch has half of the gradient.
    """
    ratio_N = log_ratio_N.exp()
    plain_N = -advantages_N * ratio_N
    clipped_N = -advantages_N * torch.clamp(ratio_N, 1.0 - clip_low, 1.0 + clip_high)
    loss_N = torch.maximum(plain_N, clipped_N)
    is_bounded_N = torch.zeros_like(loss_N, dtype=torch.bool)
    if dual_clip is not None:
        bound_N = -advantages_N * dual_clip
        is_bounded_N = (advantages_N < 0) & (loss_N > bound_N)
        loss_N = torch.where(advantages_N < 0, torch.minimum(loss_N, bound_N), loss_N)
    return TokenLoss(loss_N, ratio_N.detach(), clipped_N > plain_N, is_bounded_N)
