"""T14: weights for the gap between engine and trainer: truncated from above, constants, never
silently absent.

They have been truncated on the wrong side, averaged where they are multiplied, differentiated, and
left out because a metric was missing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from sero_core.batch import Batch, BatchError, PolicyRow, build_batch
from sero_core.losses.mismatch import importance_weights, rejection_mask
from sero_core.policy import Policy
from sero_core.prepare import prepare_batch
from sero_core.sections import EngineCorrection, PolicyLoss
from sero_core.types import SeroError
from tests.support.rows import PASSES, distance, policy_gradient, rescored, run_update, sampled_rows
from tests.support.tiny import tiny_policy

TWO = torch.tensor([math.log(4.0), math.log(0.1)])
MASK = torch.tensor([True, True])
ROW = torch.zeros(2, dtype=torch.long)


def loss_with(**correction: Any) -> PolicyLoss:  # noqa: ANN401
    return PolicyLoss(
        kl_coef=0.0, old_logprobs="recompute", correction=EngineCorrection(**correction)
    )


def shifted(policy: Policy, gap: float) -> Batch:
    """Rows whose engine reported log-probabilities `gap` above and below the trainer's, in turn."""
    rows = [
        replace(
            row,
            old_logprobs=tuple(v - gap * (-1) ** i for i, v in enumerate(row.old_logprobs)),
        )
        for row in rescored(policy, sampled_rows(policy))
    ]
    return build_batch(rows)


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"level": "token", "cap": 2.0}, [2.0, 0.1]),
        ({"level": "token", "cap": 2.0, "floor": 0.5}, [0.0, 0.0]),
        ({"level": "token", "cap": 5.0, "floor": 0.5}, [4.0, 0.0]),
        ({"level": "token", "cap": 2.0, "normalize": True}, [2.0 / 1.05, 0.1 / 1.05]),
        ({"level": "sequence", "cap": 2.0}, [0.4, 0.4]),
        ({"level": "sequence", "cap": 0.3}, [0.3, 0.3]),
        ({"level": "sequence", "cap": 2.0, "normalize": True}, [1.0, 1.0]),
    ],
)
def test_t14_two_tokens_by_hand(settings: dict[str, Any], want: list[float]) -> None:
    log_ratio_N = TWO.clone().requires_grad_()
    weights = importance_weights(log_ratio_N, MASK, ROW, 1, **settings)
    assert weights.weights_N.tolist() == pytest.approx(want)
    assert not weights.weights_N.requires_grad


def test_t14_numbers_for_the_panel() -> None:
    weights = importance_weights(TWO, MASK, ROW, 1, level="token", cap=2.0)
    assert weights.mean == pytest.approx(1.05)
    assert weights.effective_size == pytest.approx(1.05**2 / ((4 + 0.01) / 2))
    assert (weights.share_cut, weights.max) == (0.5, 2.0)


def test_t14_all_rejected_is_zero_not_an_error() -> None:
    none = importance_weights(TWO, MASK, ROW, 1, level="token", cap=0.9, floor=0.8, normalize=True)
    assert none.weights_N.tolist() == [0.0, 0.0]
    assert (none.mean, none.effective_size, none.share_cut) == (0.0, 0.0, 1.0)
    empty = importance_weights(
        torch.zeros(0), torch.zeros(0, dtype=torch.bool), ROW[:0], 0, level="sequence", cap=2.0
    )
    assert (empty.mean, empty.max) == (0.0, 0.0)


@pytest.mark.parametrize("weights", ["token", "sequence"])
def test_t14_no_gap_is_no_change(weights: str) -> None:
    """A weight of 1 up to the sampler's own rounding: the same gradient as without weights."""
    policy = tiny_policy()
    batch = build_batch(rescored(policy, sampled_rows(policy)))
    plain = policy_gradient(policy, batch, PolicyLoss(kl_coef=0.0, old_logprobs="recompute"))
    weighed = policy_gradient(policy, batch, loss_with(weights=weights, cap=1.5))
    assert distance(weighed, plain) < 1e-5


def test_t14_weights_multiply_the_surrogate() -> None:
    """exp(0.7) and exp(-0.7) in turn, the former cut at 1.5: the gradient is that of rows whose
    advantages were multiplied by hand."""
    policy = tiny_policy()
    batch = shifted(policy, 0.7)
    got = policy_gradient(policy, batch, loss_with(weights="token", cap=1.5))
    by_hand = [
        PolicyRow(
            tuple(ids[:prompt].tolist()),
            tuple(ids[prompt:].tolist()),
            tuple(
                float(a) * (1.5 if i % 2 == 0 else math.exp(-0.7)) for i, a in enumerate(advantage)
            ),
            (0.0,) * len(advantage),
        )
        for ids, prompt, advantage in zip(
            batch.input_ids, batch.prompt_lens, batch.advantages, strict=True
        )
    ]
    want_batch = build_batch(rescored(policy, by_hand))
    assert distance(got, policy_gradient(policy, want_batch, PolicyLoss(kl_coef=0.0))) < 1e-5
    prepared, metrics = prepare_batch(
        policy, None, batch, loss_with(weights="token", cap=1.5), PASSES
    )
    assert prepared.weights is not None
    assert not any(values.requires_grad for values in prepared.weights)
    assert metrics["numerics/engine_gap_mean"] == pytest.approx(0.7, abs=1e-4)
    assert metrics["numerics/is_weight_max"] == pytest.approx(1.5)


def test_t14_rejected_tokens_leave_the_mask_and_the_denominator() -> None:
    policy = tiny_policy()
    batch = shifted(policy, 0.7)
    loss = loss_with(reject="token_k1", reject_above=1.5, reject_below=0.1)
    metrics = run_update(policy, batch, loss=loss)
    sizes = [len(mask) for mask in batch.masks]
    kept = sum((size + 1) // 2 for size in sizes)  # k1 = -0.7 on even places, log 1.5 < 0.7 on odd
    assert metrics["train/tokens"] == kept
    assert metrics["numerics/rejected"] == pytest.approx(1 - kept / sum(sizes))
    assert metrics["numerics/masked_grad_max"] == 0.0
    everything = loss_with(reject="seq_mean_k2", reject_above=1e-9)
    metrics = run_update(policy, batch, loss=everything)
    assert (metrics["train/loss"], metrics["train/tokens"]) == (0.0, 0.0)
    assert metrics["numerics/rejected"] == 1.0


def test_t14_a_row_without_the_samplers_logprobs_is_an_error() -> None:
    with pytest.raises(BatchError, match="old_logprobs has 0 entries, expected one per token: 2"):
        build_batch([PolicyRow((3,), (4, 5), 1.0, ())])


def test_t14_a_correction_that_would_do_nothing_is_refused() -> None:
    for correction in ({"weights": "token"}, {"reject": "token_k2"}):
        with pytest.raises(ValidationError, match='allowed: old_logprobs = "recompute"'):
            PolicyLoss.model_validate({"correction": correction})
    with pytest.raises(ValidationError, match="at most cap"):
        EngineCorrection(weights="token", floor=3.0, cap=2.0)
    with pytest.raises(ValidationError, match="no lower bound"):
        EngineCorrection(reject="token_k3", reject_below=0.5)


def test_t14_bounds_of_a_rule_are_checked() -> None:
    arguments = (TWO, MASK, ROW, 1)
    with pytest.raises(SeroError, match="expected more than 0"):
        rejection_mask(*arguments, rule="token_k1", upper=0.0)
    with pytest.raises(SeroError, match="only k1 rules"):
        rejection_mask(*arguments, rule="token_k2", upper=1.0, lower=0.5)
    assert rejection_mask(*arguments, rule="token_k1", upper=5.0).tolist() == [True, False]
