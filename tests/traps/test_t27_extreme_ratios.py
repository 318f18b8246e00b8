"""T27: extreme ratios, with and without clamps: value and gradient stay finite.

And a batch of which every token is rejected is loss 0 with a counter, no division by zero.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sero_core.batch import build_batch
from sero_core.losses.aggregate import aggregate
from sero_core.losses.policy import clipped_surrogate, sequence_log_ratio, token_log_ratio
from sero_core.sections import Aggregation, PolicyLoss
from tests.support.rows import assert_equal, policy_gradient, run_update, sampled_rows, weights
from tests.support.tiny import tiny_policy


def one_token(
    log_ratio: float,
    advantage: float,
    *,
    max_log_ratio: float | None,
    dual_clip: float | None,
    dtype: torch.dtype = torch.float64,
) -> tuple[float, float]:
    logprob_N = torch.tensor([log_ratio], dtype=dtype, requires_grad=True)
    loss = clipped_surrogate(
        token_log_ratio(logprob_N, torch.zeros(1, dtype=dtype), max_log_ratio=max_log_ratio),
        torch.tensor([advantage], dtype=dtype),
        clip_low=0.2,
        clip_high=0.3,
        dual_clip=dual_clip,
    )
    (gradient,) = torch.autograd.grad(loss.loss_N.sum(), logprob_N)
    return float(loss.loss_N.detach()), float(gradient[0])


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "loss", "gradient"),
    [
        (19.0, 1.0, -1.3, 0.0),
        (19.0, -1.0, 3.0, 0.0),
        (-19.0, 1.0, -math.exp(-19), -math.exp(-19)),
        (-50.0, 1.0, -math.exp(-20), 0.0),  # clamped: no gradient outside of +-20
        (-50.0, -1.0, 0.8, 0.0),
        (300.0, 1.0, -1.3, 0.0),
        (300.0, -1.0, 3.0, 0.0),
    ],
)
def test_t27_clamped(log_ratio: float, advantage: float, loss: float, gradient: float) -> None:
    """verl: +-20 and dual clip 3."""
    got = one_token(log_ratio, advantage, max_log_ratio=20.0, dual_clip=3.0)
    assert got == pytest.approx((loss, gradient))


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "loss", "gradient"),
    [
        (19.0, -1.0, math.exp(19), math.exp(19)),
        (25.0, -1.0, math.exp(25), math.exp(25)),
        (-50.0, 1.0, -math.exp(-50), -math.exp(-50)),
        (300.0, 1.0, -1.3, 0.0),
    ],
)
def test_t27_unclamped(log_ratio: float, advantage: float, loss: float, gradient: float) -> None:
    """TRL: neither clamp nor dual clip."""
    got = one_token(log_ratio, advantage, max_log_ratio=None, dual_clip=None)
    assert got == pytest.approx((loss, gradient))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log_ratio", [-1e4, -100.0, 100.0, 1e4])
@pytest.mark.parametrize("advantage", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("max_log_ratio", [20.0, None])
def test_t27_always_finite(
    log_ratio: float, advantage: float, max_log_ratio: float | None, dtype: torch.dtype
) -> None:
    """exp(100) overflows float32, and 0 times infinity would be NaN."""
    values = one_token(
        log_ratio, advantage, max_log_ratio=max_log_ratio, dual_clip=None, dtype=dtype
    )
    assert all(math.isfinite(value) for value in values)


@pytest.mark.parametrize(
    ("mean_log_ratio", "max_log_ratio", "want", "slope"),
    [
        (9.0, 10.0, 9.0, 1.0),
        (12.0, 10.0, 10.0, 0.0),
        (12.0, None, 12.0, 1.0),
        (-60.0, 10.0, -60.0, 1.0),
    ],
)
def test_t27_sequence_ratios_are_capped_from_above_alone(
    mean_log_ratio: float, max_log_ratio: float | None, want: float, slope: float
) -> None:
    """GSPO in verl: at most e^10, no lower bound."""
    logprobs_N = torch.tensor([1.0, -1.0], dtype=torch.float64) + mean_log_ratio
    logprobs_N.requires_grad_()
    log_s_N = sequence_log_ratio(
        logprobs_N,
        torch.zeros(2, dtype=torch.float64),
        torch.tensor([True, True]),
        torch.zeros(2, dtype=torch.long),
        1,
        max_log_ratio=max_log_ratio,
    )
    (gradient_N,) = torch.autograd.grad(log_s_N.sum(), logprobs_N)
    assert log_s_N.tolist() == pytest.approx([want] * 2)
    assert gradient_N.tolist() == pytest.approx([slope] * 2)


def test_t27_the_clamp_is_chosen_by_name() -> None:
    """Old log-probabilities 30 below: beyond the clamp is no gradient, without it there is."""
    policy = tiny_policy()
    rows = [
        replace(row, old_logprobs=tuple(v - 30.0 for v in row.old_logprobs), advantage=-1.0)
        for row in sampled_rows(policy)
    ]
    largest: dict[str, float] = {}
    for name in ("clamped", "unclamped"):
        loss = PolicyLoss.model_validate({"kl_coef": 0.0, "dual_clip": 0.0, "log_ratio": name})
        gradient = policy_gradient(policy, build_batch(rows), loss)
        largest[name] = max(float(value.abs().max()) for value in gradient.values())
    assert largest["clamped"] == 0.0
    assert math.isfinite(largest["unclamped"])
    assert largest["unclamped"] > 1e6


@pytest.mark.parametrize(
    "mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
)
def test_t27_every_token_rejected(mode: Aggregation) -> None:
    """Sum 0, count 0, gradient 0 and finite, whatever stands at the masked places."""
    logprobs_N = torch.tensor([-1.0, -400.0], requires_grad=True)
    loss = clipped_surrogate(
        token_log_ratio(logprobs_N, torch.zeros(2)), torch.ones(2), clip_low=0.2, clip_high=0.2
    )
    mask_N, row_N = torch.tensor([False, False]), torch.tensor([0, 1])
    part = aggregate(loss.loss_N, mask_N, row_N, 2, mode=mode, norm_length=8)
    (gradient_N,) = torch.autograd.grad(part.sum, logprobs_N)
    assert (float(part.sum.detach()), part.count) == (0.0, 0.0)
    assert gradient_N.tolist() == [0.0, 0.0]


def test_t27_a_batch_without_signal_takes_no_step_and_is_counted() -> None:
    policy = tiny_policy()
    rows = sampled_rows(policy)
    before = weights(policy)
    masked = [replace(row, mask=(False,) * len(row.token_ids)) for row in rows]
    metrics = run_update(policy, build_batch(masked))
    assert (metrics["train/loss"], metrics["train/tokens"]) == (0.0, 0.0)
    assert metrics["numerics/masked_tokens"] == sum(len(row.token_ids) for row in rows)
    assert_equal(before, weights(policy))
    metrics = run_update(policy, build_batch([replace(row, advantage=0.0) for row in rows]))
    assert (metrics["train/loss"], metrics["train/grad_norm"]) == (0.0, 0.0)
    assert run_update(policy, build_batch([]))["train/tokens"] == 0.0
