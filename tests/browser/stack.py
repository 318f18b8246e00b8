"""The real services behind the browser: PostgreSQL, the API, and Streamlit in its own process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import httpx
import uvicorn
from sqlalchemy import Engine

from backend.db.engine import make_engine
from backend.db.ingest import write_iteration, write_log
from backend.db.migrate import upgrade
from backend.db.queries import jobs, workers
from backend.db.queries.submit import submit_run
from backend.main import create_app
from backend.settings import Settings
from backend.supervisor.postgres import EmbeddedPostgres
from sero_core.config import RunConfig, parse_config
from tests.browser.story import iteration

REPOSITORY = Path(__file__).resolve().parents[2]
LEASE_S = 3600.0
NUM_ITERATIONS = 12
WORKER = "worker-1@lab"


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses, and the stored runs: a finished SERO run, a finished GRPO run, a live one."""

    api: str
    dashboard: str
    sero: int
    grpo: int
    live: int


@contextmanager
def running(home: Path, ports: tuple[int, int] | None = None) -> Iterator[Stack]:
    """Everything up and filled; down again at the end."""
    server = EmbeddedPostgres(home / "postgres", durable=False)
    server.start()
    try:
        upgrade(server.url)
        settings = Settings(home=home, database_url=server.url, broker_url="redis://127.0.0.1:1/0")
        engine = make_engine(server.url, pool_size=4)
        ids = _fill(engine)
        engine.dispose()
        api_port, dashboard_port = ports or (0, _free_port())
        with _api(settings, api_port) as api, _streamlit(api, dashboard_port) as dashboard:
            yield Stack(api, dashboard, *ids)
    finally:
        server.remove()


def _fill(engine: Engine) -> tuple[int, int, int]:
    sero = _run(engine, "sero demo", NUM_ITERATIONS, has_branches=True)
    grpo = _run(engine, "grpo demo", NUM_ITERATIONS, has_branches=False)
    live = _run(engine, "sero demo", 7, has_branches=True, seed=1, is_finished=False)
    _config_only(engine)
    return sero, grpo, live


def _run(
    engine: Engine,
    name: str,
    num_done: int,
    *,
    has_branches: bool,
    seed: int = 0,
    is_finished: bool = True,
) -> int:
    """Submit, claim, write iterations 0 to `num_done` and end a run as a worker would."""
    config = _config(name, seed, has_branches)
    with engine.begin() as connection:
        preset = "sero_demo" if has_branches else "grpo_demo"
        made = submit_run(connection, config, preset=preset, idempotency_key=None, max_attempts=3)
        workers.register(connection, WORKER, "lab", 4711, "0.1.0", LEASE_S)
        claimed = jobs.claim(connection, made.job_id, WORKER, LEASE_S)
    assert claimed is not None
    place = (claimed.run_id, claimed.job_id, claimed.attempt)
    for number in range(num_done + 1):
        with engine.begin() as connection:
            payload = iteration(number, NUM_ITERATIONS, seed, has_branches)
            write_iteration(connection, *place, payload)
            write_log(connection, *place, number, [f"iteration {number}/{NUM_ITERATIONS} done"])
    if is_finished:
        with engine.begin() as connection:
            jobs.finish(connection, claimed.job_id, claimed.attempt, "succeeded", "finished")
    return claimed.run_id


def _config(name: str, seed: int, has_branches: bool) -> RunConfig:
    values: dict[str, object] = {"name": name, "seed": seed, "num_iterations": NUM_ITERATIONS}
    return parse_config(values | ({"sero": {}} if has_branches else {}), "test")


def _config_only(engine: Engine) -> None:
    """A run that waits in the queue."""
    config = _config("waiting", 2, True)
    with engine.begin() as connection:
        submit_run(connection, config, preset=None, idempotency_key=None, max_attempts=3)


@contextmanager
def _api(settings: Settings, port: int) -> Iterator[str]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(
        create_app(settings), log_level="warning", ws="none", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        _until(lambda: server.started, "uvicorn")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def _streamlit(api: str, port: int) -> Iterator[str]:
    """`streamlit run` as the supervisor starts it, on a port of its own."""
    script = REPOSITORY / "dashboard" / "streamlit_app.py"
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    process = subprocess.Popen(
        command, env={**os.environ, "SERO_API_URL": api}, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"

    def is_healthy() -> bool:
        assert process.poll() is None, f"streamlit ended with {process.returncode}"
        try:
            return httpx.get(f"{url}/_stcore/health", timeout=2).is_success
        except httpx.TransportError:
            return False

    try:
        _until(is_healthy, "streamlit")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until(is_ready: object, what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    assert callable(is_ready)
    while not is_ready():
        assert time.monotonic() < deadline, f"{what} did not start within {timeout_s:.0f} s"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
