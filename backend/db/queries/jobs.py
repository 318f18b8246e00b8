"""The state machine of jobs. Postgres is the truth; a broker message only says "look at job 7".

    submit_run, create_job            -> queued      in `submit.py`
    claim            queued           -> running     attempt + 1, lease starts
                     running, expired -> running     the lost attempt is closed as `lost`
    heartbeat        running          -> running     lease renewed
    finish           running          -> succeeded | failed | cancelled
    release          running          -> queued      graceful stop; no failure
    retry            running          -> queued      the attempt failed; last one: `failed`
    reap_expired     running, expired -> queued      the worker went silent; last one: `failed`
    request_stop     queued           -> cancelled
                     running          -> running     flag; the worker reads it from its heartbeat
    skip_dependents  queued           -> skipped     a dependency ended without success
    requeue          ended            -> queued      in `control.py`: retry, resume, extend

release, retry and reap_expired end in `cancelled` where cancelling was requested. `attempt` is the
fencing token: claim makes a new one and every later call of that attempt names it, so a worker that
was given up gets False and must stop. All clocks are the database's, and a lease lasts at least its
whole length after the database started: an outage costs no worker its job. An attempt that stored a
new iteration sets the count of failures back to 0 (`backend/db/ingest.py`).

Callers own the transaction: use `with engine.begin() as connection`. Workers themselves are rows of
`backend/db/queries/workers.py`.
"""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, text

from backend.db.queries.attempts import close_attempt, close_orphans
from backend.db.queries.claims import EXPIRED, LOST, ClaimedJob, claim, claimable_job_ids
from backend.db.queries.dependencies import skip_dependents
from backend.db.queries.events import add_event
from backend.schemas import JobState

__all__ = [
    "ClaimedJob",
    "EndState",
    "Heartbeat",
    "claim",
    "claimable_job_ids",
    "finish",
    "heartbeat",
    "reap_expired",
    "release",
    "request_stop",
    "retry",
    "see_process",
    "stop_requests",
]

EndState = Literal["succeeded", "failed", "cancelled"]


class Heartbeat(NamedTuple):
    """Not owner: another attempt has the job or it ended; stop at once and write nothing."""

    is_owner: bool
    is_cancel_requested: bool
    is_kill_requested: bool = False


def heartbeat(connection: Connection, job_id: int, attempt: int, lease_s: float) -> Heartbeat:
    """Renew the lease and learn whether to stop."""
    row = connection.execute(
        text(
            """
            UPDATE jobs SET heartbeat_at = clock_timestamp(),
                lease_expires_at = clock_timestamp() + :lease_s * interval '1 second'
            WHERE id = :job_id AND attempt = :attempt AND state = 'running'
            RETURNING is_cancel_requested, is_kill_requested
            """
        ),
        {"job_id": job_id, "attempt": attempt, "lease_s": lease_s},
    ).one_or_none()
    if row is None:
        return Heartbeat(False, False)
    return Heartbeat(True, row.is_cancel_requested, row.is_kill_requested)


def see_process(connection: Connection, job_id: int, attempt: int) -> bool:
    """The worker's main process saw the process that holds the lease alive: the second signal.

    False: this attempt does not own the job any more.
    """
    done = connection.execute(
        text(
            "UPDATE jobs SET process_seen_at = clock_timestamp() "
            "WHERE id = :job_id AND attempt = :attempt AND state = 'running'"
        ),
        {"job_id": job_id, "attempt": attempt},
    )
    return done.rowcount == 1


def stop_requests(connection: Connection, job_id: int) -> tuple[bool, bool]:
    """(asked to stop, asked to end at once), between two heartbeats."""
    row = connection.execute(
        text("SELECT is_cancel_requested, is_kill_requested FROM jobs WHERE id = :job_id"),
        {"job_id": job_id},
    ).one_or_none()
    return (False, False) if row is None else (row.is_cancel_requested, row.is_kill_requested)


def finish(
    connection: Connection,
    job_id: int,
    attempt: int,
    state: EndState,
    reason: str,
    result: dict[str, JsonValue] | None = None,
) -> bool:
    """End the job for good. False: this attempt does not own it any more; nothing changed.

    `result`: what it made beside the rows of its run, for instance a file.
    """
    row = connection.execute(
        text(
            """
            UPDATE jobs SET state = :state, reason = :reason, finished_at = clock_timestamp(),
                lease_expires_at = NULL, result = CAST(:result AS jsonb)
            WHERE id = :job_id AND attempt = :attempt AND state = 'running'
            RETURNING run_id, kind, worker_id
            """
        ),
        {
            "job_id": job_id,
            "attempt": attempt,
            "state": state,
            "reason": reason,
            "result": None if result is None else json.dumps(result),
        },
    ).one_or_none()
    if row is None:
        return False
    close_attempt(connection, job_id, attempt, state, reason)
    add_event(
        connection,
        f"job.{state}",
        f"{row.kind} job {job_id} {_ENDED[state]}: {reason}",
        run_id=row.run_id,
        job_id=job_id,
        attempt=attempt,
        worker_id=row.worker_id,
    )
    if state != "succeeded":
        skip_dependents(connection)
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
    _PUT_BACK.format(which=f"id IN (SELECT id FROM jobs WHERE {EXPIRED} FOR UPDATE SKIP LOCKED)")
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
    close_attempt(connection, job_id, attempt, "failed" if is_failure else "released", reason)
    add_event(
        connection,
        "job.retried" if is_failure else "job.released",
        f"attempt {attempt} of {row.kind} job {job_id} ended ({reason}); the job is {row.state}",
        run_id=row.run_id,
        job_id=job_id,
        attempt=attempt,
        worker_id=row.worker_id,
    )
    if row.state != "queued":
        skip_dependents(connection)
    return row.state


def reap_expired(connection: Connection) -> list[int]:
    """Take jobs from workers whose lease ran out; returns those that are queued again.

    The caller sends a wake-up for each of them after its commit. Skips what can no longer start,
    too: a job may have been submitted in the moment in which its dependency failed.
    """
    rows = connection.execute(_PUT_BACK_EXPIRED, {"reason": LOST, "is_failure": True}).all()
    for row in rows:
        close_attempt(connection, row.id, row.attempt, "lost", LOST)
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
    close_orphans(connection)
    skip_dependents(connection)
    return [row.id for row in rows if row.state == "queued"]


def request_stop(
    connection: Connection,
    *,
    run_id: int | None = None,
    job_id: int | None = None,
    is_kill: bool = False,
    actor: str | None = None,
) -> list[tuple[int, JobState]]:
    """End open jobs, those of a run or one: queued ones end now, running ones are asked to stop.

    A running job writes a checkpoint first, unless `is_kill`. Returns (job id, state) of the jobs
    that this call changed; a repeated call changes none.
    """
    rows = connection.execute(
        _REQUEST_STOP, {"run_id": run_id, "job_id": job_id, "is_kill": is_kill}
    ).all()
    for row in rows:
        is_stopping = row.state == "running"
        what = "was cancelled before it started"
        if is_stopping:
            what = "was asked to " + ("end at once" if is_kill else "stop after a checkpoint")
        add_event(
            connection,
            "job.cancel_requested" if is_stopping else "job.cancelled",
            f"{row.kind} job {row.id} {what}",
            run_id=row.run_id,
            job_id=row.id,
            attempt=row.attempt or None,
            actor=actor,
        )
    if any(row.state == "cancelled" for row in rows):
        skip_dependents(connection)
    return [(row.id, row.state) for row in rows]


_REQUEST_STOP = text(
    """
    UPDATE jobs SET
        is_cancel_requested = true, is_kill_requested = is_kill_requested OR :is_kill,
        state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END,
        reason = CASE state WHEN 'queued' THEN 'cancelled before it started' END,
        finished_at = CASE state WHEN 'queued' THEN clock_timestamp() END
    WHERE (run_id = :run_id OR id = :job_id) AND state IN ('queued', 'running')
        AND NOT (is_cancel_requested AND (is_kill_requested OR NOT :is_kill))
    RETURNING id, run_id, kind, state, attempt
    """
)
