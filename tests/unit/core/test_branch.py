"""Branches of a real policy, by every rule. The traps S1, S2, S7 and S9 are in `tests/traps`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sero_core.branching.scoring import command_logprob
from sero_core.metrics import branch_metrics, branch_shares
from sero_core.reachability import WeightRule, reachability_weights
from sero_core.rows import oracle_rows
from sero_core.setup import Trainer
from sero_core.types import Branch, Group
from tests.support.branches import brancher_with, exact_brancher, groups_of, trainer_of, walks_of
from tests.support.train import TINY


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return trainer_of(TINY)


@pytest.fixture(scope="module")
def groups() -> tuple[Group, ...]:
    return groups_of(TINY)


@pytest.fixture(scope="module")
def branches(trainer: Trainer, groups: tuple[Group, ...]) -> list[Branch]:
    return brancher_with(trainer).branch(groups, seed=0, iteration=1)


def test_branches_start_where_the_policy_was_and_differ_from_it(
    groups: tuple[Group, ...], branches: list[Branch]
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


def test_weights_are_recomputable_from_the_logged_logprobs(branches: list[Branch]) -> None:
    for branch in branches:
        again = reachability_weights(branch.steps, rule="lennorm", beta=branch.beta)
        assert [w.weight for w in again] == [step.weight for step in branch.steps]
        assert branch.effective_depth == pytest.approx(sum(w.weight for w in again))


def test_branching_is_deterministic(
    trainer: Trainer, groups: tuple[Group, ...], branches: list[Branch]
) -> None:
    assert brancher_with(trainer).branch(groups, seed=0, iteration=1) == branches


def test_horizon_one_is_root_only_and_is_trained(trainer: Trainer) -> None:
    groups = walks_of(TINY)
    branches = exact_brancher(trainer, horizon=1).branch(groups, seed=0, iteration=1)
    assert {len(branch.steps) for branch in branches} == {1}
    assert all(branch.is_trained for branch in branches)
    assert {branch.outcome for branch in branches} <= {"horizon", "won"}


def test_beta_zero_gives_uniform_weights(trainer: Trainer) -> None:
    groups = walks_of(TINY)
    brancher = exact_brancher(trainer, reachability={"beta": 0.0})
    branches = brancher.branch(groups, seed=0, iteration=1)
    assert {step.weight for branch in branches for step in branch.steps} == {1.0}


@pytest.mark.parametrize("rule", ["seqprob", "admissible", "relgreedy", "sampled"])
def test_every_weight_rule_runs_and_can_be_recomputed(
    trainer: Trainer, groups: tuple[Group, ...], branches: list[Branch], rule: WeightRule
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
    trainer: Trainer, groups: tuple[Group, ...]
) -> None:
    brancher = brancher_with(trainer, reachability={"rule": "admissible"})
    step = brancher.branch(groups[:1], seed=0, iteration=1)[0].steps[0]
    assert step.admissible_logprobs is not None
    assert step.observation.admissible[step.admissible_index or 0] == step.action
    for action, got in zip(step.observation.admissible, step.admissible_logprobs, strict=True):
        rendered = brancher.builder.render(action)
        (alone,) = brancher.engine.score([step.prompt_ids], [rendered.token_ids])
        assert got == pytest.approx(command_logprob(rendered, alone), abs=1e-4)


def test_a_control_changes_the_loss_and_not_the_logged_weights(trainer: Trainer) -> None:
    groups = walks_of(TINY)
    branches = exact_brancher(trainer).branch(groups, seed=0, iteration=6)
    brancher = exact_brancher(
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
    trainer: Trainer, groups: tuple[Group, ...]
) -> None:
    """`disagree` cannot compare there; the branch from there says why."""
    episode = next(e for g in groups for e in g.episodes if not e.is_won)
    steps = tuple(
        replace(s, snapshot=replace(s.snapshot, state_hash="0" * 32)) for s in episode.steps
    )
    group = Group(episode.task, (replace(episode, steps=steps),))
    found = brancher_with(trainer).branch([group], seed=0, iteration=1)
    assert [(b.outcome, b.root_rule) for b in found] == [("restore_mismatch", "disagree")]


@pytest.mark.parametrize("horizon", [2, 3])
def test_a_horizon_cuts_where_the_oracle_has_not_won_yet(trainer: Trainer, horizon: int) -> None:
    full = exact_brancher(trainer).branch(walks_of(TINY), seed=0, iteration=1)
    cut = exact_brancher(trainer, horizon=horizon).branch(walks_of(TINY), seed=0, iteration=1)
    assert max(len(branch.steps) for branch in full) > horizon
    for whole, branch in zip(full, cut, strict=True):
        actions = [step.action for step in whole.steps]
        assert [step.action for step in branch.steps] == actions[:horizon]
        if len(actions) > horizon:
            assert branch.outcome == "horizon"
            assert branch.is_trained


def test_shares_count_tokens_of_trained_rows_and_seconds_without_evaluation(
    trainer: Trainer,
) -> None:
    groups = walks_of(TINY)
    branches = exact_brancher(trainer).branch(groups, seed=0, iteration=1)
    kept = [branch for branch in branches if branch.is_trained]
    assert len(kept) > 0
    oracle = sum(len(s.prompt_ids) + len(s.token_ids) for b in kept for s in b.steps)
    steps = [step for group in groups for episode in group.episodes for step in episode.steps]
    policy = sum(len(s.prompt_ids) + len(s.completion.token_ids) for s in steps)
    seconds = {
        "time/branch_s": 2.0,
        "time/update_oracle_s": 1.0,
        "time/iteration_s": 20.0,
        "time/eval_s": 8.0,
    }
    assert branch_shares(groups, branches, seconds) == {
        "time/branch_share": 0.25,
        "sero/token_share": oracle / (oracle + policy),
    }
    assert branch_shares((), (), {}) == {"time/branch_share": 0.0, "sero/token_share": 0.0}
