"""The state machine of jobs. Postgres is the truth; a broker message only says "look at job 7".

    submit_run, create_job            -> queued      in `submit.py`
    claim            queued           -> running     attempt + 1, lease starts
                     running, expired -> running     the lost attempt is closed as `lost`
    heartbeat        running          -> running     lease renewed
    finish           running          -> succeeded | failed | cancelled
    release          running          -> queued      graceful stop; no failure
    retry            running          -> queued      the attempt failed; last one: `failed`
    reap_expired     running, expired -> queued      the worker went silent; last one: `failed`
    request_cancel   queued           -> cancelled
                     running          -> running     flag; the worker reads it from its heartbeat

release, retry and reap_expired end in `cancelled` where cancelling was requested. `attempt` is the
fencing token: claim makes a new one and every later call of that attempt names it, so a worker that
was given up gets False and must stop. All clocks are the database's, and a lease lasts at least its
whole length after the database started: an outage costs no worker its job. An attempt that stored a
new iteration sets the count of failures back to 0 (`backend/db/ingest.py`).

Callers own the transaction: use `with engine.begin() as connection`. Workers themselves are rows of
`backend/db/queries/workers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, text

from backend.db.queries.events import add_event
from backend.schemas import JobKind, JobState

EndState = Literal["succeeded", "failed", "cancelled"]


class Heartbeat(NamedTuple):
    """Not owner: another attempt has the job or it ended; stop at once and write nothing."""

    is_owner: bool
    is_cancel_requested: bool


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that this attempt owns. `iteration`: checkpoint of a branch or evaluate job (None:
    the newest). `config` is the JSON form of the run's `RunConfig`."""

    job_id: int
    run_id: int
    kind: JobKind
    attempt: int
    iteration: int | None
    config: dict[str, JsonValue]


_EXPIRED = """
    state = 'running' AND lease_expires_at < clock_timestamp()
    AND greatest(heartbeat_at, pg_postmaster_start_time()) + (lease_expires_at - heartbeat_at)
        < clock_timestamp()
"""
_CLAIM = """
WITH candidate AS (
    SELECT id, state = 'running' AS is_takeover FROM jobs
    WHERE {which}
    ORDER BY priority, id LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs SET
    state = 'running', attempt = attempt + 1, worker_id = :worker_id,
    num_failures = num_failures + is_takeover::int,
    started_at = coalesce(started_at, clock_timestamp()), heartbeat_at = clock_timestamp(),
    lease_expires_at = clock_timestamp() + :lease_s * interval '1 second'
FROM candidate WHERE jobs.id = candidate.id
RETURNING jobs.id, run_id, kind, attempt, payload, is_takeover,
    (SELECT config FROM runs WHERE runs.id = run_id) AS config
"""
_CLAIM_NEXT = text(_CLAIM.format(which="state = 'queued'"))
_CLAIM_ONE = text(
    _CLAIM.format(
        which=f"""id = :job_id AND (state = 'queued' OR ({_EXPIRED}
            AND NOT is_cancel_requested AND num_failures + 1 < max_attempts))"""
    )
)


def claim(
    connection: Connection, job_id: int | None, worker_id: str, lease_s: float
) -> ClaimedJob | None:
    """Take the job (None: the first of the queue) for `lease_s` seconds; None: nothing to take.

    Of any number of callers one gets the job. The worker must be registered.
    """
    statement = _CLAIM_NEXT if job_id is None else _CLAIM_ONE
    values: dict[str, object] = {"worker_id": worker_id, "lease_s": lease_s}
    if job_id is not None:
        values["job_id"] = job_id
    row = connection.execute(statement, values).one_or_none()
    if row is None:
        return None
    if row.is_takeover:
        _close_attempt(connection, row.id, row.attempt - 1, "lost", "its worker went silent")
    connection.execute(
        text(
            "INSERT INTO attempts (job_id, attempt, worker_id) VALUES (:job_id, :attempt, :worker)"
        ),
        {"job_id": row.id, "attempt": row.attempt, "worker": worker_id},
    )
    add_event(
        connection,
        "job.claimed",
        f"worker {worker_id} started attempt {row.attempt} of {row.kind} job {row.id}",
        run_id=row.run_id,
        job_id=row.id,
        attempt=row.attempt,
        worker_id=worker_id,
    )
    return ClaimedJob(
        job_id=row.id,
        run_id=row.run_id,
        kind=row.kind,
        attempt=row.attempt,
        iteration=row.payload.get("iteration"),
        config=row.config,
    )


def heartbeat(connection: Connection, job_id: int, attempt: int, lease_s: float) -> Heartbeat:
    """Renew the lease and learn whether to stop."""
    row = connection.execute(
        text(
            """
            UPDATE jobs SET heartbeat_at = clock_timestamp(),
                lease_expires_at = clock_timestamp() + :lease_s * interval '1 second'
            WHERE id = :job_id AND attempt = :attempt AND state = 'running'
            RETURNING is_cancel_requested
            """
        ),
        {"job_id": job_id, "attempt": attempt, "lease_s": lease_s},
    ).one_or_none()
    return Heartbeat(row is not None, row is not None and row.is_cancel_requested)


def finish(connection: Connection, job_id: int, attempt: int, state: EndState, reason: str) -> bool:
    """End the job for good. False: this attempt does not own it any more; nothing changed."""
    row = connection.execute(
        text(
            """
            UPDATE jobs SET state = :state, reason = :reason, finished_at = clock_timestamp(),
                lease_expires_at = NULL
            WHERE id = :job_id AND attempt = :attempt AND state = 'running'
            RETURNING run_id, kind, worker_id
            """
        ),
        {"job_id": job_id, "attempt": attempt, "state": state, "reason": reason},
    ).one_or_none()
    if row is None:
        return False
    _close_attempt(connection, job_id, attempt, state, reason)
    add_event(
        connection,
        f"job.{state}",
        f"{row.kind} job {job_id} {_ENDED[state]}: {reason}",
        run_id=row.run_id,
        job_id=job_id,
        attempt=attempt,
        worker_id=row.worker_id,
    )
    return True


_ENDED = {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled"}

_GIVE_UP = "(is_cancel_requested OR (:is_failure AND num_failures + 1 >= max_attempts))"
_PUT_BACK = f"""
UPDATE jobs SET
    num_failures = num_failures + CAST(:is_failure AS boolean)::int,
    state = CASE WHEN is_cancel_requested THEN 'cancelled'
                 WHEN {_GIVE_UP} THEN 'failed' ELSE 'queued' END,
    reason = CASE WHEN {_GIVE_UP} THEN :reason END,
    finished_at = CASE WHEN {_GIVE_UP} THEN clock_timestamp() END,
    queued_at = clock_timestamp(), lease_expires_at = NULL
WHERE {{which}}
RETURNING id, run_id, kind, state, attempt, worker_id, num_failures
"""
_PUT_BACK_ONE = text(
    _PUT_BACK.format(which="id = :job_id AND attempt = :attempt AND state = 'running'")
)
_PUT_BACK_EXPIRED = text(
    _PUT_BACK.format(which=f"id IN (SELECT id FROM jobs WHERE {_EXPIRED} FOR UPDATE SKIP LOCKED)")
)


def release(connection: Connection, job_id: int, attempt: int, reason: str) -> JobState | None:
    """Graceful stop of a worker: back to the queue, not counted as a failure.

    Returns the job's new state; None: this attempt does not own it any more.
    """
    return _put_back(connection, job_id, attempt, reason, is_failure=False)


def retry(connection: Connection, job_id: int, attempt: int, reason: str) -> JobState | None:
    """The attempt failed in a way that may pass: back to the queue, `failed` after max_attempts.

    Returns the job's new state; None: this attempt does not own it any more.
    """
    return _put_back(connection, job_id, attempt, reason, is_failure=True)


def _put_back(
    connection: Connection, job_id: int, attempt: int, reason: str, *, is_failure: bool
) -> JobState | None:
    row = connection.execute(
        _PUT_BACK_ONE,
        {"job_id": job_id, "attempt": attempt, "reason": reason, "is_failure": is_failure},
    ).one_or_none()
    if row is None:
        return None
    _close_attempt(connection, job_id, attempt, "failed" if is_failure else "released", reason)
    add_event(
        connection,
        "job.retried" if is_failure else "job.released",
        f"attempt {attempt} of {row.kind} job {job_id} ended ({reason}); the job is {row.state}",
        run_id=row.run_id,
        job_id=job_id,
        attempt=attempt,
        worker_id=row.worker_id,
    )
    return row.state


def reap_expired(connection: Connection) -> list[int]:
    """Take jobs from workers whose lease ran out; returns those that are queued again.

    The caller sends a wake-up for each of them after its commit.
    """
    reason = "its worker went silent"
    rows = connection.execute(_PUT_BACK_EXPIRED, {"reason": reason, "is_failure": True}).all()
    for row in rows:
        _close_attempt(connection, row.id, row.attempt, "lost", reason)
        add_event(
            connection,
            "job.lost",
            f"worker {row.worker_id} went silent during attempt {row.attempt} of {row.kind} job "
            f"{row.id}; the job is {row.state} ({row.num_failures} failed in a row)",
            run_id=row.run_id,
            job_id=row.id,
            attempt=row.attempt,
            worker_id=row.worker_id,
        )
    return [row.id for row in rows if row.state == "queued"]


def request_cancel(connection: Connection, run_id: int) -> list[tuple[int, JobState]]:
    """Cancel the run's open jobs: queued ones end now, running ones are asked to stop.

    Returns (job id, state) of the jobs that this call changed; a repeated call changes none.
    """
    rows = connection.execute(
        text(
            """
            UPDATE jobs SET
                is_cancel_requested = true,
                state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END,
                reason = CASE state WHEN 'queued' THEN 'cancelled before it started' END,
                finished_at = CASE state WHEN 'queued' THEN clock_timestamp() END
            WHERE run_id = :run_id AND state IN ('queued', 'running') AND NOT is_cancel_requested
            RETURNING id, kind, state, attempt
            """
        ),
        {"run_id": run_id},
    ).all()
    for row in rows:
        is_stopping = row.state == "running"
        add_event(
            connection,
            "job.cancel_requested" if is_stopping else "job.cancelled",
            f"{row.kind} job {row.id} "
            + ("was asked to stop" if is_stopping else "was cancelled before it started"),
            run_id=run_id,
            job_id=row.id,
            attempt=row.attempt or None,
        )
    return [(row.id, row.state) for row in rows]


def queued_job_ids(connection: Connection, min_age_s: float = 0.0) -> list[int]:
    """Jobs that wait for at least `min_age_s` seconds, in the order of the queue."""
    rows = connection.execute(
        text(
            """
            SELECT id FROM jobs WHERE state = 'queued'
                AND queued_at <= clock_timestamp() - :min_age_s * interval '1 second'
            ORDER BY priority, id
            """
        ),
        {"min_age_s": min_age_s},
    )
    return [row.id for row in rows]


def _close_attempt(
    connection: Connection, job_id: int, attempt: int, state: str, reason: str
) -> None:
    connection.execute(
        text(
            """
            UPDATE attempts SET state = :state, reason = :reason, finished_at = clock_timestamp()
            WHERE job_id = :job_id AND attempt = :attempt AND state = 'running'
            """
        ),
        {"job_id": job_id, "attempt": attempt, "state": state, "reason": reason},
    )
