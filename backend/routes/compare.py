"""Comparing runs: what differs in their configs and results."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend import schemas as s
from backend.db.queries import evaluations, runs
from backend.errors import NotFound
from backend.routes.deps import ServicesDep

router = APIRouter(tags=["compare"])


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
