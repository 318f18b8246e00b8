"""Jobs, workers, tokens, health."""

from __future__ import annotations

from backend import schemas as s
from backend.client.http import Http


class OperationCalls(Http):
    """See the routes of the same names in docs/api.md."""

    def create_job(
        self, run_id: int, request: s.JobRequest, idempotency_key: str | None = None
    ) -> s.JobInfo:
        """Queue a job on a checkpoint or on stored rows of the run."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self._post(f"/runs/{run_id}/jobs", s.JobInfo, request, headers)

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
