"""Minibatches, epochs and the warm-up of the learning rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sero_core.batch import build_batch
from sero_core.optimizer_state import load_optimizer, save_optimizer
from sero_core.optimizer_steps import make_optimizer, minibatches, optimizer_step, zero_grad
from sero_core.sections import OptimizerConfig
from tests.support.rows import OPTIM, assert_equal, run_update, sampled_rows, weights
from tests.support.tiny import tiny_policy


def test_minibatches_hold_every_row_once() -> None:
    generator = np.random.default_rng(0)
    steps = minibatches(10, 4, generator)
    assert [len(rows) for rows in steps] == [4, 4, 2]
    assert sorted(row for rows in steps for row in rows) == list(range(10))
    assert minibatches(10, 4, generator) != steps
    assert minibatches(0, 4, generator) == []


def test_the_learning_rate_warms_up_over_optimiser_steps_and_a_resume(tmp_path: Path) -> None:
    """lr n / 4 for step n, then lr; the number of steps taken survives the disk."""
    config = OptimizerConfig(lr=0.1, warmup_steps=4, weight_decay=0.0)
    policy = tiny_policy()
    optimizer = make_optimizer(policy, config)
    seen: list[float] = []
    for number in range(6):
        if number == 2:
            save_optimizer(optimizer, tmp_path)
            optimizer = make_optimizer(policy, config)
            load_optimizer(optimizer, tmp_path)
        zero_grad(optimizer)
        optimizer_step(policy, optimizer, 1.0)
        seen.append(float(optimizer.param_groups[0]["lr"]))
    assert seen == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_the_warm_up_scales_the_step() -> None:
    """AdamW's first step is lr per weight: a tenth of it with ten steps of warm-up."""
    moved: list[float] = []
    for warmup_steps in (0, 10):
        policy = tiny_policy()
        optim = OptimizerConfig(lr=1e-3, weight_decay=0.0, warmup_steps=warmup_steps)
        before = weights(policy)
        metrics = run_update(policy, build_batch(sampled_rows(policy)), optim=optim)
        assert metrics["train/lr"] == pytest.approx(1e-3 / max(warmup_steps, 1))
        after = weights(policy)
        moved.append(max(float((after[n] - before[n]).abs().max()) for n in before))
    assert moved[0] == pytest.approx(1e-3, rel=1e-2)
    assert moved[1] == pytest.approx(1e-4, rel=1e-2)


def test_epochs_are_passes_in_new_orders() -> None:
    """Two epochs of four steps are eight steps, not the weights of one epoch twice."""
    policy = tiny_policy()
    batch = build_batch(sampled_rows(policy))
    optim = OPTIM.model_copy(update={"num_epochs": 2, "minibatch_rows": 4})
    optimizer = make_optimizer(policy, optim)
    run_update(policy, batch, optim=optim, optimizer=optimizer)
    assert optimizer.param_groups[0]["num_steps"] == 8

    twice = tiny_policy()
    single = optim.model_copy(update={"num_epochs": 1})
    optimizer = make_optimizer(twice, single)
    for _ in range(2):
        run_update(twice, batch, optim=single, optimizer=optimizer, seed=3)
    with pytest.raises(AssertionError):
        assert_equal(weights(policy), weights(twice))


def test_frozen_parameters_have_no_state() -> None:
    policy = tiny_policy()
    policy.body.embed_tokens.weight.requires_grad_(False)  # pyright: ignore
    optimizer = make_optimizer(policy, OPTIM)
    frozen = policy.body.embed_tokens.weight.clone()  # pyright: ignore
    run_update(policy, build_batch(sampled_rows(policy)), optimizer=optimizer)
    assert torch.equal(policy.body.embed_tokens.weight, frozen)  # pyright: ignore
    assert len(optimizer.state_dict()["state"]) == len(policy.trained)
