"""Ingredients of the weight rules, thoughts and controls of branches

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STEP_COLUMNS = {
    "thought": sa.Text(),
    "loss_mask": postgresql.ARRAY(sa.Boolean()),
    "loss_weight": sa.Double(),
    "greedy_logprob_mean": sa.Double(),
    "admissible_logprobs": postgresql.ARRAY(sa.Double()),
    "admissible_index": sa.Integer(),
    "num_samples": sa.Integer(),
    "num_matches": sa.Integer(),
}


def upgrade():
    op.add_column(
        "branches", sa.Column("tau", sa.Double(), server_default=sa.text("1"), nullable=False)
    )
    op.add_column("branches", sa.Column("control", sa.Text(), nullable=True))
    for name, kind in STEP_COLUMNS.items():
        op.add_column("branch_steps", sa.Column(name, kind, nullable=True))


def downgrade():
    for name in STEP_COLUMNS:
        op.drop_column("branch_steps", name)
    op.drop_column("branches", "control")
    op.drop_column("branches", "tau")
