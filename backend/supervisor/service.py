"""What the supervisor keeps alive: embedded servers and plain commands, behind one contract."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from backend.supervisor.process import Child, Command, ServiceError, tail


class Service(Protocol):
    """One kept process. `launch` returns early, `wait_ready` once it does its work."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    def launch(self) -> None: ...

    def wait_ready(self) -> None: ...

    def is_running(self) -> bool: ...

    def request_stop(self) -> None: ...

    def stop(self, grace_s: float) -> None: ...


class EmbeddedServer(Protocol):
    """What `EmbeddedPostgres` and `EmbeddedValkey` share."""

    name: str

    @property
    def pid(self) -> int | None: ...

    def start(self) -> None: ...

    def is_running(self) -> bool: ...

    def request_stop(self) -> None: ...

    def stop(self, grace_s: float = ...) -> None: ...


class EmbeddedService:
    """An embedded server as a service; its start waits until it answers."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def launch(self) -> None:
        self._server.start()

    def wait_ready(self) -> None:
        return

    def is_running(self) -> bool:
        return self._server.is_running()

    def request_stop(self) -> None:
        self._server.request_stop()

    def stop(self, grace_s: float) -> None:
        self._server.stop(grace_s)


class CommandService:
    """A command that is ready once `is_ready(pid)` says so."""

    def __init__(
        self, command: Command, is_ready: Callable[[int], bool], timeout_s: float = 120.0
    ) -> None:
        self.command = command
        self._is_ready = is_ready
        self._timeout_s = timeout_s
        self._child: Child | None = None

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def launch(self) -> None:
        self._child = Child(self.command)

    def wait_ready(self) -> None:
        """Errors: `ServiceError` with the end of the log when it ends or is late."""
        child = self._child
        if child is None:
            raise ServiceError(f"{self.name} was not launched")
        deadline = time.monotonic() + self._timeout_s
        while child.returncode() is None:
            if self._is_ready(child.pid):
                return
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{self.name} was not ready after {self._timeout_s:.0f} s:\n"
                    f"{tail(self.command.log)}"
                )
            time.sleep(0.1)
        raise ServiceError(
            f"{self.name} ended with status {child.returncode()}:\n{tail(self.command.log)}"
        )

    def is_running(self) -> bool:
        return self._child is not None and self._child.returncode() is None

    def request_stop(self) -> None:
        if self._child is not None:
            self._child.request_stop()

    def stop(self, grace_s: float) -> None:
        if self._child is not None:
            self._child.stop(grace_s)
            self._child = None
