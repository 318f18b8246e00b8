"""Jobs: on runs, in the queue, and what people do to them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from backend import schemas as s
from backend.db.queries import control, evaluations, jobs, queue, runs, submit
from backend.errors import Conflict, InvalidRequest, NotFound
from backend.routes.deps import (
    CallerDep,
    Cursor,
    IdempotencyKey,
    Limit,
    RunId,
    Services,
    ServicesDep,
)
from backend.routes.runs import wake
from backend.submission import (
    bounds_of,
    check_bounds,
    check_targets,
    checked_payload,
    placement,
)
from backend.validation import merge

router = APIRouter(tags=["jobs"])
JobId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.post("/runs/{run_id}/jobs", status_code=201, responses={200: {"model": s.JobInfo}})
def create_job(
    run_id: RunId,
    request: s.JobRequest,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> s.JobInfo:
    """Queue a job on a run. The same `Idempotency-Key` with the same request answers 200 with the
    same job, with another request 409."""
    with services.writing(run_id) as connection:
        ((_, config),) = runs.get_runs(connection, [run_id])
        payload = checked_payload(request, config)
        check_bounds(merge(config, request.overrides), bounds_of(services.settings), "overrides.")
        place = placement(connection, request)
        if not request.after and request.kind != "export":
            stored = [c.iteration for c in evaluations.list_checkpoints(connection, run_id)]
            check_checkpoints(run_id, request, stored)
        check_targets(connection, run_id, request)
        done = submit.submit_job(
            connection,
            run_id,
            request.kind,
            payload,
            placement=place,
            idempotency_key=idempotency_key,
            max_attempts=services.settings.max_attempts,
            caller=caller,
        )
    if done.is_new:
        wake(services, run_id, done.job_id, request.labels)
    else:
        response.status_code = 200
    return read_job(services, done.job_id)


def check_checkpoints(run_id: int, request: s.JobRequest, stored: list[int]) -> None:
    """Errors: `Conflict` without any checkpoint, `InvalidRequest` for an unknown one."""
    if not stored:
        raise Conflict(f"run {run_id} has no checkpoint yet")
    wanted = [("iteration", request.iteration)]
    wanted += [(f"iterations.{i}", value) for i, value in enumerate(request.iterations)]
    fields = [
        s.FieldError(
            field=field,
            message=f"run {run_id} has no checkpoint of iteration {iteration}",
            allowed=", ".join(map(str, stored)),
        )
        for field, iteration in wanted
        if iteration is not None and iteration not in stored
    ]
    if fields:
        raise InvalidRequest(fields[0].message, fields)


@router.get("/jobs")
def list_jobs(
    services: ServicesDep,
    state: s.JobState | None = None,
    kind: s.JobKind | None = None,
    run_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> s.JobPage:
    """Running and waiting jobs first, in the order of the queue; then the newest ended ones. A
    waiting job says why it waits."""
    with services.reading() as connection:
        return queue.list_jobs(
            connection, state=state, kind=kind, run_id=run_id, limit=limit, cursor=cursor
        )


@router.get("/jobs/{job_id}")
def get_job(job_id: JobId, services: ServicesDep) -> s.JobInfo:
    """One job with its attempts and, while it waits, the reason."""
    return read_job(services, job_id)


@router.post("/jobs/{job_id}/stop")
def stop_job(job_id: JobId, services: ServicesDep, caller: CallerDep) -> s.JobInfo:
    """Graceful: a running job writes a checkpoint and ends, a queued one ends at once."""
    with services.writing() as connection:
        jobs.request_stop(connection, job_id=job_id, actor=caller.name)
    return read_job(services, job_id)


@router.post("/jobs/{job_id}/cancel")
def cancel_job(job_id: JobId, services: ServicesDep, caller: CallerDep) -> s.JobInfo:
    """At once: a running job is killed, without a checkpoint."""
    with services.writing() as connection:
        jobs.request_stop(connection, job_id=job_id, is_kill=True, actor=caller.name)
    return read_job(services, job_id)


@router.post("/jobs/{job_id}/retry")
def retry_job(job_id: JobId, services: ServicesDep, caller: CallerDep) -> s.JobInfo:
    """Queue a job again that failed, was cancelled or skipped. Jobs behind it wait again."""
    read_job(services, job_id)
    with services.writing() as connection:
        control.requeue(connection, job_id, verb="retried", actor=caller.name)
    job = read_job(services, job_id)
    wake(services, job.run_id, job_id, job.labels)
    return job


@router.post("/jobs/{job_id}/priority")
def set_priority(
    job_id: JobId, request: s.PriorityRequest, services: ServicesDep, caller: CallerDep
) -> s.JobInfo:
    """Larger is sooner. Only for a waiting job."""
    read_job(services, job_id)
    with services.writing() as connection:
        control.set_priority(connection, job_id, request.priority, actor=caller.name)
    return read_job(services, job_id)


@router.post("/jobs/{job_id}/move")
def move_job(
    job_id: JobId, request: s.MoveRequest, services: ServicesDep, caller: CallerDep
) -> s.JobInfo:
    """Place a waiting job right before another one, or at the front. It gets that one's
    priority."""
    read_job(services, job_id)
    with services.writing() as connection:
        control.move(connection, job_id, request.before, actor=caller.name)
    return read_job(services, job_id)


def read_job(services: Services, job_id: int) -> s.JobInfo:
    """Errors: `NotFound`."""
    with services.reading() as connection:
        job = queue.get_job(connection, job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job
