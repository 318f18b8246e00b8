"""Runs: submit, check, list, read, stop, resume, extend."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from backend import presets
from backend import schemas as s
from backend.advice import warnings
from backend.db.queries import control, jobs, runs, submit
from backend.db.queries.events import add_event
from backend.db.queries.submit import method_of
from backend.errors import NotFound
from backend.estimate import estimate
from backend.routes.deps import (
    CallerDep,
    Cursor,
    IdempotencyKey,
    Limit,
    RunId,
    Services,
    ServicesDep,
)
from backend.submission import check, wrong
from backend.validation import merge
from sero_core.config import RunConfig

router = APIRouter(tags=["runs"])


@router.post("/runs", status_code=201, responses={200: {"model": s.RunDetail}})
def submit_run(
    request: s.SubmitRequest,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> s.RunDetail:
    """Queue a run. The same `Idempotency-Key` with the same request answers 200 with the same run,
    with another request 409."""
    with services.writing() as connection:
        checked = check(connection, request, services.settings)
        done = submit.submit_run(
            connection,
            checked.config,
            preset=request.preset,
            idempotency_key=idempotency_key,
            max_attempts=services.settings.max_attempts,
            placement=checked.placement,
            lineage=submit.Lineage(parent_run_id=checked.parent_run_id),
            then=checked.then,
            caller=caller,
        )
    if done.is_new:
        wake(services, done.run_id, done.job_id, request.labels)
    else:
        response.status_code = 200
    return read_run(services, done.run_id)


@router.post("/runs:validate")
def validate_run(
    request: s.SubmitRequest, services: ServicesDep, caller: CallerDep
) -> s.ValidationResponse:
    """What submitting would do, without doing it: the config with its defaults, what is odd about
    it, and what it will need; or a 422."""
    with services.reading() as connection:
        checked = check(connection, request, services.settings)
        needs = estimate(connection, checked.config, method_of(checked.config))
        home = services.settings.home
        said = warnings(connection, checked.config, checked.placement, needs, home)
    return s.ValidationResponse(
        config=checked.config.model_dump(mode="json"),
        config_hash=checked.config.group_hash(),
        preset=request.preset,
        parent_run_id=checked.parent_run_id,
        changes=checked.changes,
        warnings=said,
        estimate=needs,
    )


@router.get("/config/schema")
def get_config_schema(services: ServicesDep) -> s.ConfigSchemaResponse:
    """The JSON Schema of the run config, its defaults, and the presets."""
    return s.ConfigSchemaResponse(
        json_schema=presets.SCHEMA,
        defaults=RunConfig().model_dump(mode="json"),
        presets=presets.load_presets(services.settings.configs_dir),
    )


@router.get("/runs")
def list_runs(
    services: ServicesDep,
    status: s.RunStatus | None = None,
    search: Annotated[str | None, Query(max_length=200)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> s.RunPage:
    """Newest first. `search` looks in name, method, environment and preset."""
    with services.reading() as connection:
        return runs.list_runs(connection, status=status, search=search, limit=limit, cursor=cursor)


@router.get("/runs/{run_id}")
def get_run(run_id: RunId, services: ServicesDep) -> s.RunDetail:
    """One run with its config, its jobs, and where it comes from."""
    return read_run(services, run_id)


@router.post("/runs/{run_id}/stop")
def stop_run(run_id: RunId, services: ServicesDep, caller: CallerDep) -> s.RunDetail:
    """Graceful: running jobs of the run write a checkpoint and end, queued ones end at once.
    Repeating is harmless; `resume` goes on from there."""
    with services.writing(run_id) as connection:
        jobs.request_stop(connection, run_id=run_id, actor=caller.name)
    return read_run(services, run_id)


@router.post("/runs/{run_id}/cancel")
def cancel_run(run_id: RunId, services: ServicesDep, caller: CallerDep) -> s.RunDetail:
    """At once: running jobs of the run are killed, without a checkpoint. Repeating is harmless."""
    with services.writing(run_id) as connection:
        jobs.request_stop(connection, run_id=run_id, is_kill=True, actor=caller.name)
    return read_run(services, run_id)


@router.post("/runs/{run_id}/resume")
def resume_run(run_id: RunId, services: ServicesDep, caller: CallerDep) -> s.RunDetail:
    """Queue the training of a run that was stopped or failed: it goes on from its newest
    checkpoint. Jobs that were skipped because of it wait again."""
    with services.writing(run_id) as connection:
        job_id = runs.require_training_job(connection, run_id)
        control.requeue(connection, job_id, verb="resumed", actor=caller.name)
    return _woken(services, run_id, job_id)


@router.post("/runs/{run_id}/extend")
def extend_run(
    run_id: RunId, request: s.ExtendRequest, services: ServicesDep, caller: CallerDep
) -> s.RunDetail:
    """More iterations: the training goes on from its newest checkpoint up to the new total."""
    with services.writing(run_id) as connection:
        ((run, config),) = runs.get_runs(connection, [run_id])
        if request.num_iterations <= run.num_iterations:
            raise wrong(
                "num_iterations",
                f"run {run_id} has {run.num_iterations} iterations already",
                f"an integer > {run.num_iterations}",
            )
        changed = merge(config, {"num_iterations": request.num_iterations})
        job_id = control.extend(connection, run_id, presets.parse(changed), actor=caller.name)
    return _woken(services, run_id, job_id)


def _woken(services: Services, run_id: int, job_id: int) -> s.RunDetail:
    run = read_run(services, run_id)
    labels = next((job.labels for job in run.jobs if job.id == job_id), [])
    wake(services, run_id, job_id, labels)
    return run


def wake(services: Services, run_id: int, job_id: int, labels: list[str]) -> bool:
    """Send the wake-up of a committed job; a lost one is an event, and a worker finds the job."""
    problem = services.wakeups.send(job_id, labels)
    if problem is not None:
        message = f"job {job_id} waits until it is sent again: {problem}"
        with services.writing() as connection:
            add_event(connection, "job.wakeup_failed", message, run_id=run_id, job_id=job_id)
    return problem is None


def read_run(services: Services, run_id: int) -> s.RunDetail:
    """Errors: `NotFound`."""
    with services.reading() as connection:
        run = runs.get_run(connection, run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run
