"""Runs: the table, live."""

from __future__ import annotations

from typing import cast, get_args

import streamlit as st

from backend.schemas import RunStatus
from dashboard import data, ui
from dashboard.state import CompareState, RunState
from dashboard.view import tables

PAGE_SIZE = 100
ANY = "any status"

with st.container(horizontal=True, vertical_alignment="bottom"):
    st.title("Runs", width="stretch")
    st.text_input(
        "Search",
        key="q",
        bind="query-params",
        type="search",
        placeholder="name, method, environment, preset",
        label_visibility="collapsed",
        width=300,
    )
    st.selectbox(
        "Status",
        [ANY, *get_args(RunStatus)],
        key="status",
        bind="query-params",
        label_visibility="collapsed",
        width=170,
    )
    st.page_link("app_pages/submit.py", label="New run", icon=":material/add_circle:")

st.session_state.setdefault("runs_limit", PAGE_SIZE)


@st.fragment(run_every="2s")
def live_table() -> None:
    """The only live part of the page."""
    status = st.session_state["status"]
    search = st.session_state["q"] or None
    chosen = None if status == ANY else cast(RunStatus, status)
    limit = st.session_state["runs_limit"]
    fetched = ui.fetch(lambda: data.runs(limit, chosen, search), "the runs")
    page = fetched.value
    if page.num_total == 0:
        _empty()
        return
    frame = tables.runs(page.items, ui.now())
    if frame.empty:
        st.info("No run matches.", icon=":material/filter_alt_off:")
        return
    frame.insert(0, "open", ":material/arrow_forward: Open")
    selection = st.dataframe(
        frame,
        key="runs_table",
        hide_index=True,
        on_select="rerun",
        selection_mode="multi-row",
        height=ui.table_height(frame),
        placeholder="–",
        alt="Runs, newest first",
        column_config={
            "open": ui.open_column("runs_open"),
            "name": st.column_config.TextColumn("name", width=140),
            "progress": st.column_config.ProgressColumn(
                "progress", format="percent", min_value=0, max_value=1, width=104
            ),
            "iteration": st.column_config.TextColumn("iteration", width=76),
            "success": ui.rate_column("success", "Success of the training rollouts, newest"),
            "seen": ui.rate_column("seen", "Success on the seen panel, newest"),
            "unseen": ui.rate_column("unseen", "Success on the unseen panel, newest"),
            "test": ui.rate_column("test", "Success on WebShop's test panel, newest"),
            "depth": ui.depth_column(),
            "heartbeat": st.column_config.TextColumn(
                "heartbeat", help="Last sign of life of the run's worker", width=96
            ),
        },
    )
    row = ui.clicked_row("runs_open")
    if row is not None:
        ui.go("run", RunState(id=page.items[row].id))
    with st.container(horizontal=True, vertical_alignment="center"):
        _actions([page.items[index].id for index in selection["selection"]["rows"]])
        _footer(page.num_matching, page.num_total, len(page.items), fetched)


def _footer(matching: int, total: int, shown: int, fetched: data.Fetched) -> None:
    st.caption(ui.format.branches_shown(shown, matching, total, "runs"), width="content")
    ui.as_of(fetched.as_of)
    if shown < matching and st.button("Show more", type="tertiary"):
        st.session_state["runs_limit"] += PAGE_SIZE
        st.rerun(scope="fragment")


def _actions(selected: list[int]) -> None:
    if st.button(
        "Compare" if len(selected) < 2 else f"Compare {len(selected)} runs",
        disabled=len(selected) < 2,
        icon=":material/stacked_line_chart:",
        help="Tick two or more runs",
    ):
        ui.go("compare", CompareState(runs=tuple(sorted(selected))))


def _empty() -> None:
    with st.container(border=True):
        st.subheader("No run yet")
        st.markdown(
            "A run trains a policy with one config and one seed. Start one from the form, "
            "or from a terminal with `sero submit sero_demo`."
        )
        st.page_link("app_pages/submit.py", label="Submit a run", icon=":material/add_circle:")


live_table()
