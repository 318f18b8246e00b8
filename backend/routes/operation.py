"""Operation: the queue, the workers, and whether everything is up."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy.exc import OperationalError

from backend import schemas as s
from backend.db.migrate import newest_revision, stored_revision
from backend.db.queries import queue, workers
from backend.errors import NotFound
from backend.routes.deps import CallerDep, Services, ServicesDep

router = APIRouter(tags=["operation"])
WorkerId = Annotated[str, Path(max_length=300)]


@router.get("/workers")
def list_workers(services: ServicesDep) -> s.WorkersResponse:
    """Living workers first, then those seen in the last 24 hours."""
    with services.reading() as connection:
        return s.WorkersResponse(workers=workers.list_workers(connection))


@router.post("/workers/{worker_id}/drain")
def drain_worker(
    worker_id: WorkerId, services: ServicesDep, caller: CallerDep
) -> s.WorkersResponse:
    """The worker ends what it runs and takes no further jobs."""
    return _drain(services, worker_id, caller.name, is_draining=True)


@router.post("/workers/{worker_id}/undrain")
def undrain_worker(
    worker_id: WorkerId, services: ServicesDep, caller: CallerDep
) -> s.WorkersResponse:
    """The worker takes jobs again."""
    return _drain(services, worker_id, caller.name, is_draining=False)


def _drain(
    services: Services, worker_id: str, actor: str | None, *, is_draining: bool
) -> s.WorkersResponse:
    with services.writing() as connection:
        if not workers.drain(connection, worker_id, is_draining=is_draining, actor=actor):
            raise NotFound(f"there is no worker {worker_id}")
        return s.WorkersResponse(workers=workers.list_workers(connection))


@router.get("/health")
def health(services: ServicesDep) -> s.HealthResponse:
    """Whether the database and the broker answer and a worker is alive. Always status 200."""
    problem = services.wakeups.ping()
    broker = s.ComponentHealth(is_ok=problem is None, message=problem or "answers")
    try:
        return _with_database(services, broker)
    except OperationalError as error:
        unknown = s.ComponentHealth(is_ok=False, message="unknown: the database does not answer")
        reason = str(error.orig).strip() or "no details"
        return s.HealthResponse(
            is_ok=False,
            database=s.ComponentHealth(is_ok=False, message=f"does not answer: {reason}"),
            broker=broker,
            workers=unknown,
            num_workers_alive=0,
            num_jobs_queued=0,
            num_jobs_running=0,
            version=version("sero-lab"),
            schema_revision=None,
            server_time=datetime.now(UTC),
        )


def _with_database(services: Services, broker: s.ComponentHealth) -> s.HealthResponse:
    expected = newest_revision()
    with services.reading() as connection:
        revision = stored_revision(connection)
        is_current = revision == expected
        alive = queued = running = 0
        if is_current:
            alive = sum(worker.is_alive for worker in workers.list_workers(connection))
            queued, running = queue.count_open_jobs(connection)
    return s.HealthResponse(
        is_ok=is_current and broker.is_ok and alive > 0,
        database=s.ComponentHealth(
            is_ok=is_current,
            message="answers"
            if is_current
            else f"its tables are at revision {revision}, this version needs {expected}",
        ),
        broker=broker,
        workers=s.ComponentHealth(is_ok=alive > 0, message=f"{alive} alive"),
        num_workers_alive=alive,
        num_jobs_queued=queued,
        num_jobs_running=running,
        version=version("sero-lab"),
        schema_revision=revision,
        server_time=datetime.now(UTC),
    )
