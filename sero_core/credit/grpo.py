"""GRPO: group-relative advantages (arXiv 2402.03300, eq. 3)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from sero_core.types import Group


class GRPO(BaseModel):
    """A_i = (R_i - mean_g) / (std_g + eps), the same value on every step of episode i.

    R_i is the episode's summed reward (task reward minus format penalties). Statistics are in
    float64, std with ddof 1, over the group's episodes (`statistics = "episodes"`, the textbook
    form) or over its rows, one per step (`"rows"`): then long episodes weigh more in mean and std,
    and the advantages of all rows sum to zero, so that a token-mean loss has no net push. A group
    of one episode, of equal rewards or with a non-finite reward has advantage 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["grpo"] = "grpo"
    statistics: Literal["episodes", "rows"] = Field(
        default="episodes", description="Mean and std over episodes, or over steps"
    )
    normalize_std: bool = Field(
        default=True, description="Divide by the group's std (false: Dr.GRPO)"
    )
    eps: float = Field(default=1e-6, gt=0, description="Added to the std")

    def __call__(self, group: Group) -> list[NDArray[np.float64]]:
        """Advantages of each episode's steps: a list of arrays (T_i,), in episode order."""
        rewards = np.array([episode.reward for episode in group.episodes], dtype=np.float64)
        lengths = [len(episode.steps) for episode in group.episodes]
        values = np.zeros_like(rewards)
        if len(rewards) > 1 and np.isfinite(rewards).all() and np.ptp(rewards) > 0:
            samples = rewards if self.statistics == "episodes" else np.repeat(rewards, lengths)
            values = rewards - samples.mean()
            if self.normalize_std:
                values = values / (samples.std(ddof=1) + self.eps)
        return [
            np.full(length, value, dtype=np.float64)
            for length, value in zip(lengths, values, strict=True)
        ]
