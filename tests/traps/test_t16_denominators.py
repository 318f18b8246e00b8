"""T16: how a minibatch is cut, into micro-batches or over ranks, changes nothing.

Losses that are averaged per micro-batch or per rank weigh short pieces more; the gradient then
depends on the hardware.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sero_core.batch import PolicyRow, build_batch, build_oracle_batch
from sero_core.forward import Passes
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import Policy, clone_policy
from sero_core.sections import Aggregation, EngineCorrection, PolicyLoss
from sero_core.sections_sero import SeroConfig
from tests.support.rows import (
    OPTIM,
    distance,
    oracle_rows,
    policy_gradient,
    rescored,
    run_update,
    sampled_rows,
    weights,
)
from tests.support.tiny import tiny_policy
from tests.support.two_ranks import NUM_RANKS, on_two_ranks

MODES: dict[Aggregation, int] = {
    "token-mean": 0,
    "seq-mean-token-sum": 0,
    "seq-mean-token-mean": 0,
    "seq-mean-token-sum-norm": 8,
}
NUM_STEPS = 3


def loss_of(mode: Aggregation, **changes: Any) -> PolicyLoss:  # noqa: ANN401
    return PolicyLoss(
        aggregation=mode, norm_length=MODES[mode], kl_coef=0.05, entropy_coef=0.01, **changes
    )


def rows_of(policy: Policy) -> list[PolicyRow]:
    """16 rows, one without a token in the mask, two with some."""
    rows = sampled_rows(policy)
    rows[5] = replace(rows[5], mask=(False,) * len(rows[5].token_ids))
    for number in (3, 8):
        size = len(rows[number].token_ids)
        rows[number] = replace(rows[number], mask=tuple(i % 2 == 0 for i in range(size)))
    return rows


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_packed", [False, True])
def test_t16_microbatches_do_not_change_the_gradient(mode: Aggregation, is_packed: bool) -> None:
    """1 x 16, about 4 x 4 and 16 x 1 rows; a fully masked row is no NaN."""
    policy, reference = tiny_policy(), tiny_policy(seed=1)
    batch = build_batch(rows_of(policy))
    whole = policy_gradient(policy, batch, loss_of(mode), Passes(10_000, False, 512), reference)
    assert all(bool(value.isfinite().all()) for value in whole.values())
    for tokens in (10_000, 100, 1):
        passes = Passes(tokens, is_packed, 512)
        cut = policy_gradient(policy, batch, loss_of(mode), passes, reference)
        assert distance(cut, whole) < 3e-6


@pytest.mark.parametrize("mode", MODES)
def test_t16_the_gradient_is_that_of_the_formula(mode: Aggregation) -> None:
    """By the library's forward pass, one row at a time, for ratio 1 and no KL or entropy."""
    policy = tiny_policy()
    rows = rescored(policy, rows_of(policy))
    loss = PolicyLoss(kl_coef=0.0, aggregation=mode, norm_length=MODES[mode])
    got = policy_gradient(policy, build_batch(rows), loss)
    policy.model.zero_grad()
    counted = [row for row in rows if row.mask is None or any(row.mask)]
    tokens = sum(sum(row.mask or (True,) * len(row.token_ids)) for row in rows)
    for row in counted:
        ids = torch.tensor([row.prompt_ids + row.token_ids])
        logprobs_LV = torch.log_softmax(policy.model(input_ids=ids).logits[0, :-1], dim=-1)
        chosen_L = logprobs_LV.gather(1, ids[0, 1:, None])[len(row.prompt_ids) - 1 :, 0]
        mask_L = torch.tensor(row.mask or (True,) * len(row.token_ids))
        scale = {
            "token-mean": 1 / tokens,
            "seq-mean-token-sum": 1 / len(counted),
            "seq-mean-token-mean": 1 / len(counted) / int(mask_L.sum()),
            "seq-mean-token-sum-norm": 1 / len(counted) / 8,
        }[mode]
        assert isinstance(row.advantage, float)
        (-row.advantage * chosen_L[mask_L].sum() * scale).backward()
    want = {n: p.grad for n, p in policy.model.named_parameters() if p.grad is not None}
    assert distance(got, want) < 1e-5


def test_t16_rows_of_zero_advantage_count_but_need_no_forward_pass() -> None:
    """Skipping them equals computing them: same gradient, because the denominator is the same."""
    policy = tiny_policy()
    rows = sampled_rows(policy)
    skipped = policy_gradient(policy, build_batch(rows), PolicyLoss(kl_coef=0.0))
    computed = policy_gradient(
        policy, build_batch(rows), PolicyLoss(kl_coef=0.0, entropy_coef=1e-30)
    )
    assert distance(computed, skipped) < 1e-5
    only = [row for row in rows if row.advantage != 0]
    fewer = policy_gradient(policy, build_batch(only), PolicyLoss(kl_coef=0.0))
    share = sum(len(r.token_ids) for r in only) / sum(len(r.token_ids) for r in rows)
    scaled = {name: value * share for name, value in fewer.items()}
    assert distance(scaled, skipped) < 1e-5


def first_gradient(
    policy: Policy, rows: list[PolicyRow], loss: PolicyLoss, reference: Policy
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Gradient of the first optimiser step of an update, after the sum over ranks; metrics."""
    optim = OPTIM.model_copy(update={"max_grad_norm": 1e9, "minibatch_rows": 64})
    optimizer = make_optimizer(policy, optim)
    seen: list[dict[str, torch.Tensor]] = []

    def keep(*_: object) -> None:
        named = policy.model.named_parameters()
        seen.append({name: p.grad.clone() for name, p in named if p.grad is not None})

    optimizer.register_step_pre_hook(keep)
    metrics = run_update(
        policy, build_batch(rows), loss=loss, optim=optim, optimizer=optimizer, reference=reference
    )
    return seen[0], metrics


def losses_of_ranks() -> dict[str, PolicyLoss]:
    """One per mode, and one with weights normalised by the mean of all ranks."""
    corrected = EngineCorrection(weights="sequence", normalize=True, reject="token_k2")
    correction = {"old_logprobs": "recompute", "correction": corrected}
    return {mode: loss_of(mode) for mode in MODES} | {
        "corrected": loss_of("token-mean", **correction)
    }


def disagreeing(rows: list[PolicyRow]) -> list[PolicyRow]:
    """Rows whose engine log-probabilities are off by a number of their own."""
    return [
        replace(row, old_logprobs=tuple(v - 0.02 * i for v in row.old_logprobs))
        for i, row in enumerate(rows)
    ]


def one_rank(rank: int) -> dict[str, Any]:
    """What a rank with 11 or with 5 of the 16 rows computes; also run alone, with all of them."""
    policy = tiny_policy()
    rows = disagreeing(rows_of(policy))
    mine = {0: rows[:11], 1: rows[11:], -1: rows}[rank]
    found: dict[str, Any] = {}
    for name, loss in losses_of_ranks().items():
        fresh, reference = clone_trainable(policy), tiny_policy(seed=1)
        found[name] = first_gradient(fresh, mine, loss, reference)
    trained = clone_trainable(policy)
    optim = OPTIM.model_copy(update={"minibatch_rows": 8, "num_epochs": 2})
    oracle = build_oracle_batch(oracle_rows()) if rank == 1 else None
    optimizer = make_optimizer(trained, optim)
    sero = SeroConfig(minibatch_rows=8)
    metrics = run_update(
        trained, build_batch(mine), oracle, optim=optim, optimizer=optimizer, sero=sero
    )
    digest = hashlib.sha256()
    for value in weights(trained).values():
        digest.update(value.numpy().tobytes())
    found["steps"] = optimizer.param_groups[0]["num_steps"], digest.hexdigest(), metrics
    return found


def clone_trainable(policy: Policy) -> Policy:
    clone = clone_policy(policy)
    clone.model.requires_grad_(True)
    return clone


@pytest.mark.slow
def test_t16_two_ranks_take_the_step_of_one_process(tmp_path: Path) -> None:
    """11 and 5 rows on two gloo ranks, 16 in one process: the same gradient and panel for each
    mode. Then several minibatches, epochs, and oracle rows on one rank alone: equal weights."""
    alone, ranks = one_rank(-1), on_two_ranks(one_rank, tmp_path)
    assert len(ranks) == NUM_RANKS
    for name in losses_of_ranks():
        want, metrics = alone[name]
        for gradient, seen in (rank[name] for rank in ranks):
            assert distance(gradient, want) < 3e-6, name
            assert seen.keys() == metrics.keys()
            for key, value in metrics.items():
                if key.startswith("numerics/grad_norm"):  # other rows are probed
                    continue
                assert seen[key] == pytest.approx(value, rel=1e-4, abs=1e-5), (name, key)
    (steps, weights_0, metrics_0), (other, weights_1, metrics_1) = (r["steps"] for r in ranks)
    # 4 rows of a rank in each minibatch: 3 for the 11 rows, twice; 4 oracle rows: 3
    assert steps == other == 2 * NUM_STEPS + NUM_STEPS
    assert weights_0 == weights_1
    clocks = {key for key in metrics_0 if key.startswith("time/")}
    assert {k: v for k, v in metrics_0.items() if k not in clocks} == {
        k: v for k, v in metrics_1.items() if k not in clocks
    }
