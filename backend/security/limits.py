"""Two limits of the gate: how often an address may fail to authenticate, how long a body may be."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive


class FailureLimit:
    """At most `most` failures of one address within `window_s` seconds.

    Kept in the process: with several API processes an address has that many times more tries, which
    does not matter against 256 random bits; the limit keeps logs and database quiet.
    """

    def __init__(
        self,
        most: int = 10,
        window_s: float = 60.0,
        max_addresses: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._window_s, self._clock = most, window_s, clock
        self._max_addresses = max_addresses
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = Lock()

    def wait_s(self, address: str) -> float:
        """Seconds until the address may try again; 0 = now."""
        with self._lock:
            times = self._recent(address)
            if len(times) < self._most:
                return 0.0
            return times[0] + self._window_s - self._clock()

    def note(self, address: str) -> None:
        """Count a failure."""
        with self._lock:
            times = [*self._recent(address), self._clock()][-self._most :]
            self._failures[address] = times
            self._failures.move_to_end(address)
            while len(self._failures) > self._max_addresses:
                self._failures.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        oldest = self._clock() - self._window_s
        return [at for at in self._failures.get(address, ()) if at > oldest]


class BodyTooLarge(HTTPException):
    """More bytes than allowed have arrived. An HTTPException, because FastAPI turns any other
    exception while it reads a body into "bad request"."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(413, f"the body is longer than {max_bytes} bytes")


def limited(receive: Receive, max_bytes: int) -> Receive:
    """`receive` that raises `BodyTooLarge` once more than `max_bytes` of body have arrived."""
    seen = 0

    async def counting() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > max_bytes:
                raise BodyTooLarge(max_bytes)
        return message

    return counting
