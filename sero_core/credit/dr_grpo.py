"""Dr.GRPO: group-relative advantages without the std (arXiv 2503.20783, eq. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from sero_core.credit.base import Defaults, PenaltyField, SingletonField, StatisticsField, Values
from sero_core.credit.statistics import group_advantages
from sero_core.credit.table import Credits, row_table
from sero_core.sections import Part
from sero_core.types import Group


class DrGRPO(Part):
    """A_i = R_i - mean_g, the same value on every step of episode i."""

    min_group_size: ClassVar[int] = 2
    defaults: ClassVar[Defaults] = {}

    name: Literal["dr_grpo"] = "dr_grpo"
    statistics: StatisticsField = "episodes"
    penalty: PenaltyField = "return"
    singleton: SingletonField = "zero"

    def __call__(self, groups: Sequence[Group], values: Values | None = None) -> Credits:
        """Advantages of each episode's steps: one array (T_i,) per episode, in order."""
        table = row_table(groups)
        advantages = group_advantages(
            table.scores(self.penalty),
            table.groups_N,
            table.episodes_N,
            statistics=self.statistics,
            normalize_std=False,
            singleton=self.singleton,
        )
        return table.credits(advantages, {})
