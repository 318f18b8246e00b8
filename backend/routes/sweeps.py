"""Sweeps: a grid times seeds, queued in one transaction."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from backend import schemas as s
from backend.advice import warnings
from backend.db.queries import jobs, submit, sweeps
from backend.db.queries.submit import method_of
from backend.errors import NotFound
from backend.estimate import estimate
from backend.routes.deps import CallerDep, IdempotencyKey, Limit, Services, ServicesDep
from backend.routes.runs import wake
from backend.sweep import expand

router = APIRouter(tags=["sweeps"])
SweepId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.post("/sweeps:validate")
def validate_sweep(
    request: s.SweepRequest, services: ServicesDep, caller: CallerDep
) -> s.SweepPlan:
    """The runs that the sweep would make, how many, and what they need; nothing is queued."""
    with services.reading() as connection:
        base, runs = expand(connection, request, services.settings)
        first = runs[0].config
        needs = estimate(connection, first, method_of(first))
        home = services.settings.home
        said = warnings(connection, first, base.placement, needs, home)
    planned = [
        s.PlannedRun(
            name=run.config.name,
            seed=run.config.seed,
            config_hash=run.config.group_hash(),
            values=run.values,
        )
        for run in runs
    ]
    total = None if needs.duration_s is None else needs.duration_s * len(runs)
    return s.SweepPlan(
        num_runs=len(runs), runs=planned, warnings=said, estimate=needs, total_duration_s=total
    )


@router.post("/sweeps", status_code=201, responses={200: {"model": s.SweepDetail}})
def submit_sweep(
    request: s.SweepRequest,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> s.SweepDetail:
    """Queue all runs of the sweep, or none. The same `Idempotency-Key` with the same request
    answers 200 with the same sweep, with another request 409."""
    with services.writing() as connection:
        base, runs = expand(connection, request, services.settings)
        done = submit.submit_sweep(
            connection,
            request.name,
            [run.config for run in runs],
            request.model_dump(mode="json"),
            preset=request.base.preset,
            idempotency_key=idempotency_key,
            max_attempts=services.settings.max_attempts,
            placement=base.placement,
            parent_run_id=base.parent_run_id,
            then=base.then,
            caller=caller,
        )
    for run_id, job_id in zip(done.run_ids, done.job_ids, strict=False):
        if not wake(services, run_id, job_id, request.base.labels):
            break  # the broker is away; a worker finds the jobs by itself
    if not done.is_new:
        response.status_code = 200
    return _read(services, done.sweep_id)


@router.get("/sweeps")
def list_sweeps(services: ServicesDep, limit: Limit = 50) -> s.SweepsResponse:
    """The newest first."""
    with services.reading() as connection:
        return s.SweepsResponse(sweeps=sweeps.list_sweeps(connection, limit))


@router.get("/sweeps/{sweep_id}")
def get_sweep(sweep_id: SweepId, services: ServicesDep) -> s.SweepDetail:
    """One sweep with its runs, in the order of the grid."""
    return _read(services, sweep_id)


@router.post("/sweeps/{sweep_id}/stop")
def stop_sweep(sweep_id: SweepId, services: ServicesDep, caller: CallerDep) -> s.SweepDetail:
    """Stop every run of the sweep: running ones after a checkpoint, queued ones at once."""
    detail = _read(services, sweep_id)
    with services.writing() as connection:
        for run in detail.runs:
            jobs.request_stop(connection, run_id=run.id, actor=caller.name)
    return _read(services, sweep_id)


def _read(services: Services, sweep_id: int) -> s.SweepDetail:
    with services.reading() as connection:
        found = sweeps.get_sweep(connection, sweep_id)
    if found is None:
        raise NotFound(f"there is no sweep {sweep_id}")
    return found
