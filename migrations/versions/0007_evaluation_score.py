"""Evaluations: the dense task score of each episode, and its mean

In rows of earlier logs a task was won or not, so its score is 1 or 0.

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("eval_results", sa.Column("mean_score", sa.Double(), nullable=True))
    op.execute("UPDATE eval_results SET mean_score = rate")
    op.alter_column("eval_results", "mean_score", nullable=False)
    op.add_column("eval_outcomes", sa.Column("score", sa.Double(), nullable=True))
    op.execute("UPDATE eval_outcomes SET score = is_won::int")
    op.alter_column("eval_outcomes", "score", nullable=False)


def downgrade():
    op.drop_column("eval_outcomes", "score")
    op.drop_column("eval_results", "mean_score")
