"""A backup of a used database, restored into an empty one, is the same to the last row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from backend.backup import DUMP, MANIFEST, BackupError, backup, restore, table_hashes
from backend.db.engine import make_engine
from backend.db.migrate import upgrade
from tests.service.conftest import Databases
from tests.service.helpers import rows, start, submit


def test_dump_and_restore_into_an_empty_database(databases: Databases, tmp_path: Path) -> None:
    source, target = databases.create(), databases.create()
    upgrade(source)
    engine = make_engine(source)
    for _ in range(3):
        submit(engine)
    start(engine)
    made = backup(source, tmp_path / "backup")
    assert made["jobs"].num_rows == 3
    assert made["events"].num_rows > 3
    assert restore(target, tmp_path / "backup") == made
    other = make_engine(target)
    statement = "SELECT id, state, attempt, queued_at FROM jobs ORDER BY id"
    assert rows(engine, statement) == rows(other, statement)
    submit(other)  # identity columns go on where they were
    with pytest.raises(BackupError, match="not empty"):
        restore(target, tmp_path / "backup")
    for used in (engine, other):
        used.dispose()


def test_a_changed_value_changes_the_hash(databases: Databases, tmp_path: Path) -> None:
    url = databases.create()
    upgrade(url)
    engine = make_engine(url)
    submit(engine)
    with engine.connect() as connection:
        before = table_hashes(connection)
    with engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET priority = priority + 1"))
    with engine.connect() as connection:
        after = table_hashes(connection)
    assert {name for name in before if before[name] != after[name]} == {"jobs"}
    engine.dispose()


def test_a_manifest_that_does_not_fit_is_an_error(databases: Databases, tmp_path: Path) -> None:
    source, target = databases.create(), databases.create()
    upgrade(source)
    engine = make_engine(source)
    submit(engine)
    engine.dispose()
    folder = tmp_path / "backup"
    backup(source, folder)
    with pytest.raises(BackupError, match="exists already"):
        backup(source, folder)
    content = json.loads((folder / MANIFEST).read_text())
    content["tables"]["runs"]["num_rows"] += 1
    (folder / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(BackupError, match="differ from the manifest: runs"):
        restore(target, folder)
    (folder / DUMP).write_bytes((folder / DUMP).read_bytes()[:2000])
    with pytest.raises(BackupError, match="pg_restore failed"):
        restore(databases.create(), folder)
    with pytest.raises(BackupError, match="is no backup"):
        restore(databases.create(), tmp_path)
