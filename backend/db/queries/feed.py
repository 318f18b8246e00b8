"""What is new of a run since a cursor, for its stream; nothing is skipped by a late commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sqlalchemy import Connection, text

from backend.db.queries.events import list_events
from backend.db.queries.logs import read_log
from backend.db.queries.runs import get_runs, training_job_id
from backend.schemas import JOB_ENDED, EventInfo, LogLine, RunSummary, StreamMetrics

MAX_ITEMS = 500


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """Ids of the last event, log line and iteration that were read."""

    event: int = 0
    log: int = 0
    iteration: int = -1

    def __str__(self) -> str:
        return f"{self.event}.{self.log}.{self.iteration}"

    @classmethod
    def parse(cls, value: str) -> Self | None:
        parts = value.split(".")
        try:
            event, line, iteration = (int(part) for part in parts)
        except ValueError:
            return None
        return cls(event, line, iteration)


@dataclass(frozen=True, slots=True)
class News:
    """`is_over`: all jobs of the run ended and nothing more was read."""

    run: RunSummary
    events: list[EventInfo]
    log: list[LogLine]
    metrics: list[StreamMetrics]
    cursor: FeedCursor
    is_over: bool


def read_news(connection: Connection, run_id: int, since: FeedCursor) -> News | None:
    """None: the run is gone."""
    found = get_runs(connection, [run_id])
    if not found:
        return None
    is_ended = connection.execute(
        text("SELECT bool_and(finished_at IS NOT NULL) FROM jobs WHERE run_id = :id"),
        {"id": run_id},
    ).scalar_one()
    events = list_events(connection, run_id, since.event, MAX_ITEMS)
    lines = read_log(connection, run_id, since.log, MAX_ITEMS)
    metrics = _metrics(connection, run_id, since.iteration)
    last = metrics[-1].iteration if metrics else since.iteration
    cursor = FeedCursor(events.next_since, lines.next_since, last)
    run = found[0][0]
    return News(
        run=run,
        events=events.events,
        log=lines.lines,
        metrics=metrics,
        cursor=cursor,
        is_over=bool(is_ended) and run.status in JOB_ENDED and cursor == since,
    )


def now(connection: Connection, run_id: int) -> FeedCursor:
    """The cursor behind everything that is stored."""
    row = connection.execute(
        text(
            """
            SELECT (SELECT coalesce(max(id), 0) FROM events WHERE run_id = :id) AS event,
                (SELECT coalesce(max(id), 0) FROM log_lines WHERE run_id = :id) AS log,
                (SELECT coalesce(max(iteration), -1) FROM iterations WHERE run_id = :id
                    AND job_id = (SELECT id FROM jobs WHERE run_id = :id AND kind = 'train')
                ) AS iteration
            """
        ),
        {"id": run_id},
    ).one()
    return FeedCursor(row.event, row.log, row.iteration)


def _metrics(connection: Connection, run_id: int, since: int) -> list[StreamMetrics]:
    rows = connection.execute(
        text(
            """
            SELECT iteration, jsonb_object_agg(key, CASE WHEN value > '-Infinity'
                AND value < 'Infinity' THEN to_jsonb(value) ELSE 'null'::jsonb END) AS values
            FROM metrics
            WHERE run_id = :run_id AND job_id = :job_id AND iteration > :since
                AND iteration <= :since + :most
            GROUP BY iteration ORDER BY iteration
            """
        ),
        {
            "run_id": run_id,
            "job_id": training_job_id(connection, run_id),
            "since": since,
            "most": MAX_ITEMS,
        },
    )
    return [StreamMetrics(iteration=row.iteration, values=row.values) for row in rows]
