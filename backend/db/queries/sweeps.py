"""Reading sweeps (they are made in `submit.py`)."""

from __future__ import annotations

from sqlalchemy import Connection, select

from backend.db.models import Run, Sweep
from backend.db.queries.runs import get_runs
from backend.schemas import SweepDetail, SweepInfo


def list_sweeps(connection: Connection, limit: int) -> list[SweepInfo]:
    """The newest first."""
    rows = connection.execute(
        select(*Sweep.__table__.columns).order_by(Sweep.id.desc()).limit(limit)
    )
    return [SweepInfo.model_validate(row) for row in rows]


def get_sweep(connection: Connection, sweep_id: int) -> SweepDetail | None:
    row = connection.execute(
        select(*Sweep.__table__.columns).where(Sweep.id == sweep_id)
    ).one_or_none()
    if row is None:
        return None
    ids = connection.scalars(select(Run.id).where(Run.sweep_id == sweep_id).order_by(Run.id))
    runs = [summary for summary, _ in get_runs(connection, ids.all())]
    return SweepDetail(**SweepInfo.model_validate(row).model_dump(), runs=runs)
