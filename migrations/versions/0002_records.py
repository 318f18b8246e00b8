"""The records: metrics, episodes, branches, evaluations, checkpoints, texts

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade():
    _create_branch_steps()
    _create_eval_outcomes()
    _create_eval_results()
    _create_metrics()
    _create_steps()
    _create_texts()
    _create_branches()
    _create_checkpoints()
    _create_episodes()
    _create_evaluations()
    _create_iterations()


def downgrade():
    op.drop_table("iterations")
    op.drop_index("ix_evaluations_run_id_iteration", table_name="evaluations")
    op.drop_table("evaluations")
    op.drop_index("ix_episodes_run_id_iteration_ordinal", table_name="episodes")
    op.drop_table("episodes")
    op.drop_table("checkpoints")
    op.drop_index("ix_branches_run_id_iteration_ordinal", table_name="branches")
    op.drop_index("ix_branches_run_id_episode_id", table_name="branches")
    op.drop_table("branches")
    op.drop_table("texts")
    op.drop_table("steps")
    op.drop_table("metrics")
    op.drop_table("eval_results")
    op.drop_table("eval_outcomes")
    op.drop_index(
        "ix_branch_steps_depth_map",
        table_name="branch_steps",
        postgresql_include=["weight", "job_id"],
    )
    op.drop_table("branch_steps")


def _create_branch_steps():
    op.create_table(
        "branch_steps",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("branch_id", sa.Text(), nullable=False),
        sa.Column("depth", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("observation_id", sa.BigInteger(), nullable=False),
        sa.Column("admissible_id", sa.BigInteger(), nullable=False),
        sa.Column("prompt_id", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("token_ids", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("tokens", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("logprobs", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("scored", postgresql.ARRAY(sa.Boolean()), nullable=False),
        sa.Column("action_logprob_mean", sa.Double(), nullable=False),
        sa.Column("action_logprob_sum", sa.Double(), nullable=False),
        sa.Column("compatibility", sa.Double(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("policy_action", sa.Text(), nullable=True),
        sa.Column("probe_action", sa.Text(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("state_hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "branch_id", "depth", name=op.f("pk_branch_steps")),
    )
    op.create_index(
        "ix_branch_steps_depth_map",
        "branch_steps",
        ["run_id", "iteration", "depth"],
        unique=False,
        postgresql_include=["weight", "job_id"],
    )


def _create_eval_outcomes():
    op.create_table(
        "eval_outcomes",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("is_won", sa.Boolean(), nullable=False),
        sa.Column("num_steps", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(
            "run_id", "job_id", "evaluation_id", "ordinal", name=op.f("pk_eval_outcomes")
        ),
    )


def _create_eval_results():
    op.create_table(
        "eval_results",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("num_tasks", sa.Integer(), nullable=False),
        sa.Column("num_won", sa.Integer(), nullable=False),
        sa.Column("rate", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("mean_steps", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "run_id", "job_id", "evaluation_id", "ordinal", name=op.f("pk_eval_results")
        ),
    )


def _create_metrics():
    op.create_table(
        "metrics",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "job_id", "key", "iteration", name=op.f("pk_metrics")),
    )


def _create_steps():
    op.create_table(
        "steps",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("episode_id", sa.Text(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("observation_id", sa.BigInteger(), nullable=False),
        sa.Column("admissible_id", sa.BigInteger(), nullable=False),
        sa.Column("response_id", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("token_ids", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("logprobs", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("is_valid", sa.Boolean(), nullable=False),
        sa.Column("is_admissible", sa.Boolean(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("state_hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "episode_id", "index", name=op.f("pk_steps")),
    )


def _create_texts():
    op.create_table(
        "texts",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_texts")),
    )


def _create_branches():
    op.create_table(
        "branches",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("branch_id", sa.Text(), nullable=False),
        sa.Column("episode_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("env", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("root_index", sa.Integer(), nullable=False),
        sa.Column("root_rule", sa.Text(), nullable=False),
        sa.Column("oracle", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("root_hash", sa.Text(), nullable=False),
        sa.Column("restored_hash", sa.Text(), nullable=False),
        sa.Column("weight_rule", sa.Text(), nullable=False),
        sa.Column("beta", sa.Double(), nullable=False),
        sa.Column("is_trained", sa.Boolean(), nullable=False),
        sa.Column("is_episode_won", sa.Boolean(), nullable=True),
        sa.Column("effective_depth", sa.Double(), nullable=False),
        sa.Column("num_steps", sa.Integer(), nullable=False),
        sa.Column("weights", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("final_observation_id", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_branches_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "branch_id", name=op.f("pk_branches")),
    )
    op.create_index(
        "ix_branches_run_id_episode_id", "branches", ["run_id", "episode_id"], unique=False
    )
    op.create_index(
        "ix_branches_run_id_iteration_ordinal",
        "branches",
        ["run_id", "iteration", "ordinal"],
        unique=False,
    )


def _create_checkpoints():
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("weights_hash", sa.Text(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_checkpoints_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "job_id", "iteration", name=op.f("pk_checkpoints")),
    )


def _create_episodes():
    op.create_table(
        "episodes",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("episode_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("group_index", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("env", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("task_type", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("is_won", sa.Boolean(), nullable=False),
        sa.Column("is_truncated", sa.Boolean(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("num_steps", sa.Integer(), nullable=False),
        sa.Column("final_observation_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_episodes_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "episode_id", name=op.f("pk_episodes")),
    )
    op.create_index(
        "ix_episodes_run_id_iteration_ordinal",
        "episodes",
        ["run_id", "iteration", "ordinal"],
        unique=False,
    )


def _create_evaluations():
    op.create_table(
        "evaluations",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("panel", sa.Text(), nullable=False),
        sa.Column("panel_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_evaluations_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "job_id", "evaluation_id", name=op.f("pk_evaluations")),
    )
    op.create_index(
        "ix_evaluations_run_id_iteration", "evaluations", ["run_id", "iteration"], unique=False
    )


def _create_iterations():
    op.create_table(
        "iterations",
        sa.Column("run_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("payload_hash", sa.BigInteger(), nullable=False),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "stored_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("num_episodes", sa.Integer(), nullable=False),
        sa.Column("num_branches", sa.Integer(), nullable=False),
        sa.Column("success", sa.Double(), nullable=True),
        sa.Column("effective_depth", sa.Double(), nullable=True),
        sa.Column("eval_valid_seen", sa.Double(), nullable=True),
        sa.Column("eval_valid_unseen", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_iterations_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "job_id", "iteration", name=op.f("pk_iterations")),
    )
