"""RLOO: each episode against the mean of the others (arXiv 2402.14740, eq. 7)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from sero_core.credit.base import Defaults, PenaltyField, SingletonField, StatisticsField, Values
from sero_core.credit.statistics import (
    FloatArray,
    Over,
    Singleton,
    center,
    episode_samples,
    finite_groups,
)
from sero_core.credit.table import Credits, row_table
from sero_core.sections import Part
from sero_core.types import Group


def rloo_advantages(
    scores_N: ArrayLike,
    groups_N: Iterable[Hashable],
    episodes_N: Iterable[Hashable] | None = None,
    *,
    statistics: Over = "episodes",
    singleton: Singleton = "zero",
) -> FloatArray:
    """A = score - mean of the group's other samples = n / (n - 1) (score - mean_g), n samples.

    A sample is an episode, or a row with `statistics = "rows"`: then n is the group's number of
    steps, the factor is near 1 and this is a mean baseline without std. Labels, singletons and
    scores that are not finite as in `group_advantages`. Shape (N,), float64.
    """
    scores = np.asarray(scores_N, dtype=np.float64)
    owners = range(len(scores)) if episodes_N is None else episodes_N
    advantages = np.zeros_like(scores)
    for rows, episodes in finite_groups(scores, groups_N, owners):
        if len(episodes) == 1 and singleton == "zero":
            continue
        samples = episode_samples(scores, episodes, statistics)
        if len(samples) == 1:
            advantages[rows] = scores[rows]
        elif statistics == "rows":
            advantages[rows] = center(scores[rows], samples) * len(samples) / (len(samples) - 1)
        else:
            against_others = center(samples, samples) * len(samples) / (len(samples) - 1)
            for mine, sample, advantage in zip(episodes, samples, against_others, strict=True):
                advantages[mine] = advantage + (scores[mine] - sample)
    return advantages


class RLOO(Part):
    """A_i = R_i minus the mean return of the group's other episodes; no std.

    Advantages are in units of the reward. With `statistics = "rows"` the others are counted in
    steps (verl-agent).
    """

    min_group_size: ClassVar[int] = 2
    defaults: ClassVar[Defaults] = {}

    name: Literal["rloo"] = "rloo"
    statistics: StatisticsField = "episodes"
    penalty: PenaltyField = "return"
    singleton: SingletonField = "zero"

    def __call__(self, groups: Sequence[Group], values: Values | None = None) -> Credits:
        """Advantages of each episode's steps: one array (T_i,) per episode, in order."""
        table = row_table(groups)
        advantages = rloo_advantages(
            table.scores(self.penalty),
            table.groups_N,
            table.episodes_N,
            statistics=self.statistics,
            singleton=self.singleton,
        )
        return table.credits(advantages, {})
