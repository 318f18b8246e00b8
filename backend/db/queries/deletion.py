"""Deleting runs: every row of theirs, and the texts that nothing else refers to.

Tables with a `run_id` are found in the metadata, and so are the columns that refer to `texts` (a
bigint `..._id` in such a table), so that a new table is cleaned up from its first day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import BigInteger, Connection, Table, text

from backend.db.models import Base, Event
from backend.db.queries.control import NotPossible
from backend.db.queries.events import add_event

TIMEOUT_S = 600
_KEPT_FOR_LAST = ("jobs", "runs")


class Freed(NamedTuple):
    """`row_bytes`: the sum of the rows' sizes."""

    num_rows: dict[str, int]
    num_texts: int
    row_bytes: int


def tables_of_runs() -> list[Table]:
    """Every table with rows of a run, those that others refer to last."""
    found = [
        table
        for table in Base.metadata.sorted_tables
        if "run_id" in table.columns or table.name == "runs"
    ]
    first = [table for table in found if table.name not in _KEPT_FOR_LAST]
    last = [Base.metadata.tables[name] for name in _KEPT_FOR_LAST]
    return first + last


def text_columns() -> Iterator[tuple[str, str]]:
    """(table, column) of each reference to `texts`."""
    for table in tables_of_runs():
        if table is Event.__table__:
            continue
        for column in table.columns:
            if isinstance(column.type, BigInteger) and column.name.endswith("_id"):
                yield table.name, column.name


def delete_runs(connection: Connection, run_ids: Sequence[int], *, actor: str | None) -> Freed:
    """Delete runs that have ended or wait; jobs of other runs behind theirs are skipped.

    Holds up the storing of new texts until the transaction ends (training itself never waits for
    that). Errors: `NotPossible` while one of them runs.
    """
    connection.execute(text(f"SET LOCAL statement_timeout = {TIMEOUT_S * 1000}"))
    values = {"ids": list(run_ids)}
    running = connection.execute(
        text("SELECT run_id, id, state FROM jobs WHERE run_id = ANY (:ids) ORDER BY id FOR UPDATE"),
        values,
    ).all()
    for job in running:
        if job.state == "running":
            raise NotPossible(
                f"run {job.run_id} is not deleted: its job {job.id} is running; stop it first"
            )
    _skip_outsiders(connection, run_ids)
    _collect_texts(connection, run_ids)
    num_rows: dict[str, int] = {}
    row_bytes = 0
    for table in tables_of_runs():
        key = "id" if table.name == "runs" else "run_id"
        row = connection.execute(
            text(
                f'WITH gone AS (DELETE FROM "{table.name}" AS t WHERE {key} = ANY (:ids) '
                "RETURNING pg_column_size(t.*) AS size) "
                "SELECT count(*) AS num_rows, coalesce(sum(size), 0) AS size FROM gone"
            ),
            values,
        ).one()
        if row.num_rows:
            num_rows[table.name] = row.num_rows
            row_bytes += int(row.size)
    num_texts, text_bytes = _delete_texts(connection)
    for run_id in run_ids:
        add_event(connection, "run.deleted", f"run {run_id} was deleted", actor=actor)
    return Freed(num_rows, num_texts, row_bytes + text_bytes)


def _skip_outsiders(connection: Connection, run_ids: Sequence[int]) -> None:
    """Jobs of other runs that wait for a job of these can never start."""
    rows = connection.execute(
        text(
            """
            UPDATE jobs SET state = 'skipped', finished_at = clock_timestamp(),
                reason = before.kind || ' job ' || before.id || ' was deleted'
            FROM job_dependencies, jobs AS before
            WHERE jobs.state = 'queued' AND job_id = jobs.id AND before.id = depends_on
                AND before.run_id = ANY (:ids) AND before.state <> 'succeeded'
                AND jobs.run_id <> ALL (:ids)
            RETURNING jobs.id, jobs.run_id, jobs.kind, jobs.reason
            """
        ),
        {"ids": list(run_ids)},
    ).all()
    for row in rows:
        message = f"{row.kind} job {row.id} was skipped: {row.reason}"
        add_event(connection, "job.skipped", message, run_id=row.run_id, job_id=row.id)


def _collect_texts(connection: Connection, run_ids: Sequence[int]) -> None:
    parts = " UNION ".join(
        f'SELECT "{column}" AS id FROM "{table}" WHERE run_id = ANY (:ids)'
        for table, column in text_columns()
    )
    # the ids that deleted rows leave behind; rows of other runs that are stored meanwhile wait
    connection.execute(text("LOCK TABLE texts IN SHARE ROW EXCLUSIVE MODE"))
    connection.execute(text("DROP TABLE IF EXISTS left_texts"))
    connection.execute(
        text(f"CREATE TEMPORARY TABLE left_texts ON COMMIT DROP AS {parts}"),
        {"ids": list(run_ids)},
    )
    connection.execute(text("ANALYZE left_texts"))


def _delete_texts(connection: Connection) -> tuple[int, int]:
    unused = " AND ".join(
        f'NOT EXISTS (SELECT FROM "{table}" WHERE "{table}"."{column}" = left_texts.id)'
        for table, column in text_columns()
    )
    row = connection.execute(
        text(
            "WITH gone AS (DELETE FROM texts WHERE id IN "
            f"(SELECT id FROM left_texts WHERE {unused}) "
            "RETURNING pg_column_size(texts.*) AS size) "
            "SELECT count(*) AS num_rows, coalesce(sum(size), 0) AS size FROM gone"
        )
    ).one()
    return row.num_rows, int(row.size)


def vacuum(connection: Connection, tables: Sequence[str]) -> None:
    """Make the place of deleted rows usable again. Needs a connection in autocommit."""
    connection.execute(text("SET statement_timeout = 0"))
    known = {table.name for table in Base.metadata.sorted_tables}
    for name in tables:
        if name in known:
            connection.execute(text(f'VACUUM (ANALYZE) "{name}"'))


def ended_runs(
    connection: Connection, older_than_days: float, statuses: Sequence[str]
) -> list[int]:
    """Runs all of whose jobs ended, the training in one of `statuses`, and long enough ago."""
    rows = connection.execute(
        text(
            """
            SELECT run_id FROM jobs GROUP BY run_id
            HAVING bool_and(finished_at IS NOT NULL)
                AND max(finished_at) <= now() - :days * interval '1 day'
                AND bool_or(kind = 'train' AND state = ANY (:statuses))
            ORDER BY run_id
            """
        ),
        {"days": older_than_days, "statuses": list(statuses)},
    )
    return [row.run_id for row in rows]
