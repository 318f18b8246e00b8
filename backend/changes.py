"""Who waits for news of a run: one LISTEN connection for the whole process.

Triggers notify on every new event, iteration and log line (migration 0005). A notification says
only that there is something to read; readers ask the database, so a lost one costs seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress

import psycopg
from sqlalchemy import make_url

CHANNEL = "sero"
RECONNECT_S = 1.0
log = logging.getLogger("sero.changes")


class Changes:
    """`subscribe` in the event loop of the application; `close` at its end."""

    def __init__(self, database_url: str) -> None:
        url = make_url(database_url).set(drivername="postgresql")
        self._conninfo = url.render_as_string(hide_password=False)
        self._waiting: set[tuple[int | None, asyncio.Event]] = set()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(self, run_id: int | None) -> Generator[asyncio.Event]:
        """An event that is set when the run (None: any run) has news. The reader clears it."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen(), name="changes")
        entry = (run_id, asyncio.Event())
        self._waiting.add(entry)
        try:
            yield entry[1]
        finally:
            self._waiting.discard(entry)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _listen(self) -> None:
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True, application_name="sero-api changes"
                )
                async with connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    self._wake(None)  # what came while nobody listened
                    async for notice in connection.notifies():
                        run_id = notice.payload.rpartition(":")[2]
                        self._wake(int(run_id) if run_id.isdecimal() else None)
            except psycopg.OperationalError as error:
                log.warning("no news from the database: %s", error)
                await asyncio.sleep(RECONNECT_S)

    def _wake(self, run_id: int | None) -> None:
        for wanted, event in self._waiting:
            if run_id is None or wanted is None or wanted == run_id:
                event.set()
