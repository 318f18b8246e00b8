"""T12: before any step the trainer and the sampler agree on every token.

Old log-probabilities have been taken with dropout on, at another temperature, in another batch
composition, or after the first update.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from sero_core.batch import build_batch
from sero_core.forward import Passes
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import PolicyError, make_policy
from sero_core.prepare import prepare_batch
from sero_core.sections import LoraConfig, PolicyLoss
from tests.support.rows import OPTIM, PASSES, PLAIN, rescored, run_update, sampled_rows
from tests.support.tiny import tiny_policy, tiny_tokenizer
from tests.support.tiny_gpt2 import tiny_gpt2

RECOMPUTE = PolicyLoss(kl_coef=0.0, old_logprobs="recompute")


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("layout", ["bucketed", "packed"])
@pytest.mark.parametrize("microbatch_tokens", [64, 4096])
def test_t12_the_first_ratio_is_one(
    temperature: float, layout: str, microbatch_tokens: int
) -> None:
    """Sampler against trainer, whose kernels differ: 1e-5 where the softmax is in float32."""
    policy = tiny_policy()
    optim = OPTIM.model_copy(update={"microbatch_tokens": microbatch_tokens, "layout": layout})
    batch = build_batch(sampled_rows(policy, temperature=temperature))
    metrics = run_update(policy, batch, optim=optim)
    assert 0 <= metrics["numerics/ratio_first_max"] < 1e-5
    assert metrics["numerics/ratio_first_mean"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["numerics/outside_clip_first"] == 0.0
    assert metrics["numerics/engine_gap_max"] < 1e-5


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("rows", [1, 8])
def test_t12_the_first_ratio_of_recomputed_logprobs_is_exact(rows: int, temperature: float) -> None:
    """(a), (c), (d): micro-batches of one row or of eight, the same pass before and in the update,
    at the sampler's temperature."""
    policy = tiny_policy()
    scored = rescored(policy, sampled_rows(policy, temperature=temperature))
    optim = OPTIM.model_copy(update={"microbatch_tokens": 28 * rows})
    # `rescored` is at temperature 1; at another one the trainer's own scores are what is tested,
    # and logits over 0.6 are rounded more coarsely
    is_plain = temperature == 1.0
    for loss in (PLAIN, RECOMPUTE) if is_plain else (RECOMPUTE,):
        metrics = run_update(tiny_policy(), build_batch(scored), loss=loss, optim=optim)
        assert metrics["numerics/ratio_first_max"] < (1e-6 if is_plain else 4e-6)


def test_t12_bfloat16_is_reported() -> None:
    """The gap of a bfloat16 forward pass is small, not zero, and on the panel."""
    exact = tiny_policy(scale=4.0)
    policy = make_policy(exact.model, tiny_tokenizer(), torch.bfloat16)
    metrics = run_update(policy, build_batch(sampled_rows(exact)))
    assert 1e-4 < metrics["numerics/ratio_first_max"] < 0.2
    assert 1e-4 < metrics["numerics/engine_gap_max"] < 0.2
    assert 0.9 < metrics["numerics/ratio_first_mean"] < 1.1


def test_t12_dropout_is_off_or_an_error() -> None:
    """(b): a model with dropout is sampled and trained without it; training mode is refused."""
    policy = tiny_gpt2(dropout=0.5)
    rows = sampled_rows(policy)
    assert run_update(policy, build_batch(rows))["numerics/ratio_first_max"] < 1e-5
    policy.model.train()
    with pytest.raises(PolicyError, match="eval mode"):
        run_update(policy, build_batch(rows))
    with pytest.raises(ValidationError, match="dropout"):
        LoraConfig.model_validate({"rank": 4, "dropout": 0.1})


@pytest.mark.parametrize("is_packed", [False, True])
def test_t12_old_logprobs_are_those_of_the_weights_that_sampled(is_packed: bool) -> None:
    """Recomputed once, before the first step: the second minibatch sees how far the first moved."""
    policy = tiny_policy()
    rows = sampled_rows(policy)
    stale = [replace(row, old_logprobs=(-9.0,) * len(row.token_ids)) for row in rows]
    passes = Passes(PASSES.max_tokens, is_packed, PASSES.head_tokens)
    prepared, _ = prepare_batch(policy, None, build_batch(stale), RECOMPUTE, passes)
    for row, old in zip(rescored(policy, rows), prepared.old_logprobs, strict=True):
        assert old.tolist() == pytest.approx(row.old_logprobs, abs=1e-5)
    optim = OPTIM.model_copy(update={"minibatch_rows": 8, "lr": 0.05})
    optimizer = make_optimizer(policy, optim)
    metrics = run_update(
        policy, build_batch(stale), loss=RECOMPUTE, optim=optim, optimizer=optimizer
    )
    assert metrics["numerics/ratio_first_max"] < 1e-5
    assert metrics["numerics/outside_clip_first"] == 0.0
    assert metrics["numerics/outside_clip"] > 0.05
