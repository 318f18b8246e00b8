"""Clipped surrogate, k3 and entropy: values and gradients by hand, and extreme ratios."""

from __future__ import annotations

import math

import pytest
import torch

from sero_core.losses.policy import clipped_surrogate, entropy, k3

CLIP = {"clip_low": 0.2, "clip_high": 0.3, "dual_clip": 3.0}


def one_token(log_ratio: float, advantage: float) -> tuple[float, float, float]:
    """Loss, its gradient to the log-probability, and the clip counter of one token."""
    logprob_N = torch.tensor([log_ratio - 1.0], dtype=torch.float64, requires_grad=True)
    part = clipped_surrogate(
        logprob_N,
        torch.tensor([-1.0], dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        torch.tensor([True]),
        **CLIP,
    )
    (gradient,) = torch.autograd.grad(part.sum, logprob_N)
    assert part.count == 1
    return float(part.sum.detach()), float(gradient[0]), part.metrics["clipped"]


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, 0),
        (1.1, 2.0, -2.2, -2.2, 0),
        (1.5, 2.0, -2.6, 0.0, 1),  # upper clip 1.3
        (0.5, 2.0, -1.0, -1.0, 0),
        (0.5, -2.0, 1.6, 0.0, 1),  # lower clip 0.8
        (1.5, -2.0, 3.0, 3.0, 0),
        (10.0, -2.0, 6.0, 0.0, 0),  # T21: dual clip, 3 |A| where TRL has 10 |A|
        (math.exp(19.0), 1.0, -1.3, 0.0, 1),
        (math.exp(19.0), -1.0, 3.0, 0.0, 0),
        (math.exp(-50.0), 1.0, -math.exp(-20.0), 0.0, 0),  # T27: clamped, no gradient
        (math.exp(-50.0), -1.0, 0.8, 0.0, 1),
        (math.exp(300.0), 1.0, -1.3, 0.0, 1),
        (math.exp(300.0), -1.0, 3.0, 0.0, 0),
        (7.0, 0.0, 0.0, 0.0, 0),
    ],
)
def test_one_token(
    ratio: float, advantage: float, loss: float, gradient: float, clipped: int
) -> None:
    """T21, T27: asymmetric clip, dual clip for A < 0, and the clamp of the log ratio at +-20."""
    assert one_token(math.log(ratio), advantage) == pytest.approx((loss, gradient, clipped))


def test_all_tokens_rejected() -> None:
    """T27: nothing in the mask is loss 0 and count 0 with a finite gradient."""
    logprobs_N = torch.tensor([-1.0, -400.0], requires_grad=True)
    part = clipped_surrogate(
        logprobs_N, torch.zeros(2), torch.ones(2), torch.zeros(2, dtype=torch.bool), **CLIP
    )
    assert (float(part.sum.detach()), part.count) == (0.0, 0.0)
    (gradient_N,) = torch.autograd.grad(part.sum, logprobs_N)
    assert gradient_N.tolist() == [0.0, 0.0]


def test_masked_tokens_change_nothing() -> None:
    mask_N = torch.tensor([True, False, True])
    values = []
    for other in (-3.0, -0.1):
        logprobs_N = torch.tensor([-1.0, other, -2.0], requires_grad=True)
        part = clipped_surrogate(
            logprobs_N,
            torch.tensor([-1.1, -9.0, -1.9]),
            torch.tensor([1.0, 5.0, -1.0]),
            mask_N,
            **CLIP,
        )
        (gradient_N,) = torch.autograd.grad(part.sum, logprobs_N)
        assert float(gradient_N[1]) == 0.0
        values.append((float(part.sum.detach()), part.count, part.metrics["ratio_max"]))
    assert values[0] == values[1]


def test_k3_estimates_the_kl() -> None:
    """T15: the mean of k3 under the policy is KL(policy || reference) within three sigma."""
    generator = torch.Generator().manual_seed(0)
    p_V = torch.softmax(0.7 * torch.randn(5, generator=generator, dtype=torch.float64), dim=0)
    q_V = torch.softmax(0.7 * torch.randn(5, generator=generator, dtype=torch.float64), dim=0)
    token_N = torch.multinomial(p_V, 200_000, replacement=True, generator=generator)
    one = torch.tensor([True])
    each_V = [float(k3(p_V[i, None].log(), q_V[i, None].log(), one).sum) for i in range(5)]
    each_N = torch.tensor(each_V, dtype=torch.float64)[token_N]
    exact = float((p_V * (p_V / q_V).log()).sum())
    assert abs(float(each_N.mean()) - exact) < 3 * float(each_N.std()) / math.sqrt(len(each_N))


def test_k3_is_zero_for_equal_policies_and_bounded_far_away() -> None:
    logprobs_N = torch.tensor([-1.0, -60.0, -0.5], requires_grad=True)
    mask_N = torch.tensor([True, True, False])
    part = k3(logprobs_N, torch.tensor([-1.0, -1.0, -9.0]), mask_N)
    (gradient_N,) = torch.autograd.grad(part.sum, logprobs_N)
    assert float(part.sum.detach()) == 10.0
    assert gradient_N.tolist() == [0.0, 0.0, 0.0]


def test_entropy_of_known_distributions() -> None:
    logits_NV = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1000.0, 0.0, 0.0, 0.0], [0.0, 5.0, 1.0, 2.0]])
    part = entropy(logits_NV, torch.tensor([True, True, False]))
    assert float(part.sum) == pytest.approx(math.log(4))
    assert part.count == 2
