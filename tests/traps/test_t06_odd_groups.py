"""T6: a group of one, of equal rewards, or with a NaN. Public code returns the raw reward for a
group of one, so that a lone win is a strong push; a NaN spreads over its whole group."""

from __future__ import annotations

import numpy as np
import pytest

from sero_core.config import RunConfig
from sero_core.types import Group
from tests.support.credit import flat, make_episode
from tests.support.episodes import TASK, group_of

NAMES = ("grpo", "dr_grpo", "dapo", "gspo", "rloo")
ALL_NAMES = (*NAMES, "gigpo", "hgpo")


def advantages(name: str, groups: list[Group], **options: object) -> list[float]:
    config = RunConfig.model_validate({"estimator": {"name": name} | options})
    return flat(config.estimator(groups)).tolist()


@pytest.mark.parametrize("name", ALL_NAMES)
def test_t06_a_group_of_one_has_advantage_zero(name: str) -> None:
    lone = Group(TASK, (make_episode([0.0, 0.0, 10.0]),))
    assert advantages(name, [lone]) == [0.0] * 3
    assert advantages(name, [lone], statistics="rows") == [0.0] * 3


def test_t06_the_raw_reward_is_there_by_name_only() -> None:
    lone = group_of([1.0], [1])
    assert advantages("grpo", [lone], singleton="raw") == pytest.approx([1.0], abs=1e-5)
    assert advantages("rloo", [lone], singleton="raw") == [1.0]


@pytest.mark.parametrize("name", NAMES)
def test_t06_equal_rewards_have_advantage_zero(name: str) -> None:
    assert advantages(name, [group_of([0.1] * 6, [1, 2, 3, 4, 5, 6])]) == [0.0] * 21


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ALL_NAMES)
def test_t06_a_bad_reward_is_left_out_and_counted(name: str, bad: float) -> None:
    clean = [make_episode([0.0, 10.0], index=0), make_episode([0.0], index=1)]
    damaged = Group(TASK, (*clean, make_episode([bad, 0.0], index=2)))
    config = RunConfig.model_validate({"estimator": {"name": name}})
    got = config.estimator([damaged])
    values = flat(got)
    assert np.isfinite(values).all()
    assert values[-2:].tolist() == [0.0, 0.0]
    assert got.metrics["credit/nonfinite_episodes"] == 1
    assert values[:3] == pytest.approx(flat(config.estimator([Group(TASK, tuple(clean))])))
