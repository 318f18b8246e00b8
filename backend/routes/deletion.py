"""Deleting runs, checkpoints, and what is older than the retention says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Path, Query
from sqlalchemy import Connection

from backend import retention
from backend import schemas as s
from backend.db.queries import deletion
from backend.db.queries.events import add_event
from backend.errors import NotFound
from backend.routes.deps import CallerDep, RunId, Services, ServicesDep

router = APIRouter(tags=["retention"])


@router.delete("/runs/{run_id}")
def delete_run(
    run_id: RunId, services: ServicesDep, caller: CallerDep, background: BackgroundTasks
) -> s.DeletionReport:
    """Delete a run for good: rows, texts, checkpoints, log. Refuses one that is running."""
    with services.reading(run_id):
        pass  # only asks whether it exists
    return _delete(services, [run_id], caller.name, background)


@router.delete("/runs/{run_id}/checkpoints")
def delete_checkpoints(
    run_id: RunId,
    services: ServicesDep,
    caller: CallerDep,
    keep_newest: Annotated[int, Query(ge=0, le=1000)] = 1,
) -> s.DeletionReport:
    """Delete a run's weights but the newest; every row stays. Refuses while a job of it runs."""
    return _delete_checkpoints(services, [run_id], keep_newest, caller.name, is_dry_run=False)


@router.delete("/runs/{run_id}/checkpoints/{iteration}")
def delete_checkpoint(
    run_id: RunId,
    iteration: Annotated[int, Path(ge=0, le=2**31 - 1)],
    services: ServicesDep,
    caller: CallerDep,
) -> s.DeletionReport:
    """Delete the weights of one checkpoint; every row stays."""
    with services.writing(run_id) as connection:
        retention.require_idle(connection, run_id)
        folder = retention.checkpoints_on_disk(services.settings, run_id).get(iteration)
        if folder is None:
            raise NotFound(f"run {run_id} has no checkpoint of iteration {iteration} on disk")
        freed = retention.delete_folder(folder)
        _note(connection, run_id, 1, freed, caller.name)
    return s.DeletionReport(run_ids=[run_id], num_checkpoints=1, file_bytes=freed)


@router.post("/retention")
def apply_retention(
    request: s.RetentionRequest,
    services: ServicesDep,
    caller: CallerDep,
    background: BackgroundTasks,
) -> s.DeletionReport:
    """Clean up runs that ended long ago: their checkpoints, or all of them. A dry run says what it
    would free."""
    with services.reading() as connection:
        found = deletion.ended_runs(connection, request.older_than_days, request.statuses)
    if request.what == "checkpoints":
        return _delete_checkpoints(
            services, found, request.keep_newest, caller.name, is_dry_run=request.is_dry_run
        )
    if request.is_dry_run:
        sizes = (retention.folder_bytes(services.settings.run_dir(run_id)) for run_id in found)
        return s.DeletionReport(run_ids=found, is_dry_run=True, file_bytes=sum(sizes))
    return _delete(services, found, caller.name, background)


def _delete(
    services: Services, run_ids: Sequence[int], actor: str | None, background: BackgroundTasks
) -> s.DeletionReport:
    """Rows first: a crash in between leaves files without a run, which is only space."""
    with services.writing() as connection:
        freed = deletion.delete_runs(connection, run_ids, actor=actor)
    settings = services.settings
    num_checkpoints = sum(
        len(retention.checkpoints_on_disk(settings, run_id)) for run_id in run_ids
    )
    file_bytes = sum(retention.delete_folder(settings.run_dir(run_id)) for run_id in run_ids)
    background.add_task(_vacuum, services, [*freed.num_rows, "texts"])
    return s.DeletionReport(
        run_ids=list(run_ids),
        num_rows=freed.num_rows,
        num_texts=freed.num_texts,
        row_bytes=freed.row_bytes,
        num_checkpoints=num_checkpoints,
        file_bytes=file_bytes,
    )


def _delete_checkpoints(
    services: Services,
    run_ids: Sequence[int],
    keep_newest: int,
    actor: str | None,
    *,
    is_dry_run: bool,
) -> s.DeletionReport:
    num_checkpoints = file_bytes = 0
    touched: list[int] = []
    for run_id in run_ids:
        with services.writing(run_id) as connection:
            retention.require_idle(connection, run_id)
            folders = retention.old_checkpoints(services.settings, run_id, keep_newest)
            sizes = [
                retention.folder_bytes(folder) if is_dry_run else retention.delete_folder(folder)
                for folder in folders
            ]
            if folders and not is_dry_run:
                _note(connection, run_id, len(folders), sum(sizes), actor)
        touched += [run_id] if folders else []
        num_checkpoints += len(folders)
        file_bytes += sum(sizes)
    return s.DeletionReport(
        run_ids=touched,
        is_dry_run=is_dry_run,
        num_checkpoints=num_checkpoints,
        file_bytes=file_bytes,
    )


def _note(connection: Connection, run_id: int, count: int, freed: int, actor: str | None) -> None:
    message = f"{count} checkpoint(s) of run {run_id} were deleted: {freed} bytes"
    add_event(connection, "run.checkpoints_deleted", message, run_id=run_id, actor=actor)


def _vacuum(services: Services, tables: Sequence[str]) -> None:
    engine = services.engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        deletion.vacuum(connection, tables)
        connection.invalidate()  # its statement_timeout is changed
