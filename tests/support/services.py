"""`sero up` as a user starts it, with free ports and short leases; and the SQL that judges it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text

from backend.client import ApiError, SeroClient
from backend.db.engine import make_engine
from backend.schemas import JobInfo, RunDetail, SubmitRequest
from backend.supervisor.postgres import EmbeddedPostgres
from backend.supervisor.process import die_with_parent, tail
from sero_core.config import load_config
from sero_core.records import IterationPayload
from sero_core.sinks.log import read_log

TINY = Path(__file__).with_name("tiny.toml")
QUICK = ("rollout.num_tasks=2", "rollout.group_size=2", "rollout.max_steps=5", "evaluation.every=0")
QUICK += ("evaluation.num_tasks=2", "sero.max_oracle_steps=6")
LEASE_S = 10.0
"""Longer than PostgreSQL's recovery, which counts against a lease, on a busy machine."""
ENDED = ("succeeded", "failed", "cancelled")


class Services:
    """Running services. `home` is short and open enough for sockets and for PostgreSQL's user."""

    def __init__(self, *, with_dashboard: bool) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="sero-", dir="/tmp"))
        self.home.chmod(0o755)
        self.api_port, self.dashboard_port = free_port(), free_port()
        self.dashboard_url = f"http://127.0.0.1:{self.dashboard_port}"
        self._with_dashboard = with_dashboard
        self._engine = make_engine(EmbeddedPostgres(self.home).url, pool_size=2)
        self.client = SeroClient(f"http://127.0.0.1:{self.api_port}")
        self.log = self.home / "sero-up.log"
        self.supervisor = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start `sero up` and wait until it says where the logs are, its last words."""
        args = [sys.executable, "-m", "backend.cli", "up", "--api-port", str(self.api_port)]
        args += ["--dashboard-port", str(self.dashboard_port)]
        if not self._with_dashboard:
            args.append("--no-dashboard")
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.supervisor = subprocess.Popen(
                args,
                stdout=output,
                stderr=output,
                env=environment(self.home),
                preexec_fn=die_with_parent(signal.SIGTERM),  # an aborted test leaves nothing
            )

        def is_up() -> bool:
            assert self.supervisor.poll() is None, self.report()
            return b"logs: " in self.log.read_bytes()[before:]

        until(is_up, 300, self.report)
        return self.supervisor

    def close(self) -> None:
        """Stop everything; fails when a process stays behind."""
        self.client.close()
        self._engine.dispose()
        self.supervisor.send_signal(signal.SIGINT)
        try:
            self.supervisor.wait(120)
            left = self.processes()
            assert left == [], [process.cmdline() for process in left]
        finally:
            self.supervisor.kill()
            for process in self.processes():
                process.kill()
            shutil.rmtree(self.home, ignore_errors=True)

    def query(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        with self._engine.begin() as connection:
            return [tuple(row) for row in connection.execute(text(statement), values)]

    def submit(self, *overrides: str) -> int:
        """Queue a run of seconds; returns its number."""
        config = load_config(TINY, (*QUICK, *overrides)).model_dump(mode="json")
        return self.client.submit_run(SubmitRequest(config=config)).id

    def run(self, run_id: int) -> RunDetail | None:
        """None while the API is away or restarting."""
        try:
            return self.client.run(run_id)
        except ApiError as error:
            if error.status in (0, 500, 503):
                return None
            raise

    def wait_for(self, run_id: int, *statuses: str, timeout_s: float = 400) -> RunDetail:
        """Wait for a status; fails at once when the run ends in another one."""
        found: list[RunDetail] = []

        def is_there() -> bool:
            run = self.run(run_id)
            if run is None:
                return False
            if run.status in statuses:
                found.append(run)
            assert found or run.status not in ENDED, (run.status, run.reason, self.report())
            return bool(found)

        until(is_there, timeout_s, self.report)
        return found[0]

    def wait_for_iteration(self, run_id: int, iteration: int, timeout_s: float = 300) -> None:
        def is_there() -> bool:
            run = self.run(run_id)
            return run is not None and run.iteration is not None and run.iteration >= iteration

        until(is_there, timeout_s, self.report)

    def job(self, run_id: int) -> JobInfo:
        return self.client.run(run_id).jobs[0]

    def processes(self, needle: str = "") -> list[psutil.Process]:
        """Living processes that inherited our home, whose command line contains `needle`.

        The servers overwrite their environment to change their titles; they work in our home.
        """
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                has_home = process.environ().get("SERO_HOME") == str(self.home)
                is_ours = has_home or process.cwd().startswith(str(self.home))
                is_alive = process.status() != psutil.STATUS_ZOMBIE
                if is_ours and is_alive and needle in " ".join(process.cmdline()):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def main_process(self, needle: str) -> psutil.Process:
        """The one matching process that the supervisor itself started."""
        found = [p for p in self.processes(needle) if p.ppid() == self.supervisor.pid]
        assert len(found) == 1, (needle, found)
        return found[0]

    def records(self, run_id: int) -> list[IterationPayload]:
        """What the trainer wrote, of each iteration the last attempt's record."""
        return list(read_log(self.home / "runs" / str(run_id)))

    def output(self, run_id: int) -> str:
        """What the training processes of all attempts printed."""
        paths = sorted((self.home / "runs" / str(run_id) / "spool").glob("*/output.txt"))
        return "".join(path.read_text() for path in paths)

    def report(self) -> str:
        """The ends of the logs, for a failing test."""
        names = ("worker", "api", "postgres")
        parts = [self.log, *(self.home / "logs" / f"{name}.log" for name in names)]
        parts += sorted(self.home.glob("runs/*/spool/*/output.txt"))
        return "\n".join(f"--- {path.relative_to(self.home)}\n{tail(path, 25)}" for path in parts)


@contextmanager
def services(*, with_dashboard: bool = False) -> Iterator[Services]:
    made = Services(with_dashboard=with_dashboard)
    try:
        yield made
    finally:
        made.close()


def environment(home: Path) -> dict[str, str]:
    """The environment of a user with this home and short leases."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SERO_")}
    return kept | {
        "SERO_HOME": str(home),
        "SERO_LEASE_S": str(LEASE_S),
        "SERO_HEARTBEAT_S": "1",
        "OMP_NUM_THREADS": "1",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(
    is_true: Callable[[], bool], timeout_s: float, report: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s\n{report()}"
        time.sleep(0.2)


def assert_nothing_lost_or_doubled(services: Services, run_id: int) -> None:
    """Compare what Postgres holds with what the trainer wrote, table by table and row by row."""
    records = services.records(run_id)
    num_iterations = services.client.run(run_id).num_iterations
    assert [record.iteration for record in records] == list(range(num_iterations + 1))

    def ask(statement: str) -> list[tuple[Any, ...]]:
        return services.query(statement, run_id=run_id)

    assert ask("SELECT iteration FROM iterations WHERE run_id = :run_id ORDER BY 1") == [
        (record.iteration,) for record in records
    ]
    metrics = {
        (key, record.iteration, value)
        for record in records
        for key, value in record.metrics.items()
    }
    stored = ask("SELECT key, iteration, value FROM metrics WHERE run_id = :run_id")
    assert len(stored) == len(metrics)
    assert {(key, iteration) for key, iteration, _ in stored} == {(k, i) for k, i, _ in metrics}
    episodes = [episode for record in records for episode in record.episodes]
    branches = [branch for record in records for branch in record.branches]
    assert ask("SELECT episode_id FROM episodes WHERE run_id = :run_id ORDER BY 1") == sorted(
        (episode.episode_id,) for episode in episodes
    )
    assert ask(
        'SELECT episode_id, "index" FROM steps WHERE run_id = :run_id ORDER BY 1, 2'
    ) == sorted((episode.episode_id, step.index) for episode in episodes for step in episode.steps)
    assert ask("SELECT branch_id FROM branches WHERE run_id = :run_id ORDER BY 1") == sorted(
        (branch.branch_id,) for branch in branches
    )
    weights = ask(
        "SELECT branch_id, depth, weight FROM branch_steps WHERE run_id = :run_id ORDER BY 1, 2"
    )
    assert weights == sorted(
        (branch.branch_id, step.depth, step.weight) for branch in branches for step in branch.steps
    )
    assert len(weights) > 0
    ends = "state IN ('succeeded', 'failed', 'cancelled')"
    assert not ask(
        f"SELECT id FROM jobs WHERE run_id = :run_id AND {ends} "
        "AND (finished_at IS NULL OR reason IS NULL)"
    )
    assert not ask(
        "SELECT attempts.attempt FROM attempts JOIN jobs ON jobs.id = job_id "
        "WHERE run_id = :run_id AND attempts.state = 'running' AND jobs.state <> 'running'"
    )
