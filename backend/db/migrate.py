"""Alembic without an ini file: `upgrade(url)` brings a database to the newest revision."""

from __future__ import annotations

from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def config(url: str = "") -> Config:
    """The Alembic config of our migrations."""
    made = Config()
    made.set_main_option("script_location", str(files("migrations")))
    made.set_main_option("path_separator", "os")
    made.attributes["url"] = url
    return made


def upgrade(url: str, revision: str = "head") -> None:
    """Apply the migrations up to `revision`. Safe to call from several processes at once."""
    command.upgrade(config(url), revision)


def downgrade(url: str, revision: str) -> None:
    """Take migrations back down to `revision` (`base` = an empty database)."""
    command.downgrade(config(url), revision)


def newest_revision() -> str:
    """The revision that this code expects."""
    head = ScriptDirectory.from_config(config()).get_current_head()
    if head is None:
        raise RuntimeError("there are no migrations in the package `migrations`")
    return head


def stored_revision(connection: Connection) -> str | None:
    """The revision of a database; None = empty."""
    return MigrationContext.configure(connection).get_current_revision()
