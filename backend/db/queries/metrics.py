"""Curves: metrics of a run's training, merged into buckets by the server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, func, select, text

from backend.db.queries.runs import training_job_id
from backend.db.records import Iteration, Metric
from backend.schemas import (
    MetricKey,
    MetricKeysResponse,
    MetricPoint,
    MetricSeries,
    MetricsResponse,
)

# PostgreSQL sorts NaN above infinity
_BUCKETS = text(
    """
    SELECT key, min(iteration) AS first_iteration, max(iteration) AS iteration,
        (array_agg(value ORDER BY iteration DESC))[1] AS last,
        min(value) FILTER (WHERE is_finite) AS min, max(value) FILTER (WHERE is_finite) AS max,
        count(*) AS num_values, count(*) FILTER (WHERE NOT is_finite) AS num_not_finite
    FROM (
        SELECT key, iteration, value, value > '-Infinity' AND value < 'Infinity' AS is_finite
        FROM metrics
        WHERE run_id = :run_id AND job_id = :job_id AND iteration > :since
            AND (CAST(:keys AS text[]) IS NULL OR key = ANY(CAST(:keys AS text[])))
    ) AS points
    GROUP BY key, iteration / :size
    ORDER BY key, iteration / :size
    """
)


def bucketed(
    connection: Connection,
    run_id: int,
    *,
    keys: Sequence[str] | None,
    max_points: int,
    since: int | None,
) -> MetricsResponse:
    """Series in the order of `keys` (None: all, by name), at most `max_points` buckets each."""
    job_id = training_job_id(connection, run_id)
    after = -1 if since is None else since
    first, last = iteration_range(connection, run_id, job_id, after)
    size = 1 if first is None or last is None else bucket_size(first, last, max_points)
    points: dict[str, list[MetricPoint]] = defaultdict(list)
    for row in connection.execute(
        _BUCKETS,
        {
            "run_id": run_id,
            "job_id": job_id,
            "since": after,
            "size": size,
            "keys": None if keys is None else list(keys),
        },
    ):
        points[row.key].append(MetricPoint.model_validate(row))
    order = points if keys is None else [key for key in keys if key in points]
    return MetricsResponse(
        run_id=run_id,
        bucket_iterations=size,
        last_iteration=last if last is not None else since,
        series=[MetricSeries(key=key, points=points[key]) for key in order],
    )


def bucket_size(first: int, last: int, max_buckets: int) -> int:
    """Iterations per bucket so that buckets [n*size, (n+1)*size) are at most `max_buckets`.

    Buckets lie on a fixed grid, so they stay the same while a run grows.
    """
    size = max(1, -(-(last - first + 1) // max_buckets))
    while last // size - first // size + 1 > max_buckets:
        size += 1
    return size


def iteration_range(
    connection: Connection, run_id: int, job_id: int | None, after: int = -1
) -> tuple[int | None, int | None]:
    """First and last stored iteration after `after`."""
    row = connection.execute(
        select(func.min(Iteration.iteration), func.max(Iteration.iteration)).where(
            Iteration.run_id == run_id, Iteration.job_id == job_id, Iteration.iteration > after
        )
    ).one()
    return row[0], row[1]


def metric_keys(connection: Connection, run_id: int) -> MetricKeysResponse:
    """Which curves a run's training has, by name."""
    rows = connection.execute(
        select(
            Metric.key,
            func.count().label("num_values"),
            func.min(Metric.iteration).label("first_iteration"),
            func.max(Metric.iteration).label("last_iteration"),
        )
        .where(Metric.run_id == run_id, Metric.job_id == training_job_id(connection, run_id))
        .group_by(Metric.key)
        .order_by(Metric.key)
    )
    return MetricKeysResponse(run_id=run_id, keys=[MetricKey.model_validate(row) for row in rows])
