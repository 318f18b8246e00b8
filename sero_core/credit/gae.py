"""Generalised advantage estimation (arXiv 1506.02438) and whitening, both under a mask."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sero_core.credit.statistics import FloatArray, center


def gae(
    rewards_BT: ArrayLike, values_BT: ArrayLike, mask_BT: ArrayLike, *, gamma: float, lam: float
) -> tuple[FloatArray, FloatArray]:
    """(advantages, returns), each (B, T) float64: eq. 16 of the paper, row by row.

    delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lam A_{t+1}, return = A_t + V_t. The
    value after a row's last position is 0. Positions where the mask is 0 are skipped: what comes
    after them carries over, what stands in them never matters, and both results are 0 there
    (docs/correctness.md T20).
    """
    rewards = np.asarray(rewards_BT, dtype=np.float64)
    values = np.asarray(values_BT, dtype=np.float64)
    mask = np.asarray(mask_BT).astype(bool)
    advantages = np.zeros_like(values)
    following = np.zeros(len(values))
    carry = np.zeros(len(values))
    for t in range(values.shape[1] - 1, -1, -1):
        kept = mask[:, t]
        delta = rewards[:, t] + gamma * following - values[:, t]
        carry = np.where(kept, delta + gamma * lam * carry, carry)
        following = np.where(kept, values[:, t], following)
        advantages[:, t] = np.where(kept, carry, 0.0)
    return advantages, np.where(mask, advantages + values, 0.0)


def whiten(values_BT: ArrayLike, mask_BT: ArrayLike, *, eps: float = 1e-8) -> FloatArray:
    """(x - mean) / sqrt(var + eps) over all positions of the batch whose mask is 1; 0 elsewhere.

    Variance with ddof 1. One position, or equal values, give 0.
    """
    values = np.asarray(values_BT, dtype=np.float64)
    mask = np.asarray(mask_BT).astype(bool)
    whitened = np.zeros_like(values)
    samples = values[mask]
    if len(samples) > 1:
        whitened[mask] = center(samples, samples) / np.sqrt(samples.var(ddof=1) + eps)
    return whitened
