"""Batches: what was shipped, with checksums; a second sign of life of running jobs

Revision: 0009, after 0008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "layouts",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("columns", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_layouts")),
    )
    _create_batches()
    op.add_column("attempts", sa.Column("shipped_at", sa.DateTime(timezone=True), nullable=True))
    # what ended before there were spools has nothing to ship
    op.execute("UPDATE attempts SET shipped_at = finished_at WHERE state <> 'running'")
    op.create_index(
        "ix_attempts_unshipped",
        "attempts",
        ["finished_at"],
        postgresql_where=sa.text("shipped_at IS NULL AND state <> 'running'"),
    )
    op.add_column("jobs", sa.Column("process_seen_at", sa.DateTime(timezone=True), nullable=True))


def downgrade():
    op.drop_column("jobs", "process_seen_at")
    op.drop_index("ix_attempts_unshipped", table_name="attempts")
    op.drop_column("attempts", "shipped_at")
    op.drop_table("batches")
    op.drop_table("layouts")


def _create_batches():
    op.create_table(
        "batches",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("is_current", sa.Boolean(), nullable=False),
        sa.Column("layout_id", sa.BigInteger(), nullable=False),
        sa.Column("contents", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "stored_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_batches_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "sequence", name=op.f("pk_batches")),
    )
    op.create_index("ix_batches_run_id", "batches", ["run_id"])
    op.create_index(
        "uq_batches_current",
        "batches",
        ["job_id", "iteration"],
        unique=True,
        postgresql_where=sa.text("is_current"),
    )
