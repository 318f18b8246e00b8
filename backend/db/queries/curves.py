"""Curves of several runs on one axis: iterations, environment steps, tokens, time or GPU hours."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from backend.db.queries.metrics import bucketed
from backend.schemas import Axis, Curve, CurvePoint, CurvesResponse, MetricSeries

AXIS_KEYS: dict[Axis, str] = {
    "env_steps": "progress/env_steps",
    "tokens": "progress/tokens",
    "episodes": "progress/episodes",
}
"""Axes that are metrics themselves (running totals)."""
_SECONDS = text(
    """
    SELECT iteration, sum(value) OVER (ORDER BY iteration) AS seconds FROM metrics
    WHERE run_id = :run_id AND key = 'time/iteration_s' AND value < 'Infinity' AND job_id = (
        SELECT id FROM jobs WHERE run_id = :run_id AND kind = 'train'
    )
    """
)
_DEVICES = text("SELECT num_devices FROM jobs WHERE run_id = :run_id AND kind = 'train'")


def curves(
    connection: Connection,
    run_ids: Sequence[int],
    keys: Sequence[str],
    *,
    axis: Axis,
    max_points: int,
    since: int | None = None,
) -> CurvesResponse:
    """One curve for each run and key that has points, in the order asked for.

    `x` of a bucket is that of its newest iteration; points whose x is not known are left out.
    """
    found: list[Curve] = []
    for run_id in run_ids:
        wanted = list(keys)
        if (axis_key := AXIS_KEYS.get(axis)) is not None:
            wanted.append(axis_key)
        answer = bucketed(connection, run_id, keys=wanted, max_points=max_points, since=since)
        by_key = {series.key: series for series in answer.series}
        positions = _positions(connection, run_id, axis, by_key)
        for key in keys:
            if key not in by_key:
                continue
            points = [
                CurvePoint(**point.model_dump(), x=x)
                for point in by_key[key].points
                if (x := _x(positions, point.iteration)) is not None
            ]
            found.append(Curve(run_id=run_id, key=key, points=points))
    return CurvesResponse(axis=axis, curves=found)


def _positions(
    connection: Connection, run_id: int, axis: Axis, by_key: dict[str, MetricSeries]
) -> dict[int, float] | None:
    """Iteration -> x; None: x is the iteration itself."""
    if axis == "iteration":
        return None
    if (axis_key := AXIS_KEYS.get(axis)) is not None:
        series = by_key.get(axis_key)
        points = [] if series is None else series.points
        return {point.iteration: point.last for point in points if point.last is not None}
    scale = 1.0
    if axis == "gpu_hours":
        devices = connection.execute(_DEVICES, {"run_id": run_id}).scalar_one_or_none()
        scale = (devices or 0) / 3600
    rows = connection.execute(_SECONDS, {"run_id": run_id})
    return {row.iteration: row.seconds * scale for row in rows}


def _x(positions: dict[int, float] | None, iteration: int) -> float | None:
    return float(iteration) if positions is None else positions.get(iteration)
