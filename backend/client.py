"""Typed Python client of the HTTP API.

    with SeroClient("http://127.0.0.1:8000") as client:
        run = client.submit_run(SubmitRequest(preset="sero_demo"), idempotency_key="my-key")
        for branch in client.branches(run_id=run.id).items: ...

Every method is one request. Only GET requests are retried (connection lost, 502, 503, 504); a
submit is made safe to repeat by its idempotency key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from backend import schemas as s

ModelT = TypeVar("ModelT", bound=BaseModel)
Params = Mapping[str, str | int | float | bool | Sequence[str] | None]

PREFIX = "/api/v1"
TIMEOUT = httpx.Timeout(10.0, connect=2.0)
DELETE_TIMEOUT_S = 600.0
RETRY_WAITS_S = (0.1, 0.5)
RETRY_STATUSES = frozenset({502, 503, 504})


class ApiError(Exception):
    """The API said no, or could not be reached (`status` = 0, code `unreachable`)."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        request_id: str = "",
        fields: Sequence[s.FieldError] = (),
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id
        self.fields = tuple(fields)
        details = "".join(
            f"\n  {field.field}: {field.message}"
            + (f" (allowed: {field.allowed})" if field.allowed else "")
            for field in self.fields
        )
        super().__init__(f"{message} [{status} {code}, request {request_id or '-'}]{details}")


class SeroClient:
    """All methods raise `ApiError`. `transport` lets tests speak to the app without a socket.

    `token` is the API token; None takes `$SERO_TOKEN`, empty sends none.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        transport: httpx.BaseTransport | None = None,
        token: str | None = None,
    ) -> None:
        token = os.environ.get("SERO_TOKEN", "") if token is None else token
        self._http = httpx.Client(
            base_url=base_url.rstrip("/") + PREFIX,
            timeout=TIMEOUT,
            transport=transport,
            headers={"Authorization": f"Bearer {token}"} if token else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # ---- runs

    def submit_run(
        self, request: s.SubmitRequest, idempotency_key: str | None = None
    ) -> s.RunDetail:
        """Queue a run. The same key with the same request returns the same run."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self._post("/runs", s.RunDetail, request, headers)

    def validate_run(self, request: s.SubmitRequest) -> s.ValidationResponse:
        """Dry run of `submit_run`: the config as it would run, or an `ApiError` with `fields`."""
        return self._post("/runs:validate", s.ValidationResponse, request)

    def config_schema(self) -> s.ConfigSchemaResponse:
        return self._get("/config/schema", s.ConfigSchemaResponse)

    def runs(
        self,
        *,
        status: s.RunStatus | None = None,
        search: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> s.RunPage:
        """Newest first. `search` matches name, method, env and preset."""
        params = {"status": status, "search": search, "limit": limit, "cursor": cursor}
        return self._get("/runs", s.RunPage, params)

    def run(self, run_id: int) -> s.RunDetail:
        return self._get(f"/runs/{run_id}", s.RunDetail)

    def stop_run(self, run_id: int) -> s.RunDetail:
        """A queued run ends at once; a running one writes a checkpoint first (`stopping`)."""
        return self._post(f"/runs/{run_id}/stop", s.RunDetail)

    def cancel_run(self, run_id: int) -> s.RunDetail:
        """A queued run ends at once; a running one is killed."""
        return self._post(f"/runs/{run_id}/cancel", s.RunDetail)

    def resume_run(self, run_id: int) -> s.RunDetail:
        """Go on from the newest checkpoint of a run that was stopped or failed."""
        return self._post(f"/runs/{run_id}/resume", s.RunDetail)

    def extend_run(self, run_id: int, num_iterations: int) -> s.RunDetail:
        """Train an ended run on, up to a new total of iterations."""
        request = s.ExtendRequest(num_iterations=num_iterations)
        return self._post(f"/runs/{run_id}/extend", s.RunDetail, request)

    def validate_sweep(self, request: s.SweepRequest) -> s.SweepPlan:
        """The runs that the sweep would make; nothing is queued."""
        return self._post("/sweeps:validate", s.SweepPlan, request)

    def submit_sweep(
        self, request: s.SweepRequest, idempotency_key: str | None = None
    ) -> s.SweepDetail:
        """Queue all runs of the sweep, or none."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self._post("/sweeps", s.SweepDetail, request, headers)

    def sweeps(self, limit: int = 50) -> s.SweepsResponse:
        return self._get("/sweeps", s.SweepsResponse, {"limit": limit})

    def sweep(self, sweep_id: int) -> s.SweepDetail:
        return self._get(f"/sweeps/{sweep_id}", s.SweepDetail)

    def stop_sweep(self, sweep_id: int) -> s.SweepDetail:
        """Running runs after a checkpoint, queued ones at once."""
        return self._post(f"/sweeps/{sweep_id}/stop", s.SweepDetail)

    def delete_run(self, run_id: int) -> s.DeletionReport:
        """For good: rows, texts, checkpoints, log. Refused while it runs."""
        return self._delete(f"/runs/{run_id}", s.DeletionReport)

    def delete_checkpoints(self, run_id: int, keep_newest: int = 1) -> s.DeletionReport:
        """Weights but the newest; every row stays."""
        path = f"/runs/{run_id}/checkpoints?keep_newest={keep_newest}"
        return self._delete(path, s.DeletionReport)

    def apply_retention(self, request: s.RetentionRequest) -> s.DeletionReport:
        return self._post("/retention", s.DeletionReport, request)

    def create_job(
        self, run_id: int, request: s.JobRequest, idempotency_key: str | None = None
    ) -> s.JobInfo:
        """Queue a job on a checkpoint or on stored rows of the run."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self._post(f"/runs/{run_id}/jobs", s.JobInfo, request, headers)

    # ---- what a run wrote

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

    # ---- operation

    def jobs(
        self,
        *,
        state: s.JobState | None = None,
        kind: s.JobKind | None = None,
        run_id: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> s.JobPage:
        """Running and waiting jobs first, in the order of the queue; then the newest ended ones."""
        params = {"state": state, "kind": kind, "run_id": run_id, "limit": limit, "cursor": cursor}
        return self._get("/jobs", s.JobPage, params)

    def job(self, job_id: int) -> s.JobInfo:
        return self._get(f"/jobs/{job_id}", s.JobInfo)

    def stop_job(self, job_id: int) -> s.JobInfo:
        return self._post(f"/jobs/{job_id}/stop", s.JobInfo)

    def cancel_job(self, job_id: int) -> s.JobInfo:
        return self._post(f"/jobs/{job_id}/cancel", s.JobInfo)

    def retry_job(self, job_id: int) -> s.JobInfo:
        return self._post(f"/jobs/{job_id}/retry", s.JobInfo)

    def set_priority(self, job_id: int, priority: int) -> s.JobInfo:
        """Larger is sooner."""
        request = s.PriorityRequest(priority=priority)
        return self._post(f"/jobs/{job_id}/priority", s.JobInfo, request)

    def move_job(self, job_id: int, before: int | None = None) -> s.JobInfo:
        """Right before another waiting job; None: to the front."""
        return self._post(f"/jobs/{job_id}/move", s.JobInfo, s.MoveRequest(before=before))

    def drain_worker(self, worker_id: str, *, is_draining: bool = True) -> s.WorkersResponse:
        verb = "drain" if is_draining else "undrain"
        return self._post(f"/workers/{worker_id}/{verb}", s.WorkersResponse)

    def workers(self) -> s.WorkersResponse:
        return self._get("/workers", s.WorkersResponse)

    def health(self) -> s.HealthResponse:
        """Answers also when something is down (`is_ok` says so)."""
        return self._get("/health", s.HealthResponse)

    # ---- tokens

    def whoami(self) -> s.IdentityInfo:
        """Whose token this client sends; `local` where the server asks for none."""
        return self._get("/whoami", s.IdentityInfo)

    def tokens(self) -> s.TokensResponse:
        return self._get("/tokens", s.TokensResponse)

    def create_token(self, request: s.TokenRequest) -> s.NewToken:
        """The answer is the only place where the token is ever shown."""
        return self._post("/tokens", s.NewToken, request)

    def revoke_token(self, token_id: str) -> None:
        response = self._http.delete(f"/tokens/{token_id}")
        if not response.is_success:
            self._parse(response, s.ErrorResponse)

    # ---- plumbing

    def _get(self, path: str, model: type[ModelT], params: Params | None = None) -> ModelT:
        given = {key: value for key, value in (params or {}).items() if value is not None}
        for wait_s in RETRY_WAITS_S:
            try:
                response = self._http.get(path, params=given)
            except httpx.TransportError:
                time.sleep(wait_s)
                continue
            if response.status_code not in RETRY_STATUSES:
                return self._parse(response, model)
            time.sleep(wait_s)
        return self._send(self._http.build_request("GET", path, params=given), model)

    def _post(
        self,
        path: str,
        model: type[ModelT],
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ModelT:
        content = None if body is None else body.model_dump(mode="json")
        return self._send(
            self._http.build_request("POST", path, json=content, headers=headers), model
        )

    def _delete(self, path: str, model: type[ModelT]) -> ModelT:
        return self._send(self._http.build_request("DELETE", path, timeout=DELETE_TIMEOUT_S), model)

    def _send(self, request: httpx.Request, model: type[ModelT]) -> ModelT:
        try:
            response = self._http.send(request)
        except httpx.TransportError as error:
            raise ApiError(
                0, "unreachable", f"{request.method} {request.url} failed: {error!r}"
            ) from error
        return self._parse(response, model)

    @staticmethod
    def _parse(response: httpx.Response, model: type[ModelT]) -> ModelT:
        if response.is_success:
            return model.model_validate_json(response.content)
        try:
            error = s.ErrorResponse.model_validate_json(response.content).error
        except ValidationError:
            text = response.text[:200]
            raise ApiError(response.status_code, "not_from_the_api", text) from None
        raise ApiError(
            response.status_code, error.code, error.message, error.request_id, error.fields
        )
