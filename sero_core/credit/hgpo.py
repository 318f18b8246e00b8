"""HGPO: step advantages in groups of ever longer equal histories (arXiv 2602.22817)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from sero_core.credit.anchors import AnchorKey, anchor_keys
from sero_core.credit.base import GroupEstimator, PenaltyField, Values
from sero_core.credit.statistics import FloatArray, rows_by_label, standardize
from sero_core.credit.table import Credits, row_table
from sero_core.types import Group

WEIGHT_EPS = 1e-6


def history_keys(
    groups_N: Iterable[Hashable],
    episodes_N: Iterable[Hashable],
    steps_N: ArrayLike,
    anchors_N: Sequence[Hashable],
    length: int,
) -> list[Hashable | None]:
    """(group, the last `length` anchors of the row's episode, its own last) of each row.

    None where the episode is not that long yet. Rows in any order: episodes are sorted by step.
    """
    groups, steps = list(groups_N), np.asarray(steps_N)
    keys: list[Hashable | None] = [None] * len(groups)
    for rows in rows_by_label(zip(groups, episodes_N, strict=True)):
        ordered = rows[np.argsort(steps[rows], kind="stable")]
        for position in range(length - 1, len(ordered)):
            recent = ordered[position - length + 1 : position + 1]
            keys[ordered[position]] = (
                groups[ordered[position]],
                tuple(anchors_N[row] for row in recent),
            )
    return keys


def hierarchical_advantages(
    returns_N: ArrayLike,
    groups_N: Iterable[Hashable],
    episodes_N: Iterable[Hashable],
    steps_N: ArrayLike,
    anchors_N: Sequence[Hashable],
    *,
    history_length: int = 2,
    alpha: float = 1.0,
    normalize_std: bool = True,
    ddof: int = 0,
    eps: float = 1e-6,
    std_floor: float = 0.0,
    base_N: ArrayLike | None = None,
) -> FloatArray:
    """A = sum_k w_k a_k over k = 1 .. history_length + 1; shape (N,), float64.

    a_k = (R_t - mean) / (std + eps), std with `ddof`, over the rows of a group whose last k anchors
    are equal; groups of one row have no a_k. `base_N` (the episode's advantage) adds k = 0.
    w_k = (k + 1)^alpha / (sum over the row's items + 1e-6), where an a_k that is exactly 0 is no
    item: it is left out before the weights are normalised (docs/correctness.md T9, T26). A row
    without items has 0. Returns that are not finite are left out and get 0.
    """
    returns = np.asarray(returns_N, dtype=np.float64)
    groups, owners = list(groups_N), list(episodes_N)
    is_finite = np.isfinite(returns)
    items: list[tuple[int, FloatArray]] = []
    if base_N is not None:
        items.append((0, np.where(is_finite, np.asarray(base_N, dtype=np.float64), 0.0)))
    for length in range(1, history_length + 2):
        keys = history_keys(groups, owners, steps_N, anchors_N, length)
        advantages = np.zeros_like(returns)
        for members in rows_by_label(keys):
            rows = members[is_finite[members]]
            if len(rows) > 1 and keys[rows[0]] is not None:
                advantages[rows] = standardize(
                    returns[rows],
                    returns[rows],
                    normalize_std=normalize_std,
                    ddof=ddof,
                    eps=eps,
                    std_floor=std_floor,
                )
        items.append((length, advantages))
    return _weighted(items, alpha)


def _weighted(items: Sequence[tuple[int, FloatArray]], alpha: float) -> FloatArray:
    total, weights = np.zeros_like(items[0][1]), np.zeros_like(items[0][1])
    for length, advantages in items:
        weight = float(length + 1) ** alpha * (advantages != 0)
        total += weight * advantages
        weights += weight
    return total / (weights + WEIGHT_EPS)


class HGPO(GroupEstimator):
    """A = sum_k w_k a_k, w_k growing as (k + 1)^alpha: a step's return against those of rows that
    shared its state (k = 1) and up to `history_length` observations before it.

    Step statistics have ddof 0 (`history_ddof`); `ddof`, `statistics` and `singleton` belong to the
    episode's advantage, which enters as k = 0 with `base_group`. `normalize_std` switches all.
    """

    name: Literal["hgpo"] = "hgpo"
    penalty: PenaltyField = "row"
    gamma: float = Field(default=0.95, ge=0, le=1, description="Discount of the step returns")
    history_length: int = Field(
        default=2, ge=0, le=64, description="Longest history K; groups compare up to K + 1 keys"
    )
    alpha: float = Field(default=1.0, ge=0, le=16, description="Weights grow as (k + 1)^alpha")
    base_group: bool = Field(default=False, description="Add the episode's advantage as k = 0")
    history_ddof: Literal[0, 1] = Field(default=0, description="ddof of the step statistics")
    anchor: AnchorKey = Field(
        default="observation", description="Same state: by the text shown, or by the exact state"
    )

    def __call__(self, groups: Sequence[Group], values: Values | None = None) -> Credits:
        """Advantages of each episode's steps: one array (T_i,) per episode, in order."""
        table = row_table(groups)
        advantages = hierarchical_advantages(
            table.step_returns(self.gamma, self.penalty),
            table.groups_N,
            table.episodes_N,
            table.steps_N,
            anchor_keys(table, self.anchor),
            history_length=self.history_length,
            alpha=self.alpha,
            normalize_std=self.normalize_std,
            ddof=self.history_ddof,
            eps=self.eps,
            std_floor=self.std_floor,
            base_N=self.episode_advantages(table) if self.base_group else None,
        )
        return table.credits(advantages, {})
