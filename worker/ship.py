"""Ship what an attempt wrote to Postgres: its spool record by record, and the lines it printed.

The files are the truth until the database acknowledged them: training appends and never waits, the
shipper follows and retries while the database is away, one record in memory at a time. Where it
goes on is what the database holds of (job, attempt), so nothing is lost and nothing doubled,
whoever dies when.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import Connection, Engine

from backend.db.batches import (
    Owner,
    Record,
    SpoolConflict,
    StaleAttempt,
    earlier_attempts,
    mark_shipped,
    progress,
)
from backend.db.ingest import store_log, store_record
from backend.db.queries.events import add_event
from backend.db.texts import TextCollision
from backend.spool import LineReader, SpoolFolder, Target, clean_line, spool_folder
from sero_core.records import IterationPayload, from_line
from sero_core.sinks.reader import SpoolDamaged, SpoolReader, cut
from worker.retry import GaveUp, in_transaction

POLL_S = 0.3
MAX_LINES = 500
NOT_STORABLE = (SpoolDamaged, SpoolConflict, TextCollision, ValidationError)
"""What is wrong with the data itself, so that trying again does not help."""
log = logging.getLogger(__name__)


class AttemptShipper:
    """Ships one attempt's folder, in the name of `owner`."""

    def __init__(
        self, engine: Engine, owner: Owner, folder: SpoolFolder, give_up: threading.Event
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._folder = folder
        self._target = folder.target
        self._give_up = give_up
        self._records: SpoolReader | None = None
        self._log = LineReader(folder.output)
        self._num_log_lines = 0

    def ship_next(self, *, is_ended: bool = False) -> bool:
        """Ship a record and some lines, each in one transaction; False: nothing was there.

        `is_ended`: a last line without its newline counts, too. Waits while the database is away.
        Errors: `StaleAttempt`; `GaveUp`; one of `NOT_STORABLE`.
        """
        did_records, did_log = self._ship_record(), self._ship_log(is_final=is_ended)
        return did_records or did_log

    def end(self, keep_bytes: int) -> None:
        """Ship all the rest of a process that has ended, and note that this attempt is complete.

        A record that its writer did not finish is cut off, with an event. Errors: as `ship_next`.
        """
        while self.ship_next(is_ended=True):
            pass
        reader = self._reader()
        tail = reader.torn_tail()
        if tail is not None:
            cut(tail)

        def note(connection: Connection) -> None:
            mark_shipped(connection, self._owner, self._target.attempt)
            if tail is not None:
                self._add_event(connection, "spool.cut", f"cut off {tail}")

        in_transaction(self._engine, note, self._give_up)
        reader.reclaim(keep_bytes, is_ended=True)

    def give_back(self, error: Exception) -> None:
        """Note that the rest of an attempt cannot be stored; its files stay for `sero verify`."""

        def note(connection: Connection) -> None:
            mark_shipped(connection, self._owner, self._target.attempt)
            self._add_event(connection, "spool.damaged", f"not all could be stored: {error}")

        in_transaction(self._engine, note, self._give_up)

    def reclaim(self, keep_bytes: int) -> None:
        """Delete segments that are stored."""
        self._reader().reclaim(keep_bytes)

    def _add_event(self, connection: Connection, kind: str, what: str) -> None:
        target = self._target
        add_event(
            connection,
            kind,
            f"spool of attempt {target.attempt} of job {target.job_id}: {what}"[:2000],
            run_id=target.run_id,
            job_id=target.job_id,
            attempt=target.attempt,
        )

    def _reader(self) -> SpoolReader:
        if self._records is None:
            target = self._target
            done = in_transaction(
                self._engine,
                lambda connection: progress(connection, target.job_id, target.attempt),
                self._give_up,
            )
            self._log.skip(done.num_log_lines)
            self._num_log_lines = done.num_log_lines
            self._records = SpoolReader(self._folder.path, done.num_records)
        return self._records

    def _ship_record(self) -> bool:
        reader = self._reader()
        frame = reader.peek()
        if frame is None:
            return False
        with collector_paused():
            payload = for_job(from_line(frame.payload.decode()), self._target)
        record = Record.of_frame(self._target.attempt, frame, payload)

        def store(connection: Connection) -> None:
            with collector_paused():
                store_record(connection, self._owner, record)

        in_transaction(self._engine, store, self._give_up)
        reader.accept(frame)
        return True

    def _ship_log(self, *, is_final: bool) -> bool:
        lines = self._log.peek(MAX_LINES, is_final=is_final)
        if not lines:
            return False
        texts = [clean_line(line) for line in lines]
        in_transaction(
            self._engine,
            lambda connection: store_log(
                connection, self._owner, self._target.attempt, self._num_log_lines, texts
            ),
            self._give_up,
        )
        self._log.accept(lines)
        self._num_log_lines += len(lines)
        return True


class Shipper:
    """Follows a job in a thread of its own until `finish` or `abandon`.

    First it ships what earlier attempts left behind, then what its own attempt writes.
    """

    def __init__(self, engine: Engine, target: Target, run_dir: Path, keep_bytes: int) -> None:
        self._engine = engine
        self._target = target
        self._owner = Owner(target.run_id, target.job_id, target.attempt)
        self._run_dir = run_dir
        self._keep_bytes = keep_bytes
        self._finishing = threading.Event()
        self._abandoned = threading.Event()
        self.is_stale = False
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, name="shipper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Ship everything that is in the files and return.

        Waits while the database is away. Errors: `StaleAttempt`; what shipping itself raised.
        """
        self._finishing.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def abandon(self) -> None:
        """Stop as soon as possible; what is not shipped yet stays in the files."""
        self._abandoned.set()
        self._finishing.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            self._ship_earlier_attempts()
            folder = spool_folder(self._run_dir, self._target.job_id, self._target.attempt)
            mine = AttemptShipper(self._engine, self._owner, folder, self._abandoned)
            while not self._finishing.is_set():
                while mine.ship_next() and not self._abandoned.is_set():
                    mine.reclaim(self._keep_bytes)
                self._finishing.wait(POLL_S)
            if not self._abandoned.is_set():
                mine.end(self._keep_bytes)
        except GaveUp:
            log.warning("stopped shipping: the database is away and the job was abandoned")
        except StaleAttempt as error:
            self.is_stale = True
            self.error = error
        except Exception as error:  # handed to `finish`, which raises it in the main thread
            log.exception("shipping failed")
            self.error = error

    def _ship_earlier_attempts(self) -> None:
        earlier = in_transaction(
            self._engine,
            lambda connection: earlier_attempts(connection, self._owner),
            self._abandoned,
        )
        for attempt in earlier:
            folder = spool_folder(self._run_dir, self._target.job_id, attempt)
            if folder.path.is_dir():
                ship_ended(self._engine, self._owner, folder, self._abandoned, self._keep_bytes)


def ship_ended(
    engine: Engine, owner: Owner, folder: SpoolFolder, give_up: threading.Event, keep_bytes: int
) -> None:
    """Ship what an ended attempt left behind, as far as it can be stored.

    Errors: `StaleAttempt`; `GaveUp`.
    """
    shipper = AttemptShipper(engine, owner, folder, give_up)
    try:
        shipper.end(keep_bytes)
    except NOT_STORABLE as error:
        log.exception("%s cannot be stored", folder.path)
        shipper.give_back(error)


@contextmanager
def collector_paused() -> Generator[None]:
    """Millions of small objects live for one transaction: looking for cycles among them costs more
    than parsing them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def for_job(payload: IterationPayload, target: Target) -> IterationPayload:
    """What a branch or evaluate job found, at its checkpoint's iteration and under ids of its own.

    Training's lines pass unchanged.
    """
    if target.iteration is None:
        return payload
    prefix = f"j{target.job_id}"
    return payload.model_copy(
        update={
            "iteration": target.iteration,
            "episodes": [
                episode.model_copy(update={"episode_id": prefix + episode.episode_id})
                for episode in payload.episodes
            ],
            "branches": [
                branch.model_copy(
                    update={
                        "branch_id": prefix + branch.branch_id,
                        "episode_id": prefix + branch.episode_id,
                    }
                )
                for branch in payload.branches
            ],
            "evaluations": [
                evaluation.model_copy(update={"evaluation_id": prefix + evaluation.evaluation_id})
                for evaluation in payload.evaluations
            ],
        }
    )
