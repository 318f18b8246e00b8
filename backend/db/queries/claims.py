"""Claiming: which queued job a worker takes, and how exactly one worker gets it.

A worker takes the first job of the queue (priority, position, id) that asks only for labels that
the worker has, whose dependencies succeeded, whose token has a running job to spare, and for which
a slot and enough devices are free. A job that waits for devices holds back later jobs that want
devices, too: otherwise a job for eight would starve behind jobs for one. Claims are made one at a
time (an advisory lock, held for milliseconds), so that quotas and devices are counted exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue
from sqlalchemy import Connection, text

from backend.db.queries.attempts import close_attempt, open_attempt
from backend.db.queries.events import add_event
from backend.schemas import JobKind

CLAIM_LOCK = 5391
LOST = "its worker went silent"


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that this attempt owns. `config` is the JSON form of the run's `RunConfig`.

    `payload`: what the job works on (docs/jobs.md). `devices`: those it may use.
    """

    job_id: int
    run_id: int
    kind: JobKind
    attempt: int
    config: dict[str, JsonValue]
    payload: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    devices: tuple[str, ...] = ()

    @property
    def iteration(self) -> int | None:
        """The checkpoint of a job on one (None: the newest)."""
        return cast("int | None", self.payload.get("iteration"))

    @property
    def overrides(self) -> dict[str, JsonValue]:
        """Config keys that are different for this job only."""
        return cast("dict[str, JsonValue]", self.payload.get("overrides") or {})


MAX_SILENT_LEASES = 10
_BEAT = "coalesce(jobs.heartbeat_at, jobs.started_at, jobs.queued_at)"
_LEASE = f"(jobs.lease_expires_at - {_BEAT})"
_SILENT_SINCE = f"greatest({_BEAT}, pg_postmaster_start_time())"
EXPIRED = f"""
    jobs.state = 'running' AND jobs.lease_expires_at < clock_timestamp()
    AND {_SILENT_SINCE} + {_LEASE} < clock_timestamp()
    AND (
        EXISTS (
            SELECT FROM workers WHERE workers.id = jobs.worker_id
                AND (workers.stopped_at IS NOT NULL OR workers.lease_expires_at < clock_timestamp())
        )
        OR {_SILENT_SINCE} + 2 * {_LEASE} < clock_timestamp()
            AND coalesce(jobs.process_seen_at, '-infinity') + {_LEASE} < clock_timestamp()
        OR {_SILENT_SINCE} + {MAX_SILENT_LEASES} * {_LEASE} < clock_timestamp()
    )
"""
"""Two signals: the job's lease is over, and its worker is silent, too. A living worker keeps a job
whose process it still sees, as a step of native code may hold up the lease; without that sign, the
job is given up after two silent leases (its process died and left the worker's other processes
alive), and with it after ten (it hangs). An attempt that never sent a heartbeat counts from its
claim."""

DEPENDENCIES_MET = """
    NOT EXISTS (
        SELECT FROM job_dependencies JOIN jobs AS before ON before.id = depends_on
        WHERE job_id = jobs.id AND before.state <> 'succeeded'
    )
"""
QUOTA_MET = """
    NOT EXISTS (
        SELECT FROM api_tokens WHERE api_tokens.id = jobs.token_id AND max_running <= (
            SELECT count(*) FROM jobs AS running
            WHERE running.token_id = api_tokens.id AND running.state = 'running'
        )
    )
"""
_ME = """
    SELECT workers.labels, workers.devices, num_slots - (
            SELECT count(*) FROM jobs WHERE worker_id = workers.id AND state = 'running'
        ) AS num_free_slots,
        ARRAY(
            SELECT device FROM unnest(workers.devices) WITH ORDINALITY AS all_devices (device, n)
            WHERE NOT EXISTS (
                SELECT FROM jobs WHERE worker_id = workers.id AND state = 'running'
                    AND device = ANY (jobs.devices)
            ) ORDER BY n
        ) AS free
    FROM workers WHERE id = :worker_id AND NOT is_draining
"""
_CLAIMABLE = f"""
WITH me AS ({_ME}), fitting AS (
    SELECT jobs.id, num_devices, free, queued_at, row_number() OVER ranked AS rank,
        bool_or(num_devices > cardinality(free)) OVER ranked AS is_held_back
    FROM jobs, me
    WHERE jobs.state = 'queued' AND num_free_slots > 0 AND jobs.labels <@ me.labels
        AND num_devices <= cardinality(me.devices) AND {DEPENDENCIES_MET} AND {QUOTA_MET}
    WINDOW ranked AS (ORDER BY priority DESC, coalesce(position, jobs.id), jobs.id)
)
SELECT id, free[1:num_devices] AS devices FROM fitting
WHERE (num_devices = 0 OR NOT is_held_back)
"""
_NEXT = text(
    f"{_CLAIMABLE} AND (CAST(:job_id AS int) IS NULL OR id = :job_id) "
    "AND id <> ALL (CAST(:passed AS int[])) ORDER BY rank LIMIT 1"
)
_WAITING = text(
    f"""
    {_CLAIMABLE} AND queued_at <= clock_timestamp() - :min_age_s * interval '1 second'
    ORDER BY rank LIMIT 100
    """
)
_LOST_ONE = text(
    f"""
    SELECT id, devices FROM jobs WHERE id = :job_id AND {EXPIRED}
        AND NOT is_cancel_requested AND num_failures + 1 < max_attempts
    """
)
_TAKE = text(
    """
    UPDATE jobs SET
        state = 'running', attempt = attempt + 1, worker_id = :worker_id,
        devices = CAST(:devices AS text[]),
        num_failures = num_failures + CAST(:is_takeover AS boolean)::int,
        started_at = coalesce(started_at, clock_timestamp()), heartbeat_at = clock_timestamp(),
        lease_expires_at = clock_timestamp() + :lease_s * interval '1 second'
    WHERE id = (
        SELECT id FROM jobs WHERE id = :job_id AND state = :state FOR UPDATE SKIP LOCKED
    )
    RETURNING id, run_id, kind, attempt, payload,
        (SELECT config FROM runs WHERE runs.id = run_id) AS config
    """
)


def claim(
    connection: Connection, job_id: int | None, worker_id: str, lease_s: float
) -> ClaimedJob | None:
    """Take the job (None: the first that fits) for `lease_s` seconds; None: nothing to take.

    Of any number of callers one gets the job. The worker must be registered.
    """
    connection.execute(text(f"SELECT pg_advisory_xact_lock({CLAIM_LOCK})"))
    passed: list[int] = []
    while True:
        values = {"worker_id": worker_id, "job_id": job_id, "passed": passed}
        found = connection.execute(_NEXT, values).one_or_none()
        is_takeover = found is None and job_id is not None
        if is_takeover:
            found = connection.execute(_LOST_ONE, {"job_id": job_id}).one_or_none()
        if found is None:
            return None
        row = connection.execute(
            _TAKE,
            {
                "job_id": found.id,
                "worker_id": worker_id,
                "lease_s": lease_s,
                "devices": found.devices,
                "is_takeover": is_takeover,
                "state": "running" if is_takeover else "queued",
            },
        ).one_or_none()
        if row is not None:
            break
        if is_takeover:  # its attempt writes just now, so it is not lost
            return None
        passed.append(found.id)  # somebody changes it just now: look at the next one
    if is_takeover:
        close_attempt(connection, row.id, row.attempt - 1, "lost", LOST)
    open_attempt(connection, row.id, row.attempt, worker_id)
    add_event(
        connection,
        "job.claimed",
        f"worker {worker_id} started attempt {row.attempt} of {row.kind} job {row.id}",
        run_id=row.run_id,
        job_id=row.id,
        attempt=row.attempt,
        worker_id=worker_id,
    )
    return ClaimedJob(
        job_id=row.id,
        run_id=row.run_id,
        kind=row.kind,
        attempt=row.attempt,
        config=row.config,
        payload=row.payload,
        devices=tuple(found.devices),
    )


def claimable_job_ids(connection: Connection, worker_id: str, min_age_s: float = 0.0) -> list[int]:
    """Jobs that this worker could take now and that wait for at least `min_age_s` seconds."""
    values = {"worker_id": worker_id, "min_age_s": min_age_s}
    return [row.id for row in connection.execute(_WAITING, values)]
