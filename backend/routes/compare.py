"""Comparing runs: what differs in their configs and results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from statistics import mean
from typing import Annotated

from fastapi import APIRouter, Query

from backend import schemas as s
from backend.db.queries import curves, evaluations, outcomes, runs
from backend.diff import changes
from backend.errors import NotFound
from backend.paired import compare as paired_compare
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


RunList = Annotated[
    str, Query(pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,99}$", examples=["1,2"], description="By comma")
]


@router.get("/curves")
def get_curves(
    services: ServicesDep,
    run_ids: Annotated[
        str, Query(alias="runs", pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,99}$", examples=["1,2"])
    ],
    keys: Annotated[str, Query(max_length=5000, examples=["train/kl,rollout/success"])],
    axis: s.Axis = "iteration",
    max_points: Annotated[int, Query(ge=1, le=5000, description="Buckets per curve")] = 500,
    since: Annotated[int | None, Query(ge=0, description="Only later iterations")] = None,
) -> s.CurvesResponse:
    """Curves of several runs, merged into buckets (min, max, last), on one axis."""
    wanted = [key for key in keys.split(",") if key]
    with services.reading() as connection:
        return curves.curves(
            connection, _ids(run_ids), wanted, axis=axis, max_points=max_points, since=since
        )


@router.get("/compare/config")
def diff_configs(
    services: ServicesDep,
    before: Annotated[int, Query(ge=1, le=2**31 - 1)],
    after: Annotated[int, Query(ge=1, le=2**31 - 1)],
) -> s.ConfigDiffResponse:
    """What is different from one run's config to another's, typed."""
    with services.reading() as connection:
        found = {
            run.id: (run, config) for run, config in runs.get_runs(connection, [before, after])
        }
    for run_id in (before, after):
        if run_id not in found:
            raise NotFound(f"there is no run {run_id}")
    (run_before, config_before), (run_after, config_after) = found[before], found[after]
    return s.ConfigDiffResponse(
        before=before,
        after=after,
        changes=changes(config_before, config_after),
        git_before=run_before.git_commit,
        git_after=run_after.git_commit,
    )


@router.get("/compare/tasks")
def compare_tasks(
    services: ServicesDep,
    a: RunList,
    b: RunList,
    panel: Annotated[str, Query(max_length=100)] = "valid_unseen",
    iteration: Annotated[
        int | None, Query(ge=0, le=2**31 - 1, description="None = the newest of each run")
    ] = None,
    limit: Annotated[int, Query(ge=0, le=5000, description="Tasks in the answer")] = 500,
) -> s.PairedResponse:
    """Two sides, each one or more runs (seeds), task by task on one panel: the paired difference
    with its interval, over all and by task type."""
    ids_a, ids_b = _ids(a), _ids(b)
    with services.reading() as connection:
        results_a, hashes_a = outcomes.newest_results(connection, ids_a, panel, iteration)
        results_b, hashes_b = outcomes.newest_results(connection, ids_b, panel, iteration)
    return s.PairedResponse(
        panel=panel,
        run_ids_a=ids_a,
        run_ids_b=ids_b,
        is_same_panel=len(hashes_a | hashes_b) <= 1,
        results=_paired_results(results_a, results_b),
        tasks=_paired_tasks(results_a, results_b)[:limit],
    )


def _paired_results(
    a: list[outcomes.TaskResult], b: list[outcomes.TaskResult]
) -> list[s.PairedResult]:
    types = sorted({result.task_type for result in a} & {result.task_type for result in b})
    found: list[s.PairedResult] = []
    for group in ("all", *types):
        mine_a, mine_b = (
            outcomes.by_task([r for r in side if group in ("all", r.task_type)]) for side in (a, b)
        )
        paired = paired_compare(mine_a, mine_b)
        if paired is not None:
            found.append(s.PairedResult(group=group, **asdict(paired)))
    return found


def _paired_tasks(a: list[outcomes.TaskResult], b: list[outcomes.TaskResult]) -> list[s.PairedTask]:
    side_a, side_b = _grouped(a), _grouped(b)
    tasks = [
        s.PairedTask(
            task_id=task_id,
            task_type=mine[0].task_type,
            rate_a=mean(r.is_won for r in mine),
            rate_b=mean(r.is_won for r in side_b[task_id]),
            steps_a=mean(r.num_steps for r in mine),
            steps_b=mean(r.num_steps for r in side_b[task_id]),
        )
        for task_id, mine in side_a.items()
        if task_id in side_b
    ]

    def interest(task: s.PairedTask) -> tuple[float, int, str]:
        difference = task.rate_b - task.rate_a
        return -abs(difference), -(difference > 0), task.task_id

    return sorted(tasks, key=interest)


def _grouped(results: Sequence[outcomes.TaskResult]) -> dict[str, list[outcomes.TaskResult]]:
    found: dict[str, list[outcomes.TaskResult]] = defaultdict(list)
    for result in results:
        found[result.task_id].append(result)
    return found


def _ids(value: str) -> list[int]:
    return list(dict.fromkeys(int(part) for part in value.split(",")))
