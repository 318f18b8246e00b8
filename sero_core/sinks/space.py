"""Stop before the disk is full, while there is room for the checkpoint that a clean stop writes."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sero_core.types import IterationRecord

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MARGIN_BYTES = 16 * 2**20
FIRST_CHECKPOINT_FACTOR = 5
"""The first checkpoint has no optimizer moments yet: two float32 numbers for each weight, which may
itself be of two bytes."""


class Log(Protocol):
    """What the guard asks of the log before it in the list of sinks."""

    @property
    def num_bytes(self) -> int: ...


class SpaceGuard:
    """A sink after the log: looks at the disk once per record.

    It asks to stop once less is free than the largest checkpoint and two of the largest records
    need, so that stopping now still leaves a checkpoint of everything that was logged. `shortage`
    says so in words.
    """

    def __init__(self, out: Path, log: Log, request_stop: Callable[[], object]) -> None:
        self._out = out
        self._log = log
        self._request_stop = request_stop
        self._checkpoint_bytes = 0
        self._num_checkpoints = 0
        self._record_bytes = 0
        self.shortage: str | None = None

    def write(self, record: IterationRecord) -> None:
        """Learn the sizes and compare with what is free."""
        if record.checkpoint is not None:
            factor = 1 if self._num_checkpoints else FIRST_CHECKPOINT_FACTOR
            self._num_checkpoints += 1
            self._checkpoint_bytes = max(
                record.checkpoint.num_bytes * factor,
                self._checkpoint_bytes if self._num_checkpoints > 2 else 0,
            )
        self._record_bytes = max(self._record_bytes, self._log.num_bytes)
        needed = self._checkpoint_bytes + 2 * self._record_bytes + MARGIN_BYTES
        free = shutil.disk_usage(self._out).free
        if free < needed:
            self.shortage = disk_full(self._out, needed)
            self._request_stop()

    def close(self) -> None:
        """Nothing to close."""


def disk_full(folder: Path, needed: int | None = None) -> str:
    """The reason of a stop, in words."""
    free = shutil.disk_usage(folder).free / 2**20
    asked = "" if needed is None else f", the next checkpoint and record need {needed / 2**20:.0f}"
    return f"the disk of {folder} is full: {free:.0f} MiB are free{asked}"


def is_disk_full(error: Exception) -> bool:
    """True for ENOSPC, EDQUOT and EFBIG, also where safetensors says so in words."""
    if isinstance(error, OSError):
        return error.errno in DISK_FULL
    found = re.search(r"\(os error (\d+)\)", str(error))
    return found is not None and int(found[1]) in DISK_FULL
