"""Groups for tests of the estimators: built by hand, from a golden batch, or at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sero_core.credit.base import Values
from sero_core.credit.table import Credits, EpisodeArrays
from sero_core.types import Episode, Group
from tests.support.episodes import OBSERVATION, TASK, episode_of, step_of

TOKENS_PER_ANSWER = 2
TEXTS = ("kitchen", "fridge 1", "Nothing happens.", "shelf 1")


def make_episode(
    rewards: Sequence[float],
    *,
    index: int = 0,
    texts: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    penalties: Sequence[float] | None = None,
) -> Episode:
    """An episode with these task rewards; `penalties` are subtracted and kept apart."""
    taken = penalties or [0.0] * len(rewards)
    steps = tuple(
        replace(
            step_of(t, reward - taken[t]),
            format_penalty=taken[t],
            is_valid=taken[t] == 0,
            observation=replace(OBSERVATION, text=(texts or [f"text {t}"] * len(rewards))[t]),
            snapshot=replace(
                step_of(t).snapshot, state_hash=(states or [f"state {t}"] * len(rewards))[t]
            ),
        )
        for t, reward in enumerate(rewards)
    )
    return replace(episode_of(0.0, 1, index), steps=steps)


def random_groups(
    rng: np.random.Generator, num_groups: int = 3, group_size: int = 4
) -> list[Group]:
    """Binary outcomes with format penalties, repeated observations, lengths of 1 to 6 steps."""
    groups: list[Group] = []
    for _ in range(num_groups):
        episodes = []
        for index in range(group_size):
            length = int(rng.integers(1, 7))
            rewards = [0.0] * length
            rewards[-1] = 10.0 * float(rng.random() < 0.5)
            texts = [TEXTS[int(rng.integers(len(TEXTS)))] for _ in rewards]
            penalties = [0.1 * float(rng.random() < 0.2) for _ in rewards]
            episodes.append(
                make_episode(rewards, index=index, texts=texts, states=texts, penalties=penalties)
            )
        groups.append(Group(TASK, tuple(episodes)))
    return groups


def random_values(rng: np.random.Generator, groups: Sequence[Group], level: str) -> Values:
    """A critic's predictions: one per step, or one per token of each answer."""

    def values(length: int) -> EpisodeArrays:
        if level == "steps":
            return rng.normal(size=length)
        return [rng.normal(size=TOKENS_PER_ANSWER) for _ in range(length)]

    return [[values(len(episode.steps)) for episode in group.episodes] for group in groups]


def flat(credits: Credits) -> NDArray[np.float64]:
    """All advantages behind each other, in row order."""
    parts = [
        np.concatenate([np.atleast_1d(part) for part in episode])
        for group in credits.advantages
        for episode in group
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
