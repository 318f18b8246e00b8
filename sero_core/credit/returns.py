"""Discounted returns of steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from sero_core.credit.statistics import FloatArray, rows_by_label


def discounted_returns(
    rewards_N: ArrayLike,
    episodes_N: Iterable[Hashable],
    steps_N: ArrayLike,
    gamma: float,
) -> FloatArray:
    """R_t = r_t + gamma R_{t+1} within each episode; shape (N,), float64.

    The order of the rows means nothing: each episode's rows are sorted by their step number first
    (docs/correctness.md T11). Step numbers need not be consecutive.
    """
    rewards = np.asarray(rewards_N, dtype=np.float64)
    steps = np.asarray(steps_N)
    returns = np.zeros_like(rewards)
    for rows in rows_by_label(episodes_N):
        following = 0.0
        for row in reversed(rows[np.argsort(steps[rows], kind="stable")]):
            following = rewards[row] + gamma * following
            returns[row] = following
    return returns
