"""What runs wrote: curves, episodes, branches, evaluations, log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from backend import schemas as s
from backend.client.http import Http, Params


class RecordCalls(Http):
    """See the routes of the same names in docs/api.md."""

    def metrics(
        self,
        run_id: int,
        keys: Sequence[str] | None = None,
        *,
        max_points: int = 500,
        since: int | None = None,
    ) -> s.MetricsResponse:
        """Curves, at most `max_points` buckets each; `since`: only iterations after this one."""
        params: Params = {
            "keys": None if keys is None else ",".join(keys),
            "max_points": max_points,
            "since": since,
        }
        return self._get(f"/runs/{run_id}/metrics", s.MetricsResponse, params)

    def metric_keys(self, run_id: int) -> s.MetricKeysResponse:
        return self._get(f"/runs/{run_id}/metric-keys", s.MetricKeysResponse)

    def events(self, run_id: int, since: int = 0, limit: int = 500) -> s.EventsResponse:
        params = {"since": since, "limit": limit}
        return self._get(f"/runs/{run_id}/events", s.EventsResponse, params)

    def log(self, run_id: int, since: int | None = None, limit: int = 1000) -> s.LogResponse:
        """`since` = None: the newest `limit` lines; else the lines after that id."""
        params = {"since": since, "limit": limit}
        return self._get(f"/runs/{run_id}/log", s.LogResponse, params)

    def episodes(
        self,
        run_id: int,
        *,
        iteration: int | None = None,
        task_type: str | None = None,
        is_won: bool | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> s.EpisodePage:
        params = {
            "iteration": iteration,
            "task_type": task_type,
            "is_won": is_won,
            "limit": limit,
            "cursor": cursor,
        }
        return self._get(f"/runs/{run_id}/episodes", s.EpisodePage, params)

    def episode(self, episode_id: str) -> s.EpisodeDetail:
        """`episode_id` is the permalink `<run_id>-<episode_id>`."""
        return self._get(f"/episodes/{episode_id}", s.EpisodeDetail)

    def branches(
        self,
        *,
        run_id: int | Sequence[int] | None = None,
        job_id: int | None = None,
        iteration: int | None = None,
        min_iteration: int | None = None,
        max_iteration: int | None = None,
        task_type: str | Sequence[str] | None = None,
        task_id: str | None = None,
        split: str | None = None,
        oracle: str | None = None,
        outcome: s.Outcome | Sequence[s.Outcome] | None = None,
        is_episode_won: bool | None = None,
        differs_at_root: bool | None = None,
        min_depth: int | None = None,
        min_effective_depth: float | None = None,
        max_effective_depth: float | None = None,
        weight_depth: int | None = None,
        min_weight: float | None = None,
        max_weight: float | None = None,
        q: str | None = None,
        observation: str | None = None,
        sort: s.BranchSort = "newest",
        facets: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> s.BranchPage:
        """Newest iteration first. `min_depth`: at least that many branch steps. `min_weight`,
        `max_weight`: at depth `weight_depth`, else of the last step. `q`: words of actions, task
        or reason."""
        params: Params = {
            "run_id": _joined(run_id),
            "job_id": job_id,
            "iteration": iteration,
            "min_iteration": min_iteration,
            "max_iteration": max_iteration,
            "task_type": _joined(task_type),
            "task_id": task_id,
            "split": split,
            "oracle": oracle,
            "outcome": _joined(outcome),
            "is_episode_won": is_episode_won,
            "differs_at_root": differs_at_root,
            "min_depth": min_depth,
            "min_effective_depth": min_effective_depth,
            "max_effective_depth": max_effective_depth,
            "weight_depth": weight_depth,
            "min_weight": min_weight,
            "max_weight": max_weight,
            "q": q,
            "observation": observation,
            "sort": None if sort == "newest" else sort,
            "facets": facets or None,
            "limit": limit,
            "cursor": cursor,
        }
        return self._get("/branches", s.BranchPage, params)

    def rescores(self, branch_id: str) -> s.RescoresResponse:
        """The branch under other checkpoints of its run."""
        return self._get(f"/branches/{branch_id}/rescores", s.RescoresResponse)

    def branch(self, branch_id: str) -> s.BranchDetail:
        """`branch_id` is the permalink `<run_id>-<branch_id>`."""
        return self._get(f"/branches/{branch_id}", s.BranchDetail)

    def depth_map(
        self,
        run_id: int,
        max_buckets: int = 60,
        *,
        task_type: str | None = None,
        quantiles: bool = False,
    ) -> s.DepthMapResponse:
        params = {
            "max_buckets": max_buckets,
            "task_type": task_type,
            "quantiles": quantiles or None,
        }
        return self._get(f"/runs/{run_id}/depth-map", s.DepthMapResponse, params)

    def evaluations(self, run_id: int, *, outcomes: bool = False) -> s.EvaluationsResponse:
        """Oldest first; `outcomes`: with every task's result."""
        params = {"outcomes": outcomes}
        return self._get(f"/runs/{run_id}/evaluations", s.EvaluationsResponse, params)

    def checkpoints(self, run_id: int) -> s.CheckpointsResponse:
        return self._get(f"/runs/{run_id}/checkpoints", s.CheckpointsResponse)

    def compare(self, run_ids: Sequence[int]) -> s.CompareResponse:
        params = {"runs": ",".join(str(run_id) for run_id in run_ids)}
        return self._get("/compare", s.CompareResponse, params)

    def export_table(
        self, run_id: int, table: str, target: Path, kind: Literal["parquet", "csv", "jsonl"]
    ) -> int:
        """Write all rows of a table of the run to a file; returns its bytes."""
        return self._download(f"/runs/{run_id}/tables/{table}", {"format": kind}, target)

    def download_result(self, job_id: int, target: Path) -> int:
        """Write the archive of an export job to a file; returns its bytes."""
        return self._download(f"/jobs/{job_id}/result", {}, target)

    def curves(
        self,
        run_ids: Sequence[int],
        keys: Sequence[str],
        *,
        axis: s.Axis = "iteration",
        max_points: int = 500,
        since: int | None = None,
    ) -> s.CurvesResponse:
        """Curves of several runs on one axis."""
        params: Params = {
            "runs": _joined(run_ids),
            "keys": ",".join(keys),
            "axis": axis,
            "max_points": max_points,
            "since": since,
        }
        return self._get("/curves", s.CurvesResponse, params)

    def diff_configs(self, before: int, after: int) -> s.ConfigDiffResponse:
        params = {"before": before, "after": after}
        return self._get("/compare/config", s.ConfigDiffResponse, params)

    def compare_tasks(
        self,
        a: Sequence[int],
        b: Sequence[int],
        *,
        panel: str = "valid_unseen",
        iteration: int | None = None,
        limit: int = 500,
    ) -> s.PairedResponse:
        """Two sides of runs, task by task: B minus A."""
        params: Params = {
            "a": _joined(a),
            "b": _joined(b),
            "panel": panel,
            "iteration": iteration,
            "limit": limit,
        }
        return self._get("/compare/tasks", s.PairedResponse, params)


def _joined(value: str | int | Sequence[str] | Sequence[int] | None) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, str | int) else ",".join(str(part) for part in value)
