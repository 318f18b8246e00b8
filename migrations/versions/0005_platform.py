"""Job kinds, dependencies, labels, devices, quotas, sweeps, lineage; a change feed

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OLD_KINDS = "'train', 'branch', 'evaluate'"
NEW_KINDS = "'train', 'branch', 'branch_from_here', 'rescore', 'evaluate', 'export'"
OLD_STATES = "'queued', 'running', 'succeeded', 'failed', 'cancelled'"
STRINGS = postgresql.ARRAY(sa.Text())
NO_STRINGS = sa.text("'{}'")
FALSE = sa.text("false")


def upgrade():
    for column in ("max_queued", "max_running"):
        op.add_column("api_tokens", sa.Column(column, sa.Integer(), nullable=True))
    _create_sweeps()
    _widen_runs()
    _widen_workers()
    _widen_jobs()
    _index_jobs()
    _create_dependencies()
    _widen_events()
    _notify()


def downgrade():
    for table in ("events", "iterations", "log_lines"):
        op.execute(f"DROP TRIGGER {table}_changed ON {table}")
    op.execute("DROP FUNCTION sero_changed()")
    op.drop_column("events", "transaction_id")
    op.drop_column("events", "actor")
    op.drop_table("job_dependencies")
    _narrow_jobs()
    for column in ("is_draining", "num_slots", "devices", "labels"):
        op.drop_column("workers", column)
    op.drop_index("ix_runs_sweep_id", table_name="runs")
    op.drop_index("ix_runs_parent_run_id", table_name="runs")
    columns = ("git_is_dirty", "git_commit", "import_hash", "token_id", "sweep_id", "parent_run_id")
    for column in columns:
        op.drop_column("runs", column)
    op.drop_table("sweeps")
    op.drop_column("api_tokens", "max_running")
    op.drop_column("api_tokens", "max_queued")


def _create_sweeps():
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("num_runs", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("token_id", sa.Text(), nullable=True),
        _created_at(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_sweeps_idempotency_key")),
        sa.ForeignKeyConstraint(
            ["token_id"],
            ["api_tokens.id"],
            name=op.f("fk_sweeps_token_id_api_tokens"),
            ondelete="SET NULL",
        ),
    )


def _widen_runs():
    for column, kind, target in (
        ("parent_run_id", sa.Integer(), "runs"),
        ("sweep_id", sa.Integer(), "sweeps"),
        ("token_id", sa.Text(), "api_tokens"),
    ):
        op.add_column("runs", sa.Column(column, kind, nullable=True))
        name = op.f(f"fk_runs_{column}_{target}")
        op.create_foreign_key(name, "runs", target, [column], ["id"], ondelete="SET NULL")
    op.add_column("runs", sa.Column("import_hash", sa.Text(), nullable=True))
    op.create_unique_constraint(op.f("uq_runs_import_hash"), "runs", ["import_hash"])
    op.add_column("runs", sa.Column("git_commit", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("git_is_dirty", sa.Boolean(), nullable=True))
    op.create_index("ix_runs_parent_run_id", "runs", ["parent_run_id"])
    op.create_index("ix_runs_sweep_id", "runs", ["sweep_id"])


def _widen_workers():
    op.add_column("workers", _strings("labels"))
    op.add_column("workers", _strings("devices"))
    slots = sa.Column("num_slots", sa.Integer(), server_default=sa.text("1"), nullable=False)
    op.add_column("workers", slots)
    op.add_column("workers", _flag("is_draining"))


def _widen_jobs():
    op.add_column(
        "jobs", sa.Column("result", postgresql.JSONB(astext_type=sa.Text()), nullable=True)
    )
    op.add_column("jobs", sa.Column("position", sa.Double(), nullable=True))
    op.add_column("jobs", _strings("labels"))
    devices = sa.Column("num_devices", sa.Integer(), server_default=sa.text("0"), nullable=False)
    op.add_column("jobs", devices)
    op.add_column("jobs", _strings("devices"))
    op.add_column("jobs", sa.Column("token_id", sa.Text(), nullable=True))
    name = op.f("fk_jobs_token_id_api_tokens")
    op.create_foreign_key(name, "jobs", "api_tokens", ["token_id"], ["id"], ondelete="SET NULL")
    op.add_column("jobs", sa.Column("idempotency_key", sa.Text(), nullable=True))
    op.create_unique_constraint(op.f("uq_jobs_idempotency_key"), "jobs", ["idempotency_key"])
    op.add_column("jobs", sa.Column("request_hash", sa.Text(), nullable=True))
    op.add_column("jobs", _flag("is_kill_requested"))
    _replace_checks(NEW_KINDS, f"{OLD_STATES}, 'skipped'")


def _index_jobs():
    op.drop_index("ix_jobs_queue", table_name="jobs")
    op.create_index(
        "ix_jobs_queue",
        "jobs",
        [sa.text("priority DESC"), sa.text("coalesce(position, id)"), "id"],
        postgresql_where=sa.text("state='queued'"),
    )
    running = sa.text("state='running'")
    op.create_index("ix_jobs_worker_id", "jobs", ["worker_id"], postgresql_where=running)
    is_open = sa.text("state IN ('queued', 'running')")
    op.create_index("ix_jobs_token_id", "jobs", ["token_id"], postgresql_where=is_open)
    ended = sa.text("finished_at IS NOT NULL")
    op.create_index("ix_jobs_ended", "jobs", ["finished_at", "id"], postgresql_where=ended)


def _narrow_jobs():
    """Jobs that the older version does not know are dropped; a skipped one was cancelled."""
    op.execute(f"DELETE FROM jobs WHERE kind NOT IN ({OLD_KINDS})")
    op.execute("UPDATE jobs SET state = 'cancelled' WHERE state = 'skipped'")
    _replace_checks(OLD_KINDS, OLD_STATES)
    for index in ("ix_jobs_ended", "ix_jobs_token_id", "ix_jobs_worker_id", "ix_jobs_queue"):
        op.drop_index(index, table_name="jobs")
    queued = sa.text("state='queued'")
    op.create_index("ix_jobs_queue", "jobs", ["priority", "id"], postgresql_where=queued)
    for column in (
        "is_kill_requested",
        "request_hash",
        "idempotency_key",
        "token_id",
        "devices",
        "num_devices",
        "labels",
        "position",
        "result",
    ):
        op.drop_column("jobs", column)


def _replace_checks(kinds, states):
    for name, condition in (("kind", f"kind IN ({kinds})"), ("state", f"state IN ({states})")):
        op.drop_constraint(op.f(f"ck_jobs_{name}"), "jobs", type_="check")
        op.create_check_constraint(op.f(f"ck_jobs_{name}"), "jobs", condition)


def _create_dependencies():
    def job(column):
        return sa.ForeignKeyConstraint(
            [column],
            ["jobs.id"],
            name=op.f(f"fk_job_dependencies_{column}_jobs"),
            ondelete="CASCADE",
        )

    op.create_table(
        "job_dependencies",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("depends_on", sa.Integer(), autoincrement=False, nullable=False),
        job("job_id"),
        job("depends_on"),
        sa.PrimaryKeyConstraint("job_id", "depends_on", name=op.f("pk_job_dependencies")),
    )
    op.create_index("ix_job_dependencies_depends_on", "job_dependencies", ["depends_on"])


def _widen_events():
    op.add_column("events", sa.Column("actor", sa.Text(), nullable=True))
    # earlier events count as older than every transaction
    made = sa.Column("transaction_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    op.add_column("events", made)
    default = sa.text("(pg_current_xact_id()::text)::bigint")
    op.alter_column("events", "transaction_id", server_default=default)


def _notify():
    """One message per transaction and run: listeners learn that there is something to read."""
    op.execute(
        """
        CREATE FUNCTION sero_changed() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('sero', TG_TABLE_NAME || ':' || coalesce(run_id, 0))
                FROM new_rows GROUP BY run_id;
            RETURN NULL;
        END $$
        """
    )
    for table in ("events", "iterations", "log_lines"):
        op.execute(
            f"CREATE TRIGGER {table}_changed AFTER INSERT ON {table} "
            "REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sero_changed()"
        )


def _created_at():
    return sa.Column(
        "created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
    )


def _strings(name):
    return sa.Column(name, STRINGS, server_default=NO_STRINGS, nullable=False)


def _flag(name):
    return sa.Column(name, sa.Boolean(), server_default=FALSE, nullable=False)
