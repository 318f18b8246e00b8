"""One supervisor per home: a lock on a file that also says which process holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from backend.supervisor.process import ServiceError


@contextmanager
def home_lock(home: Path) -> Generator[None]:
    """Hold the home. Errors: `ServiceError` when another `sero up` holds it."""
    home.mkdir(parents=True, exist_ok=True)
    with _path(home).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError(
                f"SERO already runs in {home} (process {_read(home)}): "
                "stop it with `sero down`, or set SERO_HOME to another folder"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def holder(home: Path) -> int | None:
    """Process number of the supervisor that holds the home; None when nobody does."""
    if not _path(home).exists():
        return None
    with _path(home).open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = _read(home)
            return int(text) if text.isdigit() else None
    return None


def _path(home: Path) -> Path:
    return home / "supervisor.lock"


def _read(home: Path) -> str:
    return _path(home).read_text().strip() or "?"
