"""GRPO: group-relative advantages (arXiv 2402.03300, eq. 3)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from sero_core.types import Group


class GRPO(BaseModel):
    """A_i = (R_i - mean_g) / (std_g + eps), the same value on every step of episode i.

    R_i is the episode's summed reward (task reward minus format penalties). Statistics are per
    episode, in float64, std with ddof 1. A group of one, a group of equal rewards and a group with
    a non-finite reward have advantage 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["grpo"] = "grpo"
    normalize_std: bool = Field(
        default=True, description="Divide by the group's std (false: Dr.GRPO)"
    )
    eps: float = Field(default=1e-6, gt=0, description="Added to the std")

    def __call__(self, group: Group) -> list[NDArray[np.float64]]:
        """Advantages of each episode's steps: a list of arrays (T_i,), in episode order."""
        rewards = np.array([episode.reward for episode in group.episodes], dtype=np.float64)
        values = np.zeros_like(rewards)
        if len(rewards) > 1 and np.isfinite(rewards).all() and np.ptp(rewards) > 0:
            values = rewards - rewards.mean()
            if self.normalize_std:
                values = values / (rewards.std(ddof=1) + self.eps)
        return [
            np.full(len(episode.steps), value, dtype=np.float64)
            for episode, value in zip(group.episodes, values, strict=True)
        ]
