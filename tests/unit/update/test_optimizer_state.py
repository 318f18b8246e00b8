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


def train(
    policy: Policy,
    optimizer: torch.optim.AdamW,
    seed: int,
    oracle_optimizer: torch.optim.AdamW | None = None,
) -> dict[str, float]:
    """One update; its metrics without the clock's."""
    metrics = update(
        policy,
        optimizer,
        build_batch(sampled_rows(tiny_policy())),
        build_oracle_batch(oracle_rows()),
        loss=PolicyLoss(kl_coef=0.0),
        optim=OPTIM,
        sero=SeroConfig(),
        reference=None,
        seed=seed,
        oracle_optimizer=oracle_optimizer,
    )
    return {key: value for key, value in metrics.items() if not key.startswith("time/")}


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


def test_t23_the_oracles_own_moments_are_part_of_a_checkpoint(tmp_path: Path) -> None:
    """N + checkpoint + N updates equal 2N, bit for bit; with the oracle's moments lost they do
    not."""
    straight = tiny_policy()
    mine = {name: make_optimizer(straight, OPTIM) for name in ("optimizer", "oracle_optimizer")}
    train(straight, mine["optimizer"], 0, mine["oracle_optimizer"])
    prepare_checkpoint(tmp_path, straight, mine, TrainerState(1, "h", 0, {}), 1).commit()
    folder = tmp_path / "checkpoints" / "iteration-00001"
    expected = train(straight, mine["optimizer"], 1, mine["oracle_optimizer"])
    for is_whole in (True, False):
        resumed = load_policy(str(folder), device="cpu")
        theirs = {name: make_optimizer(resumed, OPTIM) for name in mine}
        kept = theirs if is_whole else {"optimizer": theirs["optimizer"]}
        restore_optimizers(folder, kept)
        got = train(resumed, theirs["optimizer"], 1, theirs["oracle_optimizer"])
        left, right = straight.model.state_dict(), resumed.model.state_dict()
        assert all(torch.equal(left[name], right[name]) for name in left) == is_whole
        assert got == expected or not is_whole


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
