"""T11: discounted returns and histories that rely on the order of rows in the batch. Rows are
sorted by (episode, step) first, so any order gives every row the same number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.credit.anchors import anchor_labels
from sero_core.credit.gigpo import step_advantages
from sero_core.credit.hgpo import hierarchical_advantages
from sero_core.credit.returns import discounted_returns
from sero_core.credit.rloo import rloo_advantages
from sero_core.credit.statistics import group_advantages

SEEDS = st.integers(0, 2**32 - 1)


def rows(rng: np.random.Generator) -> tuple[list[str], list[str], list[int], list[str], np.ndarray]:
    groups, episodes, steps, anchors = [], [], [], []
    for episode in range(6):
        for step in range(int(rng.integers(1, 6))):
            groups.append(f"g{episode % 2}")
            episodes.append(f"e{episode}")
            steps.append(step)
            anchors.append("abc"[int(rng.integers(3))])
    return groups, episodes, steps, anchors, rng.normal(size=len(groups))


@given(SEEDS)
def test_t11_shuffled_rows_have_the_same_returns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, episodes, steps, _, rewards = rows(rng)
    order = rng.permutation(len(steps))
    want = discounted_returns(rewards, episodes, steps, 0.9)
    got = discounted_returns(
        rewards[order], [episodes[i] for i in order], [steps[i] for i in order], 0.9
    )
    np.testing.assert_array_equal(got, want[order])


@given(SEEDS)
def test_t11_shuffled_rows_have_the_same_advantages(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, episodes, steps, anchors, rewards = rows(rng)
    order = rng.permutation(len(steps))

    def compute(at: np.ndarray) -> list[np.ndarray]:
        gs, es, ts, keys = (
            [column[i] for i in at] for column in (groups, episodes, steps, anchors)
        )
        returns = discounted_returns(rewards[at], es, ts, 0.9)
        return [
            group_advantages(rewards[at], gs, es, statistics="rows"),
            group_advantages(rewards[at], gs, es, statistics="episodes"),
            rloo_advantages(rewards[at], gs, es),
            step_advantages(returns, anchor_labels(gs, keys)),
            hierarchical_advantages(returns, gs, es, ts, keys),
        ]

    before, after = compute(np.arange(len(steps))), compute(order)
    for mine, theirs in zip(after, before, strict=True):
        np.testing.assert_allclose(mine, theirs[order], rtol=1e-9, atol=1e-9)


def test_t11_a_reward_is_carried_back_over_earlier_steps_only() -> None:
    got = discounted_returns([10.0, 0.0, 0.0, 1.0], ["a", "a", "b", "a"], [2, 0, 0, 1], 0.5)
    assert got.tolist() == pytest.approx([10.0, 0.5 * (1.0 + 0.5 * 10.0), 0.0, 6.0])
