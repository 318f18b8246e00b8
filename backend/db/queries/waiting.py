"""Why a job waits, in words: the first thing in its way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, text

from backend.db.queries.workers import list_workers
from backend.schemas import WorkerInfo


class Wait(NamedTuple):
    """`position` counts from 1."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    id: int
    position: int
    labels: list[str]
    num_devices: int
    token_id: str | None


@dataclass(frozen=True, slots=True)
class _Quota:
    name: str
    num_running: int
    max_running: int


def explain(connection: Connection) -> dict[int, Wait]:
    """Every job in the queue."""
    queue = [
        _Waiting(row.id, position, row.labels, row.num_devices, row.token_id)
        for position, row in enumerate(
            connection.execute(
                text(
                    "SELECT id, labels, num_devices, token_id FROM jobs WHERE state = 'queued' "
                    "ORDER BY priority DESC, coalesce(position, id), id"
                )
            ),
            start=1,
        )
    ]
    if not queue:
        return {}
    blockers = _dependencies(connection)
    quotas = _quotas(connection)
    alive = [worker for worker in list_workers(connection) if worker.is_alive]
    waits: dict[int, Wait] = {}
    for job in queue:
        reason = (
            _because_of_dependencies(blockers[job.id])
            or _because_of_quota(quotas, job.token_id)
            or _because_of_workers(alive, job)
            or _behind(alive, job)
        )
        waits[job.id] = Wait(job.position, reason)
    return waits


def _dependencies(connection: Connection) -> dict[int, list[str]]:
    blockers: dict[int, list[str]] = defaultdict(list)
    rows = connection.execute(
        text(
            "SELECT job_id, before.id, before.kind, before.run_id, before.state "
            "FROM job_dependencies JOIN jobs AS before ON before.id = depends_on "
            "JOIN jobs ON jobs.id = job_id "
            "WHERE jobs.state = 'queued' AND before.state <> 'succeeded' ORDER BY before.id"
        )
    )
    for row in rows:
        blockers[row.job_id].append(f"{row.kind} job {row.id} of run {row.run_id} ({row.state})")
    return blockers


def _quotas(connection: Connection) -> dict[str, _Quota]:
    rows = connection.execute(
        text(
            "SELECT id, name, max_running, (SELECT count(*) FROM jobs "
            "WHERE token_id = api_tokens.id AND state = 'running') AS num_running "
            "FROM api_tokens WHERE max_running IS NOT NULL"
        )
    )
    return {row.id: _Quota(row.name, row.num_running, row.max_running) for row in rows}


def _because_of_dependencies(blockers: Sequence[str]) -> str | None:
    return f"waits for {' and '.join(blockers)}" if blockers else None


def _because_of_quota(quotas: dict[str, _Quota], token_id: str | None) -> str | None:
    quota = None if token_id is None else quotas.get(token_id)
    if quota is None or quota.num_running < quota.max_running:
        return None
    return (
        f"token {quota.name} runs {quota.num_running} of at most {quota.max_running} jobs at a time"
    )


def _because_of_workers(alive: Sequence[WorkerInfo], job: _Waiting) -> str | None:
    if not alive:
        return "no worker is alive"
    wanted = set(job.labels)
    fitting = [worker for worker in alive if wanted <= set(worker.labels)]
    if not fitting:
        noun = "label" if len(wanted) == 1 else "labels"
        return f"no worker with {noun} {', '.join(sorted(wanted))}"
    most = max(len(worker.devices) for worker in fitting)
    if most < job.num_devices:
        where = f" with {', '.join(sorted(wanted))}" if wanted else ""
        return f"needs {job.num_devices} device(s), the largest worker{where} has {most}"
    if all(worker.is_draining for worker in fitting):
        return f"every worker that could take it is draining ({len(fitting)})"
    return None


def _behind(alive: Sequence[WorkerInfo], job: _Waiting) -> str:
    fitting = [
        worker
        for worker in alive
        if set(job.labels) <= set(worker.labels)
        and len(worker.devices) >= job.num_devices
        and not worker.is_draining
    ]
    num_free = sum(max(0, worker.num_slots - len(worker.job_ids)) for worker in fitting)
    if num_free and job.num_devices:
        return f"needs {job.num_devices} free device(s) on one worker" + _before(job)
    if num_free:
        return "starts in a moment" + _before(job)
    slots = sum(worker.num_slots for worker in fitting)
    return f"all {slots} slot(s) that could take it are busy" + _before(job)


def _before(job: _Waiting) -> str:
    if job.position == 1:
        return "; it is next"
    count = job.position - 1
    return f"; behind {count} job{'s' if count > 1 else ''}"
