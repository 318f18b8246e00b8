"""Runs, and how they are submitted."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from backend.schemas.base import Config, ConfigChange, FieldError, Number, Page, RunStatus, Schema
from backend.schemas.jobs import Id, JobInfo, JobRequest, PlacementFields


class SubmitRequest(PlacementFields):
    """What to train: one of `config` (whole), `preset` (by name) and `from_run` (a clone), with
    `overrides` (nested, or dotted keys) on top.

    `then`: jobs to queue behind the training; they are skipped when it does not succeed.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"preset": "sero_demo", "overrides": {"num_iterations": 20}, "name": "my run"},
                {"from_run": 12, "overrides": {"sero.reachability.beta": 0.5}},
                {"preset": "sero_demo", "labels": ["gpu"], "then": [{"kind": "evaluate"}]},
            ]
        },
    )

    config: Config | None = None
    preset: str | None = Field(default=None, max_length=100)
    from_run: Id | None = Field(default=None, description="Clone: start from this run's config")
    overrides: Config = Field(default_factory=dict[str, JsonValue])
    name: str | None = Field(default=None, description="Replaces the config's name")
    then: list[JobRequest] = Field(default=[], max_length=20)


class Estimate(Schema):
    """What a run will need. `basis` says where the numbers come from: `history` (runs with the same
    costs, measured) or `formula` (docs/jobs.md). Null: not known."""

    basis: Literal["history", "formula"]
    num_runs: int = Field(description="Measured runs behind `history`, else 0")
    duration_s: Number
    memory_bytes: int | None
    checkpoint_bytes: int | None
    disk_bytes: int | None
    explanation: str


class ValidationResponse(Schema):
    """The config as it would run, defaults filled in; what is odd about it; what it will need."""

    config: Config
    config_hash: str = Field(description="Equal for runs that differ only in name and seed")
    preset: str | None
    parent_run_id: int | None = None
    changes: list[ConfigChange] = Field(default=[], description="Against the parent's config")
    warnings: list[FieldError] = Field(default=[])
    estimate: Estimate | None = None


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
    parent_run_id: int | None = Field(default=None, description="The run that this one clones")
    sweep_id: int | None = None
    is_imported: bool = Field(default=False, description="Trained elsewhere and pushed here")
    git_commit: str | None = Field(default=None, description="Code that trained it")
    git_is_dirty: bool | None = Field(default=None, description="With changes on top")
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
    eval_test: Number
    best_eval_valid_seen: Number
    best_eval_valid_unseen: Number
    best_eval_test: Number


class RunPage(Page[RunSummary]):
    """A page of the run table."""


class RunDetail(RunSummary):
    """`changes`: what is different from the parent's config."""

    config: Config
    jobs: list[JobInfo]
    changes: list[ConfigChange] = Field(default=[])
    child_run_ids: list[int] = Field(default=[])


class ExtendRequest(Schema):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"num_iterations": 300}]}
    )

    num_iterations: int = Field(ge=1, le=100_000, description="The new total, more than before")


class EventInfo(Schema):
    id: int
    kind: str = Field(description="For instance `run.submitted`, `job.claimed`, `job.lost`")
    message: str
    run_id: int | None
    job_id: int | None
    attempt: int | None
    worker_id: str | None
    actor: str | None = Field(default=None, description="Name of the token that asked for it")
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
