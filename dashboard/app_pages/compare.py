"""Several runs side by side: config differences, curves, evaluations. `?runs=1,2`."""

from __future__ import annotations

import streamlit as st

from backend.schemas import CompareResponse
from dashboard import data, ui
from dashboard.state import X_AXES, CompareState
from dashboard.view import charts, format, series, tables

CHARTS = {
    "rollout/success": ("Success of training rollouts", True),
    "eval/valid_seen": ("Evaluation, seen", True),
    "eval/valid_unseen": ("Evaluation, unseen", True),
    "eval/test": ("Evaluation, test", True),
    "rollout/score_mean": ("Task score of training rollouts", True),
    "sero/effective_depth": ("Effective depth", False),
    "train/loss": ("Policy loss", False),
    "rollout/steps": ("Steps per episode", False),
}
NUM_KNOWN = 200

st.title("Compare")
state = CompareState.parse(st.query_params.to_dict())
known = ui.load(lambda: data.runs(NUM_KNOWN, None, None), "the runs").items
labels = {run.id: format.run_label(run) for run in known}
for run_id in state.runs:
    labels.setdefault(run_id, f"#{run_id}")


def _keep_url() -> None:
    """The chosen runs into the URL."""
    chosen = CompareState(runs=tuple(st.session_state["compare_runs"]))
    st.query_params["runs"] = chosen.query().get("runs", "")


picked = st.multiselect(
    "Runs",
    list(labels),
    default=list(state.runs),
    format_func=lambda run_id: labels[run_id],
    key="compare_runs",
    on_change=_keep_url,
    placeholder="Choose two or more runs",
)
if not picked:
    st.info("Choose runs above, or tick them in the run table.", icon=":material/info:")
    st.page_link("app_pages/runs.py", label="All runs", icon=":material/table_rows:")
    st.stop()
run_ids = tuple(picked)
response = ui.load(lambda: data.compare(run_ids), "the comparison")


def _curves(response: CompareResponse) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = st.segmented_control(
            "x axis",
            X_AXES,
            default="iteration",
            format_func=lambda name: series.X_AXES[name],
            key="x_axis",
            required=True,
        )
        smoothing = st.slider(
            "Smoothing",
            0.0,
            0.95,
            0.0,
            0.05,
            key="smooth",
            bind="query-params",
            width=220,
            help="Exponential mean, debiased; 0 = as logged",
        )
    x = str(x)
    keys = (*CHARTS, *series.X_KEYS.values())
    responses = {
        format.run_label(run): ui.load(
            lambda run=run: data.compared_metrics(run.id, keys, 500), f"the curves of run {run.id}"
        )
        for run in response.runs
    }
    shown = [key for key in CHARTS if key in response.metric_keys]
    if not shown:
        st.info("None of these runs has logged an iteration yet.")
    for start in range(0, len(shown), 2):
        for column, key in zip(st.columns(2, gap="large"), shown[start : start + 2], strict=False):
            title, is_rate = CHARTS[key]
            frame = series.overlay(responses, key, x, smoothing)
            with column:
                st.markdown(f"**{title}**")
                if frame.empty:
                    st.caption(f"No run has what this axis needs ({series.X_AXES[x]}).")
                    continue
                chart = charts.curves(
                    frame,
                    y_title="",
                    x_title=series.X_AXES[x],
                    y_format=charts.RATE if is_rate else ".6~g",
                    is_rate=is_rate,
                    height=270,
                    order=list(responses),
                )
                st.altair_chart(chart, alt=f"{title} of the compared runs")


def _evaluations(response: CompareResponse) -> None:
    panels = [name for name in charts.PANELS if any(e.panel == name for e in response.evaluations)]
    if not panels:
        st.caption("No evaluation yet.")
        return
    for column, panel in zip(st.columns(len(panels), gap="large"), panels, strict=True):
        frame = tables.interval_frame(response, panel)
        with column:
            st.markdown(f"**{charts.PANELS[panel].capitalize()} panel**, 95 % Wilson intervals")
            height = 40 + frame["task_type"].nunique() * (14 + 14 * len(response.runs))
            st.altair_chart(charts.intervals(frame, height), alt=f"Final evaluation, {panel}")
    for panel in panels:
        st.markdown(f"**{charts.PANELS[panel].capitalize()} panel in numbers**")
        table = tables.compared_evaluations(response, panel)
        st.dataframe(table, hide_index=True, alt=f"Final evaluation, {panel}")


st.dataframe(
    tables.compared_runs(response.runs),
    hide_index=True,
    alt="The compared runs",
    placeholder="–",
    column_config={
        "success": ui.rate_column("success", "Newest success of the training rollouts"),
        "best success": ui.rate_column("best", "Best success of the training rollouts"),
        "seen": ui.rate_column("seen", "Newest evaluation"),
        "unseen": ui.rate_column("unseen", "Newest evaluation"),
        "test": ui.rate_column("test", "Newest evaluation"),
        "depth": ui.depth_column(),
    },
)
st.subheader("What differs")
differences = tables.config_differences(response)
if differences.empty:
    st.caption("Their configs are the same." if len(run_ids) > 1 else "One run has no differences.")
else:
    st.dataframe(
        differences,
        hide_index=True,
        alt="Config keys that differ",
        height=ui.table_height(differences),
    )
st.subheader("Curves")
_curves(response)
st.subheader("Newest evaluations")
_evaluations(response)
