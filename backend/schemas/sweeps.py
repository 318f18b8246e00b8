"""Sweeps: many runs from one request."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue

from backend.schemas.base import Config, FieldError, Schema
from backend.schemas.runs import Estimate, RunSummary, SubmitRequest

MAX_RUNS = 1000


class SweepRequest(Schema):
    """Every combination of the grid's values, times every seed, on top of `base`.

    `grid`: dotted config key -> values. Without seeds, the seed of `base`.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "beta",
                    "base": {"preset": "sero_demo"},
                    "grid": {"sero.reachability.beta": [0.5, 1, 2]},
                    "seeds": [0, 1, 2, 3, 4],
                }
            ]
        },
    )

    name: str = Field(default="sweep", pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}$")
    base: SubmitRequest
    grid: dict[Annotated[str, Field(max_length=200)], list[JsonValue]] = Field(
        default={}, max_length=20
    )
    seeds: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(default=[], max_length=MAX_RUNS)


class PlannedRun(Schema):
    """A run that the sweep would make. `values` are its grid values."""

    name: str
    seed: int
    config_hash: str
    values: Config


class SweepPlan(Schema):
    """`estimate`: for one run, that of the first; `total_duration_s` for all, one after another."""

    num_runs: int
    runs: list[PlannedRun]
    warnings: list[FieldError]
    estimate: Estimate | None
    total_duration_s: float | None


class SweepInfo(Schema):
    id: int
    name: str
    num_runs: int
    request: Config
    created_at: datetime


class SweepDetail(SweepInfo):
    runs: list[RunSummary]


class SweepsResponse(Schema):
    sweeps: list[SweepInfo]
