"""Bring in what dead attempts left on this machine's disk, where no later attempt will.

A worker that is killed leaves records that were written but not shipped. The job's next attempt
ships them first; but a job that failed for good or was cancelled has no next attempt. Any number of
workers may look at once: the job's row is locked for each record, and each counts once.
"""

from __future__ import annotations

import logging
import socket
import threading

from sqlalchemy import Connection, Engine

from backend.db.batches import LeftBehind, Owner, StaleAttempt, left_behind, mark_shipped
from backend.db.queries.events import add_event
from backend.settings import Settings
from backend.spool import spool_folder
from sero_core.sinks.spool import has_writer
from worker.retry import AWAY, GaveUp
from worker.ship import ship_ended

PERIOD_S = 10.0
log = logging.getLogger(__name__)


class Salvager:
    """Looks every few seconds, in a thread of its own, until `stop`."""

    def __init__(self, engine: Engine, settings: Settings, period_s: float = PERIOD_S) -> None:
        self._engine = engine
        self._settings = settings
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="salvager", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=5.0)

    def _work(self) -> None:
        while not self._ended.wait(self._period_s):
            try:
                salvage(self._engine, self._settings, self._ended)
            except (*AWAY, GaveUp) as error:
                log.warning("the database is away: %s", error.args[0])
            except Exception:
                log.exception("could not bring in what an attempt left behind")


def salvage(engine: Engine, settings: Settings, give_up: threading.Event) -> int:
    """Ship what ended attempts left behind here; returns how many are complete now.

    Errors: `GaveUp`; what a lost database raises.
    """
    with engine.connect() as connection:
        found = left_behind(connection)
    return sum(_salvage_one(engine, settings, item, give_up) for item in found)


def _salvage_one(
    engine: Engine, settings: Settings, item: LeftBehind, give_up: threading.Event
) -> bool:
    owner = Owner(item.run_id, item.job_id, None)
    folder = spool_folder(settings.run_dir(item.run_id), item.job_id, item.attempt)
    is_here = folder.path.is_dir()
    if is_here and has_writer(folder.path):  # a process that was given up and still runs
        return False
    if not is_here and item.host != socket.gethostname():
        return False

    try:
        if is_here:
            ship_ended(engine, owner, folder, give_up, settings.spool_keep_bytes)
        with engine.begin() as connection:
            if is_here:
                _say_so(connection, item)
            else:  # it never came to write anything
                mark_shipped(connection, owner, item.attempt)
    except StaleAttempt:  # claimed in the meantime: its new attempt ships this first
        return False
    return True


def _say_so(connection: Connection, item: LeftBehind) -> None:
    add_event(
        connection,
        "spool.salvaged",
        f"what attempt {item.attempt} of job {item.job_id} left behind was stored",
        run_id=item.run_id,
        job_id=item.job_id,
        attempt=item.attempt,
    )
