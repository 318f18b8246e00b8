"""Attempts: one row for each try of a job."""

from __future__ import annotations

from sqlalchemy import Connection, text


def open_attempt(connection: Connection, job_id: int, attempt: int, worker_id: str) -> None:
    connection.execute(
        text(
            "INSERT INTO attempts (job_id, attempt, worker_id) VALUES (:job_id, :attempt, :worker)"
        ),
        {"job_id": job_id, "attempt": attempt, "worker": worker_id},
    )


def close_attempt(
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


def close_orphans(connection: Connection) -> int:
    """Close attempts that no job runs any more, whoever left them open; returns how many."""
    done = connection.execute(
        text(
            """
            UPDATE attempts SET state = 'lost', reason = 'its job does not run it any more',
                finished_at = clock_timestamp()
            FROM jobs WHERE jobs.id = job_id AND attempts.state = 'running'
                AND (jobs.state <> 'running' OR jobs.attempt <> attempts.attempt)
            """
        )
    )
    return done.rowcount
