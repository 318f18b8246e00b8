"""The one task, and what a worker process does beside it: say that it lives, and wake jobs up."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import cast

from celery import Celery
from celery.apps.worker import Worker
from celery.signals import (
    celeryd_after_setup,
    worker_init,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from sqlalchemy import Connection

from backend.db.engine import make_engine
from backend.db.queries import jobs, runs
from backend.settings import Settings
from backend.wakeup import label_queue
from sero_core.provenance import current_code
from worker.app import RUN_JOB, app, own_queue
from worker.caretaker import Caretaker
from worker.child import run_job
from worker.notes import Notes
from worker.retry import in_transaction

WORKER_ID = "SERO_WORKER_ID"
log = logging.getLogger(__name__)


@app.task(name=RUN_JOB)  # pyright: ignore[reportUntypedFunctionDecorator]
def run_next_jobs(job_id: int) -> None:
    """A wake-up for job `job_id`: run what is in the queue, in its order, until it is empty.

    A message whose job is done or taken finds nothing: duplicates are harmless.
    """
    settings = Settings.from_env()
    worker_id = os.environ[WORKER_ID]
    notes = Notes(settings.home, worker_id)
    engine = make_engine(settings.database_url, pool_size=4, name=f"sero worker {worker_id}")
    try:
        with notes.busy(), _termination() as is_terminated:

            def is_stopping() -> bool:
                return is_terminated.is_set() or notes.is_asked_to_stop()

            log.debug("woken up for job %d", job_id)
            while not is_stopping():
                claimed = in_transaction(
                    engine,
                    lambda connection: _claim(connection, worker_id, settings.lease_s),
                    is_terminated,
                )
                if claimed is None:
                    return
                log.info(
                    "job %d (%s of run %d), attempt %d",
                    claimed.job_id,
                    claimed.kind,
                    claimed.run_id,
                    claimed.attempt,
                )
                with notes.running(claimed.job_id, claimed.attempt):
                    run_job(engine, settings, claimed, is_stopping)
    finally:
        engine.dispose()


def _claim(connection: Connection, worker_id: str, lease_s: float) -> jobs.ClaimedJob | None:
    """Take the next job; note which code trains a run."""
    claimed = jobs.claim(connection, None, worker_id, lease_s)
    if claimed is not None and claimed.kind == "train":
        code = current_code()
        runs.note_code(connection, claimed.run_id, code.commit, code.is_dirty)
    return claimed


@contextmanager
def _termination() -> Generator[threading.Event]:
    """An event that SIGTERM and SIGQUIT set instead of raising in the middle of a transaction."""
    event = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        event.set()

    numbers = (signal.SIGTERM, signal.SIGQUIT)
    previous = {number: signal.signal(number, note) for number in numbers}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if event.is_set():
        sys.exit(0)


class _State:
    caretaker: Caretaker | None = None


@worker_init.connect
def _name_worker(**_: object) -> None:
    """The pool process inherits the name through the environment."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    os.environ[WORKER_ID] = f"{socket.gethostname()}-{os.getpid()}"


@celeryd_after_setup.connect
def _choose_queues(instance: Worker, **_: object) -> None:
    """Beside the common queue: that of each label, and one that only this worker reads."""
    settings = Settings.from_env()
    names = [label_queue(label) for label in settings.labels]
    for name in (*names, own_queue(os.environ[WORKER_ID])):
        cast(Celery, instance.app).amqp.queues.select_add(name)


@worker_ready.connect
def _start_caretaker(**_: object) -> None:
    settings, worker_id = Settings.from_env(), os.environ[WORKER_ID]
    _State.caretaker = Caretaker(app, settings, worker_id, Notes(settings.home, worker_id))
    _State.caretaker.start()


@worker_shutting_down.connect
def _ask_job_to_stop(**_: object) -> None:
    if _State.caretaker is not None:
        _State.caretaker.prepare_stop()


@worker_shutdown.connect
def _stop_caretaker(**_: object) -> None:
    if _State.caretaker is not None:
        _State.caretaker.stop()
