"""What people do to jobs in the queue: retry, resume, extend, change priority, move."""

from __future__ import annotations

from sqlalchemy import Connection, text

from backend.db.queries.dependencies import revive_dependents, skip_dependents
from backend.db.queries.events import add_event
from sero_core.config import RunConfig

ORDER_LOCK = 5392
MIN_GAP = 1e-6
_RANK = "coalesce(position, id)"


class NotPossible(Exception):
    """The job's state does not allow it; the message says what would."""


def requeue(
    connection: Connection,
    job_id: int,
    *,
    verb: str,
    actor: str | None,
    is_ended_well_allowed: bool = False,
) -> None:
    """Put an ended job back into the queue, with its failures forgotten; a training job goes on
    from its newest checkpoint. Jobs that were skipped because of it wait again.

    `verb`, for the audit trail: retried, resumed, extended. Errors: `NotPossible`.
    """
    states = ["failed", "cancelled", "skipped"] + ["succeeded"] * is_ended_well_allowed
    row = connection.execute(
        text(
            """
            UPDATE jobs SET state = 'queued', reason = NULL, finished_at = NULL, result = NULL,
                queued_at = clock_timestamp(), num_failures = 0,
                is_cancel_requested = false, is_kill_requested = false
            WHERE id = :job_id AND state = ANY (:states) RETURNING run_id, kind
            """
        ),
        {"job_id": job_id, "states": states},
    ).one_or_none()
    if row is None:
        state = connection.scalar(text("SELECT state FROM jobs WHERE id = :id"), {"id": job_id})
        raise NotPossible(f"job {job_id} is {state}; only a job that has ended can be {verb}")
    message = f"{row.kind} job {job_id} was {verb}"
    add_event(connection, f"job.{verb}", message, run_id=row.run_id, job_id=job_id, actor=actor)
    skip_dependents(connection)
    revive_dependents(connection, job_id)


def extend(connection: Connection, run_id: int, config: RunConfig, *, actor: str | None) -> int:
    """Store the config with more iterations and put the training job back; returns its id.

    Errors: `NotPossible` while the training runs.
    """
    job = connection.execute(
        text("SELECT id, state FROM jobs WHERE run_id = :id AND kind = 'train' FOR UPDATE"),
        {"id": run_id},
    ).one()
    if job.state == "running":
        raise NotPossible(f"run {run_id} is running; stop it or wait for its end, then extend it")
    connection.execute(
        text(
            "UPDATE runs SET config = CAST(:config AS jsonb), config_hash = :hash, "
            "num_iterations = :iterations WHERE id = :id"
        ),
        {
            "config": config.model_dump_json(),
            "hash": config.group_hash(),
            "iterations": config.num_iterations,
            "id": run_id,
        },
    )
    message = f"run {run_id} shall have {config.num_iterations} iterations"
    add_event(connection, "run.extended", message, run_id=run_id, actor=actor)
    if job.state != "queued":
        requeue(connection, job.id, verb="extended", actor=actor, is_ended_well_allowed=True)
    return job.id


def set_priority(connection: Connection, job_id: int, priority: int, *, actor: str | None) -> None:
    """Larger is sooner. Errors: `NotPossible` for a job that does not wait."""
    row = connection.execute(
        text(
            "UPDATE jobs SET priority = :priority, position = NULL "
            "WHERE id = :id AND state = 'queued' RETURNING run_id, kind"
        ),
        {"id": job_id, "priority": priority},
    ).one_or_none()
    if row is None:
        raise NotPossible(f"job {job_id} does not wait in the queue")
    message = f"{row.kind} job {job_id} has priority {priority} now"
    add_event(connection, "job.priority", message, run_id=row.run_id, job_id=job_id, actor=actor)


def move(connection: Connection, job_id: int, before: int | None, *, actor: str | None) -> None:
    """Place a waiting job right before another one (None: before all), with that one's priority.

    Errors: `NotPossible` when one of the two does not wait.
    """
    connection.execute(text(f"SELECT pg_advisory_xact_lock({ORDER_LOCK})"))
    queue = connection.execute(
        text(
            f"SELECT id, run_id, kind, priority, {_RANK} AS rank FROM jobs WHERE state = 'queued' "
            f"ORDER BY priority DESC, {_RANK}, id FOR UPDATE"
        )
    ).all()
    mine = next((row for row in queue if row.id == job_id), None)
    others = [row for row in queue if row.id != job_id]
    index = next((i for i, row in enumerate(others) if before in (None, row.id)), None)
    if mine is None:
        raise NotPossible(f"job {job_id} does not wait in the queue")
    if before is not None and index is None:
        raise NotPossible(f"job {before} does not wait in the queue")
    if index is not None:
        target = others[index]
        previous = others[index - 1] if index else None
        low = target.rank - 2
        if previous is not None and previous.priority == target.priority:
            low = previous.rank
        if target.rank - low < MIN_GAP:
            _spread(connection, [row.id for row in others])
            return move(connection, job_id, before, actor=actor)
        connection.execute(
            text("UPDATE jobs SET priority = :priority, position = :position WHERE id = :id"),
            {"id": job_id, "priority": target.priority, "position": (low + target.rank) / 2},
        )
    where = "the front" if before is None else f"the place before job {before}"
    message = f"{mine.kind} job {job_id} was moved to {where}"
    add_event(connection, "job.moved", message, run_id=mine.run_id, job_id=job_id, actor=actor)
    return None


def _spread(connection: Connection, ordered: list[int]) -> None:
    """Give the waiting jobs whole-numbered places again."""
    connection.execute(
        text(
            "UPDATE jobs SET position = n FROM unnest(CAST(:ids AS int[])) "
            "WITH ORDINALITY AS placed (id, n) WHERE jobs.id = placed.id"
        ),
        {"ids": ordered},
    )
