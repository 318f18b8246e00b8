"""Keeps the services of one home alive, from one main thread, and leaves no process behind.

with Supervisor(stack(options), say) as supervisor:
    while True:
        supervisor.tick()
        time.sleep(0.5)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from backend.supervisor.process import ServiceError
from backend.supervisor.service import Service

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 30.0
STABLE_S = 60.0
"""A child that lived this long is restarted at once again."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """Services that start together, after the stage before is ready. `then` runs once they are."""

    services: tuple[Service, ...]
    stop_grace_s: float = 15.0
    then: Callable[[], None] | None = None


@dataclass(slots=True)
class _Watch:
    """How often a service crashed in a row, and when it may start again."""

    started_at: float
    num_crashes: int = 0
    restart_at: float | None = field(default=None)


class Supervisor:
    """Starts the stages in order, restarts what crashes, stops the stages in reverse order."""

    def __init__(self, stages: Sequence[Stage], say: Say) -> None:
        self._stages = tuple(stages)
        self._say = say
        self._watches: dict[str, _Watch] = {}

    def __enter__(self) -> Self:
        """Start everything. Errors: `ServiceError`; what had started is stopped again."""
        try:
            for stage in self._stages:
                started = time.monotonic()
                for service in stage.services:
                    self._watches[service.name] = _Watch(started)
                    service.launch()
                for service in stage.services:
                    service.wait_ready()
                    self._say(f"{service.name} is ready ({time.monotonic() - started:.1f} s)")
                if stage.then is not None:
                    stage.then()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def tick(self) -> None:
        """Look at every service once and restart those whose time has come. Call it often."""
        for stage in self._stages:
            for service in stage.services:
                self._look_at(service, self._watches[service.name])

    def stop(self) -> None:
        """Stop stage by stage, each one's services at the same time."""
        for stage in reversed(self._stages):
            deadline = time.monotonic() + stage.stop_grace_s
            for service in stage.services:
                service.request_stop()
            for service in stage.services:
                service.stop(max(0.1, deadline - time.monotonic()))

    def _look_at(self, service: Service, watch: _Watch) -> None:
        if service.is_running():
            return
        now = time.monotonic()
        if watch.restart_at is None:
            if now - watch.started_at > STABLE_S:
                watch.num_crashes = 0
            wait_s = backoff_s(watch.num_crashes)
            watch.num_crashes += 1
            watch.restart_at = now + wait_s
            self._say(f"{service.name} ended unexpectedly, starting it again in {wait_s:.0f} s")
            service.stop(0.1)  # ends what is left of its process group
        if now < watch.restart_at:
            return
        watch.started_at, watch.restart_at = now, None
        try:
            service.launch()
            service.wait_ready()
        except ServiceError as error:
            self._say(f"{service.name} did not start again: {error}")
            return
        self._say(f"{service.name} is ready again ({time.monotonic() - now:.1f} s)")


def backoff_s(num_crashes: int) -> float:
    """0 s for the first crash, then 1, 2, 4 … 30 s."""
    if num_crashes == 0:
        return 0.0
    return min(FIRST_BACKOFF_S * 2.0 ** (num_crashes - 1), MAX_BACKOFF_S)
