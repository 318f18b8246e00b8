"""What runs wrote: curves, episodes, branches, evaluations, log."""

from __future__ import annotations

from collections.abc import Sequence

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
        run_id: int | None = None,
        iteration: int | None = None,
        min_iteration: int | None = None,
        max_iteration: int | None = None,
        task_type: str | None = None,
        split: str | None = None,
        outcome: s.Outcome | None = None,
        is_episode_won: bool | None = None,
        min_depth: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> s.BranchPage:
        """Newest iteration first. `min_depth`: at least that many branch steps."""
        params = {
            "run_id": run_id,
            "iteration": iteration,
            "min_iteration": min_iteration,
            "max_iteration": max_iteration,
            "task_type": task_type,
            "split": split,
            "outcome": outcome,
            "is_episode_won": is_episode_won,
            "min_depth": min_depth,
            "limit": limit,
            "cursor": cursor,
        }
        return self._get("/branches", s.BranchPage, params)

    def branch(self, branch_id: str) -> s.BranchDetail:
        """`branch_id` is the permalink `<run_id>-<branch_id>`."""
        return self._get(f"/branches/{branch_id}", s.BranchDetail)

    def depth_map(self, run_id: int, max_buckets: int = 60) -> s.DepthMapResponse:
        params = {"max_buckets": max_buckets}
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
