"""What routes share: the services of the process, a reading connection, ids in paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request
from sqlalchemy import Connection, Engine

from backend.db.queries.runs import has_run
from backend.errors import NotFound
from backend.settings import Settings
from backend.wakeup import Wakeups

PERMALINK = re.compile(r"^(?P<run>[0-9]{1,9})-(?P<own>[A-Za-z0-9_.:-]{1,100})$")


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    engine: Engine
    wakeups: Wakeups


def get_services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(get_services)]


def _reading(services: ServicesDep) -> Iterator[Connection]:
    with services.engine.connect() as connection:
        yield connection


Reading = Annotated[Connection, Depends(_reading, scope="function")]


def _run_id(connection: Reading, run_id: Annotated[int, Path(ge=1, le=2**31 - 1)]) -> int:
    if not has_run(connection, run_id):
        raise NotFound(f"there is no run {run_id}")
    return run_id


RunId = Annotated[int, Depends(_run_id)]
Limit = Annotated[int, Query(ge=1, le=500, description="Entries per page")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the last page")]
OptionalIteration = Annotated[int | None, Query(ge=0, le=2**31 - 1)]


def split_permalink(value: str, noun: str) -> tuple[int, str]:
    """(run id, id within the run). Errors: `NotFound`."""
    found = PERMALINK.match(value)
    if found is None:
        raise NotFound(f"{value!r} is not the id of {noun}; such an id is <run>-<id>")
    return int(found["run"]), found["own"]
