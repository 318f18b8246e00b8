"""Reading the queue: jobs with their attempts (changing them is `jobs.py`)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, Integer, Select, case, func, select

from backend.db.models import Attempt, Job, Run
from backend.schemas import AttemptInfo, JobInfo, JobState


def list_jobs(connection: Connection, *, state: JobState | None, limit: int) -> list[JobInfo]:
    """Running, then waiting jobs in the order of the queue; then the newest ended ones."""
    is_waiting = Job.state == "queued"
    query = _jobs().order_by(
        case((Job.state == "running", 0), (is_waiting, 1), else_=2),
        Job.finished_at.desc().nulls_first(),
        case((is_waiting, Job.priority), else_=0),
        Job.id,
    )
    if state is not None:
        query = query.where(Job.state == state)
    return _load(connection, query.limit(limit))


def jobs_of_run(connection: Connection, run_id: int) -> list[JobInfo]:
    """All jobs of a run, oldest first."""
    return _load(connection, _jobs().where(Job.run_id == run_id).order_by(Job.id))


def get_job(connection: Connection, job_id: int) -> JobInfo | None:
    found = _load(connection, _jobs().where(Job.id == job_id))
    return found[0] if found else None


def count_open_jobs(connection: Connection) -> tuple[int, int]:
    """(queued, running)."""
    row = connection.execute(
        select(
            func.count().filter(Job.state == "queued").label("queued"),
            func.count().filter(Job.state == "running").label("running"),
        ).where(Job.state.in_(("queued", "running")))
    ).one()
    return row.queued, row.running


def _jobs() -> Select[*tuple[Any, ...]]:
    return select(
        *Job.__table__.columns,
        Job.payload["iteration"].astext.cast(Integer).label("iteration"),
        Run.name.label("run_name"),
    ).join(Run, Run.id == Job.run_id)


def _load(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[JobInfo]:
    rows = [dict(row) for row in connection.execute(query).mappings()]
    attempts: dict[int, list[AttemptInfo]] = defaultdict(list)
    for row in connection.execute(
        select(*Attempt.__table__.columns)
        .where(Attempt.job_id.in_([row["id"] for row in rows]))
        .order_by(Attempt.job_id, Attempt.attempt)
    ):
        attempts[row.job_id].append(AttemptInfo.model_validate(row))
    return [JobInfo.model_validate({**row, "attempts": attempts[row["id"]]}) for row in rows]
