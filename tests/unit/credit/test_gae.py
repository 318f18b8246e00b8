"""GAE and whitening by hand, and PPO's two forms on groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sero_core.credit.gae import gae, whiten
from sero_core.credit.ppo import PPO
from sero_core.types import Group, SeroError
from tests.support.credit import flat, make_episode
from tests.support.episodes import TASK

STEPS = Group(TASK, (make_episode([0.0, 10.0], penalties=[0.5, 0.0]), make_episode([0.0], index=1)))
STEP_VALUES = [[np.array([4.0, 6.0]), np.array([1.0])]]
TOKEN_VALUES = [
    [[np.array([4.0, 5.0]), np.array([6.0, 7.0])], [np.array([1.0, 2.0])]],
]


def test_gae_by_hand() -> None:
    advantages, returns = gae([[0.0, 1.0]], [[0.5, 0.25]], [[1, 1]], gamma=0.9, lam=0.5)
    last = 1.0 - 0.25
    first = 0.9 * 0.25 - 0.5 + 0.9 * 0.5 * last
    np.testing.assert_allclose(advantages, [[first, last]])
    np.testing.assert_allclose(returns, [[first + 0.5, 1.0]])


def test_whitening_has_mean_0_and_variance_1() -> None:
    values = np.random.default_rng(0).normal(3.0, 5.0, size=(4, 6))
    mask = np.random.default_rng(1).random((4, 6)) < 0.7
    got = whiten(values, mask)
    assert got[mask].mean() == pytest.approx(0, abs=1e-12)
    assert got[mask].std(ddof=1) == pytest.approx(1)
    assert (got[~mask] == 0).all()
    assert whiten([[7.0, 1.0]], [[1, 0]]).tolist() == [[0.0, 0.0]]
    assert whiten([[0.1, 0.1, 0.1]], [[1, 1, 1]]).tolist() == [[0.0, 0.0, 0.0]]


def test_the_step_form_is_chained_over_the_episode() -> None:
    """gamma = lambda = 1: the return from here on, minus the value."""
    got = PPO(level="steps", whiten=False)([STEPS], STEP_VALUES)
    assert flat(got) == pytest.approx([9.5 - 4.0, 10.0 - 6.0, 0.0 - 1.0])
    assert got.returns is not None
    assert [part.tolist() for part in got.returns[0]] == [[9.5, 10.0], [0.0]]
    discounted = PPO(level="steps", whiten=False, gamma=0.5, lam=0.0)([STEPS], STEP_VALUES)
    assert flat(discounted) == pytest.approx([-0.5 + 0.5 * 6.0 - 4.0, 10.0 - 6.0, -1.0])


def test_a_row_penalty_is_not_chained() -> None:
    got = PPO(level="steps", penalty="row", whiten=False)(
        [Group(TASK, (make_episode([0.0, 10.0], penalties=[0.0, 0.5]),))], [[np.array([4.0, 6.0])]]
    )
    assert flat(got) == pytest.approx([10.0 - 4.0, 10.0 - 6.0 - 0.5])


def test_the_token_form_gives_every_answer_the_whole_return() -> None:
    got = PPO(level="tokens", whiten=False)([STEPS], TOKEN_VALUES)
    assert flat(got) == pytest.approx([9.5 - 4, 9.5 - 5, 9.5 - 6, 9.5 - 7, -1, -2])
    assert got.returns is not None
    assert [part.tolist() for part in got.returns[0][0]] == [[9.5, 9.5], [9.5, 9.5]]
    row = PPO(level="tokens", penalty="row", whiten=False)([STEPS], TOKEN_VALUES)
    assert flat(row) == pytest.approx([9.5 - 4, 9.5 - 5, 10 - 6, 10 - 7, -1, -2])


def test_whitening_spans_the_batch() -> None:
    got = flat(PPO(level="tokens")([STEPS], TOKEN_VALUES))
    assert got.mean() == pytest.approx(0, abs=1e-12)
    assert got.std(ddof=1) == pytest.approx(1)


def test_values_are_needed_and_must_be_numbers() -> None:
    with pytest.raises(SeroError, match="got none"):
        PPO()([STEPS])
    with pytest.raises(SeroError, match="not finite"):
        PPO(level="steps")([STEPS], [[np.array([np.nan, 1.0]), np.array([1.0])]])


def test_an_episode_with_a_bad_reward_stays_out_of_the_whitening() -> None:
    bad = replace(STEPS, episodes=(*STEPS.episodes, make_episode([float("nan")], index=2)))
    values = [[*STEP_VALUES[0], np.array([3.0])]]
    got = PPO(level="steps")([bad], values)
    assert flat(got)[-1] == 0.0
    np.testing.assert_allclose(
        flat(got)[:-1], flat(PPO(level="steps")([STEPS], STEP_VALUES)), rtol=1e-12
    )
    assert got.metrics["credit/nonfinite_episodes"] == 1
    assert got.returns is not None
    assert got.returns[0][2].tolist() == [3.0]  # its own value: no error for the critic
