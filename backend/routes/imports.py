"""Bringing in a run that was trained elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

from anyio import open_file
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request

from backend import schemas as s
from backend.db.queries.quotas import Caller
from backend.imports import import_run
from backend.routes.deps import CallerDep, Services, ServicesDep

router = APIRouter(tags=["export"])
BODY = {
    "required": True,
    "description": "A line with an `ImportHeader`, then the lines of `records.jsonl`",
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
}


@router.post("/runs:import", openapi_extra={"requestBody": BODY})
async def import_offline_run(
    request: Request, services: ServicesDep, caller: CallerDep
) -> s.ImportReport:
    """Store a run that `sero train` wrote without this server (`sero push DIR` sends it).

    All lines or none. Pushing the same run again changes nothing; a longer one adds its new
    iterations.
    """
    with tempfile.TemporaryDirectory(prefix="sero-import-") as folder:
        path = Path(folder) / "body"
        async with await open_file(path, "wb") as file:
            async for chunk in request.stream():
                await file.write(chunk)
        return await run_sync(_store, services, path, caller)


def _store(services: Services, path: Path, caller: Caller) -> s.ImportReport:
    with path.open("rb") as file, services.writing() as connection:
        return import_run(connection, file, caller)
