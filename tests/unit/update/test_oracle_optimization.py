"""How the oracle's gradient reaches the weights: own steps, own moments, or jointly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sero_core.batch import Batch, OracleBatch, build_batch, build_oracle_batch
from sero_core.config import SeroConfig
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import Policy
from sero_core.sections import OptimizerConfig, PolicyLoss
from sero_core.update import update
from tests.support.rows import assert_equal, distance, oracle_rows, sampled_rows, weights
from tests.support.tiny import tiny_policy

LOSS = PolicyLoss(kl_coef=0.0)
OPTIM = OptimizerConfig(lr=1e-2, weight_decay=0.0, minibatch_rows=16, max_grad_norm=1e9)
JOINT = SeroConfig(optimization="joint", oracle_coef=0.3)
Tensors = dict[str, torch.Tensor]


class Recorder(torch.optim.AdamW):
    """AdamW that keeps the gradient of every step, and where it was taken."""

    def __init__(self, policy: Policy, optim: OptimizerConfig = OPTIM) -> None:
        super().__init__(policy.trained, lr=optim.lr, weight_decay=optim.weight_decay)
        for group in self.param_groups:
            group |= {"base_lr": optim.lr, "warmup_steps": 0, "num_steps": 0}
        self.policy = policy
        self.gradients: list[Tensors] = []

    def step(self, closure: None = None) -> None:  # pyright: ignore
        self.gradients.append(
            {name: p.grad.clone() for name, p in self.policy.trained if p.grad is not None}
        )
        super().step(closure)


def run(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    batch: Batch,
    oracle: OracleBatch | None,
    sero: SeroConfig | None,
    **changes: Any,  # noqa: ANN401
) -> dict[str, float]:
    settings: dict[str, Any] = {"loss": LOSS, "optim": OPTIM, "reference": None, "seed": 3}
    metrics = update(policy, optimizer, batch, oracle, sero=sero, **(settings | changes))
    return {key: value for key, value in metrics.items() if not key.startswith("time/")}


def first_gradient(
    oracle: OracleBatch | None, sero: SeroConfig | None, has_signal: bool
) -> Tensors:
    """The gradient of the first step; without signal every advantage is 0."""
    policy = tiny_policy()
    rows = [row if has_signal else replace(row, advantage=0.0) for row in sampled_rows(policy)]
    optimizer = Recorder(policy)
    run(policy, optimizer, build_batch(rows), oracle, sero)
    return optimizer.gradients[0]


def test_joint_is_the_sum_of_both_gradients_in_one_step() -> None:
    oracle = build_oracle_batch(oracle_rows())
    both = first_gradient(oracle, JOINT, True)
    base = first_gradient(None, None, True)
    alone = first_gradient(oracle, JOINT, False)
    assert any(float(value.abs().max()) > 1e-4 for value in alone.values())
    assert distance(both, {name: base[name] + alone[name] for name in base}) < 1e-5


@pytest.mark.parametrize("normalizer", ["sum_weights", "rows"])
def test_joint_has_the_oracle_loss_of_its_own_step(normalizer: Any) -> None:  # noqa: ANN401
    """The same oracle gradient as `own_step` on all rows: its own denominator, no dilution (S6)."""
    oracle = build_oracle_batch(oracle_rows())
    joint = JOINT.model_copy(update={"normalizer": normalizer})
    own = SeroConfig(oracle_coef=0.3, minibatch_rows=64, normalizer=normalizer)
    policy = tiny_policy()
    optimizer = Recorder(policy)
    run(policy, optimizer, build_batch([]), oracle, own)
    assert distance(first_gradient(oracle, joint, False), optimizer.gradients[0]) < 1e-5


def test_twice_the_oracle_rows_leave_the_base_gradient_alone() -> None:
    """S6 for `joint`: what is left after the oracle's part is the same."""
    base = first_gradient(None, None, True)
    for number in (6, 12):
        oracle = build_oracle_batch(oracle_rows(number=number))
        both, alone = (first_gradient(oracle, JOINT, has_signal) for has_signal in (True, False))
        assert distance({name: both[name] - alone[name] for name in base}, base) < 1e-5


def test_joint_with_coefficient_zero_is_the_base_method_bit_for_bit() -> None:
    """S5: same order of policy rows, same weights, same moments, same metrics."""
    results: list[tuple[Tensors, dict[str, float]]] = []
    optim = OPTIM.model_copy(update={"minibatch_rows": 5, "num_epochs": 2})
    silent = JOINT.model_copy(update={"oracle_coef": 0.0})
    for oracle, sero in ((None, None), (build_oracle_batch(oracle_rows()), silent)):
        policy = tiny_policy()
        optimizer = make_optimizer(policy, optim)
        batch = build_batch(sampled_rows(policy))
        metrics = [
            run(policy, optimizer, batch, oracle, sero, optim=optim, seed=seed) for seed in (0, 1)
        ][-1]
        results.append((weights(policy), metrics))
    (base, base_metrics), (got, metrics) = results
    assert_equal(base, got)
    assert metrics.pop("sero/oracle_loss") > 0
    assert metrics == base_metrics


@pytest.mark.parametrize("num_epochs", [1, 2])
def test_joint_uses_every_oracle_row_once_over_all_steps(num_epochs: int) -> None:
    policy = tiny_policy()
    optim = OPTIM.model_copy(update={"lr": 1e-9, "minibatch_rows": 4, "num_epochs": num_epochs})
    oracle = build_oracle_batch(oracle_rows())
    optimizer = Recorder(policy, optim)
    metrics = run(policy, optimizer, build_batch(sampled_rows(policy)), oracle, JOINT, optim=optim)
    assert len(optimizer.gradients) == 4 * num_epochs
    whole = run(policy, Recorder(policy, optim), build_batch([]), oracle, SeroConfig())
    assert metrics["sero/oracle_loss"] == pytest.approx(whole["sero/oracle_loss"], rel=1e-4)
    assert "sero/grad_norm" not in metrics


def test_joint_trains_the_oracle_rows_where_no_policy_row_has_a_token() -> None:
    policy = tiny_policy()
    rows = [replace(row, mask=(False,) * len(row.token_ids)) for row in sampled_rows(policy)]
    oracle = build_oracle_batch(oracle_rows())
    for batch in (build_batch(rows), build_batch([])):
        optimizer = Recorder(policy)
        before = weights(policy)
        run(policy, optimizer, batch, oracle, JOINT)
        assert len(optimizer.gradients) == 1
        assert any(not torch.equal(before[n], value) for n, value in weights(policy).items())


def test_own_moments_leave_the_policys_alone() -> None:
    """`own_optimizer`: the policy's moments are those of the base method, the oracle has its own;
    with `own_step` they are shared."""
    oracle = build_oracle_batch(oracle_rows())
    states: list[Any] = []
    for chosen, has_own in ((None, False), (oracle, True), (oracle, False)):
        policy = tiny_policy()
        optimizer = make_optimizer(policy, OPTIM)
        own = make_optimizer(policy, OPTIM) if has_own else None
        batch = build_batch(sampled_rows(policy))
        run(policy, optimizer, batch, chosen, SeroConfig(), oracle_optimizer=own)
        states.append(optimizer.state_dict()["state"])
        if own is not None:
            assert all(
                float(s["exp_avg"].abs().max()) > 0 for s in own.state_dict()["state"].values()
            )
    base, apart, shared = states
    assert all(torch.equal(base[i]["exp_avg"], apart[i]["exp_avg"]) for i in base)
    assert any(not torch.equal(base[i]["exp_avg"], shared[i]["exp_avg"]) for i in base)


def test_the_multiplier_scales_the_oracles_step() -> None:
    """AdamW's first step is lr times the sign of the gradient: twice the rate, twice the step."""
    moved: list[Tensors] = []
    oracle = build_oracle_batch(oracle_rows())
    for lr in (1e-3, 2e-3):
        policy = tiny_policy()
        before = weights(policy)
        optim = OPTIM.model_copy(update={"lr": lr})
        own = make_optimizer(policy, optim)
        run(
            policy,
            make_optimizer(policy, OPTIM),
            build_batch([]),
            oracle,
            SeroConfig(),
            oracle_optimizer=own,
        )
        moved.append({name: value - before[name] for name, value in weights(policy).items()})
    for name, value in moved[0].items():
        assert torch.allclose(2 * value, moved[1][name], atol=1e-6), name
