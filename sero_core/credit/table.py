"""All rows of an iteration as flat arrays, and the way back to one array per episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sero_core.credit.returns import discounted_returns
from sero_core.credit.statistics import FloatArray, IntArray
from sero_core.types import Group

EpisodeArrays = FloatArray | list[FloatArray]
"""One episode's numbers: an array (T,), one per step; or a list of T arrays, one number per token
of each step's answer."""

Penalty = Literal["return", "row"]


@dataclass(frozen=True, slots=True)
class Credits:
    """What an estimator returns. `advantages[g][e]` belong to episode e of group g.

    `returns` are the critic's targets in the same layout (None where there is no critic).
    `metrics` are logged as they are.
    """

    advantages: list[list[EpisodeArrays]]
    metrics: dict[str, float]
    returns: list[list[EpisodeArrays]] | None = None


@dataclass(frozen=True, slots=True)
class RowTable:
    """One entry per row, in collection order; exactly one row per step, never a copy (T7).

    `rewards_N` leave out the format penalties `penalties_N` (>= 0). `episodes_N` counts episodes
    over all groups. An episode with a reward that is not finite has NaN in all its `rewards_N`.
    """

    groups_N: IntArray
    episodes_N: IntArray
    steps_N: IntArray
    rewards_N: FloatArray
    penalties_N: FloatArray
    observations_N: tuple[str, ...]
    states_N: tuple[str, ...]
    lengths: tuple[tuple[int, ...], ...]

    def scores(self, penalty: Penalty) -> FloatArray:
        """The return of each row's episode: minus all its format penalties (`return`), or minus
        that row's own one only (`row`)."""
        if penalty == "row":
            return self._episode_sums(self.rewards_N) - self.penalties_N
        return self._episode_sums(self.rewards_N - self.penalties_N)

    def step_returns(self, gamma: float, penalty: Penalty) -> FloatArray:
        """sum_{t' >= t} gamma^(t'-t) r_t'. `return` discounts the penalties as part of r; `row`
        subtracts a row's own penalty afterwards, on that row alone."""
        rewards = self.rewards_N if penalty == "row" else self.rewards_N - self.penalties_N
        returns = discounted_returns(rewards, self.episodes_N, self.steps_N, gamma)
        return returns - self.penalties_N if penalty == "row" else returns

    def credits(self, advantages_N: FloatArray, metrics: dict[str, float]) -> Credits:
        """One array (T,) per episode, and the metrics that every estimator logs."""
        arrays = self.layout(self.by_episode(advantages_N))
        return Credits(arrays, self.common_metrics(advantages_N) | metrics)

    def common_metrics(self, advantages: FloatArray) -> dict[str, float]:
        """Episodes left out for a reward that is not finite; how many advantages are 0; size."""
        num_lost = len(np.unique(self.episodes_N[~np.isfinite(self.rewards_N)]))
        return {
            "credit/nonfinite_episodes": float(num_lost),
            "credit/zero_share": float(np.mean(advantages == 0)) if advantages.size else 0.0,
            "credit/abs_mean": float(np.abs(advantages).mean()) if advantages.size else 0.0,
        }

    def by_episode(self, values_N: FloatArray) -> list[FloatArray]:
        """Flat values as one array per episode."""
        ends = np.cumsum([length for group in self.lengths for length in group])
        return np.split(values_N, ends[:-1]) if len(ends) else []

    def layout(self, parts: Sequence[FloatArray]) -> list[list[EpisodeArrays]]:
        """One entry per episode, as `[group][episode]`."""
        remaining = iter(parts)
        return [[next(remaining) for _ in group] for group in self.lengths]

    def _episode_sums(self, rewards_N: FloatArray) -> FloatArray:
        sums = np.zeros(sum(len(group) for group in self.lengths))
        np.add.at(sums, self.episodes_N, rewards_N)
        return sums[self.episodes_N]


def row_table(groups: Sequence[Group]) -> RowTable:
    """The rows of all groups. A group may be empty (all its episodes were lost)."""
    episodes = [(g, episode) for g, group in enumerate(groups) for episode in group.episodes]
    steps = [step for _, episode in episodes for step in episode.steps]
    lengths = np.array([len(episode.steps) for _, episode in episodes], dtype=np.int64)
    owners = np.repeat(np.arange(len(episodes)), lengths)
    penalties = np.array([step.format_penalty for step in steps], dtype=np.float64)
    rewards = np.array([step.reward for step in steps], dtype=np.float64) + penalties
    is_finite = np.isfinite(rewards)
    rewards[np.isin(owners, owners[~is_finite])] = np.nan
    return RowTable(
        groups_N=np.repeat(np.array([g for g, _ in episodes], dtype=np.int64), lengths),
        episodes_N=owners,
        steps_N=np.array([step.index for step in steps], dtype=np.int64),
        rewards_N=rewards,
        penalties_N=penalties,
        observations_N=tuple(step.observation.text for step in steps),
        states_N=tuple(step.snapshot.state_hash for step in steps),
        lengths=tuple(tuple(len(episode.steps) for episode in group.episodes) for group in groups),
    )
