"""Order of starting and stopping, restarts with growing waits, one supervisor per home."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from backend.supervisor.lock import holder, home_lock
from backend.supervisor.process import Command, ServiceError
from backend.supervisor.service import CommandService
from backend.supervisor.stack import Options, make_stages
from backend.supervisor.supervisor import Stage, Supervisor, backoff_s


def service(tmp_path: Path, name: str, script: str, timeout_s: float = 10.0) -> CommandService:
    """A shell script that is ready once it wrote `<name>.ready`."""
    command = Command(name, ("bash", "-c", script), tmp_path / f"{name}.log", cwd=tmp_path)
    note = tmp_path / f"{name}.ready"
    return CommandService(command, lambda _: note.exists(), timeout_s)


def writer(name: str) -> str:
    """Notes its start and its end in `order`."""
    return (
        f"trap 'echo -{name} >> order; exit 0' TERM; echo +{name} >> order; touch {name}.ready; "
        "while true; do sleep 0.05; done"
    )


def test_stages_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    said: list[str] = []
    marks: list[str] = []
    first = Stage((service(tmp_path, "a", writer("a")),), then=lambda: marks.append("migrated"))
    second = Stage((service(tmp_path, "b", writer("b")),))
    with Supervisor([first, second], said.append):
        assert marks == ["migrated"]
    assert (tmp_path / "order").read_text().split() == ["+a", "+b", "-b", "-a"]
    assert [line.split(" is ready")[0] for line in said] == ["a", "b"]


def test_a_service_that_does_not_start_is_told_with_its_log_and_the_rest_stops(
    tmp_path: Path,
) -> None:
    first = Stage((service(tmp_path, "a", writer("a")),))
    second = Stage((service(tmp_path, "b", "echo no such setting; exit 3"),))
    with (
        pytest.raises(ServiceError, match="b ended with status 3:\nno such setting"),
        Supervisor([first, second], lambda _: None),
    ):
        pass
    assert (tmp_path / "order").read_text().split() == ["+a", "-a"]


def test_a_late_service_is_given_up(tmp_path: Path) -> None:
    late = Stage((service(tmp_path, "a", "echo still thinking; sleep 60", timeout_s=0.4),))
    with (
        pytest.raises(ServiceError, match="a was not ready after 0 s:\nstill thinking"),
        Supervisor([late], lambda _: None),
    ):
        pass


def test_a_crashed_service_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    script = (
        "echo x >> starts; touch a.ready; "
        "while ! rm crash 2> /dev/null; do sleep 0.05; done; exit 1"
    )
    crashing = service(tmp_path, "a", script)
    with Supervisor([Stage((crashing,), stop_grace_s=0.5)], said.append) as supervisor:
        first = crashing.pid
        (tmp_path / "crash").touch()
        deadline = time.monotonic() + 20
        while crashing.pid == first or (tmp_path / "starts").read_text().count("x") < 2:
            supervisor.tick()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert crashing.is_running()
    assert "a ended unexpectedly, starting it again in 0 s" in said


def test_backoff_grows_and_is_bounded() -> None:
    assert [backoff_s(count) for count in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]


def test_one_supervisor_per_home(tmp_path: Path) -> None:
    with home_lock(tmp_path):
        with pytest.raises(ServiceError, match="SERO already runs in"), home_lock(tmp_path):
            pass
        assert holder(tmp_path) is not None
    assert holder(tmp_path) is None


def test_a_used_port_is_one_sentence_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        with pytest.raises(ServiceError) as caught:
            make_stages(Options(tmp_path / "home", api_port=port))
    assert str(caught.value) == (
        f"port {port} is in use: stop the program that uses it, "
        "or choose another port with --api-port"
    )
    assert not (tmp_path / "home").exists()


def test_everything_listens_on_the_loopback_only(tmp_path: Path) -> None:
    options = Options(tmp_path, 18999, 18998, database_url="x", broker_url="y")
    [servers, programs] = make_stages(options)
    assert servers.services == ()
    assert [program.name for program in programs.services] == ["api", "worker", "dashboard"]
    commands = [
        program.command for program in programs.services if isinstance(program, CommandService)
    ]
    for command in (commands[0], commands[2]):
        assert "127.0.0.1" in command.args
    assert all("0.0.0.0" not in " ".join(command.args) for command in commands)
