"""Jobs, workers and the health of the services, live."""

from __future__ import annotations

from typing import cast, get_args

import streamlit as st

from backend.schemas import ComponentHealth, JobState
from dashboard import data, ui
from dashboard.state import RunState
from dashboard.view import tables

ANY = "any state"

with st.container(horizontal=True, vertical_alignment="bottom"):
    st.title("Queue", width="stretch")
    st.selectbox(
        "State",
        [ANY, *get_args(JobState)],
        key="state",
        bind="query-params",
        label_visibility="collapsed",
        width=170,
    )


def _component(name: str, health: ComponentHealth) -> None:
    icon = ":material/check_circle:" if health.is_ok else ":material/error:"
    color = "green" if health.is_ok else "red"
    with st.container(border=True, height="stretch"):
        st.badge(name, color=color, icon=icon)
        st.caption(ui.format.plain(health.message))


@st.fragment(run_every="2s")
def live() -> None:
    """The only live part of the page."""
    fetched = ui.fetch(data.health, "the health of the services")
    health = fetched.value
    columns = st.columns(5)
    for column, (name, item) in zip(
        columns[:3],
        {"database": health.database, "broker": health.broker, "workers": health.workers}.items(),
        strict=True,
    ):
        with column:
            _component(name, item)
    columns[3].metric("jobs running", health.num_jobs_running, border=True, height="stretch")
    columns[4].metric("jobs waiting", health.num_jobs_queued, border=True, height="stretch")
    st.subheader("Jobs")
    state = st.session_state["state"]
    chosen = None if state == ANY else cast(JobState, state)
    jobs = ui.load(lambda: data.jobs(chosen), "the jobs").items
    if jobs:
        frame = tables.jobs(jobs, ui.now())
        frame.insert(0, "open", ":material/arrow_forward: Run")
        st.dataframe(
            frame,
            hide_index=True,
            key="jobs_table",
            alt="Jobs in the order of the queue",
            height=ui.table_height(frame),
            placeholder="–",
            column_config={"open": ui.open_column("jobs_open")},
        )
        row = ui.clicked_row("jobs_open")
        if row is not None:
            ui.go("run", RunState(id=jobs[row].run_id))
    else:
        st.caption("No job here.")
    st.subheader("Workers")
    workers = ui.load(data.workers, "the workers").workers
    if workers:
        st.dataframe(tables.workers(workers, ui.now()), hide_index=True, alt="Workers")
    else:
        st.warning("No worker has ever reported. Start one with `sero up`.")
    ui.as_of(fetched.as_of)


live()
