"""GRPO advantages: hand-worked groups, conventions by name, degenerate groups (T5, T6, T8, T25)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.credit.grpo import GRPO
from tests.support.episodes import group_of


def advantages(rewards: list[float], lengths: list[int] | None = None, **options: object) -> list:
    group = group_of(rewards, lengths or [1] * len(rewards))
    return [values.tolist() for values in GRPO.model_validate(options)(group)]


def test_t05_named_conventions_on_one_fixture() -> None:
    flat = [values[0] for values in advantages([1, 0, 0, 0])]
    assert flat == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    flat = [values[0] for values in advantages([1, 0, 0, 0], normalize_std=False)]
    assert flat == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_t08_statistics_are_per_episode_whatever_their_length() -> None:
    got = advantages([10, 0], [2, 1], normalize_std=False)
    assert got == [[5.0, 5.0], [-5.0]]


def test_t08_row_statistics_weigh_long_episodes_more() -> None:
    got = advantages([10, 0], [2, 1], normalize_std=False, statistics="rows")
    assert got[0] == pytest.approx([10 / 3, 10 / 3])
    assert got[1] == pytest.approx([-20 / 3])


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.integers(1, 9)), min_size=2, max_size=8),
    st.booleans(),
)
def test_row_advantages_sum_to_zero(group: list[tuple[float, int]], normalize: bool) -> None:
    rewards, lengths = [r for r, _ in group], [n for _, n in group]
    got = advantages(rewards, lengths, statistics="rows", normalize_std=normalize)
    flat = np.concatenate([np.array(values) for values in got])
    assert abs(flat.sum()) < 1e-6 * max(1.0, np.abs(flat).max()) * len(flat)


def test_t06_one_equal_or_not_finite_means_zero() -> None:
    assert advantages([1.0]) == [[0.0]]
    assert advantages([0.0, 0.0, 0.0]) == [[0.0]] * 3
    assert advantages([1.0, float("nan")]) == [[0.0]] * 2


@given(st.floats(-1e6, 1e6), st.integers(2, 12))
def test_t25_equal_rewards_of_any_size_give_exactly_zero(value: float, size: int) -> None:
    assert advantages([value] * size) == [[0.0]] * size


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_advantages_sum_to_zero(rewards: list[float]) -> None:
    values = np.array([row[0] for row in advantages(rewards)])
    assert np.isfinite(values).all()
    assert abs(values.sum()) < 1e-6 * max(1.0, np.abs(values).max())
