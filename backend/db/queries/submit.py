"""Submitting: how runs and their jobs enter the queue (its states are in `jobs.py`)."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.db.models import Job, Run
from backend.db.queries.events import add_event
from backend.schemas import JobKind
from sero_core.config import RunConfig


class IdempotencyConflict(Exception):
    """The key was used before with another request."""


class Submitted(NamedTuple):
    """`is_new` is False when the key's run existed already."""

    run_id: int
    job_id: int
    is_new: bool


def submit_run(
    connection: Connection,
    config: RunConfig,
    *,
    preset: str | None,
    idempotency_key: str | None,
    max_attempts: int,
) -> Submitted:
    """Store a run and queue its training job.

    Errors: `IdempotencyConflict` when the key names a run with another config.
    """
    data: dict[str, JsonValue] = config.model_dump(mode="json")
    request_hash = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    run_id = connection.execute(
        upsert(Run)
        .values(
            name=config.name,
            method=config.estimator.name if config.sero is None else "sero",
            env=config.env.name,
            preset=preset,
            seed=config.seed,
            config=data,
            config_hash=config.group_hash(),
            num_iterations=config.num_iterations,
            idempotency_key=idempotency_key,
            request_hash=request_hash,
        )
        .on_conflict_do_nothing(index_elements=[Run.idempotency_key])
        .returning(Run.id)
    ).scalar_one_or_none()
    if run_id is None:
        return _known_submit(connection, str(idempotency_key), request_hash)
    add_event(connection, "run.submitted", f"run {config.name} was submitted", run_id=run_id)
    job_id = create_job(connection, run_id, "train", None, max_attempts)
    return Submitted(run_id, job_id, is_new=True)


def _known_submit(connection: Connection, key: str, request_hash: str) -> Submitted:
    row = connection.execute(
        select(Run.id, Run.request_hash, Job.id.label("job_id"))
        .join(Job, (Job.run_id == Run.id) & (Job.kind == "train"))
        .where(Run.idempotency_key == key)
    ).one()
    if row.request_hash != request_hash:
        raise IdempotencyConflict(
            f"Idempotency-Key {key!r} belongs to run {row.id} with another config"
        )
    return Submitted(row.id, row.job_id, is_new=False)


def create_job(
    connection: Connection, run_id: int, kind: JobKind, iteration: int | None, max_attempts: int
) -> int:
    """Queue a job; returns its id."""
    job_id = connection.execute(
        insert(Job)
        .values(
            run_id=run_id, kind=kind, payload={"iteration": iteration}, max_attempts=max_attempts
        )
        .returning(Job.id)
    ).scalar_one()
    message = f"{kind} job {job_id} was queued"
    add_event(connection, "job.queued", message, run_id=run_id, job_id=job_id)
    return job_id
