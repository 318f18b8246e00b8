"""Comparing runs: curves on one axis, tasks in pairs, configs line by line."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from backend.schemas.base import ConfigChange, Number, Schema
from backend.schemas.records import MetricPoint

Axis = Literal["iteration", "env_steps", "tokens", "episodes", "wall_s", "gpu_hours"]


class CurvePoint(MetricPoint):
    """`x`: where the bucket's newest iteration lies on the axis that was asked for."""

    x: float


class Curve(Schema):
    run_id: int
    key: str
    points: list[CurvePoint]


class CurvesResponse(Schema):
    axis: Axis
    curves: list[Curve]


class PairedTask(Schema):
    """One task: share of won episodes and mean steps of each side."""

    task_id: str
    task_type: str
    rate_a: float
    rate_b: float
    steps_a: float
    steps_b: float


class PairedResult(Schema):
    """Side B minus side A over the tasks that both played. `low`, `high`: 95 % bootstrap over
    tasks; `p_value`: McNemar's exact test, only with one episode a task on each side."""

    group: str = Field(description="`all`, or a task type")
    num_tasks: int
    rate_a: float
    rate_b: float
    difference: float
    low: float
    high: float
    p_value: Number
    only_a: int = Field(description="Tasks that A wins more often")
    only_b: int = Field(description="Tasks that B wins more often")
    verdict: str


class PairedResponse(Schema):
    """`tasks`: first those that B wins and A loses, then the other way round, then the rest."""

    panel: str
    run_ids_a: list[int]
    run_ids_b: list[int]
    is_same_panel: bool = Field(description="All runs were evaluated on the same list of tasks")
    results: list[PairedResult]
    tasks: list[PairedTask]


class ConfigDiffResponse(Schema):
    """From run `before` to run `after`; the commits that trained them beside it."""

    before: int
    after: int
    changes: list[ConfigChange]
    git_before: str | None
    git_after: str | None
