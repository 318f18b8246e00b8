"""The audit trail: one row for each state change."""

from __future__ import annotations

from sqlalchemy import Connection, insert, literal_column, select

from backend.db.models import Event
from backend.schemas import EventInfo, EventsResponse


def add_event(
    connection: Connection,
    kind: str,
    message: str,
    *,
    run_id: int | None = None,
    job_id: int | None = None,
    attempt: int | None = None,
    worker_id: str | None = None,
    actor: str | None = None,
) -> None:
    """Append an event. `kind` is `<thing>.<what happened>`, `message` one sentence.

    `actor`: the name of the token that asked for it; None = the platform itself.
    """
    connection.execute(
        insert(Event).values(
            kind=kind,
            message=message,
            run_id=run_id,
            job_id=job_id,
            attempt=attempt,
            worker_id=worker_id,
            actor=actor,
        )
    )


IS_SETTLED = Event.transaction_id < literal_column(
    "(pg_snapshot_xmin(pg_current_snapshot())::text)::bigint"
)
"""No transaction that began before is still open: none can commit a smaller id any more."""


def list_events(connection: Connection, run_id: int, since: int, limit: int) -> EventsResponse:
    """Events of a run after id `since`, oldest first."""
    rows = connection.execute(
        select(*Event.__table__.columns)
        .where(Event.run_id == run_id, Event.id > since, IS_SETTLED)
        .order_by(Event.id)
        .limit(limit)
    ).all()
    events = [EventInfo.model_validate(row) for row in rows]
    return EventsResponse(events=events, next_since=events[-1].id if events else since)
