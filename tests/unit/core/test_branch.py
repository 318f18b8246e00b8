"""Branches on the real engine with a real policy: roots, restore proof, prompts, limits (S1,
S7, S9).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sero_core.branch import Brancher, Root
from sero_core.branching.scoring import command_logprob
from sero_core.config import RunConfig, load_config
from sero_core.metrics import branch_metrics, rollout_metrics
from sero_core.prompts import PastStep, task_text
from sero_core.reachability import WeightRule, reachability_weights
from sero_core.rows import oracle_rows, policy_rows
from sero_core.setup import Trainer, build_trainer, training_sampling
from sero_core.types import Branch, Episode, Group
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


def branch_of(brancher: Brancher, episode: Episode, index: int) -> Branch:
    return brancher.branch_from([Root(episode, index)], seed=0, iteration=1)[0]


@pytest.fixture(scope="module")
def branches(trainer: Trainer, groups: list[Group]) -> list[Branch]:
    return brancher_with(trainer).branch(groups, seed=0, iteration=1)


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
        again = reachability_weights(branch.steps, rule="lennorm", beta=branch.beta)
        assert [w.weight for w in again] == [step.weight for step in branch.steps]
        assert branch.effective_depth == pytest.approx(sum(w.weight for w in again))


def test_branching_is_deterministic(
    trainer: Trainer, groups: list[Group], branches: list[Branch]
) -> None:
    assert brancher_with(trainer).branch(groups, seed=0, iteration=1) == branches


def test_horizon_one_is_root_only_and_is_trained(trainer: Trainer, groups: list[Group]) -> None:
    branches = brancher_with(trainer, horizon=1).branch(groups, seed=0, iteration=1)
    assert {len(branch.steps) for branch in branches} == {1}
    assert all(branch.is_trained for branch in branches)
    assert {branch.outcome for branch in branches} <= {"horizon", "won"}


def test_beta_zero_gives_uniform_weights(trainer: Trainer, groups: list[Group]) -> None:
    brancher = brancher_with(trainer, reachability={"beta": 0.0})
    branches = brancher.branch(groups, seed=0, iteration=1)
    assert {step.weight for branch in branches for step in branch.steps} == {1.0}


def test_s09_the_step_budget_ends_a_branch_with_a_reason_and_no_loss(
    trainer: Trainer, groups: list[Group]
) -> None:
    failed = next(e for g in groups for e in g.episodes if not e.is_won)
    brancher = brancher_with(trainer)
    branch = branch_of(brancher, failed, len(failed.steps) - 1)
    assert (branch.outcome, len(branch.steps)) == ("budget", 1)
    assert "not won within 1 step" in branch.reason
    assert not branch.is_trained
    assert oracle_rows([branch]) == []
    kept = brancher_with(trainer, keep_failed=True)
    assert len(oracle_rows([branch_of(kept, failed, len(failed.steps) - 1)])) == 1


def test_s01_a_wrong_hash_is_a_logged_branch_without_steps(
    trainer: Trainer, groups: list[Group]
) -> None:
    episode = groups[0].episodes[0]
    step = episode.steps[1]
    wrong = replace(step, snapshot=replace(step.snapshot, state_hash="0" * 32))
    damaged = replace(episode, steps=(episode.steps[0], wrong, *episode.steps[2:]))
    branch = branch_of(brancher_with(trainer), damaged, 1)
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


def test_config_file_of_the_tests_is_valid() -> None:
    assert load_config(Path(TINY)).sero is not None


@pytest.mark.parametrize("rule", ["seqprob", "admissible", "relgreedy", "sampled"])
def test_every_weight_rule_runs_and_can_be_recomputed(
    trainer: Trainer, groups: list[Group], branches: list[Branch], rule: WeightRule
) -> None:
    """With a real policy; the ingredients of the other rules are there where they are asked for."""
    reach = {"rule": rule, "num_samples": 2, "also_log": ["admissible", "sampled"]}
    brancher = brancher_with(trainer, reachability=reach)
    found = brancher.branch(groups[:2], seed=0, iteration=1)
    assert any(len(branch.steps) > 2 for branch in found)
    for branch in found:
        again = reachability_weights(branch.steps, rule=rule, beta=1.0)
        assert [w.weight for w in again] == [step.weight for step in branch.steps]
        for other in ("lennorm", "seqprob", "admissible", "relgreedy", "sampled"):
            assert reachability_weights(branch.steps, rule=other, beta=1.0)[0].weight == 1.0
    plain = {branch.branch_id: branch for branch in branches}
    for branch in found:
        same = plain[branch.branch_id]
        assert [s.action for s in same.steps] == [s.action for s in branch.steps]
        for left, right in zip(same.steps, branch.steps, strict=True):
            assert left.logprobs == pytest.approx(right.logprobs, abs=1e-4)


def test_admissible_ingredients_are_those_of_every_command_scored_alone(
    trainer: Trainer, groups: list[Group]
) -> None:
    brancher = brancher_with(trainer, reachability={"rule": "admissible"})
    step = brancher.branch(groups[:1], seed=0, iteration=1)[0].steps[0]
    assert step.admissible_logprobs is not None
    assert step.observation.admissible[step.admissible_index or 0] == step.action
    for action, got in zip(step.observation.admissible, step.admissible_logprobs, strict=True):
        rendered = brancher.builder.render(action)
        (alone,) = brancher.engine.score([step.prompt_ids], [rendered.token_ids])
        assert got == pytest.approx(command_logprob(rendered, alone), abs=1e-4)


def test_a_control_changes_the_loss_and_not_the_logged_weights(
    trainer: Trainer, groups: list[Group], branches: list[Branch]
) -> None:
    brancher = brancher_with(
        trainer, control={"name": "depth_schedule", "first_depth": 1, "iterations_per_depth": 5}
    )
    found = brancher.branch(groups, seed=0, iteration=6)
    for branch, plain in zip(found, branches, strict=True):
        assert branch.control == "depth_schedule"
        assert [s.weight for s in branch.steps] == [s.weight for s in plain.steps]
        rows = oracle_rows([branch])
        assert [row.weight for row in rows] == [
            float(s.depth <= 2) for s in branch.steps if branch.is_trained
        ]
    assert (
        branch_metrics(found)["sero/mean_loss_weight"] != branch_metrics(found)["sero/mean_weight"]
    )
    assert "sero/mean_loss_weight" not in branch_metrics(branches)


def test_roots_that_cannot_be_restored_are_logged_not_skipped(
    trainer: Trainer, groups: list[Group]
) -> None:
    """`disagree` cannot compare there; the branch from there says why."""
    episode = next(e for g in groups for e in g.episodes if not e.is_won)
    steps = tuple(
        replace(s, snapshot=replace(s.snapshot, state_hash="0" * 32)) for s in episode.steps
    )
    group = Group(episode.task, (replace(episode, steps=steps),))
    found = brancher_with(trainer).branch([group], seed=0, iteration=1)
    assert [(b.outcome, b.root_rule) for b in found] == [("restore_mismatch", "disagree")]
