"""What the group-relative estimators share: the named conventions of the episode's advantage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from sero_core.credit.statistics import FloatArray, Over, Singleton, group_advantages
from sero_core.credit.table import Credits, EpisodeArrays, Penalty, RowTable, row_table
from sero_core.sections import Part
from sero_core.types import Group

Values = list[list[EpisodeArrays]]
Defaults = Mapping[str, Mapping[str, object]]

StatisticsField = Annotated[
    Over,
    Field(
        description="Mean and std over episodes; over each episode's first row; or over rows "
        "(steps), where long episodes weigh more"
    ),
]
PenaltyField = Annotated[
    Penalty,
    Field(
        description="A wrong format lowers the whole return (return), or only its own step's (row)"
    ),
]
SingletonField = Annotated[
    Singleton, Field(description="Advantage of a group of one: 0, or its raw reward")
]


class Estimator(Protocol):
    """`(groups, values) -> Credits`: pure numpy, no state.

    `values` are the critic's predictions in the layout of `Credits.advantages`; None without one.
    `min_group_size` is the smallest group that can have an advantage. `defaults` are what the
    method sets in other config sections where the user says nothing, as {section: {field: value}}.
    """

    min_group_size: ClassVar[int]
    defaults: ClassVar[Defaults]

    @property
    def name(self) -> str: ...

    def __call__(self, groups: Sequence[Group], values: Values | None = None) -> Credits: ...


class GroupEstimator(Part):
    """A_i = (R_i - mean_g) / (std_g + eps) on every step of episode i, by named conventions.

    R_i is the episode's return. Statistics are float64. A group of one episode, or of equal
    returns, has advantage 0; an episode with a reward that is not finite is left out and counted
    (`credit/nonfinite_episodes`).
    """

    min_group_size: ClassVar[int] = 2
    defaults: ClassVar[Defaults] = {}

    statistics: StatisticsField = "episodes"
    penalty: PenaltyField = "return"
    normalize_std: bool = Field(default=True, description="Divide by the group's std")
    ddof: Literal[0, 1] = Field(default=1, description="1: unbiased std; 0: population std")
    eps: float = Field(default=1e-6, gt=0, description="Added to the std")
    std_floor: float = Field(default=0.0, ge=0, description="Smallest std to divide by")
    singleton: SingletonField = "zero"

    def __call__(self, groups: Sequence[Group], values: Values | None = None) -> Credits:
        """Advantages of each episode's steps: one array (T_i,) per episode, in order."""
        table = row_table(groups)
        return table.credits(self.episode_advantages(table), {})

    def episode_advantages(self, table: RowTable) -> FloatArray:
        """The group-relative advantage of each row's episode, shape (N,)."""
        return group_advantages(
            table.scores(self.penalty),
            table.groups_N,
            table.episodes_N,
            statistics=self.statistics,
            normalize_std=self.normalize_std,
            ddof=self.ddof,
            eps=self.eps,
            std_floor=self.std_floor,
            singleton=self.singleton,
        )
