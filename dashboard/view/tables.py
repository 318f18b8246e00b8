"""API models as data frames for `st.dataframe`. Ids stay in the frame; the pages link by them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import pandas as pd

from backend.schemas import (
    BranchSummary,
    CheckpointInfo,
    CompareResponse,
    EpisodeSummary,
    EvaluationInfo,
    JobInfo,
    RunSummary,
    WorkerInfo,
)
from dashboard.view import badges, charts, format

BUSY = ("running", "stopping")


def runs(items: Sequence[RunSummary], now: datetime) -> pd.DataFrame:
    """The run table, newest first as given."""
    frame = pd.DataFrame(
        {
            "run": f"#{run.id}",
            "name": run.name,
            "status": badges.state(run.status).cell,
            "progress": round((run.iteration or 0) / run.num_iterations, 2),
            "iteration": format.progress(run),
            "success": _percent(run.success),
            "seen": _percent(run.eval_valid_seen),
            "unseen": _percent(run.eval_valid_unseen),
            "test": _percent(run.eval_test),
            "depth": run.effective_depth,
            "heartbeat": format.age(run.heartbeat_at, now) if run.status in BUSY else None,
            "method": run.method,
            "seed": run.seed,
            "branches": run.num_branches,
            "submitted": format.age(run.created_at, now),
        }
        for run in items
    )
    return frame.drop(columns=_other_panels(items), errors="ignore")


def branches(items: Sequence[BranchSummary]) -> pd.DataFrame:
    """The branch table. `weights` is drawn as a small curve, not finite counts as 0 there."""
    return pd.DataFrame(
        {
            "branch": branch.branch_id,
            "run": f"#{branch.run_id}",
            "iteration": branch.iteration,
            "task": format.task_type(branch.task.task_type),
            "split": branch.task.split,
            "oracle": badges.outcome(branch.outcome).cell,
            "policy": badges.episode(branch.is_episode_won).cell,
            "root": branch.root_index,
            "steps": branch.num_steps,
            "depth": branch.effective_depth,
            "weights": [weight or 0.0 for weight in branch.weights],
            "final": branch.weights[-1] if branch.weights else None,
        }
        for branch in items
    )


def episodes(items: Sequence[EpisodeSummary]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "episode": episode.episode_id,
            "iteration": episode.iteration,
            "task": format.task_type(episode.task.task_type),
            "split": episode.task.split,
            "outcome": badges.episode(episode.is_won, episode.is_truncated).cell,
            "score": episode.score,
            "reward": episode.reward,
            "steps": episode.num_steps,
            "branches": episode.num_branches,
        }
        for episode in items
    )


def checkpoints(items: Sequence[CheckpointInfo], now: datetime) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "iteration": item.iteration,
            "size": format.byte_size(item.num_bytes),
            "weights (SHA-256)": item.weights_hash[:16],
            "written": format.age(item.created_at, now),
            "path": item.path,
        }
        for item in items
    )


def evaluation(items: Sequence[EvaluationInfo]) -> pd.DataFrame:
    """Newest evaluation of each panel: a row per task type, `rate (low–high)` and counts."""
    newest = {item.panel: item for item in sorted(items, key=lambda item: item.iteration)}
    cells: dict[str, dict[str, str]] = {}
    for panel, item in newest.items():
        name = charts.PANELS.get(panel, panel)
        for result in item.results:
            row = cells.setdefault(result.task_type, {})
            row[f"{name}: success (95 %)"] = format.interval(result.rate, result.low, result.high)
            row[f"{name}: won"] = f"{result.num_won} / {result.num_episodes}"
            if result.mean_score != result.rate:
                row[f"{name}: score"] = format.percent(result.mean_score)
            row[f"{name}: steps"] = format.number(result.mean_steps, 1)
    ordered = sorted(cells, key=_type_rank)
    table = pd.DataFrame({"task type": format.task_type(kind), **cells[kind]} for kind in ordered)
    return table.fillna("–")


def conditions(items: Sequence[EvaluationInfo]) -> pd.DataFrame:
    """What the newest evaluation of each panel was measured under: a row per condition."""
    newest = {item.panel: item for item in sorted(items, key=lambda item: item.iteration)}
    cells: dict[str, dict[str, str]] = {}
    for panel, item in newest.items():
        name = charts.PANELS.get(panel, panel)
        found = item.conditions.model_dump() if item.conditions else {}
        rows = {"macro": format.percent(item.macro_rate), "panel hash": item.panel_hash, **found}
        for key, value in rows.items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            cells.setdefault(key.replace("_", " "), {})[name] = text
    return pd.DataFrame({"condition": key, **row} for key, row in cells.items()).fillna("–")


def interval_frame(response: CompareResponse, panel: str) -> pd.DataFrame:
    """Rows for `charts.intervals`: the newest evaluation of every compared run on one panel."""
    labels = {run.id: format.run_label(run) for run in response.runs}
    rows = [
        {
            "series": labels[item.run_id],
            "task_type": format.task_type(result.task_type),
            "rate": result.rate,
            "low": result.low,
            "high": result.high,
            "count": f"{result.num_won} of {result.num_episodes}",
            "rank": _type_rank(result.task_type),
        }
        for item in response.evaluations
        if item.panel == panel
        for result in item.results
    ]
    columns = ["series", "task_type", "rate", "low", "high", "count", "rank"]
    return pd.DataFrame(rows, columns=columns).sort_values("rank", kind="stable")


def compared_evaluations(response: CompareResponse, panel: str) -> pd.DataFrame:
    """Runs as rows, task types as columns: `rate (low–high)`, with the iteration and the count."""
    rows: list[dict[str, str]] = []
    for run in response.runs:
        items = [e for e in response.evaluations if e.run_id == run.id and e.panel == panel]
        for item in items:
            results = sorted(item.results, key=lambda result: _type_rank(result.task_type))
            total = max((result.num_episodes for result in results), default=0)
            row = {"run": format.run_label(run), "at": f"iteration {item.iteration}"}
            row["tasks"] = str(total)
            for result in results:
                text = format.interval(result.rate, result.low, result.high)
                row[format.task_type(result.task_type)] = text
            rows.append(row)
    return pd.DataFrame(rows).fillna("–")


def config_differences(response: CompareResponse) -> pd.DataFrame:
    """Keys as rows, runs as columns; `(absent)` where a run does not have the key.

    A section that one run has and another has not is shown by its keys alone.
    """
    keys = [difference.key for difference in response.config_differences]
    rows: list[dict[str, str]] = []
    for difference in response.config_differences:
        if any(key.startswith(f"{difference.key}.") for key in keys):
            continue
        given = difference.values
        row = {"config key": difference.key}
        for run in response.runs:
            row[format.run_label(run)] = _cell(given[run.id]) if run.id in given else "(absent)"
        rows.append(row)
    return pd.DataFrame(rows)


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def compared_runs(items: Sequence[RunSummary]) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "run": format.run_label(run),
            "status": badges.state(run.status).cell,
            "method": run.method,
            "iteration": format.progress(run),
            "success": _percent(run.success),
            "best success": _percent(run.best_success),
            "seen": _percent(run.eval_valid_seen),
            "unseen": _percent(run.eval_valid_unseen),
            "test": _percent(run.eval_test),
            "depth": run.effective_depth,
        }
        for run in items
    )
    return frame.drop(columns=_other_panels(items), errors="ignore")


def _other_panels(items: Sequence[RunSummary]) -> list[str]:
    """Columns of panels that none of the environments of these runs has."""
    shown = {run.env for run in items}
    if "webshop" not in shown:
        return ["test"]
    return [] if len(shown) > 1 else ["seen", "unseen"]


def jobs(items: Sequence[JobInfo], now: datetime) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "job": job.id,
            "run": f"#{job.run_id} {job.run_name}",
            "kind": job.kind,
            "state": badges.state(
                "stopping" if job.is_cancel_requested and job.state == "running" else job.state
            ).cell,
            "attempt": f"{job.attempt} of {job.max_attempts}",
            "worker": job.worker_id or "",
            "heartbeat": format.age(job.heartbeat_at, now) if job.state == "running" else "",
            "waiting / running": format.duration(
                ((job.finished_at or now) - (job.started_at or job.created_at)).total_seconds()
            ),
            "reason": job.reason or "",
        }
        for job in items
    )


def workers(items: Sequence[WorkerInfo], now: datetime) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "worker": worker.id,
            "alive": "✓ alive" if worker.is_alive else "✗ silent",
            "host": worker.host,
            "pid": worker.pid,
            "jobs": ", ".join(str(job_id) for job_id in worker.job_ids) or "idle",
            "heartbeat": format.age(worker.heartbeat_at, now),
            "up for": format.duration((now - worker.started_at).total_seconds()),
            "version": worker.version,
        }
        for worker in items
    )


def _percent(rate: float | None) -> float | None:
    return None if rate is None else 100 * rate


def _type_rank(kind: str) -> int:
    order = format.TASK_TYPE_ORDER
    return order.index(kind) if kind in order else len(order)
