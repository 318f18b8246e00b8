"""The status line and the tabs of the run page. Each tab is one function of the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import streamlit as st

from backend.schemas import MetricsResponse, RunDetail
from dashboard import browse, data, ui
from dashboard.state import BranchesState, StepState, Tab
from dashboard.view import charts, format, series, tables, toml

LOSSES = {"train/loss": "policy loss", "sero/oracle_loss": "oracle loss", "train/kl": "KL"}
TIMES = {
    "time/rollout_s": "rollout",
    "time/branch_s": "branches",
    "time/update_s": "update",
    "time/eval_s": "evaluation",
}
HEALTH = {
    "rollout/valid": "valid format",
    "rollout/admissible": "admissible action",
    "sero/agreement": "probe agrees with oracle",
    "sero/branch_success": "oracle branches won",
}
NUMERICS = {
    "First ratio": {
        "numerics/ratio_first_max": "largest distance from 1",
        "numerics/engine_gap_max": "largest engine/trainer gap",
    },
    "Outside of the clip band": {
        "numerics/outside_clip": "all minibatches",
        "numerics/outside_clip_first": "first minibatch",
        "numerics/rejected": "rejected tokens",
    },
    "Gradient norm by term": {
        "numerics/grad_norm_policy": "policy",
        "numerics/grad_norm_kl": "KL",
        "numerics/grad_norm_entropy": "entropy",
        "numerics/grad_norm_oracle": "oracle",
    },
    "Importance weights": {
        "numerics/is_weight_mean": "mean",
        "numerics/is_effective_size": "effective size",
        "numerics/is_share_cut": "share cut",
    },
    "Masked tokens": {
        "numerics/masked_tokens": "tokens outside of the loss",
        "numerics/masked_grad_max": "their largest gradient",
    },
}
"""docs/numerics.md says what each should be."""
LOG_LINES = 400


def status(run: RunDetail, as_of: datetime) -> None:
    """State, sign of life, and the newest numbers."""
    ui.run_header_badges(run, as_of)
    if run.reason and run.status in ("failed", "cancelled", "skipped"):
        st.warning(format.plain(run.reason), icon=":material/info:")
    columns = st.columns(6)
    columns[0].metric("iteration", format.progress(run))
    columns[1].metric("rollout success", format.percent(run.success))
    panels = {"seen": run.eval_valid_seen, "unseen": run.eval_valid_unseen}
    if run.env == "webshop":
        panels = {"test": run.eval_test, "best test": run.best_eval_test}
    for column, (name, rate) in zip(columns[2:4], panels.items(), strict=True):
        column.metric(name, format.percent(rate), help="Success at evaluation")
    columns[4].metric(
        "effective depth",
        format.number(run.effective_depth),
        help="Mean over branches of the sum of reachability weights",
    )
    columns[5].metric("branches", f"{run.num_branches:,}")


def curves(run: RunDetail) -> None:
    """Success with evaluations, effective depth, weights, losses, times."""
    response = ui.load(lambda: data.metrics(run.id), "the curves")
    if not response.series:
        st.info("No iteration has been logged yet.", icon=":material/hourglass_empty:")
        return
    evaluations = ui.load(lambda: data.evaluations(run.id), "the evaluations").evaluations
    rollout = series.frame(response, {"rollout/success": "training rollouts"})
    frame = charts.evaluation_frame(evaluations)
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Success** · bars are 95 % Wilson intervals")
        st.altair_chart(charts.success(rollout, frame), alt="Success rate over iterations")
    with right:
        _depth_map(run)
    row = st.columns(3, gap="large")
    with row[0]:
        _chart(response, {"sero/effective_depth": "effective depth"}, "Effective depth")
        _chart(response, HEALTH, "Behavior", is_rate=True)
    with row[1]:
        _chart(response, LOSSES, "Losses")
        _chart(response, {"train/entropy": "entropy", "train/grad_norm": "gradient norm"}, "Policy")
    with row[2]:
        _chart(response, TIMES, "Seconds per iteration")
        _chart(response, {"rollout/steps": "steps per episode"}, "Episode length")
    _numerics(response)
    lost = series.num_not_finite(response, [item.key for item in response.series])
    if lost:
        st.warning(f"{lost} logged values are NaN or infinite and are not drawn.")


def _numerics(response: MetricsResponse) -> None:
    """Whether the arithmetic can be trusted, apart from what was learnt."""
    logged = {item.key for item in response.series}
    if not any(key.startswith("numerics/") for key in logged):
        return
    with st.expander("**Numerics** · ratios, engine gap, masks, gradient norms by term"):
        columns = st.columns(3, gap="large")
        for number, (title, keys) in enumerate(NUMERICS.items()):
            with columns[number % 3]:
                _chart(response, keys, title)


def _depth_map(run: RunDetail) -> None:
    depths = ui.load(lambda: data.depth_map(run.id), "the depth map")
    st.markdown("**Reachability weight by depth** · paler = fewer branch steps")
    if not depths.cells:
        with st.container(height=300, border=True):
            st.caption("This run has no oracle branches." if run.method != "sero" else "None yet.")
        return
    st.altair_chart(charts.weight_heatmap(depths, 300), alt="Mean weight by iteration and depth")


def _chart(
    response: MetricsResponse, keys: dict[str, str], title: str, is_rate: bool = False
) -> None:
    frame = series.frame(response, keys)
    if frame.empty:
        return
    st.markdown(f"**{title}**")
    several = frame["series"].nunique() > 1
    y_format = charts.RATE if is_rate else ".6~g"
    chart = charts.curves(frame, y_title="", y_format=y_format, is_rate=is_rate, legend=several)
    st.altair_chart(chart, alt=f"{title} over iterations")


def evaluations(run: RunDetail) -> None:
    """The newest table per panel, and every evaluation so far."""
    found = ui.load(lambda: data.evaluations(run.id), "the evaluations").evaluations
    if not found:
        st.info("No evaluation has been logged yet.", icon=":material/hourglass_empty:")
        return
    newest = max(item.iteration for item in found)
    st.markdown(f"**Newest evaluation** (iteration {newest}), 95 % Wilson intervals")
    st.table(tables.evaluation(found), border="horizontal", hide_index=True)
    with st.expander("Conditions of the newest evaluation"):
        st.table(tables.conditions(found), border="horizontal", hide_index=True)
    kinds = sorted({result.task_type for item in found for result in item.results})
    kind = st.selectbox(
        "Over iterations", kinds, format_func=format.task_type, key="eval_type", width=240
    )
    empty = charts.evaluation_frame(())
    empty = empty.rename_axis(None)[["series", "x", "value", "low", "high"]]
    st.altair_chart(
        charts.success(empty, charts.evaluation_frame(found, kind)), alt=f"Evaluations of {kind}"
    )


def branches(run: RunDetail) -> None:
    """The newest branches of the run; the full search is a page of its own."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Newest iteration first.", width="stretch")
        ui.link("branches", "Search and filter", BranchesState(run=run.id), ":material/search:")
    browse.branch_table(BranchesState(run=run.id), "run_branches")


def episodes(run: RunDetail) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        iteration = st.number_input(
            "Iteration",
            value=None,
            min_value=0,
            key="iteration",
            bind="query-params",
            width=160,
            placeholder="all",
        )
        won = st.segmented_control(
            "Outcome",
            ["all", "won", "lost"],
            default="all",
            key="won",
            bind="query-params",
            required=True,
        )
    is_won = {"won": True, "lost": False}.get(str(won))
    page = ui.load(
        lambda: data.episodes(run.id, iteration, is_won, browse.PAGE_SIZE, None), "the episodes"
    )
    frame = tables.episodes(page.items)
    if frame.empty:
        st.info("No episode matches.", icon=":material/filter_alt_off:")
        return
    frame.insert(0, "open", ":material/arrow_forward: Open")
    st.dataframe(
        frame,
        hide_index=True,
        key="run_episodes",
        alt="Episodes",
        column_config={"open": ui.open_column("episode_open")},
    )
    shown = format.branches_shown(len(page.items), page.num_matching, page.num_total, "episodes")
    st.caption(shown)
    row = ui.clicked_row("episode_open")
    if row is not None:
        ui.go("episode", StepState(id=page.items[row].id))


def checkpoints(run: RunDetail) -> None:
    found = ui.load(lambda: data.checkpoints(run.id), "the checkpoints").checkpoints
    if not found:
        st.info("No checkpoint yet.", icon=":material/hourglass_empty:")
        return
    st.dataframe(tables.checkpoints(found, ui.now()), hide_index=True, alt="Checkpoints")


def log(run: RunDetail) -> None:
    """The tail of the child's log, and what happened to the run."""
    response = ui.load(lambda: data.log(run.id, LOG_LINES), "the log")
    left, right = st.columns([2, 1], gap="large")
    with left:
        older = f" · {response.num_skipped:,} older lines left out" if response.num_skipped else ""
        st.markdown(f"**Log** · newest {len(response.lines)} lines{older}")
        lines = "\n".join(line.text for line in response.lines)
        with st.container(height=560, border=True, autoscroll=True):
            st.code(lines or "(nothing yet)", language=None)
    with right:
        st.markdown("**Events**")
        events = ui.load(lambda: data.events(run.id), "the events").events
        with st.container(height=560, border=True):
            for event in reversed(events):
                text = f"`{format.clock(event.created_at)}` **{format.plain(event.kind)}**"
                st.markdown(f"{text}  \n{format.plain(event.message)}")


def config(run: RunDetail) -> None:
    st.code(toml.dumps(run.config), language="toml")


TABS: dict[Tab, Callable[[RunDetail], None]] = {
    "Curves": curves,
    "Evaluations": evaluations,
    "Branches": branches,
    "Episodes": episodes,
    "Checkpoints": checkpoints,
    "Log": log,
    "Config": config,
}
