"""Read a run folder's log, whichever of its two forms it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sero_core.records import IterationPayload, from_line
from sero_core.sinks.jsonl import RECORDS_FILE
from sero_core.sinks.reader import SpoolReader
from sero_core.sinks.spool import segments
from sero_core.types import SeroError


def read_log(folder: Path) -> Iterator[IterationPayload]:
    """The records of `<folder>/records.jsonl`, or of a worker's spools of the training job.

    Of spools, each iteration as the last attempt wrote it. A log that is being written may end in
    an unfinished record, which is left out. Errors: `SeroError` where there is no log, or where
    segments were deleted because the database has them.
    """
    path = folder / RECORDS_FILE
    if path.is_file():
        with path.open() as lines:
            yield from (from_line(line) for line in lines if line.endswith("\n"))
        return
    attempts = _attempts(folder)
    if not attempts:
        raise SeroError(f"{folder} holds no {RECORDS_FILE} and no spool")
    found: dict[int, IterationPayload] = {}
    for attempt in attempts:
        found |= {payload.iteration: payload for payload in read_spool(attempt)}
    yield from (found[iteration] for iteration in sorted(found))


def read_spool(folder: Path) -> Iterator[IterationPayload]:
    """The records of one attempt. Errors: `SeroError` when the first are deleted already."""
    kept = segments(folder)
    if kept and kept[0][0] > 0:
        raise SeroError(
            f"{folder} starts with record {kept[0][0]}: those before are in the database only; "
            "read the run through the API"
        )
    reader = SpoolReader(folder)
    while (frame := reader.peek()) is not None:
        yield from_line(frame.payload.decode())
        reader.accept(frame)


def _attempts(folder: Path) -> list[Path]:
    """The spools of the first job of a run, which trained it, in the order of the attempts."""
    found: list[tuple[int, int, Path]] = []
    for path in (folder / "spool").glob("job-*-attempt-*"):
        numbers = re.fullmatch(r"job-(\d+)-attempt-(\d+)", path.name)
        if numbers is not None:
            found.append((int(numbers[1]), int(numbers[2]), path))
    first = min(found, default=(0,))[0]
    return [path for job, _, path in sorted(found) if job == first]
