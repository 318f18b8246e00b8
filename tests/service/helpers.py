"""Short cuts over the real functions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, text

from backend.db.queries import jobs, workers
from backend.db.queries.submit import submit_run
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


def start(engine: Engine, job_id: int | None = None, worker: str = "w1") -> jobs.ClaimedJob:
    """Claim as a registered worker."""
    with engine.begin() as connection:
        workers.register(connection, worker, "host", 1, "0.1", LEASE_S)
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
