"""Reading the queue: jobs with their attempts (changing them is `jobs.py`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Integer,
    Select,
    case,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from backend.db import paging
from backend.db.models import ApiToken, Attempt, Job, JobDependency, Run
from backend.db.queries.waiting import explain
from backend.schemas import AttemptInfo, JobInfo, JobKind, JobPage, JobState

_GROUP = case((Job.state == "running", 0), (Job.state == "queued", 1), else_=2)
_RANK = func.coalesce(Job.position, cast(Job.id, Double))
_ENDED = cast(-func.extract("epoch", Job.finished_at), Double)
_ORDER = (
    paging.SortKey(_GROUP.label("sort_group"), int, is_ascending=True),
    paging.SortKey(
        case(
            (Job.state == "running", 0.0),
            (Job.state == "queued", cast(-Job.priority, Double)),
            else_=_ENDED,
        ).label("sort_first"),
        float,
        is_ascending=True,
    ),
    paging.SortKey(
        case((Job.state == "queued", _RANK), else_=0.0).label("sort_second"),
        float,
        is_ascending=True,
    ),
    paging.SortKey(Job.__table__.c.id, int, is_ascending=True),
)


def list_jobs(
    connection: Connection,
    *,
    state: JobState | None = None,
    kind: JobKind | None = None,
    run_id: int | None = None,
    limit: int,
    cursor: str | None = None,
) -> JobPage:
    """Running, then waiting jobs in the order of the queue; then ended ones, newest first.

    Errors: `paging.InvalidCursor`.
    """
    equal = {Job.state: state, Job.kind: kind, Job.run_id: run_id}
    filters = [column == value for column, value in equal.items() if value is not None]
    sorts = [key.column for key in _ORDER[:3]]
    rows = [
        dict(row)
        for row in connection.execute(
            _jobs()
            .add_columns(*sorts)
            .where(*filters, *([paging.after(_ORDER, cursor)] if cursor else []))
            .order_by(*paging.order_by(_ORDER))
            .limit(limit + 1)
        ).mappings()
    ]
    next_cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        names = ("sort_group", "sort_first", "sort_second", "id")
        next_cursor = paging.encode([last[name] for name in names])
    count = select(func.count()).select_from(Job)
    return JobPage(
        items=_load(connection, rows[:limit]),
        next_cursor=next_cursor,
        num_matching=connection.execute(count.where(*filters)).scalar_one(),
        num_total=connection.execute(count).scalar_one(),
    )


def jobs_of_run(connection: Connection, run_id: int) -> list[JobInfo]:
    """All jobs of a run, oldest first."""
    return _load(connection, _rows(connection, Job.run_id == run_id))


def get_job(connection: Connection, job_id: int) -> JobInfo | None:
    found = _load(connection, _rows(connection, Job.id == job_id))
    return found[0] if found else None


def get_jobs(connection: Connection, job_ids: Sequence[int]) -> list[JobInfo]:
    return _load(connection, _rows(connection, Job.id.in_(job_ids)))


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
    depends_on = (
        select(func.array_agg(JobDependency.depends_on))
        .where(JobDependency.job_id == Job.id)
        .scalar_subquery()
    )
    return (
        select(
            *(c for c in Job.__table__.columns if c.name not in ("position", "token_id")),
            Job.payload["iteration"].astext.cast(Integer).label("iteration"),
            Run.name.label("run_name"),
            ApiToken.name.label("token"),
            func.coalesce(depends_on, literal([], type_=ARRAY(Integer))).label("depends_on"),
        )
        .join(Run, Run.id == Job.run_id)
        .outerjoin(ApiToken, ApiToken.id == Job.token_id)
    )


def _rows(connection: Connection, condition: ColumnElement[bool]) -> list[dict[str, Any]]:
    rows = connection.execute(_jobs().where(condition).order_by(Job.id)).mappings()
    return [dict(row) for row in rows]


def _load(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[JobInfo]:
    attempts: dict[int, list[AttemptInfo]] = defaultdict(list)
    for row in connection.execute(
        select(*Attempt.__table__.columns)
        .where(Attempt.job_id.in_([row["id"] for row in rows]))
        .order_by(Attempt.job_id, Attempt.attempt)
    ):
        attempts[row.job_id].append(AttemptInfo.model_validate(row))
    has_waiting = any(row["state"] == "queued" for row in rows)
    waits = explain(connection) if has_waiting else {}
    found: list[JobInfo] = []
    for row in rows:
        wait = waits.get(row["id"])
        extra = {
            "attempts": attempts[row["id"]],
            "position": None if wait is None else wait.position,
            "waiting": None if wait is None else wait.reason,
        }
        found.append(JobInfo.model_validate({**row, **extra}))
    return found
