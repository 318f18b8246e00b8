"""The optimizer's state survives the disk bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sero_core.batch import build_batch, build_oracle_batch
from sero_core.checkpoint import (
    CheckpointError,
    TrainerState,
    prepare_checkpoint,
    restore_optimizers,
)
from sero_core.config import SeroConfig
from sero_core.optimizer_state import load_optimizer, save_optimizer
from sero_core.optimizer_steps import make_optimizer
from sero_core.policy import Policy, load_policy, save_policy
from sero_core.sections import OptimizerConfig, PolicyLoss
from sero_core.types import SeroError
from sero_core.update import update
from tests.support.rows import oracle_rows, sampled_rows
from tests.support.tiny import tiny_policy

OPTIM = OptimizerConfig(lr=1e-2, minibatch_rows=5)


def train(policy: Policy, optimizer: torch.optim.AdamW, seed: int) -> dict[str, float]:
    rows = build_batch(sampled_rows(tiny_policy()))
    oracle = build_oracle_batch(oracle_rows())
    return update(
        policy,
        optimizer,
        rows,
        oracle,
        loss=PolicyLoss(kl_coef=0.0),
        optim=OPTIM,
        sero=SeroConfig(),
        reference=None,
        seed=seed,
    )


def test_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """T23: N + save + load + N updates give the weights of 2N updates, bit for bit."""
    straight = tiny_policy()
    optimizer = make_optimizer(straight, OPTIM)
    train(straight, optimizer, 0)
    save_policy(straight, tmp_path)
    save_optimizer(optimizer, tmp_path)
    resumed = load_policy(str(tmp_path), device="cpu")
    other = make_optimizer(resumed, OPTIM)
    load_optimizer(other, tmp_path)
    assert train(straight, optimizer, 1) == train(resumed, other, 1)
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_state_of_other_parameters_is_refused(tmp_path: Path) -> None:
    policy = tiny_policy()
    optimizer = make_optimizer(policy, OPTIM)
    train(policy, optimizer, 0)
    save_optimizer(optimizer, tmp_path)
    with pytest.raises(SeroError, match="other parameters"):
        load_optimizer(make_optimizer(tiny_policy(num_hidden_layers=1), OPTIM), tmp_path)
    with pytest.raises(SeroError, match="expected"):
        load_optimizer(make_optimizer(tiny_policy(intermediate_size=48), OPTIM), tmp_path)


def test_a_checkpoint_keeps_every_optimizer_by_its_name(tmp_path: Path) -> None:
    policy = tiny_policy()
    first, second = make_optimizer(policy, OPTIM), make_optimizer(policy, OPTIM)
    train(policy, first, 0)
    for seed in (1, 2):
        train(policy, second, seed)
    optimizers = {"optimizer": first, "oracle_optimizer": second}
    prepared = prepare_checkpoint(tmp_path, policy, optimizers, TrainerState(1, "h", 0, {}), 1)
    prepared.commit()
    fresh = {name: make_optimizer(policy, OPTIM) for name in optimizers}
    restore_optimizers(prepared.final, fresh)
    for name, optimizer in optimizers.items():
        want, got = optimizer.state_dict()["state"], fresh[name].state_dict()["state"]
        assert all(torch.equal(want[i][k], got[i][k]) for i in want for k in want[i]), name
    with pytest.raises(CheckpointError, match="holds no optimizer 'critic_optimizer'"):
        restore_optimizers(prepared.final, {"critic_optimizer": first})
