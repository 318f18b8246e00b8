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
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
Json = dict[str, JsonValue]


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it as a class attribute)
        datetime: DateTime(timezone=True),
        str: Text(),
        float: Double(),
        Json: JSONB(),
    }


class Run(Base):
    """An experiment: config and seed. The columns from `iteration` on summarize what its training
    wrote, so that the run table never reads facts. Its status is its training job's state."""

    __tablename__ = "runs"

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

    iteration: Mapped[int | None]
    success: Mapped[float | None]
    best_success: Mapped[float | None]
    effective_depth: Mapped[float | None]
    num_branches: Mapped[int] = mapped_column(server_default=text("0"))
    num_episodes: Mapped[int] = mapped_column(server_default=text("0"))
    eval_valid_seen: Mapped[float | None]
    eval_valid_unseen: Mapped[float | None]
    best_eval_valid_seen: Mapped[float | None]
    best_eval_valid_unseen: Mapped[float | None]


class Worker(Base):
    """A worker process. Alive = not stopped and a heartbeat within its lease."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    version: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    heartbeat_at: Mapped[datetime] = mapped_column(server_default=func.now())
    lease_expires_at: Mapped[datetime]
    stopped_at: Mapped[datetime | None]


class Job(Base):
    """A unit in the queue; `backend/db/queries/jobs.py` is its state machine.

    `attempt` is the fencing token: it grows with each claim, and only its holder may write.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint("kind IN ('train', 'branch', 'evaluate')", name="kind"),
        CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"
        ),
        CheckConstraint(
            "(state IN ('queued', 'running')) = (finished_at IS NULL)", name="ended_has_time"
        ),
        CheckConstraint("finished_at IS NULL OR reason IS NOT NULL", name="ended_has_reason"),
        CheckConstraint(
            "(state = 'running') = (lease_expires_at IS NOT NULL)", name="running_has_lease"
        ),
        Index("uq_jobs_one_training", "run_id", unique=True, postgresql_where=text("kind='train'")),
        Index("ix_jobs_queue", "priority", "id", postgresql_where=text("state='queued'")),
        Index("ix_jobs_lease", "lease_expires_at", postgresql_where=text("state='running'")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str]
    state: Mapped[str] = mapped_column(server_default=text("'queued'"))
    payload: Mapped[Json]
    priority: Mapped[int] = mapped_column(server_default=text("0"))
    is_cancel_requested: Mapped[bool] = mapped_column(server_default=text("false"))
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
    lease_expires_at: Mapped[datetime | None]


class Attempt(Base):
    """One try of a job."""

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


class Event(Base):
    """One state change: who did what to which job, in words. Never changed, only appended."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_run_id_id", "run_id", "id"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    kind: Mapped[str]
    message: Mapped[str]
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    job_id: Mapped[int | None]
    attempt: Mapped[int | None]
    worker_id: Mapped[str | None]
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
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ApiToken(Base):
    """A token of the API. `secret_hash` is the SHA-256 of its secret in hex; the secret is stored
    nowhere. `scope` includes what stands before it: read, submit, admin."""

    __tablename__ = "api_tokens"
    __table_args__ = (CheckConstraint("scope IN ('read', 'submit', 'admin')", name="scope"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    scope: Mapped[str]
    secret_hash: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
