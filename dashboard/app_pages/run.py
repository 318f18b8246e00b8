"""One run: state, curves, evaluations, branches, episodes, log. `?id=12&tab=Log`."""

from __future__ import annotations

import streamlit as st

from backend.client import ApiError
from backend.schemas import RunDetail
from dashboard import data, run_tabs, ui
from dashboard.state import RUN_TABS, CompareState, RunState
from dashboard.view import badges, format

state = RunState.parse(st.query_params.to_dict())
if state.id is None:
    st.title("Run")
    st.info("No run is chosen.", icon=":material/info:")
    st.page_link("app_pages/runs.py", label="All runs", icon=":material/table_rows:")
    st.stop()
run_id = state.id


@st.dialog("Cancel this run?")
def _cancel(run: RunDetail) -> None:
    st.markdown(
        "It stops after writing a checkpoint and is not continued. What it has logged stays."
        if run.status == "running"
        else "It has not started and will not."
    )
    with st.container(horizontal=True):
        if st.button("Cancel the run", type="primary", icon=":material/stop_circle:"):
            try:
                data.client().stop_run(run.id)
            except ApiError as error:
                ui.show_error(error, f"Run {run.id}")
                return
            data.store().forget()
            st.rerun()
        if st.button("Keep it"):
            st.rerun()


def _header(run: RunDetail) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.title(f"#{run.id} {format.plain(run.name)}", width="stretch")
        ui.link("submit", "Clone", _Clone(run.id), ":material/content_copy:")
        ui.link("compare", "Compare", CompareState(runs=(run.id,)), ":material/stacked_line_chart:")
        if run.status in ("queued", "running") and st.button(
            "Cancel", icon=":material/stop_circle:", key="cancel"
        ):
            _cancel(run)


class _Clone:
    """The submit page filled with this run's config."""

    def __init__(self, run_id: int) -> None:
        self._run_id = run_id

    def query(self) -> dict[str, str]:
        return {"from": str(self._run_id)}


first = ui.load(lambda: data.run(run_id), f"Run {run_id}")
ui.breadcrumb([("runs", "Runs", RunState()), f"run {run_id}"])
_header(first)


@st.fragment(run_every="2s" if badges.is_live(first.status) else None)
def live() -> None:
    """The only live part: status line, numbers, and the open tab."""
    fetched = ui.fetch(lambda: data.run(run_id), f"Run {run_id}")
    run = fetched.value
    run_tabs.status(run, fetched.as_of)
    tabs = st.tabs(list(RUN_TABS), key="tab", bind="query-params")
    for name, tab in zip(RUN_TABS, tabs, strict=True):
        if tab.open:
            with tab:
                run_tabs.TABS[name](run)
    if run.status != first.status:
        st.rerun()


live()
