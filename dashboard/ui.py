"""Streamlit helpers that several pages share: errors, stamps, links, column settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar

import pandas as pd
import streamlit as st

from backend import schemas as s
from backend.client import ApiError
from dashboard.data import Fetched
from dashboard.state import State
from dashboard.view import badges, format

T = TypeVar("T")


def load(call: Callable[[], Fetched[T]], what: str) -> T:
    """The answer of the API. A stale one comes with a banner; without one the page stops here."""
    return fetch(call, what).value


def fetch(call: Callable[[], Fetched[T]], what: str) -> Fetched[T]:
    """As `load`, with the time of the answer."""
    try:
        fetched = call()
    except ApiError as error:
        show_error(error, what)
        st.stop()
    if fetched.error is not None:
        st.warning(
            f"The API does not answer. Showing {what} as of {format.clock(fetched.as_of)}.",
            icon=":material/cloud_off:",
        )
    return fetched


def show_error(error: ApiError, what: str) -> None:
    """One look for every error: what failed, why, the request id, and a way to try again."""
    if error.status == 404:
        st.error(f"{what} does not exist.", icon=":material/search_off:")
    elif error.status == 0:
        st.error(
            f"Cannot load {what}: the API does not answer. Is it running? (`sero up`)",
            icon=":material/cloud_off:",
        )
    else:
        st.error(f"Cannot load {what}: {format.plain(error.message)}", icon=":material/error:")
    for field in error.fields:
        allowed = f" (allowed: {format.plain(field.allowed)})" if field.allowed else ""
        st.markdown(f"- `{field.field}`: {format.plain(field.message)}{allowed}")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Try again", icon=":material/refresh:")
        if error.request_id:
            st.caption(f"request {error.request_id}")


def now() -> datetime:
    return datetime.now(UTC)


def as_of(moment: datetime) -> None:
    """The stamp that every live part carries."""
    st.caption(f"as of {format.clock(moment)}", width="content")


def badge(item: badges.Badge, help: str | None = None) -> None:
    st.badge(item.label, color=item.color, icon=item.icon, help=help)


def link(page: str, label: str, state: State, icon: str | None = None) -> None:
    """A link to a page in a given state."""
    st.page_link(f"app_pages/{page}.py", label=label, query_params=state.query(), icon=icon)


def go(page: str, state: State) -> None:
    """Leave for a page in a given state."""
    st.switch_page(f"app_pages/{page}.py", query_params=state.query())


def breadcrumb(items: Sequence[tuple[str, str, State] | str]) -> None:
    """Where we are: links, the last item plain text."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
        for index, item in enumerate(items):
            if index:
                st.caption("›", width="content")
            if isinstance(item, str):
                st.caption(item, width="content")
            else:
                page, label, state = item
                link(page, label, state)


def clicked_row(key: str) -> int | None:
    """The row whose button was clicked in this rerun (see `open_column`)."""
    click = st.session_state.get(key)
    return None if click is None else int(click["row"])


def rate_column(label: str, help: str) -> object:
    return st.column_config.NumberColumn(label, help=help, format="%.1f %%", width=74)


def weights_column() -> object:
    return st.column_config.BarChartColumn(
        "weights wₖ", help="Reachability weight by depth, 0 to 1", y_min=0, y_max=1, width=150
    )


def depth_column() -> object:
    return st.column_config.NumberColumn(
        "eff. depth",
        help="Effective depth, the sum of the weights: how many oracle steps' worth got through",
        format="%.2f",
        width=84,
    )


def table_height(frame: pd.DataFrame) -> int | Literal["content"]:
    """All rows up to twenty; longer tables scroll inside."""
    return "content" if len(frame) <= 20 else 720


def open_column(key: str) -> object:
    """A column of buttons; the frame's cells are the labels."""
    return st.column_config.ButtonColumn("", type="tertiary", key=key, width=72)


def run_header_badges(run: s.RunSummary, answered_at: datetime) -> None:
    """State, attempt, sign of life and ETA in one row."""
    moment = now()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        badge(badges.state(run.status), help=run.reason)
        st.badge(f"seed {run.seed}", color="gray")
        st.badge(run.method, color="gray")
        st.badge(run.env, color="gray")
        if run.preset:
            st.badge(f"preset {run.preset}", color="gray")
        if run.attempt > 1:
            st.badge(f"attempt {run.attempt}", color="orange", icon=":material/replay:")
        if badges.is_live(run.status) and run.heartbeat_at is not None:
            st.caption(f"last sign of life {format.age(run.heartbeat_at, moment)}", width="content")
        remaining = format.eta_s(run, moment)
        if remaining is not None:
            st.caption(f"about {format.duration(remaining)} left", width="content")
        st.caption(f"as of {format.clock(answered_at)}", width="content")
