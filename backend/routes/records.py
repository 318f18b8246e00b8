"""What a run wrote: curves, episodes, branches, evaluations, checkpoints, events, log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend import schemas as s
from backend.db.queries import depth_map, events, logs, metrics
from backend.db.queries import episodes as episode_queries
from backend.db.queries import evaluations as evaluation_queries
from backend.errors import NotFound
from backend.retention import checkpoints_on_disk
from backend.routes.deps import (
    Cursor,
    Limit,
    OptionalIteration,
    RunId,
    ServicesDep,
    split_permalink,
)

router = APIRouter()
Since = Annotated[int, Query(ge=0, description="`next_since` of the last answer")]
Name = Annotated[str | None, Query(max_length=100)]


@router.get("/runs/{run_id}/metrics", tags=["curves"])
def get_metrics(
    services: ServicesDep,
    run_id: RunId,
    keys: Annotated[
        str | None,
        Query(max_length=5000, description="Comma-separated; none = all", examples=["train/kl"]),
    ] = None,
    max_points: Annotated[int, Query(ge=1, le=5000, description="Buckets per series")] = 500,
    since: Annotated[int | None, Query(ge=0, description="Only later iterations")] = None,
) -> s.MetricsResponse:
    """Curves of the run's training, merged into buckets of iterations (min, max, last)."""
    wanted = None if keys is None else [key for key in keys.split(",") if key]
    with services.reading(run_id) as connection:
        return metrics.bucketed(connection, run_id, keys=wanted, max_points=max_points, since=since)


@router.get("/runs/{run_id}/metric-keys", tags=["curves"])
def get_metric_keys(services: ServicesDep, run_id: RunId) -> s.MetricKeysResponse:
    """Which curves there are."""
    with services.reading(run_id) as connection:
        return metrics.metric_keys(connection, run_id)


@router.get("/runs/{run_id}/depth-map", tags=["curves"])
def get_depth_map(
    services: ServicesDep,
    run_id: RunId,
    max_buckets: Annotated[int, Query(ge=1, le=500)] = 60,
    task_type: Name = None,
    quantiles: Annotated[bool, Query(description="With p10, median and p90; slower")] = False,
) -> s.DepthMapResponse:
    """Reachability weight by iteration and depth, with the number of branch steps; beside it the
    effective depth and the success by iteration."""
    with services.reading(run_id) as connection:
        return depth_map.depth_map(
            connection, run_id, max_buckets, task_type=task_type, has_quantiles=quantiles
        )


@router.get("/runs/{run_id}/evaluations", tags=["curves"])
def get_evaluations(
    services: ServicesDep,
    run_id: RunId,
    outcomes: Annotated[bool, Query(description="With the result of every task")] = False,
) -> s.EvaluationsResponse:
    """Evaluations on the fixed panels, oldest first."""
    with services.reading(run_id) as connection:
        found = evaluation_queries.list_evaluations(connection, run_id, has_outcomes=outcomes)
    return s.EvaluationsResponse(run_id=run_id, evaluations=found)


@router.get("/runs/{run_id}/checkpoints", tags=["runs"])
def get_checkpoints(services: ServicesDep, run_id: RunId) -> s.CheckpointsResponse:
    """Checkpoints that were written, oldest first."""
    with services.reading(run_id) as connection:
        found = evaluation_queries.list_checkpoints(connection, run_id)
    there = checkpoints_on_disk(services.settings, run_id)
    return s.CheckpointsResponse(
        run_id=run_id,
        checkpoints=[
            found_one.model_copy(update={"is_on_disk": found_one.iteration in there})
            for found_one in found
        ],
    )


@router.get("/runs/{run_id}/events", tags=["runs"])
def get_events(
    services: ServicesDep, run_id: RunId, since: Since = 0, limit: Limit = 500
) -> s.EventsResponse:
    """State changes of the run and its jobs, oldest first."""
    with services.reading(run_id) as connection:
        return events.list_events(connection, run_id, since, limit)


@router.get("/runs/{run_id}/log", tags=["runs"])
def get_log(
    services: ServicesDep,
    run_id: RunId,
    since: Annotated[int | None, Query(ge=0, description="None = the newest lines")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> s.LogResponse:
    """What the run's processes printed, oldest first."""
    with services.reading(run_id) as connection:
        return logs.read_log(connection, run_id, since, limit)


@router.get("/runs/{run_id}/episodes", tags=["episodes and branches"])
def list_episodes(
    services: ServicesDep,
    run_id: RunId,
    iteration: OptionalIteration = None,
    task_type: Name = None,
    is_won: bool | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> s.EpisodePage:
    """Episodes of the policy, newest iteration first."""
    with services.reading(run_id) as connection:
        return episode_queries.list_episodes(
            connection,
            run_id,
            iteration=iteration,
            task_type=task_type,
            is_won=is_won,
            limit=limit,
            cursor=cursor,
        )


@router.get("/episodes/{episode_id}", tags=["episodes and branches"])
def get_episode(services: ServicesDep, episode_id: str) -> s.EpisodeDetail:
    """One episode with every step. The id is `<run_id>-<episode_id>`, as in `12-i5g0e3`."""
    with services.reading() as connection:
        found = episode_queries.get_episode(connection, *split_permalink(episode_id, "an episode"))
    if found is None:
        raise NotFound(f"there is no episode {episode_id}")
    return found
