"""The clipped surrogate and the two ratios by hand: values and gradients."""

from __future__ import annotations

import math

import pytest
import torch

from sero_core.losses.policy import clipped_surrogate, sequence_log_ratio, token_log_ratio


def test_masked_tokens_have_no_part_in_a_sequence_ratio() -> None:
    mask_N = torch.tensor([True, False, True, True])
    row_N = torch.tensor([0, 0, 0, 1])
    for other in (-3.0, -0.1):
        logprobs_N = torch.tensor([-1.0, other, -2.0, -4.0])
        old_N = torch.tensor([-1.1, -9.0, -1.9, -3.5])
        log_s_N = sequence_log_ratio(logprobs_N, old_N, mask_N, row_N, 2)
        assert log_s_N.tolist() == pytest.approx([0.0, 0.0, 0.0, -0.5], abs=1e-6)


def test_sequence_ratio_has_the_gradient_of_the_tokens() -> None:
    """GSPO, token form: value s on every token, d/d logprob_t of its own token alone."""
    logprobs_N = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    old_N = torch.tensor([-1.2, -1.5, -0.5], dtype=torch.float64)
    log_s_N = sequence_log_ratio(
        logprobs_N, old_N, torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.long), 1
    )
    s = math.exp((0.2 - 0.5 + 0.0) / 3)
    assert log_s_N.exp().tolist() == pytest.approx([s] * 3)
    (gradient_N,) = torch.autograd.grad(log_s_N.exp()[1], logprobs_N)
    assert gradient_N.tolist() == pytest.approx([0.0, s, 0.0])


def test_the_clip_counters() -> None:
    log_ratio_N = torch.tensor([1.5, 0.5, 1.0, 10.0, 0.5]).log()
    advantages_N = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0])
    loss = clipped_surrogate(log_ratio_N, advantages_N, clip_low=0.2, clip_high=0.3, dual_clip=3.0)
    assert loss.is_clipped_N.tolist() == [True, False, False, False, True]
    assert loss.is_bounded_N.tolist() == [False, False, False, True, False]
    assert loss.ratio_N.tolist() == pytest.approx([1.5, 0.5, 1.0, 10.0, 0.5])


def test_an_unclamped_ratio_never_overflows() -> None:
    for dtype in (torch.float32, torch.float64):
        far = torch.tensor([1e4, -1e4, 3.0], dtype=dtype)
        log_ratio_N = token_log_ratio(far, torch.zeros(3, dtype=dtype), max_log_ratio=None)
        assert bool(log_ratio_N.exp().isfinite().all())
        assert float(log_ratio_N[2]) == 3.0
