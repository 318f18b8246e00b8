"""Runs and iterations: success on the panel `test`, which WebShop has in place of seen and unseen

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("iterations", sa.Column("eval_test", sa.Double(), nullable=True))
    op.add_column("runs", sa.Column("eval_test", sa.Double(), nullable=True))
    op.add_column("runs", sa.Column("best_eval_test", sa.Double(), nullable=True))


def downgrade():
    op.drop_column("runs", "best_eval_test")
    op.drop_column("runs", "eval_test")
    op.drop_column("iterations", "eval_test")
