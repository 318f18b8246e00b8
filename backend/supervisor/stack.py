"""The services of `sero up`: PostgreSQL, Valkey, API, worker, dashboard; all on 127.0.0.1 unless
`--host` opens API and dashboard, which then ask for a token."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend import doctor
from backend.supervisor.postgres import EmbeddedPostgres
from backend.supervisor.process import Command, ServiceError
from backend.supervisor.service import CommandService, EmbeddedService, Service
from backend.supervisor.supervisor import Stage
from backend.supervisor.valkey import EmbeddedValkey

HOST = "127.0.0.1"
WORKER_GRACE_S = 90.0
"""More than the worker gives its job to write a checkpoint."""


@dataclass(frozen=True, slots=True)
class Options:
    """Where and what to start. A given `database_url` or `broker_url` replaces the embedded one."""

    home: Path
    api_port: int = 8000
    dashboard_port: int = 8501
    with_dashboard: bool = True
    database_url: str | None = None
    broker_url: str | None = None
    host: str = HOST

    @property
    def api_url(self) -> str:
        return f"http://{HOST}:{self.api_port}"

    @property
    def dashboard_url(self) -> str:
        return f"http://{HOST}:{self.dashboard_port}"


def make_stages(options: Options) -> list[Stage]:
    """The stages in their order. Errors: `ServiceError` for a used port or a missing program."""
    has_dashboard = options.with_dashboard and importlib.util.find_spec("streamlit") is not None
    check_port(options.api_port, "--api-port")
    if has_dashboard:
        check_port(options.dashboard_port, "--dashboard-port")
    stages: list[Stage] = []
    servers: list[Service] = []
    database_url, broker_url = options.database_url, options.broker_url
    if database_url is None:
        postgres = EmbeddedPostgres(options.home)
        servers.append(EmbeddedService(postgres))
        database_url = postgres.url
    if broker_url is None:
        valkey = EmbeddedValkey(options.home)
        servers.append(EmbeddedService(valkey))
        broker_url = valkey.url
    stages.append(Stage(tuple(servers), then=_migration(database_url)))
    environment = {
        "SERO_HOME": str(options.home),
        "SERO_DATABASE_URL": database_url,
        "SERO_BROKER_URL": broker_url,
        "SERO_API_URL": options.api_url,
        "SERO_DASHBOARD_URL": options.dashboard_url,
        "PYTHONUNBUFFERED": "1",
        # spinning OpenMP threads cost more than they bring; the run config sets torch's threads
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    services: list[Service] = [_api(options, environment), _worker(options, environment)]
    if has_dashboard:
        services.append(_dashboard(options, environment))
    stages.append(Stage(tuple(services), stop_grace_s=WORKER_GRACE_S))
    return stages


def check_port(port: int, option: str) -> None:
    """Errors: `ServiceError` when another program listens on the port."""
    finding = doctor.check_port(port, option)
    if not finding.is_ok:
        raise ServiceError(finding.message)


def _migration(database_url: str) -> Callable[[], None]:
    def migrate() -> None:
        from backend.db.migrate import upgrade

        upgrade(database_url)

    return migrate


def _api(options: Options, environment: dict[str, str]) -> CommandService:
    args = (sys.executable, "-m", "backend.cli", "api")
    args += ("--host", options.host, "--port", str(options.api_port))
    command = Command("api", args, options.home / "logs" / "api.log", environment)
    return CommandService(command, lambda _: answers(f"{options.api_url}/api/v1/health"))


def _worker(options: Options, environment: dict[str, str]) -> CommandService:
    args = (sys.executable, "-m", "celery", "-A", "worker.app", "worker", "--loglevel", "INFO")
    args += ("--without-gossip", "--without-mingle")
    command = Command("worker", args, options.home / "logs" / "worker.log", environment)
    return CommandService(command, lambda pid: _worker_is_ready(options.home, pid))


def _worker_is_ready(home: Path, pid: int) -> bool:
    """The worker leaves this note once it takes jobs (`worker/tasks.py`)."""
    return (home / "workers" / f"{socket.gethostname()}-{pid}" / "ready").exists()


def _dashboard(options: Options, environment: dict[str, str]) -> CommandService:
    spec = importlib.util.find_spec("dashboard")
    if spec is None or spec.origin is None:
        raise ServiceError("the package `dashboard` is not installed")
    script = Path(spec.origin).parent / "streamlit_app.py"
    args = (sys.executable, "-m", "streamlit", "run", str(script))
    args += ("--server.address", options.host, "--server.port", str(options.dashboard_port))
    args += ("--server.headless", "true", "--server.fileWatcherType", "none")
    args += ("--browser.gatherUsageStats", "false", "--client.showErrorDetails", "none")
    log = options.home / "logs" / "dashboard.log"
    # streamlit reads .streamlit/config.toml (our themes) from the working directory
    command = Command("dashboard", args, log, environment, cwd=script.parent)
    return CommandService(command, lambda _: answers(f"{options.dashboard_url}/_stcore/health"))


def answers(url: str) -> bool:
    """True when `url` answers with a success."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2.0) as response:
            return 200 <= response.status < 300
    except (urllib.error.URLError, OSError):
        return False


def options_from_env(
    home: Path, api_port: int, dashboard_port: int, with_dashboard: bool, host: str = HOST
) -> Options:
    """Options with the database and broker of the environment, where it names them."""
    return Options(
        home=home.absolute(),
        api_port=api_port,
        dashboard_port=dashboard_port,
        with_dashboard=with_dashboard,
        database_url=os.environ.get("SERO_DATABASE_URL") or None,
        broker_url=os.environ.get("SERO_BROKER_URL") or None,
        host=host,
    )
