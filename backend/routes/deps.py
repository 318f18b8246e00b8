"""What routes share: the services of the process, ids in paths, limits of lists.

Routes are plain functions in threads, and each takes its connection inside its own thread. As a
dependency it would be held while the request waits for a second thread, and enough requests at once
would wait for each other until they time out.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Path, Query, Request
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine

from backend.changes import Changes
from backend.db.queries.quotas import Caller
from backend.db.queries.runs import has_run
from backend.errors import NotFound
from backend.security.tokens import LOCAL, Identity
from backend.settings import Settings
from backend.wakeup import Wakeups

PERMALINK = re.compile(r"^(?P<run>[0-9]{1,9})-(?P<own>[A-Za-z0-9_.:-]{1,100})$")


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    engine: Engine
    wakeups: Wakeups
    registry: CollectorRegistry
    changes: Changes

    @contextmanager
    def reading(self, run_id: int | None = None) -> Generator[Connection]:
        """A connection for queries. Errors: `NotFound` where there is no run `run_id`."""
        with self.engine.connect() as connection:
            if run_id is not None:
                require_run(connection, run_id)
            yield connection

    @contextmanager
    def writing(self, run_id: int | None = None) -> Generator[Connection]:
        """A transaction that commits at the end. Errors: `NotFound` as above."""
        with self.engine.begin() as connection:
            if run_id is not None:
                require_run(connection, run_id)
            yield connection


def get_services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(get_services)]


def get_caller(request: Request) -> Caller:
    """Who asks: the token that the gate found."""
    identity = cast(Identity, request.state.identity)
    return Caller(identity.token_id, None if identity is LOCAL else identity.name)


CallerDep = Annotated[Caller, Depends(get_caller)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Makes the request safe to repeat: the same key is done once",
    ),
]

RunId = Annotated[int, Path(ge=1, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=500, description="Entries per page")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the last page")]
OptionalIteration = Annotated[int | None, Query(ge=0, le=2**31 - 1)]


ERRORS_AS_JSON: dict[str, Any] = {
    "description": "Error",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}},
}
"""For routes whose success is not JSON."""


def split_permalink(value: str, noun: str) -> tuple[int, str]:
    """(run id, id within the run). Errors: `NotFound`."""
    found = PERMALINK.match(value)
    if found is None:
        raise NotFound(f"{value!r} is not the id of {noun}; such an id is <run>-<id>")
    return int(found["run"]), found["own"]


def require_run(connection: Connection, run_id: int) -> None:
    """Errors: `NotFound`."""
    if not has_run(connection, run_id):
        raise NotFound(f"there is no run {run_id}")
