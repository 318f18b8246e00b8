"""Do something in the database, and wait while the database is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import InterfaceError, OperationalError, TimeoutError

ResultT = TypeVar("ResultT")
AWAY = (OperationalError, InterfaceError, TimeoutError)
"""What a lost, restarting or overloaded server raises; anything else is our mistake."""

MAX_WAIT_S = 10.0
log = logging.getLogger(__name__)


class GaveUp(Exception):
    """The database stayed away until the caller had to stop."""


def in_transaction(
    engine: Engine, work: Callable[[Connection], ResultT], give_up: threading.Event
) -> ResultT:
    """Run `work` in one transaction; repeat with growing waits while the database is away.

    Errors: `GaveUp` once `give_up` is set and the database still does not answer; whatever else
    `work` raises.
    """
    wait_s = 0.2
    while True:
        try:
            with engine.begin() as connection:
                return work(connection)
        except AWAY as error:
            if give_up.is_set():
                raise GaveUp(str(error)) from error
            log.warning("the database is away, next try in %.1f s: %s", wait_s, error.args[0])
        give_up.wait(wait_s)
        wait_s = min(2 * wait_s, MAX_WAIT_S)
