"""Runs: submit, list, read, cancel, and jobs on their checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from backend import presets
from backend import schemas as s
from backend.db.queries import evaluations, jobs, queue, runs, submit
from backend.db.queries.events import add_event
from backend.errors import Conflict, InvalidRequest, NotFound
from backend.routes.deps import Cursor, Limit, RunId, Services, ServicesDep
from sero_core.config import RunConfig

router = APIRouter(tags=["runs"])


@router.post("/runs", status_code=201, responses={200: {"model": s.RunDetail}})
def submit_run(
    request: s.SubmitRequest,
    response: Response,
    services: ServicesDep,
    idempotency_key: Annotated[
        str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)
    ] = None,
) -> s.RunDetail:
    """Queue a run. The same `Idempotency-Key` with the same config answers 200 with the same run,
    with another config 409."""
    config = presets.to_config(request, services.settings.configs_dir)
    try:
        with services.writing() as connection:
            done = submit.submit_run(
                connection,
                config,
                preset=request.preset,
                idempotency_key=idempotency_key,
                max_attempts=services.settings.max_attempts,
            )
    except submit.IdempotencyConflict as error:
        raise Conflict(str(error)) from None
    if done.is_new:
        wake(services, done.run_id, done.job_id)
    else:
        response.status_code = 200
    return _read(services, done.run_id)


@router.post("/runs:validate")
def validate_run(request: s.SubmitRequest, services: ServicesDep) -> s.ValidationResponse:
    """What submitting would do, without doing it: the config with its defaults, or a 422."""
    config = presets.to_config(request, services.settings.configs_dir)
    return s.ValidationResponse(
        config=config.model_dump(mode="json"),
        config_hash=config.group_hash(),
        preset=request.preset,
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
    """One run with its config and its jobs."""
    return _read(services, run_id)


@router.post("/runs/{run_id}/cancel")
def cancel_run(run_id: RunId, services: ServicesDep) -> s.RunDetail:
    """Queued jobs of the run end at once, running ones are asked to stop. Repeating is harmless."""
    with services.writing(run_id) as connection:
        jobs.request_cancel(connection, run_id)
    return _read(services, run_id)


@router.post("/runs/{run_id}/jobs", status_code=201)
def create_job(run_id: RunId, request: s.JobRequest, services: ServicesDep) -> s.JobInfo:
    """Queue a `branch` or `evaluate` job on a checkpoint of the run."""
    with services.writing(run_id) as connection:
        stored = [c.iteration for c in evaluations.list_checkpoints(connection, run_id)]
        if not stored:
            raise Conflict(f"run {run_id} has no checkpoint yet")
        if request.iteration is not None and request.iteration not in stored:
            problem = s.FieldError(
                field="iteration",
                message=f"run {run_id} has no checkpoint of iteration {request.iteration}",
                allowed=", ".join(str(iteration) for iteration in stored),
            )
            raise InvalidRequest(problem.message, [problem])
        job_id = submit.create_job(
            connection, run_id, request.kind, request.iteration, services.settings.max_attempts
        )
    wake(services, run_id, job_id)
    with services.reading() as connection:
        job = queue.get_job(connection, job_id)
    if job is None:
        raise NotFound(f"job {job_id} is gone")
    return job


@router.get("/compare")
def compare_runs(
    services: ServicesDep,
    run_ids: Annotated[
        str, Query(alias="runs", pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,49}$", examples=["1,2"])
    ],
) -> s.CompareResponse:
    """Config differences and newest evaluations of up to 50 runs (`runs=1,2,3`)."""
    wanted = list(dict.fromkeys(int(part) for part in run_ids.split(",")))
    with services.reading() as connection:
        found = runs.get_runs(connection, wanted)
        known = [run.id for run, _ in found]
        if missing := [run_id for run_id in wanted if run_id not in known]:
            raise NotFound(f"there is no run {', '.join(map(str, missing))}")
        return s.CompareResponse(
            runs=[run for run, _ in found],
            config_differences=runs.config_differences({run.id: config for run, config in found}),
            evaluations=evaluations.newest_evaluations(connection, known),
            metric_keys=runs.metric_keys_of(connection, known),
        )


def wake(services: Services, run_id: int, job_id: int) -> None:
    """Send the wake-up of a committed job; a lost one is an event and is sent again later."""
    problem = services.wakeups.send(job_id)
    if problem is not None:
        message = f"job {job_id} waits until it is sent again: {problem}"
        with services.writing() as connection:
            add_event(connection, "job.wakeup_failed", message, run_id=run_id, job_id=job_id)


def _read(services: Services, run_id: int) -> s.RunDetail:
    with services.reading() as connection:
        run = runs.get_run(connection, run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run
