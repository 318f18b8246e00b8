"""Jobs and workers: what is queued, why it waits, and who works on it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, model_validator

from backend.schemas.base import Config, JobKind, JobState, Page, Schema

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
OwnId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]
Id = Annotated[int, Field(ge=1, le=2**31 - 1)]

FIELDS_OF: dict[str, frozenset[str]] = {
    "branch": frozenset({"iteration", "overrides"}),
    "branch_from_here": frozenset({"iteration", "overrides", "episode_id", "step"}),
    "rescore": frozenset({"iterations", "branch_ids"}),
    "evaluate": frozenset({"iteration", "overrides"}),
    "export": frozenset(),
}


class PlacementFields(Schema):
    """Where and when a job runs."""

    model_config = ConfigDict(extra="forbid")

    labels: list[Label] = Field(
        default=[], max_length=16, description="Only a worker with all of these takes it"
    )
    num_devices: int = Field(
        default=0, ge=0, le=64, description="GPUs of the worker that it gets for itself"
    )
    priority: int = Field(default=0, ge=-1000, le=1000, description="Larger is sooner")
    after: list[Id] = Field(
        default=[],
        max_length=100,
        description="Jobs that must succeed before; where one does not, this one is skipped",
    )


class JobRequest(PlacementFields):
    """A job on an existing run. Which fields count depends on `kind`:

    `branch`: roll out a checkpoint, choose roots, run the oracle. `branch_from_here`: one branch
    from step `step` of the stored episode `episode_id`. `rescore`: the weights of the stored
    branches `branch_ids` under the checkpoints `iterations` (empty: all on disk). `evaluate`: the
    fixed panels. `export`: everything the run wrote as one archive.
    `iteration` = null: the newest checkpoint. `overrides`: config keys that differ for this job.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"kind": "evaluate", "overrides": {"evaluation.num_tasks": 50}},
                {"kind": "branch_from_here", "episode_id": "i5g0e3", "step": 4},
                {"kind": "rescore", "branch_ids": ["i5g0e3t4"], "iterations": [5, 10]},
            ]
        },
    )

    kind: Literal["branch", "branch_from_here", "rescore", "evaluate", "export"]
    iteration: int | None = Field(default=None, ge=0, le=2**31 - 1)
    iterations: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(default=[], max_length=1000)
    episode_id: OwnId | None = None
    step: int | None = Field(default=None, ge=0, le=100_000)
    branch_ids: list[OwnId] = Field(default=[], max_length=10_000)
    overrides: Config = Field(default={}, description="Nested, or dotted keys")

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        own = {name for fields in FIELDS_OF.values() for name in fields}
        given = {
            name for name in own if getattr(self, name) != type(self).model_fields[name].default
        }
        if extra := sorted(given - FIELDS_OF[self.kind]):
            allowed = ", ".join(sorted(FIELDS_OF[self.kind])) or "none of its own"
            raise ValueError(
                f"request.{extra[0]}: a {self.kind} job has no such field; allowed: {allowed}"
            )
        if self.kind == "branch_from_here" and (self.episode_id is None or self.step is None):
            raise ValueError(
                "request.episode_id: branch_from_here needs the episode and the step of its root; "
                "allowed: both `episode_id` and `step`"
            )
        if self.kind == "rescore" and not self.branch_ids:
            raise ValueError("request.branch_ids: nothing to rescore; allowed: 1 to 10000 ids")
        return self

    def payload(self) -> Config:
        """What the job works on, as stored with it."""
        return {name: self.model_dump()[name] for name in sorted(FIELDS_OF[self.kind])}


class AttemptInfo(Schema):
    attempt: int
    worker_id: str
    state: Literal["running", "succeeded", "failed", "cancelled", "released", "lost"]
    reason: str | None
    started_at: datetime
    finished_at: datetime | None


class JobInfo(Schema):
    """A unit in the queue. `attempt` = 0: not started yet.

    `payload`: what it works on. `result`: what it made beside the rows of its run. `position`
    (from 1) and `waiting` (why, in words) only while it is queued.
    """

    id: int
    run_id: int
    run_name: str
    kind: JobKind
    state: JobState
    is_cancel_requested: bool
    is_kill_requested: bool = False
    reason: str | None
    iteration: int | None = Field(description="Checkpoint it works on; null for training")
    payload: Config = Field(default={})
    result: dict[str, JsonValue] | None = None
    priority: int = 0
    labels: list[str] = Field(default=[])
    num_devices: int = 0
    devices: list[str] = Field(default=[])
    depends_on: list[int] = Field(default=[])
    position: int | None = None
    waiting: str | None = None
    token: str | None = Field(default=None, description="Name of the token that submitted it")
    attempt: int
    num_failures: int
    max_attempts: int
    worker_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    attempts: list[AttemptInfo]


class JobPage(Page[JobInfo]):
    """A page of jobs: running ones, the queue in its order, then ended ones, newest first."""


class PriorityRequest(Schema):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"priority": 10}]})

    priority: int = Field(ge=-1000, le=1000, description="Larger is sooner")


class MoveRequest(Schema):
    """`before` = null: to the front of the queue."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"before": 12}]})

    before: Id | None = None


class WorkerInfo(Schema):
    id: str
    host: str
    pid: int
    version: str
    is_alive: bool
    is_draining: bool = Field(default=False, description="Takes no further jobs")
    labels: list[str] = Field(default=[])
    devices: list[str] = Field(default=[])
    num_slots: int = 1
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    job_ids: list[int]


class WorkersResponse(Schema):
    workers: list[WorkerInfo]
