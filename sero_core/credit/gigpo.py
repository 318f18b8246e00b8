"""GiGPO: an episode advantage plus a step advantage among equal states (arXiv 2505.10978)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from sero_core.credit.anchors import AnchorKey, anchor_keys, anchor_labels
from sero_core.credit.base import GroupEstimator, PenaltyField, Values
from sero_core.credit.statistics import FloatArray, Singleton, rows_by_label, standardize
from sero_core.credit.table import Credits, row_table
from sero_core.types import Group


def step_advantages(
    returns_N: ArrayLike,
    labels_N: Iterable[Hashable],
    *,
    normalize_std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    std_floor: float = 0.0,
    lone_anchor: Singleton = "zero",
) -> FloatArray:
    """A_S = (R_t - mean) / (std + eps) over the rows of one anchor group (eq. 7), shape (N,).

    `returns_N` are discounted step returns; rows with one label are one anchor group, repeats
    within an episode included. An anchor that occurs once gives 0 (`"zero"`), or its raw return
    over 1 + eps (`"raw"`). Returns that are not finite are left out and get 0.
    """
    returns = np.asarray(returns_N, dtype=np.float64)
    advantages = np.zeros_like(returns)
    for members in rows_by_label(labels_N):
        rows = members[np.isfinite(returns[members])]
        if len(rows) > 1 or (len(rows) == 1 and lone_anchor == "raw"):
            advantages[rows] = standardize(
                returns[rows],
                returns[rows],
                normalize_std=normalize_std,
                ddof=ddof,
                eps=eps,
                std_floor=std_floor,
            )
    return advantages


class GiGPO(GroupEstimator):
    """A = A_E + step_coef * A_S (eq. 8): GRPO's advantage of the episode, plus the step's among the
    rows of the group that stood in the same state.

    `normalize_std` switches both parts: true is the paper's mean_std_norm (ALFWorld), false its
    mean_norm (WebShop). Step returns are discounted by gamma; A_S is computed over rows always.
    """

    name: Literal["gigpo"] = "gigpo"
    penalty: PenaltyField = "row"
    gamma: float = Field(default=0.95, ge=0, le=1, description="Discount of the step returns")
    step_coef: float = Field(default=1.0, ge=0, description="Weight of the step advantage")
    anchor: AnchorKey = Field(
        default="observation", description="Same state: by the text shown, or by the exact state"
    )
    similarity: float = Field(
        default=1.0, gt=0, le=1, description="Least difflib ratio of similar keys; 1 = equal"
    )
    lone_anchor: Singleton = Field(
        default="zero", description="Step advantage of a state seen once: 0, or its raw return"
    )

    def __call__(self, groups: Sequence[Group], values: Values | None = None) -> Credits:
        """Advantages of each episode's steps: one array (T_i,) per episode, in order."""
        table = row_table(groups)
        labels = anchor_labels(table.groups_N, anchor_keys(table, self.anchor), self.similarity)
        step = step_advantages(
            table.step_returns(self.gamma, self.penalty),
            labels,
            normalize_std=self.normalize_std,
            ddof=self.ddof,
            eps=self.eps,
            std_floor=self.std_floor,
            lone_anchor=self.lone_anchor,
        )
        sizes = np.bincount(labels)
        return table.credits(
            self.episode_advantages(table) + self.step_coef * step,
            {
                "credit/anchor_groups": float(len(sizes)),
                "credit/lone_anchors": float(np.mean(sizes == 1)) if len(sizes) else 0.0,
                "credit/step_abs_mean": float(np.abs(step).mean()) if len(step) else 0.0,
            },
        )
