"""Evaluations on fixed panels, and checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, select, tuple_
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.engine import RowMapping

from backend.db.records import Checkpoint, EvalOutcome, EvalResult, Evaluation
from backend.schemas import CheckpointInfo, EvalResultInfo, EvaluationInfo, OutcomeInfo

Key = tuple[int, int, str]


def list_evaluations(
    connection: Connection, run_id: int, *, has_outcomes: bool
) -> list[EvaluationInfo]:
    """Oldest first; `has_outcomes`: with the result of every task."""
    rows = connection.execute(
        select(*Evaluation.__table__.columns)
        .where(Evaluation.run_id == run_id)
        .order_by(Evaluation.iteration, Evaluation.panel, Evaluation.job_id)
    ).mappings()
    return _load(connection, rows.all(), has_outcomes=has_outcomes)


def newest_evaluations(connection: Connection, run_ids: Sequence[int]) -> list[EvaluationInfo]:
    """The newest evaluation of each run and panel."""
    rows = connection.execute(
        select(*Evaluation.__table__.columns)
        .ext(distinct_on(Evaluation.run_id, Evaluation.panel))
        .where(Evaluation.run_id.in_(run_ids))
        .order_by(
            Evaluation.run_id,
            Evaluation.panel,
            Evaluation.iteration.desc(),
            Evaluation.created_at.desc(),
        )
    ).mappings()
    return _load(connection, rows.all(), has_outcomes=False)


def list_checkpoints(connection: Connection, run_id: int) -> list[CheckpointInfo]:
    """Oldest first. The trainer keeps only the newest ones on disk."""
    rows = connection.execute(
        select(*Checkpoint.__table__.columns)
        .where(Checkpoint.run_id == run_id)
        .order_by(Checkpoint.iteration)
    )
    return [CheckpointInfo.model_validate(row) for row in rows]


def _load(
    connection: Connection, rows: Sequence[RowMapping], *, has_outcomes: bool
) -> list[EvaluationInfo]:
    keys: list[Key] = [(row["run_id"], row["job_id"], row["evaluation_id"]) for row in rows]
    results: dict[Key, list[EvalResultInfo]] = defaultdict(list)
    outcomes: dict[Key, list[OutcomeInfo]] = defaultdict(list)
    for found in connection.execute(
        select(*EvalResult.__table__.columns)
        .where(tuple_(EvalResult.run_id, EvalResult.job_id, EvalResult.evaluation_id).in_(keys))
        .order_by(EvalResult.ordinal)
    ):
        key = (found.run_id, found.job_id, found.evaluation_id)
        results[key].append(EvalResultInfo.model_validate(found))
    if has_outcomes:
        mine = tuple_(EvalOutcome.run_id, EvalOutcome.job_id, EvalOutcome.evaluation_id)
        for found in connection.execute(
            select(*EvalOutcome.__table__.columns)
            .where(mine.in_(keys))
            .order_by(EvalOutcome.ordinal)
        ):
            key = (found.run_id, found.job_id, found.evaluation_id)
            outcomes[key].append(OutcomeInfo.model_validate(found))
    return [
        EvaluationInfo.model_validate(
            {**row, "results": results[key], "outcomes": outcomes[key] if has_outcomes else None}
        )
        for key, row in zip(keys, rows, strict=True)
    ]
