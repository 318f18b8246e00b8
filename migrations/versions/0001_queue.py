"""The queue: runs, jobs, attempts, workers, events, log lines

Revision: 0001, the first
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade():
    _create_runs()
    _create_workers()
    _create_events()
    _create_jobs()
    _index_jobs()
    _create_log_lines()
    _create_attempts()


def downgrade():
    op.drop_index(
        "uq_attempts_one_live", table_name="attempts", postgresql_where=sa.text("state='running'")
    )
    op.drop_table("attempts")
    op.drop_index("ix_log_lines_run_id_id", table_name="log_lines")
    op.drop_table("log_lines")
    op.drop_index(
        "uq_jobs_one_training", table_name="jobs", postgresql_where=sa.text("kind='train'")
    )
    op.drop_index(op.f("ix_jobs_run_id"), table_name="jobs")
    op.drop_index("ix_jobs_queue", table_name="jobs", postgresql_where=sa.text("state='queued'"))
    op.drop_index("ix_jobs_lease", table_name="jobs", postgresql_where=sa.text("state='running'"))
    op.drop_table("jobs")
    op.drop_index("ix_events_run_id_id", table_name="events")
    op.drop_table("events")
    op.drop_table("workers")
    op.drop_index(op.f("ix_runs_config_hash"), table_name="runs")
    op.drop_table("runs")


def _create_runs():
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("env", sa.Text(), nullable=False),
        sa.Column("preset", sa.Text(), nullable=True),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.Column("num_iterations", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("iteration", sa.Integer(), nullable=True),
        sa.Column("success", sa.Double(), nullable=True),
        sa.Column("best_success", sa.Double(), nullable=True),
        sa.Column("effective_depth", sa.Double(), nullable=True),
        sa.Column("num_branches", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("num_episodes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("eval_valid_seen", sa.Double(), nullable=True),
        sa.Column("eval_valid_unseen", sa.Double(), nullable=True),
        sa.Column("best_eval_valid_seen", sa.Double(), nullable=True),
        sa.Column("best_eval_valid_unseen", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_runs_idempotency_key")),
    )
    op.create_index(op.f("ix_runs_config_hash"), "runs", ["config_hash"], unique=False)


def _create_workers():
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "heartbeat_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )


def _create_events():
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_events_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_run_id_id", "events", ["run_id", "id"], unique=False)


def _create_jobs():
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "is_cancel_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("num_failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "queued_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state = 'running') = (lease_expires_at IS NOT NULL)",
            name=op.f("ck_jobs_running_has_lease"),
        ),
        sa.CheckConstraint(
            "(state IN ('queued', 'running')) = (finished_at IS NULL)",
            name=op.f("ck_jobs_ended_has_time"),
        ),
        sa.CheckConstraint("kind IN ('train', 'branch', 'evaluate')", name=op.f("ck_jobs_kind")),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.CheckConstraint(
            "finished_at IS NULL OR reason IS NOT NULL", name=op.f("ck_jobs_ended_has_reason")
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_jobs_run_id_runs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_jobs_worker_id_workers")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )


def _index_jobs():
    op.create_index(
        "ix_jobs_lease",
        "jobs",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("state='running'"),
    )
    op.create_index(
        "ix_jobs_queue",
        "jobs",
        ["priority", "id"],
        unique=False,
        postgresql_where=sa.text("state='queued'"),
    )
    op.create_index(op.f("ix_jobs_run_id"), "jobs", ["run_id"], unique=False)
    op.create_index(
        "uq_jobs_one_training",
        "jobs",
        ["run_id"],
        unique=True,
        postgresql_where=sa.text("kind='train'"),
    )


def _create_log_lines():
    op.create_table(
        "log_lines",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_log_lines_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_lines")),
        sa.UniqueConstraint(
            "job_id", "attempt", "line", name=op.f("uq_log_lines_job_id_attempt_line")
        ),
    )
    op.create_index("ix_log_lines_run_id_id", "log_lines", ["run_id", "id"], unique=False)


def _create_attempts():
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state = 'running') = (finished_at IS NULL) "
            "AND (state = 'running' OR reason IS NOT NULL)",
            name=op.f("ck_attempts_ended_has_time_and_reason"),
        ),
        sa.CheckConstraint(
            "state IN ('running', 'succeeded', 'failed', 'cancelled', 'released', 'lost')",
            name=op.f("ck_attempts_state"),
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_attempts_worker_id_workers")
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", name=op.f("pk_attempts")),
    )
    op.create_index(
        "uq_attempts_one_live",
        "attempts",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("state='running'"),
    )
