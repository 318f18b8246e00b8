"""What every worker does beside its job: heartbeat, put lost jobs back, wake up forgotten ones.

A thread of the worker's main process, so it goes on while a job runs. Any number of workers may do
this at once; the database decides.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from importlib.metadata import version

from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from sqlalchemy import Connection

from backend.db.engine import make_engine
from backend.db.queries import jobs, workers
from backend.settings import Settings
from worker.app import RUN_JOB, own_queue
from worker.notes import Notes
from worker.retry import AWAY
from worker.salvage import Salvager

MAX_PERIOD_S = 5.0
IDLE_EXIT_S = 8.0
"""Celery itself usually needs 5 s."""
PROCESS_KILLED = "its worker's process was killed"
log = logging.getLogger(__name__)


class Caretaker:
    """Registers the worker, then works every few seconds until `stop`."""

    def __init__(self, app: Celery, settings: Settings, worker_id: str, notes: Notes) -> None:
        self._app = app
        self._settings = settings
        self._worker_id = worker_id
        self._notes = notes
        self._engine = make_engine(settings.database_url, pool_size=2, name="sero caretaker")
        self._salvager = Salvager(self._engine, settings)
        self._ended = threading.Event()
        self._is_registered = False
        self._is_stopping = False
        self._idle_since: float | None = None
        self._thread = threading.Thread(target=self._work, name="caretaker", daemon=True)

    def start(self) -> None:
        """Begin in a thread; the note `ready` appears once the worker is registered."""
        self._notes.begin()
        self._thread.start()
        self._salvager.start()

    def prepare_stop(self) -> None:
        """The worker takes no more jobs, the running one shall end soon. For a signal handler."""
        self._is_stopping = True
        self._notes.ask_to_stop()

    def stop(self) -> None:
        """End the thread and say that the worker stopped, if the database still answers."""
        self._ended.set()
        self._salvager.stop()
        self._thread.join(timeout=10.0)
        self._say_stopped()

    def _say_stopped(self) -> None:
        try:
            with self._engine.begin() as connection:
                workers.stop(connection, self._worker_id)
        except AWAY as error:
            log.warning("could not say that this worker stopped: %s", error.args[0])
        self._engine.dispose()
        self._notes.end()

    def _work(self) -> None:
        try:
            self._work_until_ended()
        except BaseException:
            log.exception("the caretaker failed; this worker stops and may be started again")
            os.kill(os.getpid(), signal.SIGTERM)

    def _work_until_ended(self) -> None:
        period_s = min(self._settings.heartbeat_s, MAX_PERIOD_S)
        while not self._ended.is_set():
            try:
                with self._engine.begin() as connection:
                    was_registered = self._show_up(connection)
                if not was_registered:
                    self._notes.say_ready()
                self._look_at_processes()
                if self._is_stopping:
                    self._end_when_idle()
                else:
                    self._look_after_jobs(min_age_s=2 * period_s if was_registered else 0.0)
            except AWAY as error:
                log.warning("the database is away: %s", error.args[0])
            except BrokerError as error:
                log.warning("the broker is away: %s", error)
            self._ended.wait(period_s)

    def _look_at_processes(self) -> None:
        """Say which jobs' processes live, and put a job back whose process was killed.

        The lease alone would need its whole length to tell, and cannot tell a killed process from
        one that native code holds up.
        """
        for running in self._notes.running_jobs():
            with self._engine.begin() as connection:
                if running.is_process_alive:
                    jobs.see_process(connection, running.job_id, running.attempt)
                    continue
                state = jobs.retry(connection, running.job_id, running.attempt, PROCESS_KILLED)
            running.note.unlink(missing_ok=True)
            if state is not None:
                log.warning("the process of job %d was killed; it is %s", running.job_id, state)

    def _end_when_idle(self) -> None:
        """End this process when Celery does not.

        Its warm shutdown sometimes waits for the idle pool process for half a minute (seen in 1 of
        7 stops). Nothing is lost: no job runs, and messages are only wake-ups.
        """
        if self._notes.is_busy():
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > IDLE_EXIT_S:
            log.warning("Celery is slow to stop; this worker ends now")
            self._say_stopped()
            os._exit(0)

    def _show_up(self, connection: Connection) -> bool:
        """Heartbeat, or register. True: this process was registered before."""
        lease_s = self._settings.lease_s
        if self._is_registered and workers.beat(connection, self._worker_id, lease_s):
            return True
        workers.register(
            connection,
            self._worker_id,
            socket.gethostname(),
            os.getpid(),
            version("sero-lab"),
            lease_s,
            labels=self._settings.labels,
            devices=self._settings.devices,
            num_slots=self._settings.num_slots,
        )
        was_registered, self._is_registered = self._is_registered, True
        return was_registered

    def _look_after_jobs(self, min_age_s: float) -> None:
        """Put expired jobs back; wake this worker up for jobs that it could take.

        The jobs table is the outbox: whatever happened to the message of a job (the API died before
        sending it, the broker lost it, another worker got it), some worker finds the job here.
        """
        with self._engine.begin() as connection:
            lost = jobs.reap_expired(connection)
        for job_id in lost:
            log.warning("job %d went back to the queue: its worker went silent", job_id)
        with self._engine.begin() as connection:
            waiting = jobs.claimable_job_ids(connection, self._worker_id, 0 if lost else min_age_s)
        if waiting and self._num_messages() == 0:
            self._app.send_task(RUN_JOB, args=[waiting[0]], queue=own_queue(self._worker_id))
            log.info("sent a wake-up for job %d", waiting[0])

    def _num_messages(self) -> int:
        """Wake-ups that this worker has not read yet."""
        with self._app.connection_for_read() as connection:
            queue = own_queue(self._worker_id)
            return connection.default_channel.queue_declare(queue).message_count
