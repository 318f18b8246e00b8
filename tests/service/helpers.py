"""Short cuts over the real functions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, text

from backend.db.queries import jobs, workers
from backend.db.queries.submit import Placement, create_job, submit_run
from backend.schemas import JobKind
from sero_core.config import RunConfig, parse_config

LEASE_S = 30.0


def config(**values: object) -> RunConfig:
    return parse_config({"name": "demo", "num_iterations": 10, **values}, "test")


def submit(engine: Engine, run_config: RunConfig | None = None, max_attempts: int = 3) -> int:
    """Submit a run; returns the id of its training job."""
    with engine.begin() as connection:
        return submit_run(
            connection,
            run_config or config(),
            preset=None,
            idempotency_key=None,
            max_attempts=max_attempts,
        ).job_id


def register(engine: Engine, worker: str, **offers: Any) -> None:  # noqa: ANN401
    """A worker with labels, devices, num_slots."""
    with engine.begin() as connection:
        workers.register(connection, worker, "host", 1, "0.1", LEASE_S, **offers)


def claim(engine: Engine, worker: str) -> int | None:
    """The id of the job that a registered worker gets."""
    with engine.begin() as connection:
        claimed = jobs.claim(connection, None, worker, LEASE_S)
    return None if claimed is None else claimed.job_id


def add_job(engine: Engine, run_id: int, kind: JobKind = "evaluate", **placement: Any) -> int:  # noqa: ANN401
    """Queue a job; `placement`: labels, num_devices, priority, after."""
    with engine.begin() as connection:
        return create_job(connection, run_id, kind, None, 3, placement=Placement(**placement))


def end(engine: Engine, job_id: int, state: jobs.EndState = "succeeded") -> None:
    """End a running job."""
    attempt = value(engine, "SELECT attempt FROM jobs WHERE id = :id", id=job_id)
    with engine.begin() as connection:
        assert jobs.finish(connection, job_id, attempt, state, f"it {state}")


def state_of(engine: Engine, job_id: int) -> tuple[str, str | None]:
    return rows(engine, "SELECT state, reason FROM jobs WHERE id = :id", id=job_id)[0]  # pyright: ignore


def start(engine: Engine, job_id: int | None = None, worker: str = "w1") -> jobs.ClaimedJob:
    """Claim as a registered worker."""
    with engine.begin() as connection:
        workers.register(connection, worker, "host", 1, "0.1", LEASE_S, num_slots=100)
        claimed = jobs.claim(connection, job_id, worker, LEASE_S)
    assert claimed is not None
    return claimed


def expire(engine: Engine, job_id: int) -> None:
    """Let the job's lease run out now."""
    rows(
        engine,
        "UPDATE jobs SET lease_expires_at = now() - interval '1 hour' WHERE id = :id RETURNING id",
        id=job_id,
    )


def rows(engine: Engine, statement: str, **values: object) -> list[tuple[Any, ...]]:
    with engine.begin() as connection:
        return [tuple(row) for row in connection.execute(text(statement), values)]


def value(engine: Engine, statement: str, **values: object) -> Any:  # noqa: ANN401
    found = rows(engine, statement, **values)
    assert len(found) == 1
    return found[0][0]
