"""Runs and sweeps: submit, follow, stop, delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backend import schemas as s
from backend.client.http import Http


class RunCalls(Http):
    """See the routes of the same names in docs/api.md."""

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

    def import_run(self, header: s.ImportHeader, lines: Iterable[bytes]) -> s.ImportReport:
        """Send a run that was trained elsewhere; `lines` are those of its records.jsonl."""

        def body() -> Iterator[bytes]:
            yield header.model_dump_json().encode() + b"\n"
            for line in lines:
                yield line if line.endswith(b"\n") else line + b"\n"

        return self._upload("/runs:import", s.ImportReport, body())

    def apply_retention(self, request: s.RetentionRequest) -> s.DeletionReport:
        return self._post("/retention", s.DeletionReport, request)
