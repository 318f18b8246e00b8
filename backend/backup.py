"""`sero backup DIR` and `sero restore DIR`: the database as one folder that proves itself.

The folder holds `sero.dump` (pg_dump, custom format) and `manifest.json` with the rows and a hash
of every table, both taken from one snapshot of the database while it stays in use. A restore goes
into an empty database only and compares every hash afterwards. Checkpoints are files below the
home's `runs`: copy that folder beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, create_engine, inspect, make_url, pool, text

from backend.db.migrate import stored_revision
from backend.supervisor.postgres import find_bin_dir

DUMP, MANIFEST = "sero.dump", "manifest.json"


class BackupError(Exception):
    """The backup or restore did not happen, or is not what it should be."""


@dataclass(frozen=True, slots=True)
class TableHash:
    """Rows of a table and a hash over all of them, independent of their order on disk."""

    num_rows: int
    digest: str


def backup(database_url: str, folder: Path) -> dict[str, TableHash]:
    """Write a backup into a new folder. Returns the hash of each table.

    Errors: `BackupError` for a folder that exists, a database without tables, a failing pg_dump.
    """
    if folder.exists():
        raise BackupError(f"{folder} exists already; a backup goes into a new folder")
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True)
    with _reading(database_url) as connection:
        revision = stored_revision(connection)
        if revision is None:
            raise BackupError("the database holds no tables of sero")
        snapshot = connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()
        _run("pg_dump", database_url, "--format=custom", "--no-owner", f"--snapshot={snapshot}",
             f"--file={partial / DUMP}")  # fmt: skip
        hashes = table_hashes(connection)
    content = {
        "made_at": datetime.now(UTC).isoformat(),
        "schema_revision": revision,
        "tables": {name: asdict(item) for name, item in hashes.items()},
    }
    (partial / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.rename(folder)
    return hashes


def restore(database_url: str, folder: Path) -> dict[str, TableHash]:
    """Read a backup into an empty database and compare every hash. Returns them.

    Errors: `BackupError` for a database that holds tables, a broken folder, a hash that differs.
    """
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        expected = {name: TableHash(**item) for name, item in content["tables"].items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{folder} is no backup: {error!r}") from None
    with _reading(database_url) as connection:
        if tables := inspect(connection).get_table_names():
            raise BackupError(f"the database is not empty: it holds {', '.join(sorted(tables))}")
    _run("pg_restore", database_url, "--no-owner", "--exit-on-error", "--single-transaction",
         str(folder / DUMP))  # fmt: skip
    with _reading(database_url) as connection:
        found = table_hashes(connection)
    different = [name for name, item in expected.items() if found.get(name) != item]
    if different or found.keys() != expected.keys():
        names = different or sorted(found.keys() ^ expected.keys())
        raise BackupError(f"restored tables differ from the manifest: {', '.join(names)}")
    return found


def table_hashes(connection: Connection) -> dict[str, TableHash]:
    """A hash of every table: the sum of 64 bits of each row's MD5, and the number of rows."""
    hashes: dict[str, TableHash] = {}
    for name in sorted(inspect(connection).get_table_names()):
        quoted = connection.dialect.identifier_preparer.quote(name)
        row = connection.execute(
            text(
                "SELECT count(*), coalesce(sum(('x' || left(md5(r::text), 16))::bit(64)::bigint"
                f"::numeric), 0)::text FROM {quoted} r"
            )
        ).one()
        hashes[name] = TableHash(row[0], row[1])
    return hashes


@contextmanager
def _reading(database_url: str) -> Generator[Connection]:
    """One repeatable view of the database. Times are UTC, so that rows read alike everywhere."""
    options = {"options": "-c timezone=UTC -c extra_float_digits=3"}
    engine = create_engine(database_url, poolclass=pool.NullPool, connect_args=options)
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        yield connection


def _run(program: str, database_url: str, *args: str) -> None:
    url = make_url(database_url).set(drivername="postgresql")
    environment = dict(os.environ)
    if url.password:
        environment["PGPASSWORD"] = str(url.password)
        url = url.set(password=None)
    target = f"--dbname={url.render_as_string(hide_password=False)}"
    finished = subprocess.run(
        [str(find_bin_dir() / program), target, *args],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise BackupError(f"{program} failed: {finished.stderr.strip()[-500:]}")
