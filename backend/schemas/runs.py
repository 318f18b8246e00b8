"""Runs, jobs, workers, and how a run is submitted."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from backend.schemas.base import Config, JobKind, JobState, Number, Page, RunStatus, Schema


class SubmitRequest(Schema):
    """Either a whole `config`, or a `preset` with `overrides` (nested, or dotted keys)."""

    model_config = ConfigDict(extra="forbid")

    config: Config | None = None
    preset: str | None = None
    overrides: Config = Field(default_factory=dict[str, JsonValue])
    name: str | None = Field(default=None, description="Replaces the config's name")


class ValidationResponse(Schema):
    """The config as it would run, defaults filled in."""

    config: Config
    config_hash: str = Field(description="Equal for runs that differ only in name and seed")
    preset: str | None


class Preset(Schema):
    """A named method: one TOML file of `configs/`. `config` has the defaults filled in."""

    name: str
    description: str
    overrides: Config = Field(description="What the file itself sets")
    config: Config


class ConfigSchemaResponse(Schema):
    """JSON Schema of the run config (forms are generated from it), its defaults and the presets."""

    json_schema: Config
    defaults: Config
    presets: list[Preset]


class JobRequest(Schema):
    """A job on a checkpoint of an existing run. `iteration` = null: the newest checkpoint."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["branch", "evaluate"]
    iteration: int | None = Field(default=None, ge=0)


class RunSummary(Schema):
    """One row of the run table. `success`, `effective_depth`, `eval_*` are the latest values."""

    id: int
    name: str
    status: RunStatus
    reason: str | None = Field(description="Why it ended; null while it has not")
    method: str = Field(description="`sero` or the name of the estimator")
    env: str
    preset: str | None
    seed: int
    config_hash: str
    iteration: int | None = Field(description="Newest stored iteration; null before the first")
    num_iterations: int
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None = Field(description="Last sign of life of its worker")
    success: Number
    best_success: Number
    effective_depth: Number
    num_branches: int
    num_episodes: int
    eval_valid_seen: Number
    eval_valid_unseen: Number
    best_eval_valid_seen: Number
    best_eval_valid_unseen: Number


class AttemptInfo(Schema):
    attempt: int
    worker_id: str
    state: Literal["running", "succeeded", "failed", "cancelled", "released", "lost"]
    reason: str | None
    started_at: datetime
    finished_at: datetime | None


class JobInfo(Schema):
    """A unit in the queue. `attempt` = 0: not started yet."""

    id: int
    run_id: int
    run_name: str
    kind: JobKind
    state: JobState
    is_cancel_requested: bool
    reason: str | None
    iteration: int | None = Field(description="Checkpoint it works on; null for training")
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


class RunPage(Page[RunSummary]):
    """A page of the run table."""


class RunDetail(RunSummary):
    config: Config
    jobs: list[JobInfo]


class WorkerInfo(Schema):
    id: str
    host: str
    pid: int
    version: str
    is_alive: bool
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    job_ids: list[int]


class EventInfo(Schema):
    id: int
    kind: str = Field(description="For instance `run.submitted`, `job.claimed`, `job.lost`")
    message: str
    run_id: int | None
    job_id: int | None
    attempt: int | None
    worker_id: str | None
    created_at: datetime


class EventsResponse(Schema):
    """Oldest first. Ask again with `since=next_since`."""

    events: list[EventInfo]
    next_since: int


class LogLine(Schema):
    id: int
    job_id: int
    attempt: int
    line: int
    text: str
    created_at: datetime


class LogResponse(Schema):
    """Oldest first. Ask again with `since=next_since`. `num_skipped` older lines were left out."""

    lines: list[LogLine]
    next_since: int
    num_skipped: int


class JobsResponse(Schema):
    jobs: list[JobInfo]


class WorkersResponse(Schema):
    workers: list[WorkerInfo]


class ComponentHealth(Schema):
    is_ok: bool
    message: str


class HealthResponse(Schema):
    """`is_ok`: database and broker answer and at least one worker is alive."""

    is_ok: bool
    database: ComponentHealth
    broker: ComponentHealth
    workers: ComponentHealth
    num_workers_alive: int
    num_jobs_queued: int
    num_jobs_running: int
    version: str
    schema_revision: str | None
    server_time: datetime
