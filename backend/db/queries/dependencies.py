"""Dependencies between jobs: skip what can no longer start, bring it back when its reason goes."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, text

from backend.db.models import JobDependency
from backend.db.queries.events import add_event

_SKIP = text(
    """
    UPDATE jobs SET state = 'skipped', finished_at = clock_timestamp(),
        reason = before.kind || ' job ' || before.id || CASE before.state
            WHEN 'failed' THEN ' failed: ' WHEN 'skipped' THEN ' was skipped: '
            ELSE ' was cancelled: ' END || before.reason
    FROM job_dependencies, jobs AS before
    WHERE jobs.state = 'queued' AND job_id = jobs.id AND before.id = depends_on
        AND before.state IN ('failed', 'cancelled', 'skipped')
    RETURNING jobs.id, jobs.run_id, jobs.kind, jobs.reason
    """
)
_REVIVE = text(
    """
    UPDATE jobs SET state = 'queued', reason = NULL, finished_at = NULL,
        queued_at = clock_timestamp()
    WHERE state = 'skipped' AND id IN (
        SELECT job_id FROM job_dependencies WHERE depends_on = ANY (:job_ids)
    ) AND NOT EXISTS (
        SELECT FROM job_dependencies JOIN jobs AS before ON before.id = depends_on
        WHERE job_id = jobs.id AND before.state IN ('failed', 'cancelled', 'skipped')
    )
    RETURNING id, run_id, kind
    """
)


def add_dependencies(connection: Connection, job_id: int, depends_on: Sequence[int]) -> None:
    if depends_on:
        connection.execute(
            insert(JobDependency),
            [{"job_id": job_id, "depends_on": other} for other in sorted(set(depends_on))],
        )


def skip_dependents(connection: Connection) -> list[int]:
    """Skip every queued job one of whose dependencies ended without success, and what depends on
    those in turn. Returns the skipped jobs."""
    skipped: list[int] = []
    while rows := connection.execute(_SKIP).all():
        for row in rows:
            message = f"{row.kind} job {row.id} was skipped: {row.reason}"
            add_event(connection, "job.skipped", message, run_id=row.run_id, job_id=row.id)
            skipped.append(row.id)
    return list(dict.fromkeys(skipped))


def revive_dependents(connection: Connection, job_id: int) -> list[int]:
    """A job is in the queue again: so are the jobs that were skipped because of it."""
    revived, level = list[int](), [job_id]
    while rows := connection.execute(_REVIVE, {"job_ids": level}).all():
        for row in rows:
            message = f"{row.kind} job {row.id} waits again for job {job_id}"
            add_event(connection, "job.queued", message, run_id=row.run_id, job_id=row.id)
        level = [row.id for row in rows]
        revived += level
    return revived
