"""Where a run's records go: `records.jsonl`, or the spool that a worker ships to a database."""

from __future__ import annotations

import os
from pathlib import Path

from sero_core.sinks.jsonl import JsonlSink
from sero_core.sinks.spool import SpoolSink

SPOOL_VARIABLE = "SERO_SPOOL"
"""The worker names the spool's folder in this variable of the environment."""


def open_log(out: Path, resume_after: int | None) -> JsonlSink | SpoolSink:
    """The log of a process: the spool that the environment names, else `<out>/records.jsonl`.

    `resume_after`: see `JsonlSink`; a spool belongs to one process and never resumes.
    Errors: `SeroError` when the place already holds another process's log.
    """
    folder = os.environ.get(SPOOL_VARIABLE)
    return SpoolSink(Path(folder)) if folder else JsonlSink(out, resume_after)
