"""Ship what a training process writes to Postgres: each line of records.jsonl in one transaction.

The file is the spool: training appends and never waits, the shipper follows and retries while the
database is away. Nothing is lost, because a line counts as shipped only when its transaction is
committed; nothing is doubled, because the database ignores a line that it has.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from backend.db.ingest import StaleAttempt, write_iteration, write_log
from sero_core.records import IterationPayload, from_line
from worker.retry import GaveUp, in_transaction

POLL_S = 0.3
MAX_LINES = 500
MAX_LINE_CHARS = 4000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the lines belong. `iteration`: for branch and evaluate jobs, the checkpoint's."""

    run_id: int
    job_id: int
    attempt: int
    iteration: int | None = None


class LineReader:
    """Complete lines of a growing file, in order, from `offset` bytes on."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset

    def peek(self, max_lines: int) -> list[bytes]:
        """The next complete lines without their newline; `accept` moves past them."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines: list[bytes] = []
            while len(lines) < max_lines:
                line = file.readline()
                if not line.endswith(b"\n"):
                    break
                lines.append(line)
        return lines

    def accept(self, lines: list[bytes]) -> None:
        """Move past `lines`, which `peek` returned."""
        self._offset += sum(map(len, lines))


class Shipper:
    """Follows a job's records and log in a thread of its own until `finish` or `abandon`."""

    def __init__(
        self, engine: Engine, target: Target, records: Path, log_file: Path, log_offset: int
    ) -> None:
        self._engine = engine
        self._target = target
        self._records = LineReader(records)
        self._log = LineReader(log_file, log_offset)
        self._num_log_lines = 0
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
            while not self._finishing.is_set():
                self._ship_what_is_there()
                self._finishing.wait(POLL_S)
            self._ship_what_is_there()
        except GaveUp:
            log.warning("stopped shipping: the database is away and the job was abandoned")
        except StaleAttempt as error:
            self.is_stale = True
            self.error = error
        except Exception as error:  # handed to `finish`, which raises it in the main thread
            log.exception("shipping failed")
            self.error = error

    def _ship_what_is_there(self) -> None:
        while not self._abandoned.is_set():
            did_records, did_log = self._ship_record(), self._ship_log()
            if not did_records and not did_log:
                return

    def _ship_record(self) -> bool:
        lines = self._records.peek(1)
        if not lines:
            return False
        target = self._target
        payload = for_job(from_line(lines[0].decode()), target)
        in_transaction(
            self._engine,
            lambda connection: write_iteration(
                connection, target.run_id, target.job_id, target.attempt, payload
            ),
            self._abandoned,
        )
        self._records.accept(lines)
        return True

    def _ship_log(self) -> bool:
        lines = self._log.peek(MAX_LINES)
        if not lines:
            return False
        target = self._target
        texts = [
            line.decode(errors="replace").rstrip().rpartition("\r")[2][:MAX_LINE_CHARS]
            for line in lines
        ]
        in_transaction(
            self._engine,
            lambda connection: write_log(
                connection,
                target.run_id,
                target.job_id,
                target.attempt,
                self._num_log_lines,
                texts,
            ),
            self._abandoned,
        )
        self._log.accept(lines)
        self._num_log_lines += len(lines)
        return True


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
