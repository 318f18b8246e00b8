"""T20: GAE that bootstraps over masked tokens (what the environment wrote, padding), and whitening
or value losses that include them. Nothing that stands at a masked position may alter a result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.credit.gae import gae, whiten
from sero_core.credit.ppo import PPO
from sero_core.types import Group
from tests.support.credit import flat, make_episode, random_groups, random_values
from tests.support.episodes import TASK

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.sampled_from([(1.0, 1.0), (0.95, 0.9), (0.9, 0.0)]))
def test_t20_masked_positions_are_skipped(seed: int, setting: tuple[float, float]) -> None:
    """Three turns in one row with masked text in between: what is there plays no part."""
    rng = np.random.default_rng(seed)
    mask = rng.random((4, 12)) < 0.6
    rewards, values = rng.normal(size=(2, 4, 12))
    noise = np.where(mask, 0.0, rng.normal(scale=1e3, size=mask.shape))
    gamma, lam = setting
    clean = gae(rewards, values, mask, gamma=gamma, lam=lam)
    dirty = gae(rewards + noise, values - noise, mask, gamma=gamma, lam=lam)
    for one, other in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.count_nonzero(one[~mask]) == 0
    np.testing.assert_array_equal(whiten(clean[0], mask), whiten(clean[0] + noise, mask))


@given(SEEDS)
def test_t20_turns_behind_each_other_equal_the_row_without_the_text_between(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random(12) < 0.6
    rewards, values = rng.normal(size=(2, 12))
    whole, _ = gae([rewards], [values], [mask], gamma=0.9, lam=0.8)
    short, _ = gae([rewards[mask]], [values[mask]], [mask[mask]], gamma=0.9, lam=0.8)
    np.testing.assert_allclose(whole[0][mask], short[0], rtol=1e-12)


def test_t20_masked_positions_by_hand() -> None:
    advantages, returns = gae(
        [[0.0, 99.0, 1.0]], [[0.5, -7.0, 0.25]], [[1, 0, 1]], gamma=1.0, lam=1.0
    )
    assert advantages.tolist() == [[0.5, 0.0, 0.75]]
    assert returns.tolist() == [[1.0, 0.0, 1.0]]


@pytest.mark.parametrize("level", ["tokens", "steps"])
@pytest.mark.parametrize("seed", range(4))
def test_t20_a_longer_neighbour_changes_no_advantage_before_whitening(
    level: str, seed: int
) -> None:
    """Rows are padded to the longest: an episode's credit does not depend on who else is there."""
    rng = np.random.default_rng(seed)
    groups = random_groups(rng)
    values = random_values(rng, groups, level)
    longest = Group(TASK, (make_episode([0.0] * 30),))
    estimator = PPO.model_validate({"level": level, "whiten": False})
    alone = flat(estimator(groups, values))
    beside = estimator([*groups, longest], [*values, *random_values(rng, [longest], level)])
    beside = replace(beside, advantages=beside.advantages[:-1])
    np.testing.assert_array_equal(alone, flat(beside))


@pytest.mark.parametrize("level", ["tokens", "steps"])
def test_t20_whitening_is_over_real_entries_only(level: str) -> None:
    rng = np.random.default_rng(1)
    groups = random_groups(rng)
    got = flat(PPO.model_validate({"level": level})(groups, random_values(rng, groups, level)))
    assert got.mean() == pytest.approx(0, abs=1e-9)
    assert got.std(ddof=1) == pytest.approx(1, abs=1e-6)
