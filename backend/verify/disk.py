"""Is every record and every printed line of the spools in the database, and the other way round?"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, select, text

from backend.db.models import LogLine
from backend.spool import LineReader, SpoolFolder, clean_line, spool_folder
from backend.verify.finding import Finding, some
from sero_core.records import from_line
from sero_core.sinks.reader import SpoolDamaged, SpoolReader
from sero_core.sinks.spool import has_writer, segments

Attempt = tuple[int, int]
"""(job, attempt)"""


@dataclass(slots=True)
class _OnDisk:
    """What a folder holds: sequence -> (digest, iteration) of its records, from `first` on."""

    first: int = 0
    records: dict[int, tuple[bytes, int]] = field(default_factory=dict[int, tuple[bytes, int]])
    problem: str | None = None


def check_spools(connection: Connection, run_dir: Path, run_id: int) -> list[Finding]:
    """Two findings per attempt: its records and its lines."""
    stored: dict[Attempt, dict[int, bytes]] = defaultdict(dict)
    writers: dict[tuple[int, int], int] = {}
    rows = connection.execute(
        text(
            "SELECT job_id, attempt, sequence, digest, iteration, is_current FROM batches "
            "WHERE run_id = :run_id"
        ),
        {"run_id": run_id},
    )
    for row in rows:
        stored[row.job_id, row.attempt][row.sequence] = bytes(row.digest)
        if row.is_current:
            writers[row.job_id, row.iteration] = row.attempt
    running = _running(connection, run_id)
    findings: list[Finding] = []
    for job_id, attempt in sorted(stored.keys() | _folders(run_dir)):
        folder = spool_folder(run_dir, job_id, attempt)
        is_running = (job_id, attempt) in running or has_writer(folder.path)
        newest = {i: writer for (job, i), writer in writers.items() if job == job_id}
        findings += [
            _check_records(
                folder, (job_id, attempt), stored[job_id, attempt], newest, is_running=is_running
            ),
            _check_lines(connection, folder, (job_id, attempt), is_running=is_running),
        ]
    return findings


def _check_records(
    folder: SpoolFolder,
    place: Attempt,
    stored: dict[int, bytes],
    writers: dict[int, int],
    *,
    is_running: bool,
) -> Finding:
    check = f"records of job {place[0]} attempt {place[1]}"
    if not folder.path.is_dir():
        note = f"{folder.path} is not on this machine"
        return Finding(check, f"{len(stored)} in the database", "no folder", False, note)
    disk = _read(folder)
    problems = [disk.problem] if disk.problem is not None else []
    pending = 0
    for sequence, (digest, iteration) in disk.records.items():
        if sequence not in stored:
            if is_running:
                pending += 1
            elif writers.get(iteration, -1) <= place[1]:  # nobody wrote this iteration again
                problems.append(f"record {sequence} is not in the database")
        elif stored[sequence] != digest:
            problems.append(f"record {sequence} was stored with other bytes")
    end = disk.first + len(disk.records)
    problems += [f"record {s} is not in the database" for s in range(disk.first) if s not in stored]
    problems += [f"record {s} is not on the disk" for s in sorted(stored) if s >= end]
    waiting = f", {pending} not shipped yet" if pending else ""
    return Finding(check, f"{end}{waiting}", f"{len(stored)}", not problems, some(problems))


def _read(folder: SpoolFolder) -> _OnDisk:
    """Read every record that is still there, and check its checksums."""
    kept = segments(folder.path)
    found = _OnDisk(first=kept[0][0] if kept else 0)
    reader = SpoolReader(folder.path, found.first)
    try:
        while (frame := reader.peek()) is not None:
            iteration = from_line(frame.payload.decode()).iteration
            found.records[frame.sequence] = frame.digest, iteration
            reader.accept(frame)
        tail = None if has_writer(folder.path) else reader.torn_tail()
        if tail is not None:
            found.problem = f"{tail}"
    except SpoolDamaged as error:
        found.problem = str(error)
    return found


def _check_lines(
    connection: Connection, folder: SpoolFolder, place: Attempt, *, is_running: bool
) -> Finding:
    """The database's lines are the file's, in their order."""
    check = f"lines of job {place[0]} attempt {place[1]}"
    rows = connection.execute(
        select(LogLine.line, LogLine.text)
        .where(LogLine.job_id == place[0], LogLine.attempt == place[1])
        .order_by(LogLine.line)
    )
    stored: dict[int, str] = {row.line: row.text for row in rows}
    reader = LineReader(folder.output)
    number, problems = 0, list[str]()
    while lines := reader.peek(1000, is_final=not is_running):
        for line in lines:
            expected = clean_line(line).replace("\0", "\u2400")
            if number not in stored and not is_running:
                problems.append(f"line {number} is not in the database")
            elif stored.get(number, expected) != expected:
                problems.append(f"line {number} has changed")
            number += 1
        reader.accept(lines)
    problems += [f"line {line} is not on the disk" for line in stored if line >= number]
    return Finding(check, f"{number}", f"{len(stored)}", not problems, some(problems))


def _running(connection: Connection, run_id: int) -> set[Attempt]:
    rows = connection.execute(
        text("SELECT id, attempt FROM jobs WHERE run_id = :run_id AND state = 'running'"),
        {"run_id": run_id},
    )
    return {(row.id, row.attempt) for row in rows}


def _folders(run_dir: Path) -> set[Attempt]:
    names = (path.name for path in (run_dir / "spool").glob("job-*-attempt-*"))
    numbers = (re.fullmatch(r"job-(\d+)-attempt-(\d+)", name) for name in names)
    return {(int(found[1]), int(found[2])) for found in numbers if found is not None}
