"""Notes that a worker's main process and its pool process leave for each other and for `sero up`.

Files in `$SERO_HOME/workers/<host>-<process>/`: `ready` (takes jobs), `stop` (end the job soon) and
`busy-<process>` (it runs a job). Celery has no channel between the two that works during a task.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class Notes:
    """The notes of one worker."""

    def __init__(self, home: Path, worker_id: str) -> None:
        self._folder = home / "workers" / worker_id

    def begin(self) -> None:
        """Forget what an earlier process with the same name left."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def end(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def say_ready(self) -> None:
        (self._folder / "ready").touch()

    def ask_to_stop(self) -> None:
        (self._folder / "stop").touch()

    def is_asked_to_stop(self) -> bool:
        return (self._folder / "stop").exists()

    @contextmanager
    def busy(self) -> Generator[None]:
        """Mark the time in which this process runs jobs."""
        note = self._folder / f"busy-{os.getpid()}"
        note.touch()
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    def is_busy(self) -> bool:
        return any(self._folder.glob("busy-*"))
