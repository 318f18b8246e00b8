"""Estimators of KL(policy || reference) from sampled tokens: values and gradients.

Source: J. Schulman, "Approximating KL divergence" (2020). With d = log ref - log policy of a token
that the policy sampled, the means over samples are

    k1 = -d            value: KL, unbiased, any sign       gradient in a loss: mean 0, only noise
    k2 = d^2 / 2       value: biased, small variance       gradient in a loss: that of the KL
    k3 = e^d - d - 1   value: KL, unbiased, never below 0  gradient in a loss: of KL(ref || policy)
    abs = |d|          value: no KL, a distance

`k1+` and `k3+` have the value of k1 and k3 and the gradient of k2. In the reward only the value
counts, and k1 is the textbook choice (docs/losses.md).
"""

from __future__ import annotations

import torch

from sero_core.sections import KLEstimator

MAX_GAP = 20.0
"""Bound of d in k3; outside of it there is no gradient."""
MAX_VALUE = 10.0
"""Bound of k3's value; above it there is no gradient."""


def kl_estimate(
    logprobs_N: torch.Tensor,
    ref_logprobs_N: torch.Tensor,
    estimator: KLEstimator,
    *,
    max_gap: float | None = MAX_GAP,
    max_value: float | None = MAX_VALUE,
) -> torch.Tensor:
    """One estimate per token (N,), in nats; the gradient flows to `logprobs_N` alone.

    `max_gap` and `max_value` bound k3 (and the value of `k3+`) as verl does; None = no bound, as in
    TRL. k1, k2 and abs have no bounds.
    """
    gap_N = ref_logprobs_N.detach() - logprobs_N
    if estimator == "k1":
        return -gap_N
    if estimator == "k2":
        return 0.5 * gap_N.square()
    if estimator == "abs":
        return gap_N.abs()
    if estimator == "k3":
        return _k3(gap_N, max_gap, max_value)
    value_N = -gap_N if estimator == "k1+" else _k3(gap_N, max_gap, max_value)
    slope_N = 0.5 * gap_N.square()
    return value_N.detach() + slope_N - slope_N.detach()


def _k3(gap_N: torch.Tensor, max_gap: float | None, max_value: float | None) -> torch.Tensor:
    if max_gap is not None:
        gap_N = torch.clamp(gap_N, -max_gap, max_gap)
    value_N = gap_N.exp() - gap_N - 1.0
    return value_N if max_value is None else torch.clamp(value_N, -max_value, max_value)
