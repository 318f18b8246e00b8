"""The tables of what runs write, one row per line of the log's contents.

Bulk tables (steps, branch_steps, metrics, outcomes) have no foreign keys: rows come by COPY inside
the transaction that holds the job's row, which is what keeps them consistent. Long texts are in
`texts`, each distinct one once. Rows belong to (run, job, iteration): a branch or evaluate job
writes beside the training job at the same iteration; a later attempt replaces its own job's rows.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, Double, ForeignKey, Index, Integer, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from backend.db.models import Base, Json

Ints = ARRAY(Integer)
Floats = ARRAY(Double)
Strings = ARRAY(Text)
SEARCH = "sero_branch_search(actions, task_id, task_type, reason)"
"""What the text search of branches looks at, as a tsvector (migration 0011)."""


class StoredText(Base):
    """`id` = BLAKE2b of the text as a signed 64-bit number; collisions are checked on insert."""

    __tablename__ = "texts"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    text: Mapped[str]


class Layout(Base):
    """Which columns the checksums of a batch cover: table -> columns in their order."""

    __tablename__ = "layouts"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    columns: Mapped[Json]


class Batch(Base):
    """One record of an attempt's spool, stored once by (job, attempt, sequence).

    `digest` is what the spool's header says. `contents`: table -> [rows, checksum in hex], see
    `backend.db.copy.Contents`. A batch whose iteration a later attempt wrote again is not current.
    """

    __tablename__ = "batches"
    __table_args__ = (
        Index("ix_batches_run_id", "run_id"),
        Index(
            "uq_batches_current",
            "job_id",
            "iteration",
            unique=True,
            postgresql_where=text("is_current"),
        ),
    )

    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    iteration: Mapped[int]
    digest: Mapped[bytes]
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    is_current: Mapped[bool]
    layout_id: Mapped[int] = mapped_column(BigInteger)
    contents: Mapped[Json]
    stored_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Iteration(Base):
    """One iteration that a job wrote. `payload_hash`: the first 64 bits of its batch's digest."""

    __tablename__ = "iterations"

    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt: Mapped[int]
    payload_hash: Mapped[int] = mapped_column(BigInteger)
    written_at: Mapped[datetime]
    stored_at: Mapped[datetime] = mapped_column(server_default=func.now())
    num_episodes: Mapped[int]
    num_branches: Mapped[int]
    success: Mapped[float | None]
    effective_depth: Mapped[float | None]
    eval_valid_seen: Mapped[float | None]
    eval_valid_unseen: Mapped[float | None]
    eval_test: Mapped[float | None]


class Metric(Base):
    __tablename__ = "metrics"

    run_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[str] = mapped_column(primary_key=True)
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[float]


class Episode(Base):
    """`ordinal` is the place within its iteration's record."""

    __tablename__ = "episodes"
    __table_args__ = (
        Index("ix_episodes_run_id_iteration_ordinal", "run_id", "iteration", "ordinal"),
    )

    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    episode_id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[int]
    iteration: Mapped[int]
    ordinal: Mapped[int]
    group_index: Mapped[int]
    index: Mapped[int]
    task_id: Mapped[str]
    env: Mapped[str]
    split: Mapped[str]
    task_type: Mapped[str]
    content_hash: Mapped[str]
    is_won: Mapped[bool]
    is_truncated: Mapped[bool]
    score: Mapped[float]
    reward: Mapped[float]
    num_steps: Mapped[int]
    final_observation_id: Mapped[int] = mapped_column(BigInteger)


class Step(Base):
    __tablename__ = "steps"

    run_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    episode_id: Mapped[str] = mapped_column(primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    observation_id: Mapped[int] = mapped_column(BigInteger)
    admissible_id: Mapped[int] = mapped_column(BigInteger)
    response_id: Mapped[int] = mapped_column(BigInteger)
    action: Mapped[str]
    token_ids: Mapped[list[int]] = mapped_column(Ints)
    logprobs: Mapped[list[float]] = mapped_column(Floats)
    is_valid: Mapped[bool]
    is_admissible: Mapped[bool]
    reward: Mapped[float]
    state_hash: Mapped[str]


class Branch(Base):
    """`weights` and `actions` repeat those of the steps by depth, for lists and search.

    `differs_at_root`: the oracle's first action is not the policy's (None: nothing to compare).
    """

    __tablename__ = "branches"
    __table_args__ = (
        Index("ix_branches_search", text(SEARCH), postgresql_using="gin"),
        Index(
            "ix_branches_facets",
            "run_id",
            "iteration",
            postgresql_include=[
                *("outcome", "task_type", "split", "oracle", "is_episode_won"),
                *("num_steps", "effective_depth", "differs_at_root"),
            ],
        ),
        Index("ix_branches_run_id_iteration_ordinal", "run_id", "iteration", "ordinal"),
        Index("ix_branches_run_id_episode_id", "run_id", "episode_id"),
    )

    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    branch_id: Mapped[str] = mapped_column(primary_key=True)
    episode_id: Mapped[str]
    job_id: Mapped[int]
    iteration: Mapped[int]
    ordinal: Mapped[int]
    task_id: Mapped[str]
    env: Mapped[str]
    split: Mapped[str]
    task_type: Mapped[str]
    content_hash: Mapped[str]
    root_index: Mapped[int]
    root_rule: Mapped[str]
    oracle: Mapped[str]
    outcome: Mapped[str]
    reason: Mapped[str]
    root_hash: Mapped[str]
    restored_hash: Mapped[str]
    weight_rule: Mapped[str]
    beta: Mapped[float]
    is_trained: Mapped[bool]
    is_episode_won: Mapped[bool | None]
    effective_depth: Mapped[float]
    num_steps: Mapped[int]
    weights: Mapped[list[float]] = mapped_column(Floats)
    final_observation_id: Mapped[int | None] = mapped_column(BigInteger)
    tau: Mapped[float] = mapped_column(server_default=text("1"))
    control: Mapped[str | None]
    actions: Mapped[list[str]] = mapped_column(Strings, server_default=text("'{}'"))
    differs_at_root: Mapped[bool | None]


class BranchStep(Base):
    """From `thought` on: None where a rule did not ask for it, and in logs of version 0.1 (see
    `sero_core.types.BranchStep`)."""

    __tablename__ = "branch_steps"
    __table_args__ = (
        Index(
            "ix_branch_steps_depth_map",
            "run_id",
            "iteration",
            "depth",
            postgresql_include=["weight", "job_id"],
        ),
    )

    run_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    branch_id: Mapped[str] = mapped_column(primary_key=True)
    depth: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[int]
    iteration: Mapped[int]
    observation_id: Mapped[int] = mapped_column(BigInteger)
    admissible_id: Mapped[int] = mapped_column(BigInteger)
    prompt_id: Mapped[int] = mapped_column(BigInteger)
    action: Mapped[str]
    token_ids: Mapped[list[int]] = mapped_column(Ints)
    tokens: Mapped[list[str]] = mapped_column(Strings)
    logprobs: Mapped[list[float]] = mapped_column(Floats)
    scored: Mapped[list[bool]] = mapped_column(ARRAY(Boolean))
    action_logprob_mean: Mapped[float]
    action_logprob_sum: Mapped[float]
    compatibility: Mapped[float]
    weight: Mapped[float]
    policy_action: Mapped[str | None]
    probe_action: Mapped[str | None]
    reward: Mapped[float]
    state_hash: Mapped[str]
    thought: Mapped[str | None]
    loss_mask: Mapped[list[bool] | None] = mapped_column(ARRAY(Boolean))
    loss_weight: Mapped[float | None]
    greedy_logprob_mean: Mapped[float | None]
    admissible_logprobs: Mapped[list[float] | None] = mapped_column(Floats)
    admissible_index: Mapped[int | None]
    num_samples: Mapped[int | None]
    num_matches: Mapped[int | None]


class Rescore(Base):
    """A stored branch under the policy of another checkpoint, that of `iteration`; arrays by depth.

    `logprob_means`: of the action span. The weights follow the rule and temper of the branch.
    """

    __tablename__ = "rescores"

    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    branch_id: Mapped[str] = mapped_column(primary_key=True)
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    weights_hash: Mapped[str]
    effective_depth: Mapped[float]
    weights: Mapped[list[float]] = mapped_column(Floats)
    compatibilities: Mapped[list[float]] = mapped_column(Floats)
    logprob_means: Mapped[list[float]] = mapped_column(Floats)
    created_at: Mapped[datetime]


class Evaluation(Base):
    __tablename__ = "evaluations"
    __table_args__ = (Index("ix_evaluations_run_id_iteration", "run_id", "iteration"),)

    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    evaluation_id: Mapped[str] = mapped_column(primary_key=True)
    iteration: Mapped[int]
    panel: Mapped[str]
    panel_hash: Mapped[str]
    macro_rate: Mapped[float | None]
    conditions: Mapped[Json | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[datetime]


class EvalResult(Base):
    """One task type (or `all`) of an evaluation; `ordinal` keeps the order of the record."""

    __tablename__ = "eval_results"

    run_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    evaluation_id: Mapped[str] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    task_type: Mapped[str]
    num_tasks: Mapped[int]
    num_episodes: Mapped[int]
    num_won: Mapped[int]
    rate: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    mean_score: Mapped[float]
    mean_steps: Mapped[float]


class EvalOutcome(Base):
    """One episode of an evaluation: by seed, then in panel order."""

    __tablename__ = "eval_outcomes"

    run_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    evaluation_id: Mapped[str] = mapped_column(primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    task_id: Mapped[str]
    task_type: Mapped[str]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    is_won: Mapped[bool]
    score: Mapped[float]
    num_steps: Mapped[int]


class Checkpoint(Base):
    __tablename__ = "checkpoints"

    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    job_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    path: Mapped[str]
    weights_hash: Mapped[str]
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
