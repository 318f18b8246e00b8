"""The base RL loss: clipped surrogate, k3 to the reference policy, entropy.

Sums over tokens; the caller divides by the token count of the whole minibatch (token mean).
"""

from __future__ import annotations

import torch

from sero_core.losses import LossPart

MAX_LOG_RATIO = 20.0
MAX_K3 = 10.0


def clipped_surrogate(
    logprobs_N: torch.Tensor,
    old_logprobs_N: torch.Tensor,
    advantages_N: torch.Tensor,
    mask_N: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> LossPart:
    """PPO's clipped objective as a loss (arXiv 1707.06347 eq. 7) with dual clip (1912.09729).

    With r = exp(clamp(logprob - old, -20, 20)): max(-A r, -A clip(r, 1 - low, 1 + high)), and for
    A < 0 at most -A dual_clip. All arguments are (N,), the mask is bool. Outside of +-20 the ratio
    is constant, so its gradient is 0. No token in the mask: sum 0, count 0.
    Metrics: `clipped`, tokens where the clip was active; `ratio_max`, the largest |r - 1|.
    """
    log_ratio_N = torch.clamp(logprobs_N - old_logprobs_N, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_N = log_ratio_N.exp()
    plain_N = -advantages_N * ratio_N
    clipped_N = -advantages_N * torch.clamp(ratio_N, 1.0 - clip_low, 1.0 + clip_high)
    loss_N = torch.maximum(plain_N, clipped_N)
    bounded_N = torch.minimum(loss_N, -advantages_N * dual_clip)
    loss_N = torch.where(advantages_N < 0, bounded_N, loss_N)
    is_clipped_N = (clipped_N > plain_N) & mask_N
    deviation_N = torch.where(mask_N, (ratio_N.detach() - 1.0).abs(), 0.0)
    return LossPart(
        sum=torch.where(mask_N, loss_N, 0.0).sum(),
        count=float(mask_N.sum()),
        metrics={
            "clipped": float(is_clipped_N.sum()),
            "ratio_max": float(deviation_N.max()) if len(deviation_N) else 0.0,
        },
    )


def k3(logprobs_N: torch.Tensor, ref_logprobs_N: torch.Tensor, mask_N: torch.Tensor) -> LossPart:
    """k3 estimate of KL(policy || reference): e^d - d - 1 with d = clamp(ref - logprob, -20, 20).

    Values above 10 are cut to 10 (no gradient there). Source: J. Schulman, "Approximating KL
    divergence" (2020); used in the loss as in GRPO (arXiv 2402.03300 eq. 4). Arguments are (N,).
    """
    gap_N = torch.clamp(ref_logprobs_N - logprobs_N, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    value_N = torch.clamp(gap_N.exp() - gap_N - 1.0, -MAX_K3, MAX_K3)
    return LossPart(torch.where(mask_N, value_N, 0.0).sum(), float(mask_N.sum()), {})


def entropy(logits_NV: torch.Tensor, mask_N: torch.Tensor) -> LossPart:
    """Entropy in nats of softmax(logits) at each token: H = -sum_v p_v log p_v, full vocabulary."""
    logprobs_NV = torch.log_softmax(logits_NV.float(), dim=-1)
    value_N = -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1)
    return LossPart(torch.where(mask_N, value_N, 0.0).sum(), float(mask_N.sum()), {})
