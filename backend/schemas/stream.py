"""Messages of the server-sent event streams."""

from __future__ import annotations

from backend.schemas.base import Number, Schema
from backend.schemas.runs import EventInfo, LogLine, RunSummary


class StreamMetrics(Schema):
    """Metrics of one new iteration."""

    iteration: int
    values: dict[str, Number]


class StreamMessage(Schema):
    """`kind` is the SSE event name; exactly the field of that name is set.

    `run`: the run's row changed. `event`: an entry of the audit trail. `log`: lines that were
    printed. `metrics`: a new iteration. `end`: everything is over, no more messages (no field).
    """

    run: RunSummary | None = None
    event: EventInfo | None = None
    log: list[LogLine] | None = None
    metrics: StreamMetrics | None = None
