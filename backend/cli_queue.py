"""`sero queue | stop | cancel | resume | extend | retry | delete | push`: runs and jobs."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from backend.settings import Settings
from sero_core.cli import app

RunId = Annotated[int, typer.Argument(help="Number of the run", min=1)]
JobId = Annotated[int, typer.Argument(help="Number of the job", min=1)]


def register() -> None:
    """Add the commands to `sero`."""
    for command in (queue, stop, cancel, resume, extend, retry, delete, push):
        app.command(rich_help_panel="Service")(command)


def queue() -> None:
    """Running and waiting jobs in their order, and why each waits."""
    from rich.console import Console
    from rich.table import Table

    from backend.client import SeroClient

    table = Table("job", "run", "kind", "state", "priority", "worker", "why it waits")
    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        for job in client.jobs().items:
            if job.state in ("queued", "running"):
                name, worker = f"{job.run_id} {job.run_name}", job.worker_id or "–"
                cells = (job.kind, job.state, str(job.priority), worker, job.waiting or "")
                table.add_row(str(job.id), name, *cells)
    Console().print(table)


def stop(run_id: RunId) -> None:
    """Stop a run: a queued job ends now, a running one after writing a checkpoint."""
    from backend.client import SeroClient

    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        typer.echo(f"run {run_id} is {client.stop_run(run_id).status}")


def cancel(run_id: RunId) -> None:
    """Cancel a run at once: what runs is killed, without a checkpoint."""
    from backend.client import SeroClient

    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        typer.echo(f"run {run_id} is {client.cancel_run(run_id).status}")


def resume(run_id: RunId) -> None:
    """Train a stopped or failed run on from its newest checkpoint."""
    from backend.client import SeroClient

    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        typer.echo(f"run {run_id} is {client.resume_run(run_id).status}")


def extend(
    run_id: RunId,
    iterations: Annotated[int, typer.Argument(help="The new total, more than before", min=1)],
) -> None:
    """Train a run on to more iterations."""
    from backend.client import SeroClient

    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        typer.echo(f"run {run_id} is {client.extend_run(run_id, iterations).status}")


def retry(job_id: JobId) -> None:
    """Queue a job again that failed, was cancelled or skipped."""
    from backend.client import SeroClient

    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        typer.echo(f"job {job_id} is {client.retry_job(job_id).state}")


def delete(
    run_id: RunId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
) -> None:
    """Delete a run for good: its rows and its files."""
    from backend.client import SeroClient

    if not yes:
        typer.confirm(f"delete run {run_id}, its rows and its checkpoints?", abort=True)
    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        report = client.delete_run(run_id)
    freed = f"{report.row_bytes:,} bytes of rows and {report.file_bytes:,} bytes of files"
    typer.echo(f"deleted run {run_id}: {freed}")


def push(
    folder: Annotated[Path, typer.Argument(help="What `sero train --out` wrote")],
    name: Annotated[str | None, typer.Option(help="Replaces the config's name")] = None,
) -> None:
    """Store a run that was trained without this server. Pushing it again adds what is new."""
    from backend.client import SeroClient
    from backend.schemas import ImportHeader
    from sero_core.provenance import CODE_FILE
    from sero_core.sinks.jsonl import RECORDS_FILE

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        code = json.loads((folder / CODE_FILE).read_text(encoding="utf-8"))
        records = (folder / RECORDS_FILE).open("rb")
    except (OSError, ValueError) as error:
        typer.echo(f"error: {folder} is not a folder of `sero train`: {error}", err=True)
        raise typer.Exit(2) from None
    header = ImportHeader(
        config=config,
        name=name,
        git_commit=code.get("commit"),
        git_is_dirty=code.get("is_dirty"),
        source=str(folder.name),
    )
    with records, clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        report = client.import_run(header, records)
    typer.echo(f"run {report.run_id}: {report.num_new} new of {report.num_iterations} iterations")


@contextmanager
def clear_errors() -> Generator[None]:
    """A known error is one message and exit code 1; Ctrl-C is an end, not an error."""
    from backend.client import ApiError
    from backend.supervisor.process import ServiceError
    from sero_core.types import SeroError

    try:
        yield
    except (ServiceError, ApiError, SeroError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
