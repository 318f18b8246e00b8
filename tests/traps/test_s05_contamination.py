"""S5: with the oracle's coefficient at 0 a run with branches is the base method, bit for bit.

An oracle step in a group's mean, an anchor group, the success rate, an entropy or a KL would move a
number here. Every way of optimizing is held to it, over whole iterations of the real loop.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from sero_core.branch import Root
from sero_core.checkpoint import TrainerState
from sero_core.config import RunConfig, load_config
from sero_core.metrics import rollout_metrics
from sero_core.rows import policy_rows
from sero_core.setup import build_trainer
from sero_core.train import iterate
from tests.support.branches import ENVIRONMENTS, branch_of, brancher_with, groups_of, trainer_of

QUICK = (
    *("rollout.num_tasks=2", "rollout.group_size=3", "rollout.max_steps=5", "num_iterations=9"),
    *("evaluation.every=0", "optimizer.minibatch_rows=8", "loss.entropy_coef=0.01"),
)
GIGPO = 'estimator={name="gigpo"}'
"""With groups of episodes and groups of steps that share a state."""
Result = tuple[list[dict[str, float]], dict[str, torch.Tensor]]


def two_iterations(config: RunConfig) -> tuple[Result, int]:
    """Metrics of each iteration without the clock's, final weights, and the branches' steps."""
    trainer = build_trainer(config)
    state, metrics, num_steps = TrainerState(0, "", 0, {}), [], 0
    for _ in range(2):
        record, state = iterate(trainer, state)
        metrics.append({k: v for k, v in record.metrics.items() if not k.startswith("time/")})
        num_steps += sum(len(branch.steps) for branch in record.branches)
    trainer.close()
    return (metrics, dict(trainer.policy.model.state_dict())), num_steps


@cache
def base() -> Result:
    """The run without `[sero]`."""
    config = load_config(ENVIRONMENTS["alfworld"], (*QUICK, GIGPO))
    return two_iterations(config.model_copy(update={"sero": None}))[0]


@pytest.mark.slow
@pytest.mark.parametrize("optimization", ["own_step", "own_optimizer", "joint"])
def test_s05_coefficient_zero_is_the_base_method(optimization: str) -> None:
    chosen = (f"sero.optimization={optimization}", "sero.oracle_coef=0.0", GIGPO)
    config = load_config(ENVIRONMENTS["alfworld"], (*QUICK, *chosen))
    (metrics, weights), num_branch_steps = two_iterations(config)
    base_metrics, base_weights = base()
    assert num_branch_steps > 5
    for name, value in base_weights.items():
        assert torch.equal(value, weights[name]), name
    for mine, theirs in zip(metrics, base_metrics, strict=True):
        assert mine["sero/oracle_loss"] > 0
        for key, value in theirs.items():
            if key not in ("progress/oracle_steps", "progress/branches"):
                assert mine[key] == value, key


@pytest.mark.slow
def test_s05_the_coefficient_is_what_makes_the_difference() -> None:
    config = load_config(ENVIRONMENTS["alfworld"], (*QUICK, "sero.oracle_coef=1.0", GIGPO))
    (_, weights), _ = two_iterations(config)
    assert any(not torch.equal(value, weights[n]) for n, value in base()[1].items())


def test_s05_rows_and_rates_of_the_policy_hold_no_oracle_step() -> None:
    trainer, groups = trainer_of(ENVIRONMENTS["alfworld"]), groups_of(ENVIRONMENTS["alfworld"])
    before = rollout_metrics(groups)
    brancher_with(trainer).branch(groups, seed=0, iteration=1)
    assert rollout_metrics(groups) == before
    assert not any(key.startswith("sero/") for key in before)
    credits = trainer.config.estimator(list(groups))
    rows = policy_rows(groups, credits.advantages, 1.0)
    steps = [step for group in groups for episode in group.episodes for step in episode.steps]
    assert [row.token_ids for row in rows] == [step.completion.token_ids for step in steps]


def test_s05_a_branch_leaves_its_episode_as_it_was() -> None:
    trainer, groups = trainer_of(ENVIRONMENTS["alfworld"]), groups_of(ENVIRONMENTS["alfworld"])
    episode = groups[0].episodes[0]
    copy = replace(episode, steps=tuple(replace(step) for step in episode.steps))
    branch_of(brancher_with(trainer), episode, 1)
    assert episode == copy
    assert Root(episode, 1).branch_id == f"{episode.episode_id}t1"
