"""One update: denominators, masks, alignment, and the separation of policy and oracle rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sero_core.batch import build_batch, build_oracle_batch
from sero_core.config import SeroConfig
from sero_core.forward import Passes
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import PolicyError, clone_policy
from sero_core.types import SeroError
from sero_core.update_oracle import accumulate_oracle_gradient
from tests.support.rows import (
    FULL,
    OPTIM,
    assert_equal,
    distance,
    gradients,
    oracle_rows,
    rescored,
    run_update,
    sampled_rows,
    weights,
)
from tests.support.tiny import tiny_policy


def test_coefficient_zero_is_the_base_method() -> None:
    """S5: with oracle_coef 0 weights, moments and policy metrics are bit-equal."""
    plain, silent = tiny_policy(), tiny_policy()
    sero = SeroConfig(oracle_coef=0.0)
    optimizers = [make_optimizer(plain, OPTIM), make_optimizer(silent, OPTIM)]
    oracle = build_oracle_batch(oracle_rows())
    batch = build_batch(sampled_rows(plain))
    for seed in (0, 1):
        left = run_update(plain, batch, optimizer=optimizers[0], seed=seed)
        right = run_update(silent, batch, oracle, optimizer=optimizers[1], seed=seed, sero=sero)
        assert {key: right[key] for key in left} == left
        assert right["sero/oracle_loss"] > 0
        assert right["sero/grad_norm"] == 0.0
    assert_equal(weights(plain), weights(silent))


@pytest.mark.parametrize("normalizer", ["sum_weights", "rows"])
def test_oracle_gradient_is_the_weighted_mean(normalizer: Any) -> None:  # noqa: ANN401
    """Section 1.8 by hand, for any split into microbatches; a row of weight 0 is not computed."""
    policy = tiny_policy()
    rows = [*oracle_rows(), replace(oracle_rows()[0], weight=0.0)]
    batch = build_oracle_batch(rows)
    assert batch is not None
    divisor = sum(row.weight for row in rows) if normalizer == "sum_weights" else len(rows)
    policy.model.zero_grad()
    total = torch.zeros(())
    for row in rows:
        ids = torch.tensor([row.prompt_ids + row.token_ids])
        logprobs_LV = torch.log_softmax(policy.model(input_ids=ids).logits[0], dim=-1)
        start = len(row.prompt_ids) - 1
        nll = [
            -logprobs_LV[start + i, token]
            for i, (token, kept) in enumerate(zip(row.token_ids, row.scored, strict=True))
            if kept
        ]
        total = total + row.weight * torch.stack(nll).mean()
    (0.3 * total / divisor).backward()
    expected = gradients(policy)
    for tokens in (10_000, 60, 1):
        policy.model.zero_grad()
        got = accumulate_oracle_gradient(
            policy, batch, range(len(rows)), normalizer, 0.3 / divisor, Passes(tokens, False, 512)
        )
        assert got == pytest.approx(float(total.detach()), rel=1e-5)
        assert distance(gradients(policy), expected) < 1e-5


def test_oracle_steps_learn_the_oracle() -> None:
    policy = tiny_policy()
    optimizer = make_optimizer(policy, OPTIM)
    oracle = build_oracle_batch(oracle_rows())
    values = [
        run_update(policy, build_batch([]), oracle, optimizer=optimizer, seed=i)["sero/oracle_loss"]
        for i in range(6)
    ]
    assert values[-1] < 0.7 * values[0]


def test_policy_gradient_raises_what_was_good() -> None:
    policy = tiny_policy()
    batch = build_batch(sampled_rows(policy))
    run_update(policy, batch, optim=OPTIM.model_copy(update={"lr": 1e-3}))
    rows = sampled_rows(tiny_policy())
    gain = sum(
        old.advantage * (sum(new.old_logprobs) - sum(old.old_logprobs))
        for old, new in zip(rows, rescored(policy, rows), strict=True)
    )
    assert gain > 0


def test_kl_starts_at_zero_and_is_only_there_with_a_coefficient() -> None:
    policy = tiny_policy()
    batch, reference = build_batch(sampled_rows(policy)), clone_policy(policy)
    optimizer = make_optimizer(policy, OPTIM)
    first = run_update(policy, batch, optimizer=optimizer, loss=FULL, reference=reference)
    second = run_update(policy, batch, optimizer=optimizer, loss=FULL, reference=reference)
    assert abs(first["train/kl"]) < 1e-9
    assert second["train/kl"] > 0.0
    assert "train/kl" not in run_update(policy, batch)


def test_the_same_seed_gives_the_same_weights() -> None:
    results: list[dict[str, torch.Tensor]] = []
    optim = OPTIM.model_copy(update={"minibatch_rows": 4})
    for seed in (3, 3, 4):
        policy = tiny_policy()
        oracle = build_oracle_batch(oracle_rows())
        run_update(policy, build_batch(sampled_rows(policy)), oracle, optim=optim, seed=seed)
        results.append(weights(policy))
    assert_equal(results[0], results[1])
    assert any(not torch.equal(results[0][name], results[2][name]) for name in results[0])


def test_what_cannot_be_trained_is_an_error() -> None:
    policy = tiny_policy()
    batch, oracle = build_batch(sampled_rows(policy)), build_oracle_batch(oracle_rows())
    with pytest.raises(SeroError, match="no reference policy"):
        run_update(policy, batch, loss=FULL)
    with pytest.raises(SeroError, match="no sero config"):
        run_update(policy, batch, oracle, sero=None)
    policy.model.train()
    with pytest.raises(PolicyError, match="eval mode"):
        run_update(policy, batch)
    policy.model.eval()
    with torch.no_grad():
        next(policy.model.parameters()).fill_(float("nan"))
    with pytest.raises(SeroError, match="gradient norm is nan"):
        run_update(policy, batch)
