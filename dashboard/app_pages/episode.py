"""One policy episode, all steps, with the roots of its branches: `?id=12-i5g0e3&step=4`."""

from __future__ import annotations

import math

import streamlit as st

from backend.schemas import BranchRef, StepInfo
from dashboard import data, ui
from dashboard.state import BranchesState, RunState, StepState, run_of
from dashboard.view import badges, format

state = StepState.parse(st.query_params.to_dict())
if state.id is None:
    st.title("Episode")
    st.info("No episode is chosen.", icon=":material/info:")
    ui.link("branches", "Search branches", BranchesState(), ":material/search:")
    st.stop()
permalink = state.id
episode = ui.load(lambda: data.episode(permalink), f"Episode {permalink}")
run_id = run_of(permalink)

ui.breadcrumb(
    [
        ("runs", "Runs", RunState()),
        ("run", f"run {run_id}", RunState(id=run_id)),
        f"episode {episode.episode_id}",
    ]
)
title = format.goal(episode.steps[0].observation) if episode.steps else None
title = title or format.task_type(episode.task.task_type)
st.header(format.plain(title[:1].upper() + title[1:]))
with st.container(horizontal=True, vertical_alignment="center"):
    ui.badge(badges.episode(episode.is_won, episode.is_truncated))
    st.badge(f"{episode.num_steps} steps", color="gray")
    st.badge(f"score {format.number(episode.score, 2)}", color="gray")
    st.badge(f"reward {format.number(episode.reward, 1)}", color="gray")
    num_branches = len(episode.branches)
    plural = "" if num_branches == 1 else "es"
    st.badge(f"{num_branches} branch{plural}", color="green", icon=":material/alt_route:")
    st.caption(
        format.plain(
            f"{format.task_type(episode.task.task_type)} · {episode.task.split} · "
            f"iteration {episode.iteration} · group {episode.group_index}, member {episode.index}"
        ),
        width="content",
    )


def _step(step: StepInfo, roots: list[BranchRef]) -> None:
    """One step: number and marks, then observation and action, then links to its branches."""
    is_here = step.index == state.step and "step" in st.query_params
    with st.container(border=True):
        head, body = st.columns([1, 8])
        with head:
            arrow = ":material/arrow_right: " if is_here else ""
            st.markdown(f"{arrow}**step {step.index}**{' ◆' if roots else ''}")
            finite = [value for value in step.logprobs if value is not None]
            if finite:
                mean = math.fsum(finite) / len(finite)
                st.caption(f"logprob {mean:.2f}", help="Mean over the sampled tokens")
        with body:
            st.text(step.observation)
            _action(step, roots)


def _action(step: StepInfo, roots: list[BranchRef]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        shown = step.action or "(no action found)"
        st.markdown(f":orange[**→**] {format.code(shown)}", width="content")
        if not step.is_valid:
            st.badge("wrong format", color="red", icon=":material/error:")
        if not step.is_admissible:
            st.badge("not admissible", color="orange", icon=":material/block:")
        if step.reward:
            st.badge(f"reward {format.number(step.reward, 1)}", color="gray")
        with st.popover("Details", type="tertiary"):
            st.caption("Sampled answer")
            st.text(step.response)
            st.caption(f"Admissible actions ({len(step.admissible)})")
            st.text("\n".join(step.admissible))
        for ref in roots:
            label = f"Oracle branch: {badges.outcome(ref.outcome).label} in {ref.num_steps} steps"
            depth = format.number(ref.effective_depth)
            ui.link(
                "branch",
                f"{label}, effective depth {depth}",
                StepState(id=ref.id),
                ":material/alt_route:",
            )


for item in episode.steps:
    _step(item, [ref for ref in episode.branches if ref.root_index == item.index])
st.markdown("**Final observation**")
st.text(episode.final_observation)
