"""Taking data out: tables as files, and the archives of export jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import FileResponse, StreamingResponse

from backend.db.queries import export
from backend.errors import Conflict, NotFound
from backend.routes.deps import ERRORS_AS_JSON, RunId, Services, ServicesDep
from backend.routes.jobs import JobId, read_job

router = APIRouter(tags=["export"])
Table = Literal[
    "iterations",
    "metrics",
    "episodes",
    "steps",
    "branches",
    "branch_steps",
    "rescores",
    "evaluations",
    "eval_results",
    "eval_outcomes",
    "checkpoints",
    "events",
    "log_lines",
]
MEDIA = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
}
FILES = {200: {"content": {kind: {} for kind in MEDIA.values()}, "description": "The file"}}
ERRORS = {422: ERRORS_AS_JSON, "default": ERRORS_AS_JSON}


@router.get(
    "/runs/{run_id}/tables/{table}",
    response_class=StreamingResponse,
    responses={**FILES, **ERRORS},
)
def export_table(
    run_id: RunId,
    table: Annotated[Table, Path()],
    services: ServicesDep,
    format: Annotated[export.Format, Query(description="File format")] = "parquet",
) -> StreamingResponse:
    """All rows of one table of a run, texts in the place of their ids, read while they are sent.

    CSV has lists as JSON. JSON lines have null for numbers that are not finite.
    """
    with services.reading(run_id):
        pass
    name = f"run-{run_id}-{table}.{format}"
    return StreamingResponse(
        _rows(services, run_id, table, format),
        media_type=MEDIA[format],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _rows(services: Services, run_id: int, table: str, kind: export.Format) -> Iterator[bytes]:
    with services.engine.connect() as connection:
        yield from export.stream_table(connection, run_id, table, kind)


@router.get(
    "/jobs/{job_id}/result",
    response_class=FileResponse,
    responses={200: {"content": {"application/zip": {}}}, **ERRORS},
)
def download_result(job_id: JobId, services: ServicesDep) -> FileResponse:
    """The archive of an export job that succeeded."""
    job = read_job(services, job_id)
    if job.result is None or "file" not in job.result:
        raise Conflict(f"job {job_id} is a {job.kind} job that is {job.state}; it has no file")
    folder = services.settings.run_dir(job.run_id) / "jobs" / str(job_id)
    path = folder / str(job.result["file"])
    if path.parent != folder or not path.is_file():
        raise NotFound(f"the file of job {job_id} is not on the API's machine")
    name = f"run-{job.run_id}-{path.name}"
    return FileResponse(path, filename=name, media_type="application/zip")
