"""Migrations go up, down and up again, and give the tables that the models describe."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, pool

import backend.db.records  # noqa: F401 (registers the tables)
from backend.db.migrate import downgrade, newest_revision, stored_revision, upgrade
from backend.db.models import Base
from tests.service.conftest import Databases
from tests.service.helpers import start, submit, value


def fresh(url: str) -> Engine:
    return create_engine(url, poolclass=pool.NullPool)


def test_up_down_up(databases: Databases) -> None:
    url = databases.create()
    upgrade(url)
    with fresh(url).connect() as connection:
        assert stored_revision(connection) == newest_revision()
        assert set(Base.metadata.tables) < set(inspect(connection).get_table_names())
    downgrade(url, "base")
    with fresh(url).connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    upgrade(url)
    upgrade(url)


def test_down_and_up_with_data_keeps_the_queue(databases: Databases) -> None:
    url = databases.create()
    upgrade(url)
    engine = fresh(url)
    submit(engine)
    start(engine)
    downgrade(url, "0001")
    upgrade(url)
    assert value(engine, "SELECT state FROM jobs") == "running"


def test_the_models_are_what_the_migrations_make(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_two_processes_may_migrate_at_once(databases: Databases) -> None:
    url = databases.create()
    # each upgrade in its own process, as when the API and a worker start together
    code = f"from backend.db.migrate import upgrade; upgrade({url!r})"
    with ThreadPoolExecutor(3) as threads:
        done = list(
            threads.map(
                lambda _: subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True
                ),
                range(3),
            )
        )
    assert [process.returncode for process in done] == [0, 0, 0], done
    with fresh(url).connect() as connection:
        assert stored_revision(connection) == newest_revision()
