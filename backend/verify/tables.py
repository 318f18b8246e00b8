"""Do the tables hold the rows that were stored, unchanged?

When a record was stored, the rows of each table were counted and their binary forms hashed
(`backend.db.copy.Contents`). COPY reads the same binary forms back, so the sums can be taken again:
a missing, doubled or changed row shows, whoever changed it.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple, cast

from sqlalchemy import Connection, inspect, select, text

from backend.db.batches import LAYOUT
from backend.db.copy import EMPTY, SIGNATURE, Contents, canonical_json, raw_connection, type_name
from backend.db.models import Base
from backend.db.records import Batch, Layout
from backend.db.texts import clean, text_id
from backend.verify.finding import Finding, some

Key = tuple[int, int]
"""(job, iteration)"""
_OF_EPISODE = ("LEFT JOIN episodes AS p USING (run_id, episode_id)", "p.job_id", "p.iteration")
_OF_EVALUATION = (
    "LEFT JOIN evaluations AS p USING (run_id, job_id, evaluation_id)",
    "t.job_id",
    "p.iteration",
)
PARENTS = {
    "steps": _OF_EPISODE,
    "eval_results": _OF_EVALUATION,
    "eval_outcomes": _OF_EVALUATION,
}
"""Tables whose rows say neither job nor iteration: join, job, iteration."""
_DIRECT = ("", "t.job_id", "t.iteration")
_TWO_KEYS = struct.Struct("!hiiii")
TEXTS_AT_ONCE = 10_000


class Stored(NamedTuple):
    """What a current record put into a table, and of which columns the checksum is."""

    contents: Contents
    columns: tuple[str, ...]


def check_tables(connection: Connection, run_id: int) -> list[Finding]:
    """One finding per table, and one on the iterations themselves."""
    expected = _expected(connection, run_id)
    findings = [_check_iterations(connection, run_id)]
    findings += [
        _check_table(connection, run_id, table, expected.get(table, {})) for table in LAYOUT
    ]
    return findings


def check_texts(connection: Connection, run_id: int) -> list[Finding]:
    """Every text that the rows refer to is there and hashes to its id."""
    wanted = _text_ids(connection, run_id)
    num_found, changed = 0, list[str]()
    for start in range(0, len(wanted), TEXTS_AT_ONCE):
        ids = wanted[start : start + TEXTS_AT_ONCE]
        rows = connection.execute(
            text("SELECT id, text FROM texts WHERE id = ANY (:ids)"), {"ids": ids}
        )
        for row in rows:
            num_found += 1
            if text_id(clean(row.text)) != row.id:
                changed.append(f"text {row.id} has changed")
    missing = len(wanted) - num_found
    notes = [f"{missing} texts are missing"] if missing else []
    return [
        Finding(
            "texts",
            f"{len(wanted)} texts",
            f"{num_found} texts, {len(changed)} changed",
            not missing and not changed,
            some(notes + changed),
        )
    ]


def _expected(connection: Connection, run_id: int) -> dict[str, dict[Key, Stored]]:
    """Table -> (job, iteration) -> what the current records put there."""
    rows = connection.execute(
        select(Batch.job_id, Batch.iteration, Batch.contents, Layout.columns)
        .join(Layout, Layout.id == Batch.layout_id)
        .where(Batch.run_id == run_id, Batch.is_current)
    )
    found: dict[str, dict[Key, Stored]] = defaultdict(dict)
    for job_id, iteration, contents, layout in rows:
        columns = cast(dict[str, list[str]], layout)
        for table, (num_rows, checksum) in cast(dict[str, tuple[int, str]], contents).items():
            stored = Contents(num_rows, int(checksum, 16))
            found[table][job_id, iteration] = Stored(stored, tuple(columns[table]))
    return found


def _check_table(
    connection: Connection, run_id: int, table: str, expected: dict[Key, Stored]
) -> Finding:
    differences: list[str] = []
    num_found, strangers = 0, dict[Key, Contents]()
    layouts = {stored.columns for stored in expected.values()}
    for columns in sorted(layouts) or [tuple(cast(list[str], LAYOUT[table]))]:
        found = _contents(connection, run_id, table, columns)
        mine = {key: stored for key, stored in expected.items() if stored.columns == columns}
        for key, stored in mine.items():
            got = found.get(key, EMPTY)
            num_found += got.rows
            if got != stored.contents:
                differences.append(_difference(key, stored.contents, got))
        strangers = {key: got for key, got in found.items() if key not in expected}
    for key, got in strangers.items():
        num_found += got.rows
        differences.append(f"{_name(key)}: {got.rows} rows that no record put there")
    num_expected = sum(stored.contents.rows for stored in expected.values())
    return Finding(
        f"table {table}",
        f"{num_expected} rows",
        f"{num_found} rows",
        not differences,
        some(differences),
    )


def _difference(key: Key, expected: Contents, got: Contents) -> str:
    if got.rows != expected.rows:
        return f"{_name(key)}: {got.rows} rows, expected {expected.rows}"
    return f"{_name(key)}: its {got.rows} rows have changed"


def _name(key: Key) -> str:
    job_id, iteration = key
    return f"job {job_id} iteration {iteration}" if iteration >= 0 else "rows without a parent"


def _contents(
    connection: Connection, run_id: int, table: str, columns: tuple[str, ...]
) -> dict[Key, Contents]:
    """What the table holds of a run now."""
    join, job, iteration = PARENTS.get(table, _DIRECT)
    names = ", ".join(f't."{column}"' for column in columns)
    statement = (
        f"COPY (SELECT coalesce({job}, 0), coalesce({iteration}, -1), {names} FROM {table} AS t "
        f"{join} WHERE t.run_id = {run_id:d}) TO STDOUT (FORMAT BINARY)"
    )
    model = Base.metadata.tables[table]
    json_at = [i for i, c in enumerate(columns) if type_name(model.columns[c].type) == "jsonb"]
    found: dict[Key, Contents] = defaultdict(lambda: EMPTY)
    for row in _rows(connection, statement):
        num_columns, _, job_id, _, number = _TWO_KEYS.unpack_from(row)
        rest = struct.pack("!h", num_columns - 2) + row[_TWO_KEYS.size :]
        found[job_id, number] = found[job_id, number].plus(
            _canonical(rest, json_at) if json_at else rest
        )
    return dict(found)


def _rows(connection: Connection, statement: str) -> Iterator[bytes]:
    """The binary rows of a COPY; each message is one, but for the signature and the trailer."""
    with raw_connection(connection).cursor() as cursor, cursor.copy(statement.encode()) as copy:
        is_first = True
        for message in copy:
            row = bytes(message)
            if is_first:
                row, is_first = row.removeprefix(SIGNATURE), False
            if len(row) > 2:
                yield row


def _canonical(row: bytes, json_at: list[int]) -> bytes:
    """The row with its JSON fields in the form that was hashed."""
    parts, at = [row[:2]], 2
    for index in range(struct.unpack_from("!h", row)[0]):
        (size,) = struct.unpack_from("!i", row, at)
        end = at + 4 + max(size, 0)
        field = row[at:end]
        if index in json_at and size >= 0:
            value = field[4:5] + canonical_json(json.loads(field[5:]))
            field = struct.pack("!i", len(value)) + value
        parts.append(field)
        at = end
    return b"".join(parts)


def _check_iterations(connection: Connection, run_id: int) -> Finding:
    """The training's iterations follow each other without a gap."""
    numbers = list(
        connection.execute(
            text(
                "SELECT iteration FROM iterations JOIN jobs ON jobs.id = job_id "
                "WHERE iterations.run_id = :run_id AND kind = 'train' ORDER BY 1"
            ),
            {"run_id": run_id},
        ).scalars()
    )
    complete = list(range(numbers[0], numbers[-1] + 1)) if numbers else []
    gaps = [f"iteration {number} is missing" for number in set(complete) - set(numbers)]
    return Finding(
        "iterations without a gap", f"{len(complete)}", f"{len(numbers)}", not gaps, some(gaps)
    )


def _text_ids(connection: Connection, run_id: int) -> list[int]:
    """Ids of texts that the run's rows refer to: columns `…_id` of 64 bits."""
    parts: list[str] = []
    names = set(inspect(connection).get_table_names())
    for table in ("episodes", "steps", "branches", "branch_steps"):
        model = Base.metadata.tables[table]
        parts += [
            f'SELECT "{column.name}" AS id FROM {table} WHERE run_id = :run_id'
            for column in model.columns
            if table in names and column.name.endswith("_id") and type_name(column.type) == "int8"
        ]
    rows = connection.execute(
        text(f"SELECT id FROM ({' UNION '.join(parts)}) AS used WHERE id IS NOT NULL ORDER BY id"),
        {"run_id": run_id},
    )
    return list(rows.scalars())
