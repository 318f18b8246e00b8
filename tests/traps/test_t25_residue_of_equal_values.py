"""T25: the mean of n equal numbers can be one unit in the last place off. With std 0, dividing the
residue by 1e-6 invents advantages: up to 0.48 in float32. Equal values give exactly 0 here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.credit.gigpo import step_advantages
from sero_core.credit.hgpo import hierarchical_advantages
from sero_core.credit.rloo import rloo_advantages
from sero_core.credit.statistics import center, group_advantages
from sero_core.types import Group
from tests.support.credit import flat, make_episode
from tests.support.episodes import TASK, group_of

VALUES = st.one_of(
    st.floats(-1e6, 1e6),
    st.integers(0, 49).map(lambda k: 10.0 * 0.95**k),
    st.integers(0, 49).map(lambda k: 10.0 * 0.95**k - 0.1),
)


def test_t25_the_trap_is_real() -> None:
    """Where float64 itself is off by a bit, and float32 by what the docs say."""
    assert np.full(3, 0.1).mean() != 0.1
    values = (10.0 * 0.95 ** np.arange(50)).astype(np.float32)
    spurious = [
        abs(value - np.full(n, value).mean(dtype=np.float32)) / np.float32(1e-6)
        for value in values
        for n in range(2, 13)
    ]
    assert max(spurious) > 0.3


@given(VALUES, st.integers(2, 12))
def test_t25_equal_values_give_exactly_zero(value: float, size: int) -> None:
    values, groups = [value] * size, ["g"] * size
    for statistics in ("episodes", "first_rows", "rows"):
        assert not group_advantages(values, groups, statistics=statistics).any()
    assert not rloo_advantages(values, groups).any()
    assert not step_advantages(values, groups).any()
    rows = hierarchical_advantages(values, groups, range(size), [0] * size, ["x"] * size)
    assert not rows.any()


@given(VALUES, st.lists(st.integers(1, 9), min_size=2, max_size=8))
def test_t25_equal_episodes_of_any_length_give_exactly_zero(
    value: float, lengths: list[int]
) -> None:
    group = group_of([value] * len(lengths), lengths)
    for options in ({"name": "grpo"}, {"name": "grpo", "statistics": "rows"}, {"name": "rloo"}):
        assert not flat(estimator(options)([group])).any()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_t25_equal_sums_in_another_order_of_addition_are_equal(order: tuple[int, ...]) -> None:
    """0.1 + 0.2 + 0.3 differs from 0.3 + 0.1 + 0.2 by one bit; such returns are equal."""
    parts = [0.1, 0.2, 0.3]
    shuffled = [parts[i] for i in order]
    group = Group(TASK, (make_episode(parts, index=0), make_episode(shuffled, index=1)))
    assert not flat(estimator({"name": "grpo"})([group])).any()


@given(st.floats(1e-3, 1e6), st.floats(1e-9, 1.0))
def test_t25_a_real_difference_is_kept(value: float, share: float) -> None:
    values = np.array([value, value * (1.0 + share)])
    assert np.count_nonzero(center(values, values)) == 2


def estimator(options: dict[str, object]):  # noqa: ANN201 (any member of the union)
    from sero_core.config import RunConfig

    return RunConfig.model_validate({"estimator": options}).estimator
