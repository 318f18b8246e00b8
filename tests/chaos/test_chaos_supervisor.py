"""The supervisor's own end, in order or by SIGKILL: no process stays, the next start is clean."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.services import Services, environment, free_port, services, until


@pytest.fixture(scope="module")
def own() -> Iterator[Services]:
    with services() as made:
        yield made


def up(own: Services, api_port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "backend.cli", "up", "--no-dashboard", "--api-port", str(api_port)],
        env=environment(own.home),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_second_supervisor_is_refused(own: Services) -> None:
    done = up(own, free_port())
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: SERO already runs in {own.home} (process ")


def test_ctrl_c_mid_run_stops_everything_and_the_run_goes_on_later(own: Services) -> None:
    run_id = own.submit("num_iterations=5")
    own.wait_for_iteration(run_id, 1)
    own.supervisor.send_signal(signal.SIGINT)
    assert own.supervisor.wait(120) == 130
    assert own.processes() == []
    own.start()
    own.wait_for(run_id, "succeeded")
    assert [attempt.state for attempt in own.job(run_id).attempts] == ["released", "succeeded"]


def test_sigkill_supervisor_leaves_nothing_behind(own: Services) -> None:
    run_id = own.submit("num_iterations=5")
    own.wait_for_iteration(run_id, 1)
    own.supervisor.kill()
    own.supervisor.wait()
    until(lambda: own.processes() == [], 10, lambda: str(own.processes()))
    own.start()
    own.wait_for(run_id, "succeeded")
    assert [attempt.state for attempt in own.job(run_id).attempts] == ["lost", "succeeded"]


def test_down_stops_it_from_outside(own: Services) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backend.cli", "down"],
        env=environment(own.home),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "stopped\n"
    assert own.supervisor.wait(10) == 130
    assert own.processes() == []
    own.start()
