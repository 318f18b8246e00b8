"""Episodes: the dense task score

In rows of earlier logs a task was won or not, so its score is 1 or 0.

Revision: 0008, after 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("episodes", sa.Column("score", sa.Double(), nullable=True))
    op.execute("UPDATE episodes SET score = is_won::int")
    op.alter_column("episodes", "score", nullable=False)


def downgrade():
    op.drop_column("episodes", "score")
