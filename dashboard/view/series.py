"""Metric responses as the long frames that the charts draw, over any x axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from backend.schemas import MetricSeries, MetricsResponse

COLUMNS = ["series", "x", "value", "low", "high"]
X_AXES = {
    "iteration": "iteration",
    "env_steps": "environment steps",
    "tokens": "sampled tokens",
    "hours": "training time, hours",
}
"""What a curve can be drawn over: the name in the URL and the axis title."""

X_KEYS = {
    "env_steps": "progress/env_steps",
    "tokens": "progress/tokens",
    "hours": "time/iteration_s",
}
"""The metric that an x axis needs (`iteration` needs none)."""


def frame(
    response: MetricsResponse, keys: Mapping[str, str], x: str = "iteration", smoothing: float = 0.0
) -> pd.DataFrame:
    """Long frame of the metrics `keys` (metric key -> series name) over the axis `x`.

    Values that are not finite are left out. `smoothing` in [0, 1): debiased exponential mean.
    """
    by_key = {series.key: series for series in response.series}
    axis = _axis(by_key.get(X_KEYS.get(x, "")), x)
    parts = [
        _one(by_key[key], name, axis, smoothing) for key, name in keys.items() if key in by_key
    ]
    filled = [part for part in parts if not part.empty]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=COLUMNS)


def overlay(
    responses: Mapping[str, MetricsResponse], key: str, x: str = "iteration", smoothing: float = 0.0
) -> pd.DataFrame:
    """One metric of several runs (`responses` by series name)."""
    parts = [frame(response, {key: name}, x, smoothing) for name, response in responses.items()]
    filled = [part for part in parts if not part.empty]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=COLUMNS)


def num_not_finite(response: MetricsResponse, keys: Sequence[str]) -> int:
    """How many logged values of `keys` were NaN or infinite."""
    return sum(
        point.num_not_finite
        for series in response.series
        if series.key in keys
        for point in series.points
    )


def smooth(values: Sequence[float], factor: float) -> list[float]:
    """Exponential mean with weight `factor` on the past, divided by 1 - factor^n (debiased)."""
    if not 0 <= factor < 1:
        raise ValueError(f"smoothing: got {factor}, allowed: 0 up to but not including 1")
    mean, norm, result = 0.0, 0.0, []
    for value in values:
        mean = factor * mean + (1 - factor) * value
        norm = factor * norm + (1 - factor)
        result.append(mean / norm)
    return result


def _axis(series: MetricSeries | None, x: str) -> pd.DataFrame | None:
    """Iteration -> x. None = the iteration itself. Hours are the running sum of seconds."""
    if x == "iteration":
        return None
    rows: list[tuple[int, float]] = []
    total = 0.0
    for point in series.points if series is not None else []:
        if point.last is None:
            continue
        if x == "hours":
            total += point.last * max(1, point.num_values) / 3600
            rows.append((point.iteration, total))
        else:
            rows.append((point.iteration, point.last))
    return pd.DataFrame(rows, columns=["iteration", "x"])


def _one(
    series: MetricSeries, name: str, axis: pd.DataFrame | None, smoothing: float
) -> pd.DataFrame:
    points = [point for point in series.points if point.last is not None]
    result = pd.DataFrame(
        {
            "series": name,
            "iteration": [point.iteration for point in points],
            "value": [point.last for point in points],
            "low": [point.last if point.min is None else point.min for point in points],
            "high": [point.last if point.max is None else point.max for point in points],
        }
    )
    if result.empty:
        return pd.DataFrame(columns=COLUMNS)
    if smoothing > 0:
        result["value"] = smooth(list(result["value"]), smoothing)
        result["low"] = result["high"] = result["value"]
    if axis is None:
        result["x"] = result["iteration"]
    elif axis.empty:
        return pd.DataFrame(columns=COLUMNS)
    else:
        result = pd.merge_asof(result, axis, on="iteration", direction="nearest")
    return result[COLUMNS]
