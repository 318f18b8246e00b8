"""Runs migrations on the database that `backend.db.migrate.config(url)` names."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool, text

import backend.db.records  # noqa: F401 (registers the tables)
from backend.db.models import Base

MIGRATION_LOCK = 5390

engine = create_engine(context.config.attributes["url"], poolclass=pool.NullPool)
with engine.connect() as connection:
    context.configure(
        connection=connection, target_metadata=Base.metadata, transaction_per_migration=False
    )
    with context.begin_transaction():
        # two processes that start together must not both create the tables
        connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
        context.run_migrations()
engine.dispose()
