"""Import of a run that was trained elsewhere: all of it, or nothing.

A run is known by its config and the first line of its log, so pushing it again finds the same run:
lines that are there change nothing, new ones are added, and lines that were written anew (the run
was resumed from an earlier checkpoint) replace the old ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import IO

from pydantic import ValidationError
from sqlalchemy import Connection, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from backend import presets
from backend.db.batches import payload_hash
from backend.db.ingest import write_iteration
from backend.db.models import Run
from backend.db.queries import jobs, workers
from backend.db.queries.attempts import open_attempt
from backend.db.queries.events import add_event
from backend.db.queries.quotas import Caller
from backend.db.queries.submit import create_job, method_of
from backend.db.records import Iteration
from backend.errors import InvalidRequest
from backend.schemas import FieldError, ImportHeader, ImportReport
from sero_core.config import RunConfig
from sero_core.records import IterationPayload, from_line

WORKER = "import"
LEASE_S = 3600.0
TIMEOUT_S = 600


def import_run(connection: Connection, file: IO[bytes], caller: Caller) -> ImportReport:
    """Read a header and the lines of a log. Errors: `InvalidRequest` naming the line."""
    connection.execute(text(f"SET LOCAL statement_timeout = {TIMEOUT_S * 1000}"))
    header = _header(file.readline())
    config = presets.parse(header.config, name=header.name, prefix="config.")
    first = file.readline()
    if not first.strip():
        raise _wrong(2, "the log has no line", "the lines of records.jsonl")
    run_id, is_new = _run(connection, header, config, first, caller)
    job_id, attempt = _attempt(connection, run_id, caller)
    num_iterations = num_new = 0
    last = -1
    stored = _stored(connection, run_id, job_id)
    for number, line in enumerate(_lines(first, file), start=2):
        payload = _payload(number, line)
        num_iterations += 1
        is_known = stored.get(payload.iteration) == payload_hash(payload)
        if not is_known:
            num_new += write_iteration(connection, run_id, job_id, attempt, payload)
        last = max(last, payload.iteration)
    is_whole = last >= config.num_iterations
    reason = f"imported: iteration {last} of {config.num_iterations}"
    jobs.finish(connection, job_id, attempt, "succeeded" if is_whole else "cancelled", reason)
    connection.execute(
        text("UPDATE attempts SET shipped_at = now() WHERE job_id = :id"), {"id": job_id}
    )
    message = f"{num_new} of {num_iterations} iterations were imported"
    if header.source:
        message += f" from {header.source}"
    add_event(connection, "run.imported", message, run_id=run_id, actor=caller.name)
    return ImportReport(
        run_id=run_id, is_new=is_new, num_iterations=num_iterations, num_new=num_new
    )


def _run(
    connection: Connection, header: ImportHeader, config: RunConfig, first: bytes, caller: Caller
) -> tuple[int, bool]:
    """The run's row, new or known (then it is locked until the end)."""
    plain = config.model_copy(update={"name": "run"})
    identity = plain.model_dump_json().encode() + b"\n" + first.strip()
    import_hash = hashlib.sha256(identity).hexdigest()
    run_id = connection.execute(
        upsert(Run)
        .values(
            name=config.name,
            method=method_of(config),
            env=config.env.name,
            seed=config.seed,
            config=config.model_dump(mode="json"),
            config_hash=config.group_hash(),
            num_iterations=config.num_iterations,
            request_hash=import_hash,
            import_hash=import_hash,
            token_id=caller.token_id,
            git_commit=header.git_commit,
            git_is_dirty=header.git_is_dirty,
        )
        .on_conflict_do_nothing(index_elements=[Run.import_hash])
        .returning(Run.id)
    ).scalar_one_or_none()
    if run_id is not None:
        create_job(connection, run_id, "train", None, 1, caller=caller)
        return run_id, True
    known = connection.execute(
        select(Run.id).where(Run.import_hash == import_hash).with_for_update()
    ).scalar_one()
    return known, False


def _attempt(connection: Connection, run_id: int, caller: Caller) -> tuple[int, int]:
    """A new attempt of the run's training job, which nobody else sees before it has ended."""
    workers.register(connection, WORKER, "elsewhere", 0, "", LEASE_S)
    workers.stop(connection, WORKER)
    row = connection.execute(
        text(
            """
            UPDATE jobs SET state = 'running', attempt = attempt + 1, worker_id = :worker,
                reason = NULL, finished_at = NULL,
                started_at = coalesce(started_at, clock_timestamp()),
                heartbeat_at = clock_timestamp(),
                lease_expires_at = clock_timestamp() + :lease_s * interval '1 second'
            WHERE run_id = :run_id AND kind = 'train' RETURNING id, attempt
            """
        ),
        {"worker": WORKER, "lease_s": LEASE_S, "run_id": run_id},
    ).one()
    open_attempt(connection, row.id, row.attempt, WORKER)
    return row.id, row.attempt


def _stored(connection: Connection, run_id: int, job_id: int) -> dict[int, int]:
    """Iteration -> hash of the line that it was stored from."""
    rows = connection.execute(
        select(Iteration.iteration, Iteration.payload_hash).where(
            Iteration.run_id == run_id, Iteration.job_id == job_id
        )
    )
    return {row.iteration: row.payload_hash for row in rows}


def _header(line: bytes) -> ImportHeader:
    try:
        return ImportHeader.model_validate_json(line)
    except ValidationError as error:
        raise _wrong(1, f"not a header: {error.errors()[0]['msg']}", "an ImportHeader") from None


def _payload(number: int, line: bytes) -> IterationPayload:
    try:
        return from_line(line.decode())
    except (ValidationError, UnicodeDecodeError) as error:
        raise _wrong(number, f"not a record: {error}"[:1000], "a line of records.jsonl") from None


def _lines(first: bytes, file: IO[bytes]) -> Iterator[bytes]:
    yield first
    while line := file.readline():
        if line.strip():
            yield line


def _wrong(number: int, message: str, allowed: str) -> InvalidRequest:
    problem = FieldError(field=f"line {number}", message=message, allowed=allowed)
    return InvalidRequest(f"line {number}: {message}"[:300], [problem])
