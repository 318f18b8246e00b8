"""`sero`: the trainer's commands, and those of the service (up, down, demo, submit, runs, …)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from backend import cli_admin, cli_queue
from backend.cli_queue import clear_errors
from backend.settings import Settings
from sero_core.cli import app

ApiPort = Annotated[int, typer.Option("--api-port", envvar="API_PORT", min=1, max=65535)]
DashboardPort = Annotated[
    int, typer.Option("--dashboard-port", envvar="DASHBOARD_PORT", min=1, max=65535)
]
RunId = Annotated[int, typer.Argument(help="Number of the run", min=1)]


def main() -> None:
    """The entry point."""
    cli_admin.register()
    cli_queue.register()
    app()


@app.command(rich_help_panel="Service")
def up(
    api_port: ApiPort = 8000,
    dashboard_port: DashboardPort = 8501,
    dashboard: Annotated[bool, typer.Option(help="Start the dashboard, too")] = True,
    host: Annotated[
        str, typer.Option(help="Address of API and dashboard; other than loopback needs a token")
    ] = "127.0.0.1",
) -> None:
    """Start PostgreSQL, Valkey, API, worker and dashboard on 127.0.0.1; Ctrl-C stops them."""
    from backend.supervisor.lock import home_lock
    from backend.supervisor.stack import make_stages, options_from_env
    from backend.supervisor.supervisor import Supervisor

    options = options_from_env(Settings.from_env().home, api_port, dashboard_port, dashboard, host)
    with (
        clear_errors(),
        _interruptible(),
        home_lock(options.home),
        Supervisor(make_stages(options), _say) as supervisor,
    ):
        _say(f"API:       {options.api_url}/api/v1/docs")
        if dashboard:
            _say(f"dashboard: {options.dashboard_url}")
        _say(f"logs:      {options.home / 'logs'}   (Ctrl-C stops everything)")
        while True:
            supervisor.tick()
            time.sleep(0.2)


@app.command(rich_help_panel="Service")
def down() -> None:
    """Stop the services of this home, started by `sero up` or `sero demo` elsewhere."""
    from backend.supervisor.lock import holder

    home = Settings.from_env().home
    pid = holder(home)
    if pid is None:
        _say(f"nothing runs in {home}")
        return
    os.kill(pid, signal.SIGTERM)
    while holder(home) == pid:
        time.sleep(0.2)
    _say("stopped")


@app.command(rich_help_panel="Service")
def doctor(api_port: ApiPort = 8000, dashboard_port: DashboardPort = 8501) -> None:
    """Check whether this machine is ready; exit code 1 when something blocks."""
    from backend.doctor import after_install, report

    home = Settings.from_env().home
    is_ready = report(after_install(home, api_port, dashboard_port), sys.stdout.write)
    raise typer.Exit(0 if is_ready else 1)


@app.command(rich_help_panel="Service")
def demo(
    api_port: ApiPort = 8000,
    dashboard_port: DashboardPort = 8501,
    config: Annotated[
        Path | None, typer.Option(help="TOML config instead of configs/sero_demo.toml")
    ] = None,
    exit_when_done: Annotated[
        bool, typer.Option("--exit-when-done", help="End when the run has ended")
    ] = False,
    dashboard: Annotated[bool, typer.Option(help="Start the dashboard, too")] = True,
) -> None:
    """Start everything, train the demo run and follow it; Ctrl-C stops everything."""
    from backend.client import SeroClient
    from backend.demo import run_demo
    from backend.supervisor.lock import home_lock
    from backend.supervisor.stack import make_stages, options_from_env
    from backend.supervisor.supervisor import Supervisor

    options = options_from_env(Settings.from_env().home, api_port, dashboard_port, dashboard)
    with (
        clear_errors(),
        _interruptible(),
        home_lock(options.home),
        Supervisor(make_stages(options), _say) as supervisor,
        SeroClient(options.api_url) as client,
    ):
        is_success = run_demo(
            supervisor,
            client,
            config,
            options.dashboard_url,
            exit_when_done=exit_when_done,
            say=_say,
        )
    raise typer.Exit(0 if is_success else 1)


@app.command(rich_help_panel="Service")
def submit(
    config: Annotated[str, typer.Argument(help="A TOML file, or the name of a preset")],
    overrides: Annotated[
        list[str],
        typer.Option("--set", help="dotted.key=value, may be repeated", default_factory=list),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the run")] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key submits once")
    ] = None,
) -> None:
    """Queue a run; prints its number."""
    from backend.client import SeroClient
    from backend.schemas import SubmitRequest
    from sero_core.config import load_config

    settings = Settings.from_env()
    with clear_errors(), SeroClient(settings.api_url) as client:
        path = Path(config)
        if path.suffix != ".toml":
            path = settings.configs_dir / f"{config}.toml"
        data = load_config(path, tuple(overrides)).model_dump(mode="json")
        run = client.submit_run(SubmitRequest(config=data, name=name), idempotency_key=key)
        _say(f"{run.id}")


@app.command("runs", rich_help_panel="Service")
def list_runs(limit: Annotated[int, typer.Option(min=1, max=200)] = 20) -> None:
    """The newest runs."""
    from rich.console import Console
    from rich.table import Table

    from backend.client import SeroClient

    table = Table(
        "run", "name", "status", "iteration", "success", "seen", "unseen", "test", "branches"
    )
    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        for run in client.runs(limit=limit).items:
            evaluated = (run.eval_valid_seen, run.eval_valid_unseen, run.eval_test)
            table.add_row(
                str(run.id),
                run.name,
                run.status,
                f"{run.iteration or 0}/{run.num_iterations}",
                *("–" if rate is None else f"{rate:.1%}" for rate in (run.success, *evaluated)),
                str(run.num_branches),
            )
    Console().print(table)


@app.command(rich_help_panel="Service")
def logs(
    run_id: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more lines")] = False,
) -> None:
    """The log of a run."""
    from backend.client import SeroClient
    from backend.schemas import JOB_ENDED

    with clear_errors(), SeroClient(Settings.from_env().api_url) as client:
        page = client.log(run_id)
        while True:
            for line in page.lines:
                _say(line.text)
            if not page.lines and (not follow or client.run(run_id).status in JOB_ENDED):
                return
            if not page.lines:
                time.sleep(1.0)
            page = client.log(run_id, since=page.next_since)


@contextmanager
def _interruptible() -> Generator[None]:
    """The first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; later ones are ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        typer.echo("stopping …", err=True)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
