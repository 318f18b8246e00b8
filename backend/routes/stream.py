"""Server-sent events: what happens to a run, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from backend import schemas as s
from backend.db.queries import feed
from backend.db.queries.feed import FeedCursor, News
from backend.routes.deps import ERRORS_AS_JSON, RunId, Services, ServicesDep

router = APIRouter(tags=["runs"])
POLL_S = 5.0
"""Without a notification, a reader looks so often."""
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)]


def _existing(run_id: RunId, services: ServicesDep) -> None:
    with services.reading(run_id):
        pass


@router.get(
    "/runs/{run_id}/stream",
    response_class=EventSourceResponse,
    dependencies=[Depends(_existing)],
    responses={422: ERRORS_AS_JSON, "default": ERRORS_AS_JSON},
)
async def stream_run(
    run_id: RunId,
    services: ServicesDep,
    last_event_id: LastEventId = None,
    is_from_start: Annotated[bool, Query(description="Send also what is there already")] = False,
) -> AsyncIterator[ServerSentEvent]:
    """Messages `run`, `event`, `log`, `metrics`, and `end` once all jobs of the run are over.

    Each message has an id; a reader that reconnects sends it as `Last-Event-ID` and misses nothing.
    `data` is a `StreamMessage`.
    """
    cursor = FeedCursor.parse(last_event_id) if last_event_id else None
    if cursor is None:
        cursor = FeedCursor() if is_from_start else await run_sync(_now, services, run_id)
    last_run: s.RunSummary | None = None
    with services.changes.subscribe(run_id) as news_event:
        while True:
            news_event.clear()
            news = await run_sync(_read, services, run_id, cursor)
            if news is None:  # it was deleted meanwhile
                return
            for message in _messages(news, last_run):
                yield message
            last_run, is_more = news.run, news.cursor != cursor
            cursor = news.cursor
            if news.is_over:
                yield ServerSentEvent(event="end", data=s.StreamMessage(), id=str(cursor))
                return
            if not is_more:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news_event.wait(), POLL_S)


def _messages(news: News, last_run: s.RunSummary | None) -> list[ServerSentEvent]:
    """The cursor counts with the last message: a reader cut off in between gets all again."""
    found: list[tuple[str, s.StreamMessage]] = []
    if news.run != last_run:
        found.append(("run", s.StreamMessage(run=news.run)))
    found += [("event", s.StreamMessage(event=event)) for event in news.events]
    if news.log:
        found.append(("log", s.StreamMessage(log=news.log)))
    found += [("metrics", s.StreamMessage(metrics=metrics)) for metrics in news.metrics]
    return [
        ServerSentEvent(
            event=kind,
            data=message.model_dump(mode="json", exclude_none=True),
            id=str(news.cursor) if index == len(found) - 1 else None,
        )
        for index, (kind, message) in enumerate(found)
    ]


def _read(services: Services, run_id: int, since: FeedCursor) -> News | None:
    with services.reading() as connection:
        return feed.read_news(connection, run_id, since)


def _now(services: Services, run_id: int) -> FeedCursor:
    with services.reading(run_id) as connection:
        return feed.now(connection, run_id)
