"""Altair specs of every chart. Colors come from the Streamlit theme, so light and dark both fit.

A chart of one point draws the point; a value that is not finite is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from backend.schemas import DepthMapResponse, EvaluationInfo

PANELS = {"valid_seen": "seen", "valid_unseen": "unseen", "test": "test", "eval": "eval"}
RATE = ".0%"


def curves(
    frame: pd.DataFrame,
    *,
    y_title: str,
    x_title: str = "iteration",
    y_format: str = ".6~g",
    height: int = 230,
    is_rate: bool = False,
    legend: bool = True,
    order: Sequence[str] | None = None,
) -> alt.LayerChart:
    """Lines of `frame` (columns `series`, `x`, `value`, `low`, `high`), one color per series.

    `order` fixes which series has which color, over several charts; None = as they come.

    `low`, `high` are the extremes inside a merged bucket; the band shows where they differ.
    """
    scale = alt.Scale(domain=[0, 1]) if is_rate else alt.Scale(zero=False)
    order = list(order or dict.fromkeys(frame["series"]))
    color = alt.Color(
        "series:N",
        title=None,
        sort=order,
        scale=alt.Scale(domain=order),
        legend=_legend(len(order)) if legend else None,
    )
    base = alt.Chart(frame).encode(x=alt.X("x:Q", title=x_title, axis=_x_axis()), color=color)
    y_axis = alt.Axis(format=y_format, tickCount=5)
    line = base.mark_line(strokeWidth=2, point=_points(frame)).encode(
        y=alt.Y("value:Q", title=y_title, scale=scale, axis=y_axis), tooltip=_tooltip(y_format)
    )
    layers: list[alt.Chart] = [line]
    if bool((frame["high"] > frame["low"]).any()):
        layers.insert(0, base.mark_area(opacity=0.15).encode(y="low:Q", y2="high:Q"))
    return alt.layer(*layers, *_hover(base, y_format)).properties(height=height)


def success(rollout: pd.DataFrame, evaluations: pd.DataFrame, height: int = 300) -> alt.LayerChart:
    """Rollout success as a line, evaluations as points with their 95 % Wilson interval.

    `rollout` as in `curves`; `evaluations` from `evaluation_frame`.
    """
    order = list(dict.fromkeys([*rollout["series"], *evaluations["series"]]))
    color = alt.Color(
        "series:N",
        title=None,
        sort=order,
        scale=alt.Scale(domain=order),
        legend=alt.Legend(orient="top", labelLimit=320),
    )
    x = alt.X("x:Q", title="iteration", axis=_x_axis())
    y = alt.Y(
        "value:Q",
        title="success rate",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format=RATE, tickCount=6),
    )
    training = alt.Chart(rollout).encode(x=x, y=y, color=color)
    panel = alt.Chart(evaluations).encode(x=x, color=color)
    tooltip = [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("x:Q", title="iteration"),
        alt.Tooltip("value:Q", title="success", format=".1%"),
        alt.Tooltip("low:Q", title="low (95 %)", format=".1%"),
        alt.Tooltip("high:Q", title="high (95 %)", format=".1%"),
        alt.Tooltip("num_episodes:Q", title="episodes"),
    ]
    layers = [
        training.mark_line(strokeWidth=1.5, opacity=0.75, point=_points(rollout)).encode(
            tooltip=_tooltip(".1%")
        ),
        panel.mark_line(strokeWidth=1.5, strokeDash=[4, 3]).encode(y=y),
        panel.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q", tooltip=tooltip),
        panel.mark_point(filled=True, size=70, opacity=1).encode(
            y=y,
            shape=alt.Shape("series:N", sort=order, scale=alt.Scale(domain=order), legend=None),
            tooltip=tooltip,
        ),
    ]
    return alt.layer(*layers).properties(height=height)


def weight_heatmap(depths: DepthMapResponse, height: int = 260) -> alt.LayerChart:
    """Mean weight by iteration and depth; cells with few branch steps are paler."""
    most = max((cell.num_steps for cell in depths.cells), default=1)
    frame = pd.DataFrame(
        {
            "iteration": cell.iteration,
            "depth": cell.depth,
            "weight": cell.mean_weight,
            "num_steps": cell.num_steps,
            "solid": 0.35 + 0.65 * (cell.num_steps / most) ** 0.5,
        }
        for cell in depths.cells
        if cell.mean_weight is not None
    )
    if frame.empty:
        frame = pd.DataFrame(columns=["iteration", "depth", "weight", "num_steps", "solid"])
    x_axis = alt.Axis(labelOverlap=True, labelAngle=0)
    chart = (
        alt.Chart(frame)
        .mark_rect()
        .encode(
            x=alt.X("iteration:O", title="iteration", axis=x_axis),
            y=alt.Y(
                "depth:O", title="depth k", sort="descending", axis=alt.Axis(labelOverlap=True)
            ),
            color=alt.Color(
                "weight:Q",
                title="mean wₖ",
                scale=alt.Scale(domain=[0, 1]),
                legend=alt.Legend(gradientLength=max(80, height - 90)),
            ),
            opacity=alt.Opacity("solid:Q", scale=None, legend=None),
            tooltip=[
                alt.Tooltip("iteration:O"),
                alt.Tooltip("depth:O"),
                alt.Tooltip("weight:Q", title="mean weight", format=".3f"),
                alt.Tooltip("num_steps:Q", title="branch steps"),
            ],
        )
    )
    return alt.layer(chart).properties(height=height)


def intervals(frame: pd.DataFrame, height: int | alt.Step) -> alt.LayerChart:
    """Final rates with Wilson intervals: one row per `task_type`, one color per `series`."""
    order = list(dict.fromkeys(frame["series"]))
    types = list(dict.fromkeys(frame["task_type"]))
    base = alt.Chart(frame).encode(
        y=alt.Y("task_type:N", title=None, sort=types),
        yOffset=alt.YOffset("series:N", sort=order),
        color=alt.Color(
            "series:N",
            title=None,
            sort=order,
            scale=alt.Scale(domain=order),
            legend=alt.Legend(orient="top", labelLimit=320, columns=2),
        ),
        tooltip=[
            alt.Tooltip("series:N", title="run"),
            alt.Tooltip("task_type:N", title="task type"),
            alt.Tooltip("rate:Q", title="success", format=".1%"),
            alt.Tooltip("low:Q", title="low (95 %)", format=".1%"),
            alt.Tooltip("high:Q", title="high (95 %)", format=".1%"),
            alt.Tooltip("count:N", title="won"),
        ],
    )
    x = alt.X(
        "rate:Q", title="success rate", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=RATE)
    )
    rules = base.mark_rule(strokeWidth=2.5).encode(x=alt.X("low:Q"), x2="high:Q")
    points = base.mark_point(filled=True, size=80, opacity=1).encode(x=x)
    return alt.layer(rules, points).properties(height=height)


def evaluation_frame(evaluations: Sequence[EvaluationInfo], kind: str = "all") -> pd.DataFrame:
    """Rows of one task type over iterations, with the interval and the number of episodes."""
    rows = [
        {
            "series": f"evaluation, {PANELS.get(evaluation.panel, evaluation.panel)}",
            "x": evaluation.iteration,
            "value": result.rate,
            "low": result.low,
            "high": result.high,
            "num_episodes": result.num_episodes,
        }
        for evaluation in evaluations
        for result in evaluation.results
        if result.task_type == kind
    ]
    return pd.DataFrame(rows, columns=["series", "x", "value", "low", "high", "num_episodes"])


def _legend(num_series: int) -> alt.Legend:
    return alt.Legend(orient="top", labelLimit=240, columns=2 if num_series > 3 else 3)


def _points(frame: pd.DataFrame) -> bool:
    """Dots where a line would hide that there are few values."""
    return len(frame) <= 40 or bool((frame.groupby("series")["x"].count() == 1).any())


def _x_axis() -> alt.Axis:
    return alt.Axis(tickMinStep=1, format="~s", labelFlush=True, grid=False)


def _tooltip(y_format: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("x:Q", title="x", format=",.0f"),
        alt.Tooltip("value:Q", title="value", format=y_format),
    ]


def _hover(base: alt.Chart, y_format: str) -> list[alt.Chart]:
    """A vertical rule and dots at the nearest x, so that values can be read off."""
    nearest = alt.selection_point(
        nearest=True, on="pointerover", fields=["x"], empty=False, clear="pointerout"
    )
    return [
        base.mark_rule(color="gray", strokeWidth=1)
        .encode(
            color=alt.value("gray"),
            opacity=alt.condition(nearest, alt.value(0.5), alt.value(0)),
        )
        .add_params(nearest),
        base.mark_point(filled=True, size=60).encode(
            y="value:Q",
            opacity=alt.condition(nearest, alt.value(1), alt.value(0)),
            tooltip=_tooltip(y_format),
        ),
    ]
