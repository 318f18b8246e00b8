"""Notes that a worker's main process and its pool process leave for each other and for `sero up`.

Files in `$SERO_HOME/workers/<host>-<process>/`: `ready` (takes jobs), `stop` (end the job soon),
`busy-<process>` (it takes jobs) and `job-<job>-<attempt>` (which process runs it). Celery has no
channel between the two that works during a task.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a process of this worker runs; not alive: the process was killed meanwhile."""

    job_id: int
    attempt: int
    is_process_alive: bool
    note: Path


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

    @contextmanager
    def running(self, job_id: int, attempt: int) -> Generator[None]:
        """Mark the time in which this process runs a job."""
        note = self._folder / f"job-{job_id}-{attempt}"
        staging = self._folder / f".job-{job_id}-{attempt}"
        staging.write_text(f"{os.getpid()} {start_of(os.getpid())}")
        staging.replace(note)
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    def running_jobs(self) -> list[RunningJob]:
        """The jobs that processes of this worker run, or ran until they were killed."""
        found: list[RunningJob] = []
        for note in self._folder.glob("job-*-*"):
            _, job_id, attempt = note.name.split("-")
            try:
                pid, _, start = note.read_text().partition(" ")
            except FileNotFoundError:  # it ended in this moment
                continue
            is_alive = start_of(int(pid)) == start
            found.append(RunningJob(int(job_id), int(attempt), is_alive, note))
        return found

    def is_busy(self) -> bool:
        return any(self._folder.glob("busy-*"))


def start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks: the same number may come again later.

    "" for one that is gone or a zombie. Where there is no /proc, "0" for any that exists.
    """
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return ""
        return "0"
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
