"""Submitting: how runs, sweeps and jobs enter the queue (its states are in `jobs.py`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.db.models import Job, Run, Sweep
from backend.db.queries.dependencies import add_dependencies, skip_dependents
from backend.db.queries.events import add_event
from backend.db.queries.quotas import Caller, check_queued
from backend.schemas import JobKind
from sero_core.config import RunConfig

Payload = Mapping[str, JsonValue]


class IdempotencyConflict(Exception):
    """The key was used before with another request."""


class Submitted(NamedTuple):
    """`is_new` is False when the key's run existed already."""

    run_id: int
    job_id: int
    is_new: bool


class Queued(NamedTuple):
    """`is_new` is False when the key's job existed already."""

    job_id: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and when a job runs: labels that its worker must have, how many of its devices,
    priority (larger first), and the jobs that must succeed before."""

    labels: Sequence[str] = ()
    num_devices: int = 0
    priority: int = 0
    after: Sequence[int] = ()

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "labels": [*sorted(set(self.labels))],
            "num_devices": self.num_devices,
            "priority": self.priority,
            "after": [*sorted(set(self.after))],
        }


ANYWHERE = Placement()
ANYONE = Caller()


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a run comes from."""

    parent_run_id: int | None = None
    sweep_id: int | None = None


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A job to queue behind a run's training."""

    kind: JobKind
    payload: Payload = field(default_factory=dict[str, JsonValue])
    placement: Placement = ANYWHERE

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "kind": self.kind,
            "payload": dict(self.payload),
            "placement": self.placement.to_json(),
        }


def submit_run(
    connection: Connection,
    config: RunConfig,
    *,
    preset: str | None,
    idempotency_key: str | None,
    max_attempts: int,
    placement: Placement = ANYWHERE,
    lineage: Lineage | None = None,
    then: Sequence[FollowUp] = (),
    caller: Caller = ANYONE,
) -> Submitted:
    """Store a run and queue its training job, and the jobs `then` behind it.

    Errors: `IdempotencyConflict` when the key names a run of another request; `QuotaExceeded`.
    """
    data: dict[str, JsonValue] = config.model_dump(mode="json")
    origin = lineage or Lineage()
    request_hash = hash_of(
        {
            "config": data,
            "placement": placement.to_json(),
            "parent": origin.parent_run_id,
            "then": [follow.to_json() for follow in then],
        }
    )
    run_id = _insert_run(
        connection, config, data, preset, idempotency_key, request_hash, origin, caller
    )
    if run_id is None:
        return _known_run(connection, str(idempotency_key), request_hash)
    message = f"run {config.name} was submitted"
    if origin.parent_run_id is not None:
        message += f", with the config of run {origin.parent_run_id} changed"
    add_event(connection, "run.submitted", message, run_id=run_id, actor=caller.name)
    check_queued(connection, caller, 1 + len(then))
    job_id = create_job(
        connection, run_id, "train", None, max_attempts, placement=placement, caller=caller
    )
    for follow in then:
        create_job(
            connection,
            run_id,
            follow.kind,
            None,
            max_attempts,
            payload=follow.payload,
            placement=Placement(
                follow.placement.labels,
                follow.placement.num_devices,
                follow.placement.priority,
                (*follow.placement.after, job_id),
            ),
            caller=caller,
        )
    return Submitted(run_id, job_id, is_new=True)


def _insert_run(
    connection: Connection,
    config: RunConfig,
    data: Payload,
    preset: str | None,
    idempotency_key: str | None,
    request_hash: str,
    lineage: Lineage,
    caller: Caller,
) -> int | None:
    """The new run's id; None where a run has the key already."""
    return connection.execute(
        upsert(Run)
        .values(
            name=config.name,
            method=method_of(config),
            env=config.env.name,
            preset=preset,
            seed=config.seed,
            config=data,
            config_hash=config.group_hash(),
            num_iterations=config.num_iterations,
            idempotency_key=idempotency_key,
            request_hash=request_hash,
            parent_run_id=lineage.parent_run_id,
            sweep_id=lineage.sweep_id,
            token_id=caller.token_id,
        )
        .on_conflict_do_nothing(index_elements=[Run.idempotency_key])
        .returning(Run.id)
    ).scalar_one_or_none()


def method_of(config: RunConfig) -> str:
    """The word of the run table: `sero`, or the estimator's name."""
    return config.estimator.name if config.sero is None else "sero"


def _known_run(connection: Connection, key: str, request_hash: str) -> Submitted:
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


def submit_job(
    connection: Connection,
    run_id: int,
    kind: JobKind,
    payload: Payload,
    *,
    placement: Placement,
    idempotency_key: str | None,
    max_attempts: int,
    caller: Caller,
) -> Queued:
    """Queue a job on a run. Errors: `IdempotencyConflict`; `QuotaExceeded`."""
    request: dict[str, JsonValue] = {
        "run": run_id,
        "kind": kind,
        "payload": dict(payload),
        "placement": placement.to_json(),
    }
    request_hash = hash_of(request)
    if idempotency_key is not None:
        # two requests with one key at the same time: the second one waits and finds the first
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(idempotency_key))))
        known = connection.execute(
            select(Job.id, Job.request_hash).where(Job.idempotency_key == idempotency_key)
        ).one_or_none()
        if known is not None:
            return _known_job(idempotency_key, request_hash, known.id, known.request_hash)
    check_queued(connection, caller, 1)
    job_id = create_job(
        connection,
        run_id,
        kind,
        None,
        max_attempts,
        payload=payload,
        placement=placement,
        caller=caller,
        idempotency=(idempotency_key, request_hash),
    )
    return Queued(job_id, is_new=True)


def _known_job(key: str, request_hash: str, job_id: int, known_hash: str | None) -> Queued:
    if known_hash != request_hash:
        raise IdempotencyConflict(
            f"Idempotency-Key {key!r} belongs to job {job_id}, another request"
        )
    return Queued(job_id, is_new=False)


def create_job(
    connection: Connection,
    run_id: int,
    kind: JobKind,
    iteration: int | None,
    max_attempts: int,
    *,
    payload: Payload | None = None,
    placement: Placement = ANYWHERE,
    caller: Caller = ANYONE,
    idempotency: tuple[str | None, str | None] = (None, None),
) -> int:
    """Queue a job; returns its id. A job behind one that has failed already is skipped at once."""
    job_id = connection.execute(
        insert(Job)
        .values(
            run_id=run_id,
            kind=kind,
            payload={"iteration": iteration} if payload is None else dict(payload),
            max_attempts=max_attempts,
            labels=sorted(set(placement.labels)),
            num_devices=placement.num_devices,
            priority=placement.priority,
            token_id=caller.token_id,
            idempotency_key=idempotency[0],
            request_hash=idempotency[1],
        )
        .returning(Job.id)
    ).scalar_one()
    message = f"{kind} job {job_id} was queued"
    if placement.after:
        message += f" behind job {', '.join(map(str, placement.after))}"
    add_event(connection, "job.queued", message, run_id=run_id, job_id=job_id, actor=caller.name)
    if placement.after:
        add_dependencies(connection, job_id, placement.after)
        skip_dependents(connection)
    return job_id


class SubmittedSweep(NamedTuple):
    """`is_new` is False when the key's sweep existed already."""

    sweep_id: int
    run_ids: list[int]
    job_ids: list[int]
    is_new: bool


def submit_sweep(
    connection: Connection,
    name: str,
    configs: Sequence[RunConfig],
    request: Payload,
    *,
    preset: str | None,
    idempotency_key: str | None,
    max_attempts: int,
    placement: Placement,
    parent_run_id: int | None,
    then: Sequence[FollowUp] = (),
    caller: Caller,
) -> SubmittedSweep:
    """Queue all runs of a sweep, or none. Errors: `IdempotencyConflict`; `QuotaExceeded`."""
    request_hash = hash_of(dict(request))
    sweep_id = connection.execute(
        upsert(Sweep)
        .values(
            name=name,
            request=dict(request),
            num_runs=len(configs),
            idempotency_key=idempotency_key,
            request_hash=request_hash,
            token_id=caller.token_id,
        )
        .on_conflict_do_nothing(index_elements=[Sweep.idempotency_key])
        .returning(Sweep.id)
    ).scalar_one_or_none()
    if sweep_id is None:
        return _known_sweep(connection, str(idempotency_key), request_hash)
    made = [
        submit_run(
            connection,
            config,
            preset=preset,
            idempotency_key=None,
            max_attempts=max_attempts,
            placement=placement,
            lineage=Lineage(parent_run_id, sweep_id),
            then=then,
            caller=caller,
        )
        for config in configs
    ]
    runs, jobs = [done.run_id for done in made], [done.job_id for done in made]
    return SubmittedSweep(sweep_id, runs, jobs, is_new=True)


def _known_sweep(connection: Connection, key: str, request_hash: str) -> SubmittedSweep:
    row = connection.execute(
        select(Sweep.id, Sweep.request_hash).where(Sweep.idempotency_key == key)
    ).one()
    if row.request_hash != request_hash:
        raise IdempotencyConflict(
            f"Idempotency-Key {key!r} belongs to sweep {row.id}, another request"
        )
    runs = connection.scalars(select(Run.id).where(Run.sweep_id == row.id).order_by(Run.id))
    return SubmittedSweep(row.id, list(runs), [], is_new=False)


def hash_of(request: dict[str, JsonValue]) -> str:
    """SHA-256 of a request: the same key with another one is a conflict."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
