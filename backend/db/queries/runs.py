"""Reading runs: the table, one run, and what differs between several."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, case, func, literal, or_, select, update

from backend.db import paging
from backend.db.models import Job, Run
from backend.db.queries.queue import jobs_of_run
from backend.db.records import Branch, Episode, Metric
from backend.diff import changes, flatten
from backend.schemas import Config, ConfigDifference, RunDetail, RunPage, RunStatus, RunSummary

status_column: ColumnElement[str] = case(
    ((Job.state == "running") & Job.is_cancel_requested, literal("stopping")), else_=Job.state
)
COLUMNS = (
    *(column for column in Run.__table__.columns if column.name not in ("config", "request_hash")),
    Run.import_hash.is_not(None).label("is_imported"),
    status_column.label("status"),
    Job.reason,
    Job.attempt,
    Job.started_at,
    Job.finished_at,
    Job.heartbeat_at,
)
TRAINING = (Job.run_id == Run.id) & (Job.kind == "train")
ORDER = (paging.SortKey(Run.__table__.c.id, int, is_ascending=False),)


def list_runs(
    connection: Connection,
    *,
    status: RunStatus | None,
    search: str | None,
    limit: int,
    cursor: str | None,
) -> RunPage:
    """Newest first. Errors: `paging.InvalidCursor`."""
    filters: list[ColumnElement[bool]] = []
    if status is not None:
        filters.append(status_column == status)
    if search:
        fields = (Run.name, Run.method, Run.env, Run.preset)
        filters.append(or_(*(field.icontains(search, autoescape=True) for field in fields)))
    rows = connection.execute(
        select(*COLUMNS)
        .join(Job, TRAINING)
        .where(*filters, *([paging.after(ORDER, cursor)] if cursor else []))
        .order_by(*paging.order_by(ORDER))
        .limit(limit + 1)
    ).all()
    page = [RunSummary.model_validate(row) for row in rows[:limit]]
    matching = select(func.count()).select_from(Run).join(Job, TRAINING).where(*filters)
    return RunPage(
        items=page,
        next_cursor=paging.encode([page[-1].id]) if len(rows) > limit else None,
        num_matching=connection.execute(matching).scalar_one(),
        num_total=connection.execute(select(func.count()).select_from(Run)).scalar_one(),
    )


def get_run(connection: Connection, run_id: int) -> RunDetail | None:
    """One run with its config and its jobs."""
    row = connection.execute(
        select(*COLUMNS, Run.config).join(Job, TRAINING).where(Run.id == run_id)
    ).one_or_none()
    if row is None:
        return None
    summary = RunSummary.model_validate(row)
    parents = get_runs(connection, [row.parent_run_id]) if row.parent_run_id else []
    children = select(Run.id).where(Run.parent_run_id == run_id).order_by(Run.id)
    return RunDetail(
        **summary.model_dump(),
        config=row.config,
        jobs=jobs_of_run(connection, run_id),
        changes=changes(parents[0][1], row.config) if parents else [],
        child_run_ids=list(connection.scalars(children)),
    )


def has_run(connection: Connection, run_id: int) -> bool:
    return connection.execute(select(Run.id).where(Run.id == run_id)).one_or_none() is not None


def training_job_id(connection: Connection, run_id: int) -> int | None:
    """The job whose curves are the run's curves."""
    return connection.execute(
        select(Job.id).where(Job.run_id == run_id, Job.kind == "train")
    ).scalar_one_or_none()


def require_training_job(connection: Connection, run_id: int) -> int:
    """The training job of a run that exists."""
    return connection.execute(
        select(Job.id).where(Job.run_id == run_id, Job.kind == "train")
    ).scalar_one()


def note_code(
    connection: Connection, run_id: int, commit: str | None, is_dirty: bool | None
) -> None:
    """The code that trains the run now; null where it is not known."""
    connection.execute(
        update(Run).where(Run.id == run_id).values(git_commit=commit, git_is_dirty=is_dirty)
    )


def known_job_ids(connection: Connection, job_ids: Sequence[int]) -> set[int]:
    return set(connection.scalars(select(Job.id).where(Job.id.in_(job_ids))))


def num_steps_of_episode(connection: Connection, run_id: int, episode_id: str) -> int | None:
    """None: the run has no such episode."""
    return connection.scalar(
        select(Episode.num_steps).where(Episode.run_id == run_id, Episode.episode_id == episode_id)
    )


def known_branch_ids(connection: Connection, run_id: int, branch_ids: Sequence[str]) -> set[str]:
    mine = (Branch.run_id == run_id, Branch.branch_id.in_(branch_ids))
    return set(connection.scalars(select(Branch.branch_id).where(*mine)))


def get_runs(connection: Connection, run_ids: Sequence[int]) -> list[tuple[RunSummary, Config]]:
    """Some runs with their configs, in the order asked for; unknown ones are left out."""
    rows = {
        row["id"]: dict(row)
        for row in connection.execute(
            select(*COLUMNS, Run.config).join(Job, TRAINING).where(Run.id.in_(run_ids))
        ).mappings()
    }
    return [
        (RunSummary.model_validate(rows[run_id]), rows[run_id]["config"])
        for run_id in run_ids
        if run_id in rows
    ]


def config_differences(configs: dict[int, Config]) -> list[ConfigDifference]:
    """The dotted keys whose values are not the same in all configs; the name does not count."""
    flat = {run_id: flatten(config) for run_id, config in configs.items()}
    keys = sorted({key for values in flat.values() for key in values} - {"name"})
    found: list[ConfigDifference] = []
    for key in keys:
        values = {run_id: config[key] for run_id, config in flat.items() if key in config}
        first = next(iter(values.values()))
        if len(values) < len(configs) or any(value != first for value in values.values()):
            found.append(ConfigDifference(key=key, values=values))
    return found


def metric_keys_of(connection: Connection, run_ids: Sequence[int]) -> list[str]:
    """The metric keys that at least one of the runs has."""
    rows = connection.execute(
        select(Metric.key).where(Metric.run_id.in_(run_ids)).distinct().order_by(Metric.key)
    )
    return [row.key for row in rows]
