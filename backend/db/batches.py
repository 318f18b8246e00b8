"""What was shipped of each attempt's spool: how far, with which checksums, and by whom.

`lock` is the fence. A running job may be written only by the attempt that owns it. An ended or
queued one has no owner: then a living worker may bring in what a dead one left on its disk, while
it holds the job's row so that nobody can claim it in the middle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.db import rows as r
from backend.db.copy import Contents
from backend.db.models import Attempt, Job, LogLine
from backend.db.records import Batch, Layout
from backend.db.texts import text_id
from sero_core.records import IterationPayload
from sero_core.sinks.frames import Frame, digest_of


class StaleAttempt(Exception):
    """This attempt does not own its job any more and may not write. Its process must end."""


class SpoolConflict(RuntimeError):
    """A record that is stored already comes again with other bytes."""


class Owner(NamedTuple):
    """Who writes. `attempt` None: nobody owns the job; what is written was left behind."""

    run_id: int
    job_id: int
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the spool of `attempt`, parsed."""

    attempt: int
    sequence: int
    digest: bytes
    num_bytes: int
    payload: IterationPayload

    @classmethod
    def of_frame(cls, attempt: int, frame: Frame, payload: IterationPayload) -> Record:
        return cls(attempt, frame.sequence, frame.digest, len(frame.payload), payload)

    @classmethod
    def of_line(cls, attempt: int, payload: IterationPayload) -> Record:
        """A line of records.jsonl: numbered by its iteration."""
        line = payload.model_dump_json().encode()
        return cls(attempt, payload.iteration, digest_of(line), len(line), payload)


def hash_of_digest(digest: bytes) -> int:
    """What a stored iteration keeps of its record: 64 bits of the digest, signed."""
    return int.from_bytes(digest[:8], "big", signed=True)


def payload_hash(payload: IterationPayload) -> int:
    """The same for a line of records.jsonl."""
    return hash_of_digest(Record.of_line(0, payload).digest)


class Progress(NamedTuple):
    """How much of an attempt is stored."""

    num_records: int
    num_log_lines: int


LAYOUT: dict[str, JsonValue] = {
    "iterations": list(r.ITERATION_COLUMNS),
    "metrics": list(r.METRIC_COLUMNS),
    "episodes": list(r.EPISODE_COLUMNS),
    "steps": list(r.STEP_COLUMNS),
    "branches": list(r.BRANCH_COLUMNS),
    "branch_steps": list(r.BRANCH_STEP_COLUMNS),
    "rescores": list(r.RESCORE_COLUMNS),
    "evaluations": list(r.EVALUATION_COLUMNS),
    "eval_results": list(r.EVAL_RESULT_COLUMNS),
    "eval_outcomes": list(r.EVAL_OUTCOME_COLUMNS),
    "checkpoints": list(r.CHECKPOINT_COLUMNS),
}
LAYOUT_ID = text_id(json.dumps(LAYOUT, sort_keys=True))


def lock(connection: Connection, owner: Owner) -> str:
    """Lock the job's row for this transaction; returns the job's kind. Errors: `StaleAttempt`."""
    run_id, job_id, attempt = owner
    row = connection.execute(
        select(Job.run_id, Job.kind, Job.attempt, Job.state)
        .where(Job.id == job_id)
        .with_for_update(key_share=True)
    ).one_or_none()
    is_mine = row is not None and (
        row.state != "running"
        if attempt is None
        else row.state == "running" and row.attempt == attempt
    )
    if row is None or not is_mine:
        found = "no such job" if row is None else f"{row.state}, attempt {row.attempt}"
        who = "nobody" if attempt is None else f"attempt {attempt}"
        raise StaleAttempt(f"{who} does not own job {job_id} ({found})")
    if row.run_id != run_id:
        raise ValueError(f"job {job_id} belongs to run {row.run_id}, got run {run_id}")
    return row.kind


def is_stored(connection: Connection, job_id: int, record: Record) -> bool:
    """The record is in the database. Errors: `SpoolConflict` when with another digest."""
    digest = connection.execute(
        select(Batch.digest).where(
            Batch.job_id == job_id,
            Batch.attempt == record.attempt,
            Batch.sequence == record.sequence,
        )
    ).scalar_one_or_none()
    if digest is not None and bytes(digest) != record.digest:
        raise SpoolConflict(
            f"record {record.sequence} of attempt {record.attempt} of job {job_id} is stored with "
            f"digest {bytes(digest).hex()}, got {record.digest.hex()}"
        )
    return digest is not None


def supersede(connection: Connection, job_id: int, iteration: int) -> None:
    """The rows of this iteration are about to be replaced."""
    connection.execute(
        update(Batch)
        .where(Batch.job_id == job_id, Batch.iteration == iteration, Batch.is_current)
        .values(is_current=False)
    )


def keep(
    connection: Connection, owner: Owner, record: Record, contents: dict[str, Contents] | None
) -> None:
    """Note that a record is stored. `contents` None: a later attempt's rows are there instead."""
    connection.execute(upsert(Layout).values(id=LAYOUT_ID, columns=LAYOUT).on_conflict_do_nothing())
    connection.execute(
        insert(Batch).values(
            job_id=owner.job_id,
            attempt=record.attempt,
            sequence=record.sequence,
            run_id=owner.run_id,
            iteration=record.payload.iteration,
            digest=record.digest,
            num_bytes=record.num_bytes,
            is_current=contents is not None,
            layout_id=LAYOUT_ID,
            contents={
                table: [found.rows, f"{found.checksum:016x}"]
                for table, found in (contents or {}).items()
            },
        )
    )


def progress(connection: Connection, job_id: int, attempt: int) -> Progress:
    """How much of an attempt is stored, so that a shipper goes on there."""
    last = select(func.max(Batch.sequence)).where(Batch.job_id == job_id, Batch.attempt == attempt)
    line = select(func.max(LogLine.line)).where(
        LogLine.job_id == job_id, LogLine.attempt == attempt
    )
    num_records, num_lines = connection.execute(
        select(func.coalesce(last.scalar_subquery(), -1), func.coalesce(line.scalar_subquery(), -1))
    ).one()
    return Progress(num_records + 1, num_lines + 1)


def mark_shipped(connection: Connection, owner: Owner, attempt: int) -> None:
    """Everything that an attempt wrote is stored. Errors: `StaleAttempt`."""
    lock(connection, owner)
    connection.execute(
        update(Attempt)
        .where(Attempt.job_id == owner.job_id, Attempt.attempt == attempt)
        .values(shipped_at=func.clock_timestamp())
    )


class LeftBehind(NamedTuple):
    """An ended attempt of which not everything is known to be stored, and where it ran."""

    run_id: int
    job_id: int
    attempt: int
    host: str


def left_behind(connection: Connection, limit: int = 100) -> list[LeftBehind]:
    """Attempts that nobody will ship: their job is not running, so that no later attempt does."""
    rows = connection.execute(
        text(
            """
            SELECT jobs.run_id, job_id, attempts.attempt, workers.host FROM attempts
            JOIN jobs ON jobs.id = job_id JOIN workers ON workers.id = attempts.worker_id
            WHERE shipped_at IS NULL AND attempts.state <> 'running' AND jobs.state <> 'running'
            ORDER BY attempts.finished_at DESC, job_id, attempts.attempt LIMIT :limit
            """
        ),
        {"limit": limit},
    )
    return [LeftBehind(*row) for row in rows]


def earlier_attempts(connection: Connection, owner: Owner) -> list[int]:
    """Attempts of a job that ended before `owner` and are not wholly stored, oldest first."""
    rows = connection.execute(
        select(Attempt.attempt)
        .where(
            Attempt.job_id == owner.job_id,
            Attempt.attempt < owner.attempt,
            Attempt.shipped_at.is_(None),
        )
        .order_by(Attempt.attempt)
    )
    return list(rows.scalars())
