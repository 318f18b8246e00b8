"""Worker processes: who is there, and since when."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from backend.db.queries.events import add_event
from backend.schemas import WorkerInfo

_LEASE = "clock_timestamp() + :lease_s * interval '1 second'"


def register(
    connection: Connection,
    worker_id: str,
    host: str,
    pid: int,
    version: str,
    lease_s: float,
    *,
    labels: Sequence[str] = (),
    devices: Sequence[str] = (),
    num_slots: int = 1,
) -> None:
    """Say that a worker started. The same id again replaces the earlier start."""
    connection.execute(
        text(
            f"""
            INSERT INTO workers
                (id, host, pid, version, lease_expires_at, labels, devices, num_slots)
            VALUES (:id, :host, :pid, :version, {_LEASE}, :labels, :devices, :num_slots)
            ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid,
                version = excluded.version, started_at = clock_timestamp(),
                heartbeat_at = clock_timestamp(), lease_expires_at = excluded.lease_expires_at,
                labels = excluded.labels, devices = excluded.devices,
                num_slots = excluded.num_slots, is_draining = false, stopped_at = NULL
            """
        ),
        {
            "id": worker_id,
            "host": host,
            "pid": pid,
            "version": version,
            "lease_s": lease_s,
            "labels": sorted(set(labels)),
            "devices": list(devices),
            "num_slots": num_slots,
        },
    )
    message = f"worker {worker_id} started on {host} (process {pid})"
    add_event(connection, "worker.started", message, worker_id=worker_id)


def beat(connection: Connection, worker_id: str, lease_s: float) -> bool:
    """A sign of life. False: the worker is not registered."""
    row = connection.execute(
        text(
            f"""
            UPDATE workers SET heartbeat_at = clock_timestamp(), lease_expires_at = {_LEASE},
                stopped_at = NULL
            WHERE id = :id RETURNING id
            """
        ),
        {"id": worker_id, "lease_s": lease_s},
    ).one_or_none()
    return row is not None


def stop(connection: Connection, worker_id: str) -> None:
    """Say that a worker ended in order."""
    connection.execute(
        text("UPDATE workers SET stopped_at = clock_timestamp() WHERE id = :id"), {"id": worker_id}
    )
    add_event(connection, "worker.stopped", f"worker {worker_id} stopped", worker_id=worker_id)


def drain(connection: Connection, worker_id: str, *, is_draining: bool, actor: str | None) -> bool:
    """Take no further jobs (running ones go on), or take jobs again. False: no such worker."""
    row = connection.execute(
        text("UPDATE workers SET is_draining = :draining WHERE id = :id RETURNING id"),
        {"id": worker_id, "draining": is_draining},
    ).one_or_none()
    if row is None:
        return False
    message = f"worker {worker_id} takes " + ("no further jobs" if is_draining else "jobs again")
    kind = "worker.draining" if is_draining else "worker.resumed"
    add_event(connection, kind, message, worker_id=worker_id, actor=actor)
    return True


def list_workers(connection: Connection, *, hours: float = 24.0) -> list[WorkerInfo]:
    """Living workers first, then those that were seen in the last `hours`."""
    rows = connection.execute(
        text(
            """
            SELECT id, host, pid, version, started_at, heartbeat_at, stopped_at,
                labels, devices, num_slots, is_draining,
                stopped_at IS NULL AND lease_expires_at >= clock_timestamp() AS is_alive,
                ARRAY(SELECT jobs.id FROM jobs
                      WHERE jobs.worker_id = workers.id AND state = 'running' ORDER BY jobs.id
                ) AS job_ids
            FROM workers
            WHERE heartbeat_at > clock_timestamp() - :hours * interval '1 hour'
            ORDER BY is_alive DESC, started_at DESC, id
            """
        ),
        {"hours": hours},
    )
    return [WorkerInfo.model_validate(row) for row in rows]
