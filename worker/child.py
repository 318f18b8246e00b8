"""Run one claimed job in a child process: `sero train | branch | eval` in a session of its own.

Three threads: the main one owns the process (Linux ends a child with the *thread* that started it),
one renews the lease, one ships. The process group always ends with the job.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import JsonValue
from sqlalchemy import Engine

from backend.db.ingest import StaleAttempt
from backend.db.queries import jobs
from backend.db.queries.jobs import ClaimedJob
from backend.settings import Settings
from backend.spool import SpoolFolder, Target, spool_folder
from backend.supervisor.process import die_with_parent, kill_group, tail
from sero_core.sinks import SPOOL_VARIABLE
from worker.plan import FolderInUse, JobError, Plan, newest_checkpoint, prepare
from worker.retry import AWAY, GaveUp, in_transaction
from worker.ship import Shipper

TICK_S = 0.1
RESULT = "result.json"
LOOK_S = 1.0
STOP_GRACE_S = 60.0
"""Seconds to write a checkpoint after SIGTERM."""
EXIT_BAD_INPUT = 2
EXIT_DISK_FULL = 74
EXIT_STOPPED = 75
log = logging.getLogger(__name__)

Stop = Literal["cancel", "release", "lost"]


def run_job(
    engine: Engine, settings: Settings, claimed: ClaimedJob, is_stopping: Callable[[], bool]
) -> None:
    """Run a claimed job to its end and write how it ended.

    `is_stopping` is asked ten times a second; once true, the process gets time for a checkpoint and
    the job goes back to the queue. Errors: only what is not the job's fault.
    """
    try:
        plan = prepare(engine, settings, claimed)
    except JobError as error:
        _end(engine, claimed, "failed", str(error))
        return
    except (FolderInUse, *AWAY) as error:  # a process that was given up still trains there
        _again(engine, claimed, str(error), is_failure=False)
        return
    except OSError as error:
        _again(engine, claimed, f"its folder cannot be prepared: {error}", is_failure=True)
        return
    run_dir = settings.run_dir(claimed.run_id)
    spool = spool_folder(run_dir, claimed.job_id, claimed.attempt)
    target = Target(claimed.run_id, claimed.job_id, claimed.attempt, plan.iteration)
    try:
        spool.create(target)
        process = _start(plan, spool)
    except OSError as error:
        _again(engine, claimed, f"its process cannot be started: {error}", is_failure=True)
        return
    shipper = Shipper(engine, target, run_dir, settings.spool_keep_bytes)
    lease = Lease(engine, claimed, settings)
    try:
        shipper.start()
        lease.start()
        stop = _wait(process, lease, shipper, is_stopping)
        kill_group(process.pid)
        _conclude(engine, claimed, lease, shipper, stop, process.wait(), plan.out, spool.output)
    finally:
        kill_group(process.pid)
        process.wait()
        shipper.abandon()
        lease.stop()


def _start(plan: Plan, spool: SpoolFolder) -> subprocess.Popen[bytes]:
    """Errors: OSError, for one when the disk is full."""
    environment = {SPOOL_VARIABLE: str(spool.path), "PYTHONUNBUFFERED": "1"}
    with spool.output.open("ab") as output:
        return subprocess.Popen(
            plan.args,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | plan.env | environment,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )


class Lease:
    """Renews the job's lease in a thread and learns from the answers what to do."""

    def __init__(self, engine: Engine, claimed: ClaimedJob, settings: Settings) -> None:
        self._engine = engine
        self._claimed = claimed
        self._lease_s = settings.lease_s
        self._heartbeat_s = settings.heartbeat_s
        self._ended = threading.Event()
        self.error: Exception | None = None
        self.is_lost = False
        self.is_cancel_requested = False
        self.is_kill_requested = False
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        """The first beat comes at once. While the database is away training goes on: a lease lasts
        its whole length again after the database's start."""
        try:
            self._beat_until_ended()
        except Exception as error:  # a job without heartbeats must end: the main thread raises it
            log.exception("the heartbeat of job %d failed", self._claimed.job_id)
            self.error = error

    def _beat_until_ended(self) -> None:
        beat_at = time.monotonic()
        while not self._ended.is_set() and not self.is_lost:
            try:
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + self._heartbeat_s
                    self._renew()
                else:
                    self._look()
            except AWAY as error:
                log.warning("heartbeat of job %d failed: %s", self._claimed.job_id, error.args[0])
                beat_at = time.monotonic()
            self._ended.wait(min(LOOK_S, self._heartbeat_s))

    def _renew(self) -> None:
        claimed = self._claimed
        with self._engine.begin() as connection:
            answer = jobs.heartbeat(connection, claimed.job_id, claimed.attempt, self._lease_s)
        self.is_cancel_requested = answer.is_cancel_requested
        self.is_kill_requested = answer.is_kill_requested
        self.is_lost = not answer.is_owner

    def _look(self) -> None:
        """Learn of a request to stop between two beats."""
        with self._engine.connect() as connection:
            asked = jobs.stop_requests(connection, self._claimed.job_id)
        self.is_cancel_requested, self.is_kill_requested = asked


def _wait(
    process: subprocess.Popen[bytes],
    lease: Lease,
    shipper: Shipper,
    is_stopping: Callable[[], bool],
) -> Stop | None:
    """Wait for the end of the process; ask it to end where that is due. Returns why, if so."""
    stop: Stop | None = None
    kill_at = float("inf")
    while process.poll() is None:
        if lease.is_lost or shipper.is_stale:
            kill_group(process.pid)
            process.wait()
            return "lost"
        if lease.error is not None:
            raise lease.error
        if shipper.error is not None:
            kill_group(process.pid)
        elif stop is None and (lease.is_cancel_requested or is_stopping()):
            stop = "cancel" if lease.is_cancel_requested else "release"
            kill_at = time.monotonic() + STOP_GRACE_S
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        elif lease.is_kill_requested or time.monotonic() > kill_at:
            kill_group(process.pid)
        with suppress(subprocess.TimeoutExpired):
            process.wait(TICK_S)
    return stop


def _conclude(
    engine: Engine,
    claimed: ClaimedJob,
    lease: Lease,
    shipper: Shipper,
    stop: Stop | None,
    status: int,
    out: Path,
    output: Path,
) -> None:
    """Ship the rest, then write the final state: the state never runs ahead of the rows."""
    if stop == "lost":
        log.warning("job %d belongs to another attempt now", claimed.job_id)
        return
    try:
        shipper.finish()
    except StaleAttempt as error:
        log.warning("%s", error)
        return
    except Exception as error:
        _end(engine, claimed, "failed", f"its rows cannot be stored: {error}"[:2000])
        raise
    if status == 0:
        _end(engine, claimed, "succeeded", "finished", _result(out))
    elif lease.is_kill_requested:
        _end(engine, claimed, "cancelled", "cancelled by the user")
    elif stop == "cancel" or lease.is_cancel_requested:
        how = "after a checkpoint" if status == EXIT_STOPPED else f"({describe(status)})"
        _end(engine, claimed, "cancelled", f"stopped by the user {how}")
    elif stop == "release" or status == EXIT_STOPPED:
        _again(engine, claimed, "its worker stopped", is_failure=False)
    elif status == EXIT_DISK_FULL:
        _end(engine, claimed, "failed", _disk_full(out, output))
    elif status == EXIT_BAD_INPUT:
        _end(engine, claimed, "failed", last_error(output) or describe(status))
    else:
        reason = f"the process ended with {describe(status)}: {last_error(output)}"
        _again(engine, claimed, reason.removesuffix(": "), is_failure=True)


def _result(out: Path) -> dict[str, JsonValue] | None:
    """What the process says that it made, beside the rows of its run."""
    path = out / RESULT
    return json.loads(path.read_text()) if path.is_file() else None


def _end(
    engine: Engine,
    claimed: ClaimedJob,
    state: jobs.EndState,
    reason: str,
    result: dict[str, JsonValue] | None = None,
) -> None:
    done = in_transaction(
        engine,
        lambda connection: jobs.finish(
            connection, claimed.job_id, claimed.attempt, state, reason, result
        ),
        threading.Event(),
    )
    log.info("job %d attempt %d: %s (%s)", claimed.job_id, claimed.attempt, state, reason)
    if not done:
        log.warning("job %d belongs to another attempt now", claimed.job_id)


def _again(engine: Engine, claimed: ClaimedJob, reason: str, *, is_failure: bool) -> None:
    put_back = jobs.retry if is_failure else jobs.release
    with suppress(GaveUp):
        in_transaction(
            engine,
            lambda connection: put_back(connection, claimed.job_id, claimed.attempt, reason),
            threading.Event(),
        )
    log.info("job %d attempt %d goes back: %s", claimed.job_id, claimed.attempt, reason)


def describe(status: int) -> str:
    """`exit status 3`, or the name of the signal."""
    if status >= 0:
        return f"exit status {status}"
    return f"signal {-status} ({signal.Signals(-status).name})"


def _disk_full(out: Path, output: Path) -> str:
    """The reason of a run that stopped for want of space. Its own words may not have found any."""
    said = last_error(output)
    reason = said if said.startswith("stopped because the disk") else "the disk was full"
    iteration = newest_checkpoint(out)
    at = f"the newest checkpoint is of iteration {iteration}" if iteration >= 0 else "no checkpoint"
    return f"{reason} ({at}); make room and resume the run"


def last_error(log_file: Path) -> str:
    """The last line of the log that is not empty, without `error:`."""
    lines = [line.strip() for line in tail(log_file, 20).splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ")[:1000] if lines else ""
