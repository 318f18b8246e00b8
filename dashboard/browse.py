"""The branch table, shared by the run page and the branch search."""

from __future__ import annotations

import streamlit as st

from backend.schemas import BranchPage
from dashboard import data, ui
from dashboard.state import BranchesState, StepState
from dashboard.view import format, tables

PAGE_SIZE = 100


def branch_table(filters: BranchesState, key: str) -> None:
    """Branches that pass the filters, a page at a time, each row with a button that opens it."""
    trail = st.session_state.setdefault(f"{key}_trail", (filters, (None,)))
    if trail[0] != filters:
        trail = (filters, (None,))
        st.session_state[f"{key}_trail"] = trail
    cursors: tuple[str | None, ...] = trail[1]
    page = ui.load(lambda: data.branches(filters, PAGE_SIZE, cursors[-1]), "the branches")
    if not page.items:
        _nothing(page)
        return
    frame = tables.branches(page.items)
    if filters.run is not None:
        frame = frame.drop(columns="run")
    frame.insert(0, "open", ":material/arrow_forward: Open")
    st.dataframe(
        frame,
        key=f"{key}_table",
        hide_index=True,
        height=ui.table_height(frame),
        placeholder="–",
        alt="Oracle branches, newest iteration first",
        column_config={
            "open": ui.open_column(f"{key}_open"),
            "weights": ui.weights_column(),
            "depth": ui.depth_column(),
            "final": st.column_config.NumberColumn(
                "last weight", format="%.3f", help="Weight of the last branch step", width=90
            ),
            "oracle": st.column_config.TextColumn("oracle", help="How the branch ended"),
            "policy": st.column_config.TextColumn(
                "policy", help="How the policy's own episode ended"
            ),
            "root": st.column_config.NumberColumn("root step", width=84),
        },
    )
    row = ui.clicked_row(f"{key}_open")
    if row is not None:
        ui.go("branch", StepState(id=page.items[row].id))
    _pager(page, filters, cursors, key)


def _nothing(page: BranchPage) -> None:
    if page.num_total:
        st.info(
            f"No branch matches the filters ({page.num_total:,} in all).",
            icon=":material/filter_alt_off:",
        )
    else:
        st.info(
            "No branches yet. A run with a [sero] section writes them while it trains.",
            icon=":material/alt_route:",
        )


def _pager(
    page: BranchPage,
    filters: BranchesState,
    cursors: tuple[str | None, ...],
    key: str,
) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        text = format.branches_shown(len(page.items), page.num_matching, page.num_total, "branches")
        st.caption(f"{text}, page {len(cursors)}", width="content")
        if len(cursors) > 1 and st.button("Newer", key=f"{key}_newer", type="tertiary"):
            st.session_state[f"{key}_trail"] = (filters, cursors[:-1])
            st.rerun()
        if page.next_cursor is not None and st.button("Older", key=f"{key}_older", type="tertiary"):
            st.session_state[f"{key}_trail"] = (filters, (*cursors, page.next_cursor))
            st.rerun()
