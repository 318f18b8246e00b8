"""S6: oracle rows neither dilute the policy loss nor are diluted by it."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from sero_core.batch import build_batch, build_oracle_batch
from sero_core.optimizer_steps import make_optimizer
from sero_core.sections_sero import SeroConfig
from tests.support.rows import OPTIM, oracle_rows, run_update, sampled_rows
from tests.support.tiny import tiny_policy


class Recorder:
    """Keeps the gradient of every optimiser step."""

    def __init__(self, optimizer: torch.optim.AdamW) -> None:
        self.gradients: list[torch.Tensor] = []
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.register_step_pre_hook(self._keep)

    def _keep(self, *_: object) -> None:
        self.gradients.append(torch.cat([p.grad.flatten().clone() for p in self._parameters]))


def recorded(
    num_policy_rows: int,
    num_oracle_rows: int,
    optimization: Literal["own_step", "joint"] = "own_step",
) -> tuple[list[torch.Tensor], dict[str, float]]:
    """Gradients of one step on policy rows, then one on oracle rows; and the metrics."""
    policy = tiny_policy()
    optim = OPTIM.model_copy(update={"max_grad_norm": 1e9, "lr": 1e-12})
    optimizer = make_optimizer(policy, optim)
    recorder = Recorder(optimizer)
    batch = build_batch(sampled_rows(policy)[:num_policy_rows])
    oracle = build_oracle_batch((oracle_rows() * 2)[:num_oracle_rows])
    metrics = run_update(
        policy,
        batch,
        oracle,
        optim=optim,
        optimizer=optimizer,
        sero=SeroConfig(minibatch_rows=1000, optimization=optimization),
    )
    return recorder.gradients, metrics


@pytest.mark.parametrize("number", [6, 12, 24])
def test_s06_oracle_rows_do_not_touch_the_policy_gradient(number: int) -> None:
    """Bit by bit, gradient and metrics, for any number of them."""
    (alone,), without = recorded(16, 0)
    (first, second), with_rows = recorded(16, number)
    assert torch.equal(first, alone)
    assert float(second.abs().max()) > 1e-3
    for key, value in without.items():
        assert with_rows[key] == value, key


def test_s06_policy_rows_do_not_touch_the_oracle_gradient() -> None:
    """At a learning rate of 1e-12 the weights are the same before the oracle's step."""
    (alone,), _ = recorded(0, 12)
    (_, after), _ = recorded(16, 12)
    assert torch.allclose(after, alone, rtol=1e-4, atol=1e-6)


def test_s06_the_same_oracle_rows_twice_are_the_same_gradient() -> None:
    """A weighted mean with its own denominator: doubling the tokens changes nothing."""
    (once,), _ = recorded(0, 12)
    (twice,), _ = recorded(0, 24)
    assert torch.allclose(twice, once, rtol=1e-4, atol=1e-6)


def test_s06_joint_optimisation_adds_two_gradients_of_their_own_denominators() -> None:
    (policy_alone, oracle_alone), _ = recorded(16, 12)
    (together,), _ = recorded(16, 12, "joint")
    assert torch.allclose(together, policy_alone + oracle_alone, rtol=1e-4, atol=1e-6)
