"""Group-relative estimators: hand-worked groups and what holds for any group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.credit.dr_grpo import DrGRPO
from sero_core.credit.grpo import GRPO
from sero_core.credit.rloo import RLOO, rloo_advantages
from sero_core.credit.statistics import group_advantages
from sero_core.types import Group
from tests.support.credit import flat, make_episode
from tests.support.episodes import TASK, group_of

REWARDS = st.lists(st.floats(-10, 10), min_size=2, max_size=8)


def advantages(rewards: list[float], lengths: list[int] | None = None, **options: object) -> list:
    group = group_of(rewards, lengths or [1] * len(rewards))
    [arrays] = GRPO.model_validate(options)([group]).advantages
    return [values.tolist() for values in arrays]


def penalised() -> Group:
    """Wins in two steps with one wrong answer; fails in one step."""
    return Group(
        TASK,
        (
            make_episode([0.0, 10.0], index=0, penalties=[0.1, 0.0]),
            make_episode([0.0], index=1),
        ),
    )


def test_a_penalty_lowers_the_return_or_its_own_step() -> None:
    whole = flat(GRPO(normalize_std=False, penalty="return")([penalised()]))
    assert whole == pytest.approx([4.95, 4.95, -4.95])
    row = flat(GRPO(normalize_std=False, penalty="row")([penalised()]))
    assert row == pytest.approx([9.9 - 9.95 / 2, 10.0 - 9.95 / 2, -9.95 / 2])
    rows = flat(GRPO(normalize_std=False, penalty="row", statistics="rows")([penalised()]))
    assert rows == pytest.approx([9.9 - 19.9 / 3, 10.0 - 19.9 / 3, -19.9 / 3])
    first = flat(GRPO(normalize_std=False, penalty="row", statistics="first_rows")([penalised()]))
    assert first == pytest.approx([9.9 - 4.95, 10.0 - 4.95, -4.95])


def test_a_std_floor_keeps_format_penalties_from_becoming_huge() -> None:
    equal = Group(
        TASK, (make_episode([0.0, 0.0], penalties=[0.1, 0.0]), make_episode([0.0], index=1))
    )
    loud = flat(GRPO(penalty="row", statistics="rows")([equal]))
    quiet = flat(GRPO(penalty="row", statistics="rows", std_floor=1.0)([equal]))
    assert loud[0] < -1
    assert quiet == pytest.approx([-0.2 / 3, 0.1 / 3, 0.1 / 3], rel=1e-5)


def test_rloo_compares_with_the_others_only() -> None:
    assert flat(RLOO()([group_of([1, 0, 0, 0], [1] * 4)])) == pytest.approx(
        [1, -1 / 3, -1 / 3, -1 / 3]
    )
    long_win = group_of([10, 0], [2, 1])
    assert flat(RLOO()([long_win])) == pytest.approx([10, 10, -10])
    assert flat(RLOO(statistics="rows")([long_win])) == pytest.approx([5, 5, -10])


@given(REWARDS)
def test_rloo_is_the_leave_one_out_mean(rewards: list[float]) -> None:
    values = np.array(rewards)
    others = (values.sum() - values) / (len(values) - 1)
    got = rloo_advantages(rewards, ["g"] * len(rewards))
    np.testing.assert_allclose(got, values - others, atol=1e-9)


@given(REWARDS)
def test_dr_grpo_is_grpo_without_std(rewards: list[float]) -> None:
    group = group_of(rewards, [2] * len(rewards))
    np.testing.assert_array_equal(flat(DrGRPO()([group])), flat(GRPO(normalize_std=False)([group])))


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.integers(1, 9)), min_size=2, max_size=8),
    st.booleans(),
)
def test_row_advantages_sum_to_zero(group: list[tuple[float, int]], normalize: bool) -> None:
    rewards, lengths = [r for r, _ in group], [n for _, n in group]
    got = advantages(rewards, lengths, statistics="rows", normalize_std=normalize)
    values = np.concatenate([np.array(episode) for episode in got])
    assert abs(values.sum()) < 1e-6 * max(1.0, np.abs(values).max()) * len(values)


@given(REWARDS)
def test_advantages_sum_to_zero(rewards: list[float]) -> None:
    values = np.array([row[0] for row in advantages(rewards)])
    assert np.isfinite(values).all()
    assert abs(values.sum()) < 1e-6 * max(1.0, np.abs(values).max())


def test_groups_do_not_see_each_other() -> None:
    one, two = group_of([1, 0], [1, 1]), group_of([5, 3, 4], [1, 1, 1])
    both = flat(GRPO()([one, two]))
    np.testing.assert_array_equal(both, np.concatenate([flat(GRPO()([one])), flat(GRPO()([two]))]))


def test_arrays_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2, 1 and 2"):
        group_advantages([1.0, 0.0], ["g"])
