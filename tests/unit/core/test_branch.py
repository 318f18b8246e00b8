"""Branches on the real engine with a real policy: roots, restore proof, prompts, limits (S1,
S7, S9).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sero_core.branch import Brancher, Root
from sero_core.config import RunConfig, load_config
from sero_core.metrics import branch_metrics, rollout_metrics
from sero_core.prompts import PastStep, task_text
from sero_core.reachability import reachability_weights
from sero_core.rows import oracle_rows, policy_rows
from sero_core.seeds import derived_random
from sero_core.setup import Trainer, build_trainer, training_sampling
from sero_core.types import Branch, Group
from tests.support.train import TINY


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return build_trainer(load_config(TINY))


@pytest.fixture(scope="module")
def groups(trainer: Trainer) -> list[Group]:
    return trainer.collector.collect(
        trainer.tasks[:4],
        group_size=2,
        sampling=training_sampling(trainer.config),
        seed=11,
        prefix="i1",
    )


def brancher_with(trainer: Trainer, **sero: object) -> Brancher:
    assert trainer.brancher is not None
    data = trainer.config.model_dump()
    data["sero"] |= sero
    config = RunConfig.model_validate(data).sero
    assert config is not None
    return replace(trainer.brancher, config=config)


@pytest.fixture(scope="module")
def branches(trainer: Trainer, groups: list[Group]) -> list[Branch]:
    return brancher_with(trainer).branch(groups, derived_random(0, "roots"))


def test_branches_start_where_the_policy_was_and_differ_from_it(
    groups: list[Group], branches: list[Branch]
) -> None:
    episodes = {e.episode_id: e for group in groups for e in group.episodes}
    assert branches
    assert len({b.episode_id for b in branches}) == len(branches), "at most one per episode"
    for branch in branches:
        root = episodes[branch.episode_id].steps[branch.root_index]
        assert branch.root_hash == branch.restored_hash == root.snapshot.state_hash
        assert branch.steps[0].observation == root.observation
        assert branch.steps[0].policy_action == root.action
        assert branch.steps[0].action != root.action
        assert branch.steps[0].weight == 1.0


def test_s07_the_root_prompt_is_the_prompt_the_policy_saw(
    groups: list[Group], branches: list[Branch]
) -> None:
    episodes = {e.episode_id: e for group in groups for e in group.episodes}
    for branch in branches:
        root = episodes[branch.episode_id].steps[branch.root_index]
        assert branch.steps[0].prompt_ids == root.prompt_ids


def test_deeper_prompts_contain_the_oracles_own_past(
    trainer: Trainer, groups: list[Group], branches: list[Branch]
) -> None:
    episodes = {e.episode_id: e for group in groups for e in group.episodes}
    branch = max(branches, key=lambda b: len(b.steps))
    episode = episodes[branch.episode_id]
    goal = task_text(episode.steps[0].observation.text)
    past = [PastStep(s.observation.text, s.action) for s in episode.steps[: branch.root_index]]
    for step in branch.steps:
        assert trainer.collector.builder.build(goal, past, step.observation).ids == step.prompt_ids
        past.append(PastStep(step.observation.text, step.action))


def test_weights_are_recomputable_from_the_logged_logprobs(branches: list[Branch]) -> None:
    for branch in branches:
        again = reachability_weights(
            [step.logprobs for step in branch.steps],
            [step.scored for step in branch.steps],
            rule="lennorm",
            beta=branch.beta,
        )
        assert [w.weight for w in again] == [step.weight for step in branch.steps]
        assert branch.effective_depth == pytest.approx(sum(w.weight for w in again))


def test_branching_is_deterministic(
    trainer: Trainer, groups: list[Group], branches: list[Branch]
) -> None:
    assert brancher_with(trainer).branch(groups, derived_random(0, "roots")) == branches


def test_horizon_one_is_root_only_and_is_trained(trainer: Trainer, groups: list[Group]) -> None:
    branches = brancher_with(trainer, horizon=1).branch(groups, derived_random(0, "roots"))
    assert {len(branch.steps) for branch in branches} == {1}
    assert all(branch.is_trained for branch in branches)
    assert {branch.outcome for branch in branches} <= {"horizon", "won"}


def test_beta_zero_gives_uniform_weights(trainer: Trainer, groups: list[Group]) -> None:
    brancher = brancher_with(trainer, reachability={"beta": 0.0})
    branches = brancher.branch(groups, derived_random(0, "roots"))
    assert {step.weight for branch in branches for step in branch.steps} == {1.0}


def test_s09_the_step_budget_ends_a_branch_with_a_reason_and_no_loss(
    trainer: Trainer, groups: list[Group]
) -> None:
    failed = next(e for g in groups for e in g.episodes if not e.is_won)
    brancher = brancher_with(trainer)
    branch = brancher.branch_from([Root(failed, len(failed.steps) - 1)])[0]
    assert (branch.outcome, len(branch.steps)) == ("budget", 1)
    assert "not won within 1 step" in branch.reason
    assert not branch.is_trained
    assert oracle_rows([branch]) == []
    kept = brancher_with(trainer, keep_failed=True)
    assert len(oracle_rows(kept.branch_from([Root(failed, len(failed.steps) - 1)]))) == 1


def test_s01_a_wrong_hash_is_a_logged_branch_without_steps(
    trainer: Trainer, groups: list[Group]
) -> None:
    episode = groups[0].episodes[0]
    step = episode.steps[1]
    wrong = replace(step, snapshot=replace(step.snapshot, state_hash="0" * 32))
    damaged = replace(episode, steps=(episode.steps[0], wrong, *episode.steps[2:]))
    branch = brancher_with(trainer).branch_from([Root(damaged, 1)])[0]
    assert (branch.outcome, branch.steps, branch.is_trained) == ("restore_mismatch", (), False)
    assert "expected " + "0" * 32 in branch.reason
    assert branch_metrics([branch])["sero/restore_mismatches"] == 1.0


def test_s05_branches_leave_rows_and_rollout_metrics_alone(
    trainer: Trainer, groups: list[Group], branches: list[Branch]
) -> None:
    credits = trainer.config.estimator(groups)
    rows = policy_rows(groups, credits.advantages, 1.0)
    assert len(rows) == sum(len(e.steps) for g in groups for e in g.episodes)
    sampled = [s.completion.token_ids for g in groups for e in g.episodes for s in e.steps]
    assert [row.token_ids for row in rows] == sampled
    assert not any(key.startswith("sero/") for key in rollout_metrics(groups))


@pytest.mark.parametrize("rule", ["uniform", "failed_only", "first_divergence", "stratified"])
def test_every_root_rule_gives_roots_inside_the_episode(
    trainer: Trainer, groups: list[Group], rule: str
) -> None:
    brancher = brancher_with(trainer, root={"rule": rule, "per_group": 3})
    for group in groups:
        roots = brancher.choose_roots(group, derived_random(1, rule))
        assert len(roots) <= 3
        for root in roots:
            assert 0 <= root.index < len(root.episode.steps)
            if rule == "failed_only":
                assert not root.episode.is_won


def test_config_file_of_the_tests_is_valid() -> None:
    assert load_config(Path(TINY)).sero is not None
