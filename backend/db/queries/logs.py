"""What the processes of a run printed."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from backend.db.models import LogLine
from backend.schemas import LogLine as LogLineInfo
from backend.schemas import LogResponse


def read_log(connection: Connection, run_id: int, since: int | None, limit: int) -> LogResponse:
    """Lines after id `since`, or (None) the newest `limit` lines; oldest first either way."""
    query = select(*LogLine.__table__.columns).where(LogLine.run_id == run_id).limit(limit)
    if since is None:
        rows = connection.execute(query.order_by(LogLine.id.desc())).all()[::-1]
    else:
        rows = connection.execute(query.where(LogLine.id > since).order_by(LogLine.id)).all()
    lines = [LogLineInfo.model_validate(row) for row in rows]
    num_skipped = 0
    if since is None and len(lines) == limit:
        older = select(func.count()).where(LogLine.run_id == run_id, LogLine.id < lines[0].id)
        num_skipped = connection.execute(older).scalar_one()
    return LogResponse(
        lines=lines, next_since=lines[-1].id if lines else since or 0, num_skipped=num_skipped
    )
