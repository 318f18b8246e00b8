"""Writing what a job's process wrote: one record is one transaction, fenced and repeatable.

    with engine.begin() as connection:
        store_record(connection, Owner(run_id, job_id, attempt), record)

The job's row is locked first, so an attempt that was given up (`StaleAttempt`) can write nothing
and nobody can take the job in the middle. A record is stored once by (job, attempt, sequence); the
same iteration from a later attempt replaces its rows. Texts are stored once. What went into each
table is kept with the record (`backend.db.batches`), so that it can be verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, select, text, update

from backend.db import rows as r
from backend.db.batches import (
    Owner,
    Record,
    StaleAttempt,
    hash_of_digest,
    is_stored,
    keep,
    lock,
    supersede,
)
from backend.db.copy import Contents, copy_into
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
    Rescore,
    Step,
)
from backend.db.texts import TextCollector
from sero_core.records import IterationPayload

__all__ = ["StaleAttempt", "store_log", "store_record", "write_iteration", "write_log"]
LOG_COLUMNS = ("run_id", "job_id", "attempt", "line", "text")


def store_record(connection: Connection, owner: Owner, record: Record) -> bool:
    """Store one record of a spool. False: it was stored before, nothing changed.

    Errors: `StaleAttempt`; `SpoolConflict`; `TextCollision`. Roll back on any error.
    """
    kind = lock(connection, owner)
    if is_stored(connection, owner.job_id, record):
        return False
    place = r.Place(owner.run_id, owner.job_id, record.payload.iteration)
    writer = connection.execute(
        select(Iteration.attempt).where(
            Iteration.run_id == place.run_id,
            Iteration.job_id == place.job_id,
            Iteration.iteration == place.iteration,
        )
    ).scalar_one_or_none()
    if writer is not None and writer > record.attempt:
        keep(connection, owner, record, None)
        return True
    if writer is not None:
        supersede(connection, owner.job_id, place.iteration)
        _delete_iteration(connection, place)
    else:
        _reset_failures(connection, place)
    contents = _insert_facts(connection, place, record.payload)
    row = r.iteration_row(place, record.attempt, hash_of_digest(record.digest), record.payload)
    contents["iterations"] = copy_into(connection, Iteration, r.ITERATION_COLUMNS, [row])
    keep(connection, owner, record, contents)
    if kind == "train":
        connection.execute(_SUMMARY, place._asdict())
    return True


def store_log(
    connection: Connection, owner: Owner, attempt: int, first_line: int, lines: Sequence[str]
) -> int:
    """Append lines that `attempt` printed; `first_line` is the number of the first, from 0.

    Lines that are there already are left alone; returns how many were new. Errors: `StaleAttempt`;
    ValueError where lines before the first are missing.
    """
    lock(connection, owner)
    num_stored = connection.execute(
        select(func.coalesce(func.max(LogLine.line) + 1, 0)).where(
            LogLine.job_id == owner.job_id, LogLine.attempt == attempt
        )
    ).scalar_one()
    if first_line > num_stored:
        raise ValueError(
            f"job {owner.job_id} attempt {attempt} has {num_stored} log lines, got line "
            f"{first_line} as the next"
        )
    new = enumerate(lines[num_stored - first_line :], num_stored)
    rows = ((owner.run_id, owner.job_id, attempt, number, line) for number, line in new)
    return copy_into(connection, LogLine, LOG_COLUMNS, rows).rows


def write_iteration(
    connection: Connection, run_id: int, job_id: int, attempt: int, payload: IterationPayload
) -> bool:
    """`store_record` for a line of records.jsonl, by the attempt that owns the job."""
    owner = Owner(run_id, job_id, attempt)
    return store_record(connection, owner, Record.of_line(attempt, payload))


def write_log(
    connection: Connection,
    run_id: int,
    job_id: int,
    attempt: int,
    first_line: int,
    lines: Sequence[str],
) -> int:
    """`store_log` by the attempt that owns the job."""
    owner = Owner(run_id, job_id, attempt)
    return store_log(connection, owner, attempt, first_line, lines)


def stored_iterations(connection: Connection, run_id: int, job_id: int) -> dict[int, int]:
    """Iteration -> attempt that wrote it, for one job."""
    rows = connection.execute(
        select(Iteration.iteration, Iteration.attempt)
        .where(Iteration.run_id == run_id, Iteration.job_id == job_id)
        .order_by(Iteration.iteration)
    )
    return {row.iteration: row.attempt for row in rows}


def _reset_failures(connection: Connection, place: r.Place) -> None:
    """Count failures anew when the job got further than ever."""
    further = select(Iteration.iteration).where(
        Iteration.run_id == place.run_id,
        Iteration.job_id == place.job_id,
        Iteration.iteration > place.iteration,
    )
    connection.execute(
        update(Job)
        .where(Job.id == place.job_id, Job.num_failures > 0, ~further.exists())
        .values(num_failures=0)
    )


def _delete_iteration(connection: Connection, place: r.Place) -> None:
    run_id, job_id, iteration = place
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
    for model in (Metric, Episode, Branch, Rescore, Evaluation, Checkpoint, Iteration):
        connection.execute(
            delete(model).where(
                model.run_id == run_id, model.job_id == job_id, model.iteration == iteration
            )
        )


def _insert_facts(
    connection: Connection, place: r.Place, payload: IterationPayload
) -> dict[str, Contents]:
    """Append all rows; returns what went into each table."""
    texts = TextCollector()
    episodes = r.episode_rows(place, payload.episodes, texts)
    steps = r.step_rows(place, payload.episodes, texts)
    branches = r.branch_rows(place, payload, texts)
    branch_steps = r.branch_step_rows(place, payload.branches, texts)
    texts.store(connection)
    evaluations = payload.evaluations
    parts = (
        (Metric, r.METRIC_COLUMNS, r.metric_rows(place, payload.metrics)),
        (Episode, r.EPISODE_COLUMNS, episodes),
        (Step, r.STEP_COLUMNS, steps),
        (Branch, r.BRANCH_COLUMNS, branches),
        (BranchStep, r.BRANCH_STEP_COLUMNS, branch_steps),
        (Rescore, r.RESCORE_COLUMNS, r.rescore_rows(place, payload)),
        (Evaluation, r.EVALUATION_COLUMNS, r.evaluation_rows(place, payload)),
        (EvalResult, r.EVAL_RESULT_COLUMNS, r.eval_result_rows(place, evaluations)),
        (EvalOutcome, r.EVAL_OUTCOME_COLUMNS, r.eval_outcome_rows(place, evaluations)),
        (Checkpoint, r.CHECKPOINT_COLUMNS, r.checkpoint_rows(place, payload)),
    )
    return {
        model.__tablename__: copy_into(connection, model, columns, rows)
        for model, columns, rows in parts
    }


def _latest(column: str) -> str:
    return (
        f"(SELECT {column} FROM iterations WHERE run_id = :run_id AND job_id = :job_id "
        f"AND {column} IS NOT NULL AND iteration <= :iteration ORDER BY iteration DESC LIMIT 1)"
    )


_SUMMARY = text(
    f"""
    UPDATE runs SET iteration = :iteration,
        {", ".join(f"{column} = {_latest(column)}" for column in r.SUMMARY_KEYS)},
        best_success = seen.success, best_eval_valid_seen = seen.eval_valid_seen,
        best_eval_valid_unseen = seen.eval_valid_unseen, best_eval_test = seen.eval_test,
        num_branches = seen.num_branches, num_episodes = seen.num_episodes
    FROM (
        SELECT max(success) AS success, max(eval_valid_seen) AS eval_valid_seen,
            max(eval_valid_unseen) AS eval_valid_unseen, max(eval_test) AS eval_test,
            sum(num_branches) AS num_branches, sum(num_episodes) AS num_episodes
        FROM iterations WHERE run_id = :run_id AND job_id = :job_id
    ) AS seen
    WHERE runs.id = :run_id
    """
)
