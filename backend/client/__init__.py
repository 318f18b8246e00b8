"""Typed Python client of the HTTP API.

    with SeroClient("http://127.0.0.1:8000") as client:
        run = client.submit_run(SubmitRequest(preset="sero_demo"), idempotency_key="my-key")
        for branch in client.branches(run_id=run.id).items: ...

Every method is one request. Only GET requests are retried (connection lost, 502, 503, 504); a
submit is made safe to repeat by its idempotency key.
"""

from backend.client.http import PREFIX, ApiError
from backend.client.jobs import OperationCalls
from backend.client.records import RecordCalls
from backend.client.runs import RunCalls

__all__ = ["PREFIX", "ApiError", "SeroClient"]


class SeroClient(RunCalls, RecordCalls, OperationCalls):
    """All methods raise `ApiError`; see `Http` for the arguments."""
