"""GiGPO and HGPO on the fixture of docs/correctness.md, and what their options change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sero_core.credit.anchors import anchor_labels
from sero_core.credit.gigpo import GiGPO
from sero_core.credit.hgpo import HGPO, history_keys
from sero_core.types import Group
from tests.support.credit import flat, make_episode, random_groups
from tests.support.episodes import TASK

ROWS = {"statistics": "rows"}
FIXTURE = Group(
    TASK,
    (
        make_episode([0.0, 10.0], index=0, texts=["kitchen", "fridge"]),
        make_episode([0.0], index=1, texts=["kitchen"]),
    ),
)
"""A wins in two steps, B fails in one; both start in the kitchen. Step returns 9.5, 10, 0."""


def gigpo(**options: object) -> list[float]:
    return flat(GiGPO.model_validate(ROWS | options)([FIXTURE])).tolist()


def hgpo(**options: object) -> list[float]:
    return flat(HGPO.model_validate(ROWS | options)([FIXTURE])).tolist()


def test_gigpo_on_the_fixture() -> None:
    assert gigpo(normalize_std=False) == pytest.approx([8.083, 3.333, -11.417], abs=1e-3)
    assert gigpo() == pytest.approx([1.284, 0.577, -1.862], abs=1e-3)
    step = np.array(gigpo(normalize_std=False)) - np.array(gigpo(normalize_std=False, step_coef=0))
    assert step.tolist() == pytest.approx([4.75, 0, -4.75])


def test_hgpo_on_the_fixture() -> None:
    off = hgpo(normalize_std=False, singleton="raw")
    assert off == pytest.approx([4.75, 0, -4.75], abs=1e-5)
    on = hgpo(normalize_std=False, singleton="raw", base_group=True)
    assert on == pytest.approx([4.278, 3.333, -5.389], abs=1e-3)


def test_an_anchor_that_occurs_once_is_zero_or_its_return() -> None:
    only_step = np.array(gigpo(normalize_std=False, lone_anchor="raw")) - np.array(
        gigpo(normalize_std=False)
    )
    assert only_step.tolist() == pytest.approx([0, 10, 0])


def test_gamma_discounts_the_step_returns_only() -> None:
    base = np.array(gigpo(normalize_std=False, step_coef=0, gamma=0.5))
    assert base.tolist() == pytest.approx(gigpo(normalize_std=False, step_coef=0))
    step = np.array(gigpo(normalize_std=False, gamma=0.5)) - base
    assert step.tolist() == pytest.approx([2.5, 0, -2.5])


def test_a_penalty_outside_the_return_is_not_carried_back() -> None:
    late = Group(
        TASK,
        (
            make_episode([0.0, 0.0], index=0, texts=["a", "b"], penalties=[0.0, 0.5]),
            make_episode([0.0, 0.0], index=1, texts=["a", "b"]),
        ),
    )
    options = {"normalize_std": False, "gamma": 1.0}
    alone = flat(GiGPO.model_validate(options)([late]))
    carried = flat(GiGPO.model_validate(options | {"penalty": "return"})([late]))
    assert alone[0] == pytest.approx(0.125)  # A_E alone: the mean of (0, -0.5) against 0
    assert alone[1] == pytest.approx(-0.375 - 0.25)
    assert carried[:2] == pytest.approx([-0.5, -0.5])


def test_similar_keys_join_the_first_group_that_is_similar_enough() -> None:
    keys = ["open the drawer 1 now", "open the drawer 2 now", "close it", "open the drawer 2 now"]
    assert anchor_labels(["g"] * 4, keys).tolist() == [0, 1, 2, 1]
    assert anchor_labels(["g"] * 4, keys, 0.95).tolist() == [0, 0, 1, 0]
    assert anchor_labels(["g", "h", "g", "h"], keys, 0.95).tolist() == [0, 1, 2, 1]


def test_exact_state_anchors_split_what_looks_the_same() -> None:
    episodes = [
        make_episode([r], index=i, texts=["Nothing happens."], states=[state])
        for i, (r, state) in enumerate([(10.0, "s"), (0.0, "s"), (5.0, "t")])
    ]
    group = Group(TASK, tuple(episodes))
    steps = [
        flat(GiGPO(normalize_std=False, anchor=key)([group]))
        - flat(GiGPO(normalize_std=False, anchor=key, step_coef=0)([group]))
        for key in ("observation", "state")
    ]
    assert steps[0].tolist() == pytest.approx([5, -5, 0])
    assert steps[1].tolist() == pytest.approx([5, -5, 0])
    assert GiGPO(anchor="state")([group]).metrics["credit/anchor_groups"] == 2
    assert GiGPO(anchor="state")([group]).metrics["credit/lone_anchors"] == 0.5
    assert GiGPO()([group]).metrics["credit/anchor_groups"] == 1


def test_a_history_is_longer_than_the_current_state() -> None:
    keys = history_keys(["g"] * 4, ["a", "a", "b", "b"], [0, 1, 0, 1], ["x", "y", "z", "y"], 2)
    assert keys == [None, ("g", ("x", "y")), None, ("g", ("z", "y"))]


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 2.0]))
def test_hgpo_without_history_is_the_step_advantage(seed: int, alpha: float) -> None:
    """K = 0 has one item, k = 1: GiGPO's step advantage with ddof 0, whatever alpha is."""
    groups = random_groups(np.random.default_rng(seed))
    hierarchical = HGPO(history_length=0, alpha=alpha, normalize_std=False)
    step = GiGPO(normalize_std=False)
    rest = GiGPO(normalize_std=False, step_coef=0)
    np.testing.assert_allclose(
        flat(hierarchical(groups)), flat(step(groups)) - flat(rest(groups)), rtol=2e-6, atol=1e-6
    )
