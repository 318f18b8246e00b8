"""One oracle branch, step by step: `?id=12-i5g0e3t4&step=3` (0 = root, below 0 = before it)."""

from __future__ import annotations

import streamlit as st

from dashboard import data, ui
from dashboard.components.branch_stepper import branch_stepper
from dashboard.state import BranchesState, RunState, StepState
from dashboard.view import format
from dashboard.view.branch import stepper_data

state = StepState.parse(st.query_params.to_dict())
if state.id is None:
    st.title("Branch")
    st.info("No branch is chosen.", icon=":material/info:")
    ui.link("branches", "Search branches", BranchesState(), ":material/search:")
    st.stop()
permalink = state.id
branch = ui.load(lambda: data.branch(permalink), f"Branch {permalink}")
episode = branch.episode

ui.breadcrumb(
    [
        ("runs", "Runs", RunState()),
        ("run", f"#{branch.run_id} {format.plain(branch.run_name)}", RunState(id=branch.run_id)),
        (
            "branches",
            f"iteration {branch.iteration}",
            BranchesState(
                run=branch.run_id, from_iteration=branch.iteration, to_iteration=branch.iteration
            ),
        ),
        f"episode {branch.episode_id}"
        if episode is None
        else (
            "episode",
            f"episode {branch.episode_id}",
            StepState(id=episode.id, step=branch.root_index),
        ),
        f"branch {branch.branch_id}",
    ]
)
first = episode.steps[0].observation if episode is not None and episode.steps else ""
title = format.goal(first) or format.task_type(branch.task.task_type)
st.header(format.plain(title[:1].upper() + title[1:]))
st.caption(
    format.plain(
        f"{format.task_type(branch.task.task_type)} · {branch.task.split} · {branch.task.task_id}"
    )
)
other = branch_stepper(stepper_data(branch), key=f"stepper-{permalink}")
if other is not None:
    ui.go("branch", StepState(id=other))
