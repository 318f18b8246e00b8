"""Evaluations: conditions, macro rate, episodes apart from tasks, seeds

Rows of earlier logs have no conditions, and each task was played once.

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("evaluations", sa.Column("macro_rate", sa.Double(), nullable=True))
    op.add_column("evaluations", sa.Column("conditions", postgresql.JSONB(), nullable=True))
    op.add_column("eval_outcomes", sa.Column("seed", sa.BigInteger(), nullable=True))
    op.add_column("eval_results", sa.Column("num_episodes", sa.Integer(), nullable=True))
    op.execute("UPDATE eval_results SET num_episodes = num_tasks")
    op.alter_column("eval_results", "num_episodes", nullable=False)


def downgrade():
    op.drop_column("eval_results", "num_episodes")
    op.drop_column("eval_outcomes", "seed")
    op.drop_column("evaluations", "conditions")
    op.drop_column("evaluations", "macro_rate")
