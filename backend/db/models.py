"""The tables: what is queued and who works on it. What runs write is in `records.py`.

Every time is UTC and ends in `_at`; every constraint has a name by the convention below. Rows are
read and written through `backend/db/queries` and `backend/db/ingest`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import JsonValue
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
Json = dict[str, JsonValue]
Strings = ARRAY(Text)
JOB_KINDS: Final = "'train', 'branch', 'branch_from_here', 'rescore', 'evaluate', 'export'"
_NO_STRINGS = text("'{}'")
_FALSE = text("false")
_TRANSACTION = text("(pg_current_xact_id()::text)::bigint")


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it as a class attribute)
        datetime: DateTime(timezone=True),
        str: Text(),
        float: Double(),
        Json: JSONB(),
    }


class Sweep(Base):
    """Runs that were submitted together: a grid of config values times seeds."""

    __tablename__ = "sweeps"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    name: Mapped[str]
    request: Mapped[Json]
    num_runs: Mapped[int]
    idempotency_key: Mapped[str | None] = mapped_column(unique=True)
    request_hash: Mapped[str]
    token_id: Mapped[str | None] = mapped_column(ForeignKey("api_tokens.id", ondelete="SET NULL"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Run(Base):
    """An experiment: config and seed. The columns from `iteration` on summarize what its training
    wrote, so that the run table never reads facts. Its status is its training job's state.

    `parent_run_id`: the run that this one was cloned from. `import_hash` names a run that was
    trained elsewhere and pushed here. `git_*`: the code that trained it, null before the start."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_parent_run_id", "parent_run_id"),
        Index("ix_runs_sweep_id", "sweep_id"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    name: Mapped[str]
    method: Mapped[str]
    env: Mapped[str]
    preset: Mapped[str | None]
    seed: Mapped[int]
    config: Mapped[Json]
    config_hash: Mapped[str] = mapped_column(index=True)
    num_iterations: Mapped[int]
    idempotency_key: Mapped[str | None] = mapped_column(unique=True)
    request_hash: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    parent_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"))
    sweep_id: Mapped[int | None] = mapped_column(ForeignKey("sweeps.id", ondelete="SET NULL"))
    token_id: Mapped[str | None] = mapped_column(ForeignKey("api_tokens.id", ondelete="SET NULL"))
    import_hash: Mapped[str | None] = mapped_column(unique=True)
    git_commit: Mapped[str | None]
    git_is_dirty: Mapped[bool | None]

    iteration: Mapped[int | None]
    success: Mapped[float | None]
    best_success: Mapped[float | None]
    effective_depth: Mapped[float | None]
    num_branches: Mapped[int] = mapped_column(server_default=text("0"))
    num_episodes: Mapped[int] = mapped_column(server_default=text("0"))
    eval_valid_seen: Mapped[float | None]
    eval_valid_unseen: Mapped[float | None]
    eval_test: Mapped[float | None]
    best_eval_valid_seen: Mapped[float | None]
    best_eval_valid_unseen: Mapped[float | None]
    best_eval_test: Mapped[float | None]


class Worker(Base):
    """A worker process. Alive = not stopped and a heartbeat within its lease.

    It takes a job whose `labels` are all among its own, while it has a free slot and enough free
    `devices`, and while it is not draining.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    version: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    heartbeat_at: Mapped[datetime] = mapped_column(server_default=func.now())
    lease_expires_at: Mapped[datetime]
    stopped_at: Mapped[datetime | None]
    labels: Mapped[list[str]] = mapped_column(Strings, server_default=_NO_STRINGS)
    devices: Mapped[list[str]] = mapped_column(Strings, server_default=_NO_STRINGS)
    num_slots: Mapped[int] = mapped_column(server_default=text("1"))
    is_draining: Mapped[bool] = mapped_column(server_default=_FALSE)


class Job(Base):
    """A unit in the queue; `backend/db/queries/jobs.py` is its state machine.

    `attempt` is the fencing token: it grows with each claim, and only its holder may write.
    The queue's order: `priority` (larger first), then `position` (null: the job's id), then `id`.
    `payload`: what the job works on; `result`: what it made, beside the rows of its run.
    `heartbeat_at`: the lease's holder renewed it; `process_seen_at`: the worker's main process saw
    the holder alive. A worker counts as dead when both are silent.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"kind IN ({JOB_KINDS})", name="kind"),
        CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'skipped')",
            name="state",
        ),
        CheckConstraint(
            "(state IN ('queued', 'running')) = (finished_at IS NULL)", name="ended_has_time"
        ),
        CheckConstraint("finished_at IS NULL OR reason IS NOT NULL", name="ended_has_reason"),
        CheckConstraint(
            "(state = 'running') = (lease_expires_at IS NOT NULL)", name="running_has_lease"
        ),
        Index("uq_jobs_one_training", "run_id", unique=True, postgresql_where=text("kind='train'")),
        Index(
            "ix_jobs_queue",
            text("priority DESC"),
            text("coalesce(position, id)"),
            "id",
            postgresql_where=text("state='queued'"),
        ),
        Index("ix_jobs_lease", "lease_expires_at", postgresql_where=text("state='running'")),
        Index("ix_jobs_worker_id", "worker_id", postgresql_where=text("state='running'")),
        Index(
            "ix_jobs_token_id", "token_id", postgresql_where=text("state IN ('queued', 'running')")
        ),
        Index(
            "ix_jobs_ended", "finished_at", "id", postgresql_where=text("finished_at IS NOT NULL")
        ),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str]
    state: Mapped[str] = mapped_column(server_default=text("'queued'"))
    payload: Mapped[Json]
    result: Mapped[Json | None]
    priority: Mapped[int] = mapped_column(server_default=text("0"))
    position: Mapped[float | None]
    labels: Mapped[list[str]] = mapped_column(Strings, server_default=_NO_STRINGS)
    num_devices: Mapped[int] = mapped_column(server_default=text("0"))
    devices: Mapped[list[str]] = mapped_column(Strings, server_default=_NO_STRINGS)
    token_id: Mapped[str | None] = mapped_column(ForeignKey("api_tokens.id", ondelete="SET NULL"))
    idempotency_key: Mapped[str | None] = mapped_column(unique=True)
    request_hash: Mapped[str | None]
    is_cancel_requested: Mapped[bool] = mapped_column(server_default=_FALSE)
    is_kill_requested: Mapped[bool] = mapped_column(server_default=_FALSE)
    reason: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(server_default=text("0"))
    num_failures: Mapped[int] = mapped_column(server_default=text("0"))
    max_attempts: Mapped[int]
    worker_id: Mapped[str | None] = mapped_column(ForeignKey("workers.id"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    queued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    process_seen_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]


class JobDependency(Base):
    """`job_id` starts once `depends_on` succeeded, and is skipped when it ends in another way."""

    __tablename__ = "job_dependencies"
    __table_args__ = (Index("ix_job_dependencies_depends_on", "depends_on"),)

    job_id: Mapped[int] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    depends_on: Mapped[int] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )


class Attempt(Base):
    """One try of a job. `shipped_at`: everything that its process wrote is in the database."""

    __tablename__ = "attempts"
    __table_args__ = (
        CheckConstraint(
            "state IN ('running', 'succeeded', 'failed', 'cancelled', 'released', 'lost')",
            name="state",
        ),
        CheckConstraint(
            "(state = 'running') = (finished_at IS NULL) "
            "AND (state = 'running' OR reason IS NOT NULL)",
            name="ended_has_time_and_reason",
        ),
        Index(
            "uq_attempts_one_live", "job_id", unique=True, postgresql_where=text("state='running'")
        ),
        Index(
            "ix_attempts_unshipped",
            "finished_at",
            postgresql_where=text("shipped_at IS NULL AND state <> 'running'"),
        ),
    )

    job_id: Mapped[int] = mapped_column(
        ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"))
    state: Mapped[str] = mapped_column(server_default=text("'running'"))
    reason: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]
    shipped_at: Mapped[datetime | None]


class Event(Base):
    """One state change: who did what to which job, in words. Never changed, only appended.

    `actor`: the token's name, or null for the platform itself. `transaction_id` lets a reader that
    follows ids wait for transactions that took a smaller id and are not committed yet.
    """

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_run_id_id", "run_id", "id"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    kind: Mapped[str]
    message: Mapped[str]
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    job_id: Mapped[int | None]
    attempt: Mapped[int | None]
    worker_id: Mapped[str | None]
    actor: Mapped[str | None]
    transaction_id: Mapped[int] = mapped_column(BigInteger, server_default=_TRANSACTION)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class LogLine(Base):
    """A line that a job's process printed. `line` counts from 0 within the attempt."""

    __tablename__ = "log_lines"
    __table_args__ = (
        UniqueConstraint("job_id", "attempt", "line"),
        Index("ix_log_lines_run_id_id", "run_id", "id"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    job_id: Mapped[int]
    attempt: Mapped[int]
    line: Mapped[int]
    text: Mapped[str]
    transaction_id: Mapped[int] = mapped_column(BigInteger, server_default=_TRANSACTION)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ApiToken(Base):
    """A token of the API. `secret_hash` is the SHA-256 of its secret in hex; the secret is stored
    nowhere. `scope` includes what stands before it: read, submit, admin. `max_queued`,
    `max_running`: jobs that it may have at a time (null: any number)."""

    __tablename__ = "api_tokens"
    __table_args__ = (CheckConstraint("scope IN ('read', 'submit', 'admin')", name="scope"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    scope: Mapped[str]
    secret_hash: Mapped[str]
    max_queued: Mapped[int | None]
    max_running: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
