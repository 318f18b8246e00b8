"""A real PostgreSQL for the session; each test finds the tables empty."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psycopg
import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine, create_engine, make_url, pool, text

import backend.db.records  # noqa: F401 (registers the tables)
from backend.client import SeroClient
from backend.db.engine import make_engine
from backend.db.migrate import upgrade
from backend.db.models import Base
from backend.main import create_app
from backend.settings import Settings
from backend.supervisor.postgres import EmbeddedPostgres


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.service)


class Databases:
    """Makes databases on one server."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._count = 0

    def url(self, database: str) -> str:
        return self._url.set(database=database).render_as_string(hide_password=False)

    def create(self) -> str:
        """The URL of a new, empty database."""
        self._count += 1
        name = f"test_{self._count}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        host = str(self._url.query["host"])
        with psycopg.connect(
            host=host, user=self._url.username, dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement)


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), durable=False)
    server.start()
    made = Databases(server.url)
    yield made
    server.remove()


@pytest.fixture(scope="session")
def migrated_url(databases: Databases) -> str:
    url = databases.create()
    upgrade(url)
    return url


@pytest.fixture
def database_url(migrated_url: str) -> str:
    """A migrated database without rows."""
    tables = ", ".join(Base.metadata.tables)
    engine = create_engine(migrated_url, poolclass=pool.NullPool)
    with engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))
    return migrated_url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, pool_size=20)
    yield made
    made.dispose()


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Short leases; no broker listens at the address."""
    return Settings(
        home=tmp_path,
        database_url=database_url,
        broker_url="redis://127.0.0.1:1/0",
        lease_s=2.0,
        heartbeat_s=0.5,
    )


@pytest.fixture
def api_url(settings: Settings) -> Iterator[str]:
    """The address of the real API, served by uvicorn on a free port."""
    with serve(create_app(settings)) as url:
        yield url


@pytest.fixture
def client(api_url: str) -> Iterator[SeroClient]:
    with SeroClient(api_url) as made:
        yield made


@contextmanager
def serve(app: FastAPI) -> Iterator[str]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        deadline = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < deadline, "uvicorn did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
