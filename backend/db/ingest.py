"""Writing what a job's process wrote: one iteration is one transaction, fenced and repeatable.

    with engine.begin() as connection:
        write_iteration(connection, run_id, job_id, attempt, payload)

The job's row is locked first, so an attempt that was given up (`StaleAttempt`) can write nothing
and nobody can take the job in the middle. The same line again changes nothing; another line for the
same iteration, from a later attempt, replaces all rows of that iteration. Texts are stored once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.db import rows as r
from backend.db.copy import copy_into
from backend.db.models import Job, LogLine
from backend.db.records import (
    Branch,
    BranchStep,
    Checkpoint,
    Episode,
    EvalOutcome,
    EvalResult,
    Evaluation,
    Iteration,
    Metric,
    Step,
)
from backend.db.texts import TextCollector, clean, text_id
from sero_core.records import IterationPayload


class StaleAttempt(Exception):
    """This attempt does not own its job any more and may not write. Its process must end."""


def write_iteration(
    connection: Connection, run_id: int, job_id: int, attempt: int, payload: IterationPayload
) -> bool:
    """Store one line of records.jsonl. False: it was stored before, nothing changed.

    Errors: `StaleAttempt`; `TextCollision`. Roll back on any error.
    """
    kind = _fence(connection, run_id, job_id, attempt)
    payload_hash = text_id(payload.model_dump_json())
    mine = (Iteration.run_id == run_id, Iteration.job_id == job_id)
    stored = connection.execute(
        select(Iteration.attempt, Iteration.payload_hash).where(
            *mine, Iteration.iteration == payload.iteration
        )
    ).one_or_none()
    if stored is not None:
        if stored.attempt == attempt or stored.payload_hash == payload_hash:
            return False
        _delete_iteration(connection, run_id, job_id, payload.iteration)
    else:
        _reset_failures(connection, run_id, job_id, payload.iteration)
    _insert_facts(connection, r.Place(run_id, job_id, payload.iteration), payload)
    connection.execute(
        insert(Iteration).values(
            run_id=run_id,
            job_id=job_id,
            iteration=payload.iteration,
            attempt=attempt,
            payload_hash=payload_hash,
            written_at=payload.written_at,
            num_episodes=len(payload.episodes),
            num_branches=len(payload.branches),
            **{column: _finite(payload.metrics, key) for column, key in SUMMARY_KEYS.items()},
        )
    )
    if kind == "train":
        connection.execute(
            _SUMMARY, {"run_id": run_id, "job_id": job_id, "iteration": payload.iteration}
        )
    return True


SUMMARY_KEYS = {
    "success": "rollout/success",
    "effective_depth": "sero/effective_depth",
    "eval_valid_seen": "eval/valid_seen",
    "eval_valid_unseen": "eval/valid_unseen",
}
"""Summary column -> metric key."""


def write_log(
    connection: Connection,
    run_id: int,
    job_id: int,
    attempt: int,
    first_line: int,
    lines: Sequence[str],
) -> int:
    """Append log lines; `first_line` is the number of the first one, counted from 0 per attempt.

    Lines that are there already are left alone; returns how many were new. Errors: `StaleAttempt`.
    """
    _fence(connection, run_id, job_id, attempt)
    if not lines:
        return 0
    added = connection.execute(
        upsert(LogLine)
        .on_conflict_do_nothing(index_elements=["job_id", "attempt", "line"])
        .returning(LogLine.id),
        [
            {
                "run_id": run_id,
                "job_id": job_id,
                "attempt": attempt,
                "line": first_line + offset,
                "text": clean(line),
            }
            for offset, line in enumerate(lines)
        ],
    )
    return len(added.all())


def stored_iterations(connection: Connection, run_id: int, job_id: int) -> dict[int, int]:
    """Iteration -> attempt that wrote it, for one job."""
    rows = connection.execute(
        select(Iteration.iteration, Iteration.attempt)
        .where(Iteration.run_id == run_id, Iteration.job_id == job_id)
        .order_by(Iteration.iteration)
    )
    return {row.iteration: row.attempt for row in rows}


def _fence(connection: Connection, run_id: int, job_id: int, attempt: int) -> str:
    """Lock the job's row for this transaction; returns the job's kind."""
    row = connection.execute(
        select(Job.run_id, Job.kind, Job.attempt, Job.state)
        .where(Job.id == job_id)
        .with_for_update(key_share=True)
    ).one_or_none()
    if row is None or row.attempt != attempt or row.state != "running":
        found = "no such job" if row is None else f"{row.state}, attempt {row.attempt}"
        raise StaleAttempt(f"attempt {attempt} does not own job {job_id} ({found})")
    if row.run_id != run_id:
        raise ValueError(f"job {job_id} belongs to run {row.run_id}, got run {run_id}")
    return row.kind


def _reset_failures(connection: Connection, run_id: int, job_id: int, iteration: int) -> None:
    """Count failures anew when the job got further than ever."""
    further = select(Iteration.iteration).where(
        Iteration.run_id == run_id, Iteration.job_id == job_id, Iteration.iteration > iteration
    )
    connection.execute(
        update(Job)
        .where(Job.id == job_id, Job.num_failures > 0, ~further.exists())
        .values(num_failures=0)
    )


def _delete_iteration(connection: Connection, run_id: int, job_id: int, iteration: int) -> None:
    for child, parent, name in (
        (Step, Episode, "episode_id"),
        (BranchStep, Branch, "branch_id"),
        (EvalResult, Evaluation, "evaluation_id"),
        (EvalOutcome, Evaluation, "evaluation_id"),
    ):
        ids = select(parent.__table__.columns[name]).where(
            parent.run_id == run_id, parent.job_id == job_id, parent.iteration == iteration
        )
        is_child = child.run_id == run_id, child.__table__.columns[name].in_(ids)
        is_mine = () if child in (Step, BranchStep) else (child.__table__.c.job_id == job_id,)
        connection.execute(delete(child).where(*is_child, *is_mine))
    for model in (Metric, Episode, Branch, Evaluation, Checkpoint, Iteration):
        connection.execute(
            delete(model).where(
                model.run_id == run_id, model.job_id == job_id, model.iteration == iteration
            )
        )


def _insert_facts(connection: Connection, place: r.Place, payload: IterationPayload) -> None:
    texts = TextCollector()
    episodes = r.episode_rows(place, payload.episodes, texts)
    steps = r.step_rows(place, payload.episodes, texts)
    branches = r.branch_rows(place, payload, texts)
    branch_steps = r.branch_step_rows(place, payload.branches, texts)
    texts.store(connection)
    copy_into(connection, Metric, r.METRIC_COLUMNS, r.metric_rows(place, payload.metrics))
    copy_into(connection, Episode, r.EPISODE_COLUMNS, episodes)
    copy_into(connection, Step, r.STEP_COLUMNS, steps)
    copy_into(connection, Branch, r.BRANCH_COLUMNS, branches)
    copy_into(connection, BranchStep, r.BRANCH_STEP_COLUMNS, branch_steps)
    if payload.evaluations:
        _insert_evaluations(connection, place, payload)
    if payload.checkpoint is not None:
        connection.execute(
            insert(Checkpoint).values(
                run_id=place.run_id,
                job_id=place.job_id,
                iteration=place.iteration,
                path=payload.checkpoint.path,
                weights_hash=payload.checkpoint.weights_hash,
                num_bytes=payload.checkpoint.num_bytes,
                created_at=payload.written_at,
            )
        )


def _insert_evaluations(connection: Connection, place: r.Place, payload: IterationPayload) -> None:
    connection.execute(
        insert(Evaluation),
        [
            {
                "run_id": place.run_id,
                "job_id": place.job_id,
                "evaluation_id": evaluation.evaluation_id,
                "iteration": place.iteration,
                "panel": evaluation.panel,
                "panel_hash": evaluation.panel_hash,
                "macro_rate": evaluation.macro_rate,
                "conditions": evaluation.conditions and evaluation.conditions.model_dump(),
                "created_at": payload.written_at,
            }
            for evaluation in payload.evaluations
        ],
    )
    results = r.eval_result_rows(place, payload.evaluations)
    copy_into(connection, EvalResult, r.EVAL_RESULT_COLUMNS, results)
    outcomes = r.eval_outcome_rows(place, payload.evaluations)
    copy_into(connection, EvalOutcome, r.EVAL_OUTCOME_COLUMNS, outcomes)


def _finite(metrics: dict[str, float], key: str) -> float | None:
    value = metrics.get(key)
    return value if value is not None and math.isfinite(value) else None


def _latest(column: str) -> str:
    return (
        f"(SELECT {column} FROM iterations WHERE run_id = :run_id AND job_id = :job_id "
        f"AND {column} IS NOT NULL AND iteration <= :iteration ORDER BY iteration DESC LIMIT 1)"
    )


_SUMMARY = text(
    f"""
    UPDATE runs SET iteration = :iteration,
        {", ".join(f"{column} = {_latest(column)}" for column in SUMMARY_KEYS)},
        best_success = seen.success, best_eval_valid_seen = seen.eval_valid_seen,
        best_eval_valid_unseen = seen.eval_valid_unseen,
        num_branches = seen.num_branches, num_episodes = seen.num_episodes
    FROM (
        SELECT max(success) AS success, max(eval_valid_seen) AS eval_valid_seen,
            max(eval_valid_unseen) AS eval_valid_unseen,
            sum(num_branches) AS num_branches, sum(num_episodes) AS num_episodes
        FROM iterations WHERE run_id = :run_id AND job_id = :job_id
    ) AS seen
    WHERE runs.id = :run_id
    """
)
