"""The panel of an update: each number against one that is computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sero_core import policy_gradient as policy_gradient_module
from sero_core.batch import build_batch, build_oracle_batch
from sero_core.losses.aggregate import aggregate
from sero_core.sections import PolicyLoss
from sero_core.update import PROBE_ROWS
from tests.support.rows import (
    FULL,
    OPTIM,
    PLAIN,
    oracle_rows,
    policy_gradient,
    rescored,
    run_update,
    sampled_rows,
)
from tests.support.tiny import tiny_policy


def norm(gradient: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float(value.square().sum()) for value in gradient.values()))


def test_ratio_gap_and_band_by_hand() -> None:
    """Engine log-probabilities 0.05 above the trainer's on the first token of each row, 0.5 below
    on the others."""
    policy = tiny_policy()
    rows = [
        replace(
            row,
            advantage=1.0,
            old_logprobs=(row.old_logprobs[0] + 0.05, *(v - 0.5 for v in row.old_logprobs[1:])),
        )
        for row in rescored(policy, sampled_rows(policy))
    ]
    first, tokens = len(rows), sum(len(row.token_ids) for row in rows)
    others = tokens - first
    metrics = run_update(policy, build_batch(rows))
    assert metrics["numerics/ratio_first_max"] == pytest.approx(math.exp(0.5) - 1, rel=1e-4)
    mean = (first * math.exp(-0.05) + others * math.exp(0.5)) / tokens
    assert metrics["numerics/ratio_first_mean"] == pytest.approx(mean, rel=1e-4)
    assert metrics["numerics/engine_gap_max"] == pytest.approx(0.5, abs=1e-4)
    gap = (first * 0.05 + others * 0.5) / tokens
    assert metrics["numerics/engine_gap_mean"] == pytest.approx(gap, abs=1e-4)
    assert metrics["numerics/outside_clip_first"] == pytest.approx(others / tokens)
    assert metrics["train/clip_fraction"] == pytest.approx(others / tokens)


def test_gradient_norms_of_the_terms() -> None:
    """Each is the norm of that term alone, before the first step and before clipping."""
    policy, reference = tiny_policy(), tiny_policy(seed=1)
    batch = build_batch(sampled_rows(policy))
    alone = {
        "policy": PLAIN,
        "kl": PolicyLoss(kl_coef=0.05),
        "entropy": PolicyLoss(kl_coef=0.0, entropy_coef=0.01),
    }
    quiet = replace(batch, advantages=tuple(torch.zeros_like(a) for a in batch.advantages))
    want = {
        term: norm(
            policy_gradient(policy, batch if term == "policy" else quiet, loss, reference=reference)
        )
        for term, loss in alone.items()
    }
    metrics = run_update(tiny_policy(), batch, loss=FULL, reference=reference)
    for term, value in want.items():
        assert value > 0
        assert metrics[f"numerics/grad_norm_{term}"] == pytest.approx(value, rel=1e-4), term
    assert metrics["train/grad_norm"] > 0


def test_one_term_costs_no_pass_of_its_own() -> None:
    """The surrogate alone: its norm is that of the first minibatch."""
    policy = tiny_policy()
    metrics = run_update(policy, build_batch(sampled_rows(policy)))
    assert metrics["numerics/grad_norm_policy"] == metrics["train/grad_norm"]
    assert "numerics/grad_norm_kl" not in metrics
    assert "numerics/grad_norm_oracle" not in metrics
    oracle = build_oracle_batch(oracle_rows())
    metrics = run_update(policy, build_batch([]), oracle)
    assert metrics["numerics/grad_norm_oracle"] == metrics["sero/grad_norm"] > 0


def test_a_mask_that_is_not_applied_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """numerics/masked_grad_max is 0 by right and not by construction: for the surrogate and for the
    entropy it is more as soon as the aggregation forgets the mask."""
    rows = [
        replace(row, mask=tuple(i > 0 for i in range(len(row.token_ids))))
        for row in sampled_rows(tiny_policy(), advantages=(1.0,))
    ]

    def forgetful(values_N, mask_N, *rest, **options):  # noqa: ANN001, ANN002, ANN003, ANN202
        return aggregate(values_N, torch.ones_like(mask_N), *rest, **options)

    loss = PolicyLoss(kl_coef=0.0, entropy_coef=10.0)
    honest = run_update(tiny_policy(), build_batch(rows), loss=loss)
    assert honest["numerics/masked_grad_max"] == 0.0
    monkeypatch.setattr(policy_gradient_module, "aggregate", forgetful)
    for broken in (PLAIN, loss):
        metrics = run_update(tiny_policy(), build_batch(rows), loss=broken)
        assert metrics["numerics/masked_grad_max"] > 1e-3


def test_probing_changes_no_weight() -> None:
    """With a coefficient of 1e-30 the terms are probed, and the step is that of the surrogate."""
    assert PROBE_ROWS >= 16
    norms: list[float] = []
    for loss in (PLAIN, PolicyLoss(kl_coef=0.0, entropy_coef=1e-30)):
        policy = tiny_policy()
        optim = OPTIM.model_copy(update={"minibatch_rows": 8})
        norms.append(
            run_update(policy, build_batch(sampled_rows(policy)), loss=loss, optim=optim)[
                "train/grad_norm"
            ]
        )
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)


def test_numbers_without_tokens_are_left_out() -> None:
    """Advantages of 0 everywhere: nothing is computed, so there is no ratio to report."""
    policy = tiny_policy()
    rows = sampled_rows(policy, advantages=(0.0,))
    metrics = run_update(policy, build_batch(rows))
    assert "numerics/ratio_first_max" not in metrics
    assert "numerics/engine_gap_mean" not in metrics
    assert metrics["numerics/masked_tokens"] == 0.0
    assert metrics["train/tokens"] == sum(len(row.token_ids) for row in rows)


def test_a_sequence_ratio_has_the_band_of_its_row() -> None:
    """GSPO: an offset of -0.01 on every token is a ratio of e^0.01 for every row."""
    policy = tiny_policy()
    rows = [
        replace(row, advantage=-1.0, old_logprobs=tuple(v - 0.01 for v in row.old_logprobs))
        for row in rescored(policy, sampled_rows(policy))
    ]
    loss = PolicyLoss(
        kl_coef=0.0,
        ratio="sequence",
        clip_low=3e-4,
        clip_high=4e-4,
        dual_clip=0.0,
        aggregation="seq-mean-token-mean",
    )
    metrics = run_update(policy, build_batch(rows), loss=loss)
    assert metrics["train/loss"] == pytest.approx(math.exp(0.01), rel=1e-4)
    assert metrics["numerics/outside_clip_first"] == 1.0
    assert metrics["train/clip_fraction"] == 0.0, "A < 0 above the band is not clipped"
    positive = [replace(row, advantage=1.0) for row in rows]
    metrics = run_update(tiny_policy(), build_batch(positive), loss=loss)
    assert metrics["train/loss"] == pytest.approx(-1.0004, rel=1e-5)
    assert metrics["train/clip_fraction"] == 1.0
    assert metrics["train/grad_norm"] == 0.0
