"""T21: the configured clip is the one that acts: dual clip or none, asymmetric range."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from sero_core.batch import build_batch
from sero_core.losses.policy import clipped_surrogate, token_log_ratio
from sero_core.sections import PolicyLoss
from tests.support.rows import policy_gradient, sampled_rows
from tests.support.tiny import tiny_policy


def one_token(ratio: float, advantage: float, dual_clip: float | None) -> tuple[float, float]:
    """Loss and its gradient to the log-probability, clip range 0.2 / 0.3."""
    logprob_N = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    loss = clipped_surrogate(
        token_log_ratio(logprob_N, torch.zeros(1, dtype=torch.float64)),
        torch.tensor([advantage], dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.3,
        dual_clip=dual_clip,
    )
    (gradient,) = torch.autograd.grad(loss.loss_N.sum(), logprob_N)
    return float(loss.loss_N.detach()), float(gradient[0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual_clip", "loss", "gradient"),
    [
        (1.0, 2.0, 3.0, -2.0, -2.0),
        (1.1, 2.0, 3.0, -2.2, -2.2),
        (1.25, 2.0, 3.0, -2.5, -2.5),  # inside of the upper range 0.3, outside of 0.2
        (1.5, 2.0, 3.0, -2.6, 0.0),
        (0.5, 2.0, 3.0, -1.0, -1.0),
        (0.75, -2.0, 3.0, 1.6, 0.0),  # below the lower range 0.2, inside of 0.3
        (0.85, -2.0, 3.0, 1.7, 1.7),
        (1.5, -2.0, 3.0, 3.0, 3.0),
        (10.0, -2.0, 3.0, 6.0, 0.0),  # verl: 3 |A|
        (10.0, -2.0, None, 20.0, 20.0),  # TRL: 10 |A|
        (10.0, 2.0, 3.0, -2.6, 0.0),  # the dual clip is for A < 0 alone
        (7.0, 0.0, 3.0, 0.0, 0.0),
    ],
)
def test_t21_one_token(
    ratio: float, advantage: float, dual_clip: float | None, loss: float, gradient: float
) -> None:
    assert one_token(ratio, advantage, dual_clip) == pytest.approx((loss, gradient))


@pytest.mark.parametrize(("dual_clip", "is_bounded"), [(3.0, True), (0.0, False)])
def test_t21_the_config_decides(dual_clip: float, is_bounded: bool) -> None:
    """Ratios of e^3 = 20 on rows with A = -1: with the dual clip there is no gradient at all."""
    policy = tiny_policy()
    rows = [
        row.__class__(
            row.prompt_ids, row.token_ids, -1.0, tuple(value - 3.0 for value in row.old_logprobs)
        )
        for row in sampled_rows(policy)
    ]
    loss = PolicyLoss(kl_coef=0.0, dual_clip=dual_clip)
    gradient = policy_gradient(policy, build_batch(rows), loss)
    largest = max(float(value.abs().max()) for value in gradient.values())
    assert (largest == 0.0) == is_bounded


def test_t21_a_dual_clip_of_one_or_less_is_refused() -> None:
    for value in (0.5, 1.0):
        with pytest.raises(ValidationError, match="more than 1, or 0 for none"):
            PolicyLoss(dual_clip=value)
