"""The local log: one JSON line per iteration in `records.jsonl`, durable before `write` returns."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sero_core.records import from_line, to_line
from sero_core.types import IterationRecord, SeroError

RECORDS_FILE = "records.jsonl"


class JsonlSink:
    """Appends to `<out>/records.jsonl`.

    `resume_after` keeps the lines up to that iteration and drops later ones, a torn last line
    included: the resumed run produces them again. None starts an empty log and refuses to
    overwrite.
    """

    def __init__(self, out: Path, resume_after: int | None) -> None:
        path = out / RECORDS_FILE
        if resume_after is None:
            if path.exists() and path.stat().st_size:
                raise SeroError(f"{path} already holds a run; use --resume or another --out folder")
            path.touch()
        else:
            _truncate_after(path, resume_after)
        self._file = path.open("ab", buffering=0)
        self.num_bytes = 0
        """Bytes of the last record."""

    def write(self, record: IterationRecord) -> None:
        """Append one line and fsync.

        Errors: OSError (disk full, quota) with nothing half-accepted: the same record may be
        written again.
        """
        line = to_line(record).encode() + b"\n"
        start = os.fstat(self._file.fileno()).st_size
        try:
            write_all(self._file.fileno(), line)
            os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):  # what stays is a torn line, which resuming drops
                self._file.truncate(start)
            raise
        self.num_bytes = len(line)

    def close(self) -> None:
        self._file.close()


def write_all(file: int, data: bytes) -> None:
    """Write everything. Errors: OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _truncate_after(path: Path, iteration: int) -> None:
    """Drop every line after `iteration` in place, so that a reader's byte offsets stay valid."""
    end = 0
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") or from_line(line.decode()).iteration > iteration:
                    break
                end += len(line)
        os.truncate(path, end)
