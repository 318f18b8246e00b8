"""The spool: the log of one attempt while it waits to be shipped, in segments of checksummed
records.

The trainer appends and syncs; it never waits for a database. A shipper follows with
`sero_core.sinks.reader`, and deletes segments that the database acknowledged. Each attempt writes
into a folder of its own, so a process that was given up cannot damage the log of its successor.
The writer holds a lock as long as it lives, by which others know whether more may come.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from sero_core.records import to_line
from sero_core.sinks.frames import encode
from sero_core.sinks.jsonl import write_all
from sero_core.types import IterationRecord, SeroError

SEGMENT_SUFFIX = ".spool"
LOCK = ".lock"
SEGMENT_BYTES = 64 * 2**20
"""A segment that has grown to this size is closed; the next record starts another."""


class SpoolSink:
    """Appends records to `<folder>/<first sequence>.spool`, numbered from 0.

    Errors: `SeroError` when the folder already holds segments or another process writes there.
    """

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(folder)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._sequence = 0
        self._file: int | None = None
        self._end = 0
        self.num_bytes = 0
        """Bytes of the last record."""

    def write(self, record: IterationRecord) -> None:
        """Append one record and sync it.

        Errors: OSError (disk full, quota) with nothing half-accepted: the same record may be
        written again.
        """
        data = encode(self._sequence, to_line(record).encode())
        file = self._file if self._file is not None else self._open_segment()
        try:
            write_all(file, data)
            os.fsync(file)
        except OSError:
            with suppress(OSError):  # what stays is a torn tail, which readers cut
                os.ftruncate(file, self._end)
            raise
        self._end += len(data)
        self._sequence += 1
        self.num_bytes = len(data)
        if self._end >= self._segment_bytes:
            self._close_segment()

    def close(self) -> None:
        """End the log."""
        self._close_segment()
        self._lock.close()

    def _close_segment(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open_segment(self) -> int:
        path = segment_path(self._folder, self._sequence)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _sync_folder(self._folder)
        self._file, self._end = file, os.fstat(file).st_size
        return file


def _hold(folder: Path) -> TextIOWrapper:
    """The lock of the only writer that a folder may ever have. Errors: `SeroError`."""
    lock = (folder / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise SeroError(f"another process writes its log to {folder}") from None
    if segments(folder):
        lock.close()
        raise SeroError(f"{folder} already holds the log of another process")
    return lock


def segment_path(folder: Path, first_sequence: int) -> Path:
    return folder / f"{first_sequence:010d}{SEGMENT_SUFFIX}"


def segments(folder: Path) -> list[tuple[int, Path]]:
    """(first sequence, file) of every segment, oldest first."""
    return sorted((int(path.stem), path) for path in folder.glob(f"*{SEGMENT_SUFFIX}"))


def has_writer(folder: Path) -> bool:
    """A living process writes into the spool."""
    try:
        with (folder / LOCK).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
