"""Search of the oracle branches of all runs. Every filter is in the URL."""

from __future__ import annotations

from typing import get_args

import streamlit as st

from backend.schemas import Outcome
from dashboard import browse
from dashboard.state import BranchesState
from dashboard.view import format

ANY = "any"
CHIPS = {
    "policy failed, oracle won": BranchesState(policy="lost", outcome="won"),
    "oracle failed: dead end": BranchesState(outcome="dead_end"),
    "oracle failed: budget": BranchesState(outcome="budget"),
    "long branches (10 steps or more)": BranchesState(min_depth=10),
}
KEYS = ("run", "task", "outcome", "policy", "from_iteration", "to_iteration", "min_depth")


def _apply_chip() -> None:
    """Put a chip's filters into the widgets; the run stays."""
    chosen = CHIPS.get(str(st.session_state["chip"]))
    query = {} if chosen is None else chosen.query()
    for key in KEYS[1:]:
        numeric = key in ("from_iteration", "to_iteration", "min_depth")
        given = query.get(key)
        st.session_state[key] = (None if given is None else int(given)) if numeric else given or ANY


st.title("Branches")
st.caption("Oracle continuations from states that the policy visited.")
st.pills(
    "Presets",
    list(CHIPS),
    key="chip",
    on_change=_apply_chip,
    label_visibility="collapsed",
)
with st.container(horizontal=True, vertical_alignment="bottom"):
    labels = [format.task_type(name) for name in format.TASK_TYPE_ORDER if name != "all"]
    run = st.number_input(
        "Run",
        value=None,
        min_value=0,
        step=1,
        key="run",
        bind="query-params",
        width=110,
        placeholder="all",
    )
    task = st.selectbox("Task", [ANY, *labels], key="task", bind="query-params", width=140)
    outcome = st.selectbox(
        "Oracle", [ANY, *get_args(Outcome)], key="outcome", bind="query-params", width=170
    )
    policy = st.selectbox(
        "Policy", [ANY, "won", "lost"], key="policy", bind="query-params", width=110
    )
    first = st.number_input(
        "From iteration",
        value=None,
        min_value=0,
        step=1,
        key="from_iteration",
        bind="query-params",
        width=130,
    )
    last = st.number_input(
        "To iteration",
        value=None,
        min_value=0,
        step=1,
        key="to_iteration",
        bind="query-params",
        width=130,
    )
    depth = st.number_input(
        "Steps at least",
        value=None,
        min_value=0,
        step=1,
        key="min_depth",
        bind="query-params",
        width=130,
    )

browse.branch_table(
    BranchesState(
        run=run,
        task=None if task == ANY else task,
        outcome=None if outcome == ANY else outcome,
        policy="won" if policy == "won" else "lost" if policy == "lost" else "any",
        min_depth=depth,
        from_iteration=first,
        to_iteration=last,
    ),
    "search",
)
