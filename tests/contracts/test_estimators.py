"""Every estimator of the union on random groups: shapes, numbers, symmetries, odd groups."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sero_core.credit import EstimatorConfig
from sero_core.credit.base import Estimator, Values
from sero_core.credit.table import EpisodeArrays
from sero_core.types import Group
from tests.support.credit import flat, make_episode, random_groups, random_values
from tests.support.episodes import TASK

MEMBERS: tuple[type[Any], ...] = get_args(get_args(EstimatorConfig)[0])
CASES = [pytest.param(member, id=member.model_fields["name"].default) for member in MEMBERS]
SEEDS = st.integers(0, 2**32 - 1)
STEP_CREDIT = ("gigpo", "hgpo")
"""Equal episode returns are no reason for 0 here: steps differ in how far the reward is."""


def values_of(estimator: Estimator, rng: np.random.Generator, groups: list[Group]) -> Values | None:
    if estimator.name != "ppo":
        return None
    return random_values(rng, groups, estimator.level)


def as_lists(arrays: list[EpisodeArrays]) -> list[list[list[float]]]:
    return [[np.atleast_1d(step).tolist() for step in episode] for episode in arrays]


@pytest.mark.parametrize("member", CASES)
@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_shapes_and_finite_numbers(member: type[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = random_groups(rng)
    estimator = member()
    got = estimator(groups, values_of(estimator, rng, groups))
    shape = [[len(episode.steps) for episode in group.episodes] for group in groups]
    assert [[len(arrays) for arrays in group] for group in got.advantages] == shape
    assert np.isfinite(flat(got)).all()
    assert all(np.isfinite(value) for value in got.metrics.values())
    assert got.metrics["credit/nonfinite_episodes"] == 0


@pytest.mark.parametrize("member", CASES)
@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_the_order_of_episodes_and_groups_means_nothing(member: type[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = random_groups(rng)
    estimator = member()
    values = values_of(estimator, rng, groups)
    g_order = rng.permutation(len(groups)).tolist()
    e_order = rng.permutation(len(groups[0].episodes)).tolist()
    moved = [
        replace(groups[g], episodes=tuple(groups[g].episodes[e] for e in e_order)) for g in g_order
    ]
    moved_values = values and [[values[g][e] for e in e_order] for g in g_order]
    before, after = estimator(groups, values), estimator(moved, moved_values)
    for i, g in enumerate(g_order):
        want = as_lists([before.advantages[g][e] for e in e_order])
        for mine, theirs in zip(as_lists(after.advantages[i]), want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("member", CASES)
@given(seed=SEEDS, reward=st.sampled_from([0.0, 0.1, 1.0, 10.0]))
@settings(max_examples=20, deadline=None)
def test_equal_rewards_give_exactly_zero(member: type[Any], seed: int, reward: float) -> None:
    estimator = member()
    if estimator.name == "ppo" or (estimator.name in STEP_CREDIT and reward):
        return
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, size=5)
    episodes = [
        make_episode([0.0] * (int(length) - 1) + [reward], index=i)
        for i, length in enumerate(lengths)
    ]
    got = estimator([Group(TASK, tuple(episodes))])
    assert np.count_nonzero(flat(got)) == 0
    assert got.metrics["credit/zero_share"] == 1.0


@pytest.mark.parametrize("member", CASES)
def test_a_lone_episode_has_advantage_zero(member: type[Any]) -> None:
    estimator = member()
    if estimator.min_group_size == 1:
        return
    got = estimator([Group(TASK, (make_episode([0.0, 0.0, 10.0]),), num_lost=3)])
    assert np.count_nonzero(flat(got)) == 0


@pytest.mark.parametrize("member", CASES)
def test_a_reward_that_is_not_finite_drops_its_episode_alone(member: type[Any]) -> None:
    rng = np.random.default_rng(5)
    [clean] = random_groups(rng, num_groups=1, group_size=5)
    bad = make_episode([0.0, float("nan"), 10.0], index=5)
    damaged = replace(clean, episodes=(*clean.episodes, bad))
    estimator = member()
    values = values_of(estimator, rng, [damaged])
    want = estimator([clean], values and [values[0][:5]])
    got = estimator([damaged], values)
    np.testing.assert_allclose(
        np.concatenate([np.ravel(part) for part in got.advantages[0][:5]]), flat(want), rtol=1e-9
    )
    assert np.count_nonzero(np.concatenate([np.ravel(x) for x in got.advantages[0][5:]])) == 0
    assert got.metrics["credit/nonfinite_episodes"] == 1


@pytest.mark.parametrize("member", CASES)
def test_no_episode_at_all_is_an_empty_credit(member: type[Any]) -> None:
    estimator = member()
    values = [[]] if estimator.name == "ppo" else None
    got = estimator([Group(TASK, (), num_lost=4)], values)
    assert got.advantages == [[]]


@pytest.mark.parametrize("member", CASES)
def test_a_part_says_what_it_is(member: type[Any]) -> None:
    assert inspect.getdoc(member)
    assert member.min_group_size in (1, 2)
    for name, field in member.model_fields.items():
        assert name in ("name", "critic") or field.description, f"{member.__name__}.{name}"


def test_estimators_load_no_torch() -> None:
    code = "import sys, sero_core.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
