"""Search over branches, rescored branches, log lines that no late commit hides

Revision: 0011, after 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

SEARCH = "sero_branch_search(actions, task_id, task_type, reason)"


def upgrade():
    _widen_branches()
    op.execute(
        """
        CREATE FUNCTION sero_branch_search(
            actions text[], task_id text, task_type text, reason text
        ) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
            SELECT to_tsvector('simple', regexp_replace(
                task_id || ' ' || task_type || ' ' || reason || ' '
                    || array_to_string(actions, ' '), '[^[:alnum:]]+', ' ', 'g'
            ))
        $$
        """
    )
    op.create_index("ix_branches_search", "branches", [sa.text(SEARCH)], postgresql_using="gin")
    op.create_index(
        "ix_branches_facets",
        "branches",
        ["run_id", "iteration"],
        postgresql_include=[
            *("outcome", "task_type", "split", "oracle", "is_episode_won"),
            *("num_steps", "effective_depth", "differs_at_root"),
        ],
    )
    _create_rescores()
    made = sa.Column("transaction_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    op.add_column("log_lines", made)
    default = sa.text("(pg_current_xact_id()::text)::bigint")
    op.alter_column("log_lines", "transaction_id", server_default=default)


def downgrade():
    op.drop_column("log_lines", "transaction_id")
    op.drop_table("rescores")
    op.drop_index("ix_branches_facets", table_name="branches")
    op.drop_index("ix_branches_search", table_name="branches")
    op.execute("DROP FUNCTION sero_branch_search(text[], text, text, text)")
    op.drop_column("branches", "differs_at_root")
    op.drop_column("branches", "actions")


def _widen_branches():
    actions = postgresql.ARRAY(sa.Text())
    none = sa.text("'{}'")
    op.add_column("branches", sa.Column("actions", actions, server_default=none, nullable=False))
    op.add_column("branches", sa.Column("differs_at_root", sa.Boolean(), nullable=True))
    op.execute(
        """
        UPDATE branches SET actions = taken.actions, differs_at_root = taken.differs
        FROM (
            SELECT run_id, branch_id, array_agg(action ORDER BY depth) AS actions,
                bool_or(action <> policy_action) FILTER (WHERE depth = 0) AS differs
            FROM branch_steps GROUP BY run_id, branch_id
        ) AS taken
        WHERE branches.run_id = taken.run_id AND branches.branch_id = taken.branch_id
        """
    )


def _create_rescores():
    floats = postgresql.ARRAY(sa.Double())
    op.create_table(
        "rescores",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("branch_id", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("weights_hash", sa.Text(), nullable=False),
        sa.Column("effective_depth", sa.Double(), nullable=False),
        sa.Column("weights", floats, nullable=False),
        sa.Column("compatibilities", floats, nullable=False),
        sa.Column("logprob_means", floats, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_rescores_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(
            "run_id", "branch_id", "iteration", "job_id", name=op.f("pk_rescores")
        ),
    )
