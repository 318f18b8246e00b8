"""An administrator's commands: `sero api | migrate | backup | restore | token …`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from backend.settings import Settings
from sero_core.cli import app

tokens_app = typer.Typer(help="Tokens of the API, made on the server.", no_args_is_help=True)


def register() -> None:
    """Add the commands to `sero`."""
    app.add_typer(tokens_app, name="token", rich_help_panel="Service")
    for command in (api, migrate, backup, restore, verify):
        app.command(rich_help_panel="Service")(command)


def api(
    host: Annotated[str, typer.Option(help="Address; other than loopback needs a token")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
) -> None:
    """Start the API alone."""
    from backend.serve import UnsafeAddress, serve

    try:
        serve(Settings.from_env(), host, port)
    except UnsafeAddress as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def migrate() -> None:
    """Bring the database's tables to this version; safe to repeat and to run twice at once."""
    from backend.db.migrate import newest_revision, upgrade

    upgrade(Settings.from_env().database_url)
    typer.echo(f"the tables are at revision {newest_revision()}")


def verify(run_id: Annotated[int, typer.Argument(help="Number of the run", min=1)]) -> None:
    """Compare a run's spools, rows and checkpoints; exit code 1 where they differ, 2 if it cannot.

    On the machine (or with the shared folder) where the run was trained. A running run may be
    verified, too.
    """
    from rich.console import Console
    from rich.table import Table

    from backend.db.engine import make_engine
    from backend.verify import NoSuchRun, verify_run

    settings = Settings.from_env()
    engine = make_engine(settings.database_url, pool_size=1, statement_timeout_s=3600)
    try:
        with engine.connect() as connection:
            findings = verify_run(connection, settings, run_id)
    except (NoSuchRun, OperationalError) as error:
        typer.echo(f"error: {error.args[0]}", err=True)
        raise typer.Exit(2) from None
    finally:
        engine.dispose()
    table = Table("check", "expected", "found", "")
    for item in findings:
        verdict = "ok" if item.is_ok else f"[red]DIFFERS[/red] {escape(item.note)}"
        table.add_row(item.check, item.expected, item.found, verdict)
    Console().print(table)
    num_bad = sum(not item.is_ok for item in findings)
    typer.echo(f"{len(findings)} checks, {num_bad} differ" if num_bad else "everything agrees")
    raise typer.Exit(1 if num_bad else 0)


def backup(folder: Annotated[Path, typer.Argument(help="A new folder")]) -> None:
    """Back up the database while it is in use, with a hash of every table."""
    from backend import backup as module

    try:
        hashes = module.backup(Settings.from_env().database_url, folder)
    except module.BackupError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    num_rows = sum(item.num_rows for item in hashes.values())
    typer.echo(f"{num_rows:,} rows of {len(hashes)} tables in {folder}")
    typer.echo(f"checkpoints are not in it: copy {Settings.from_env().runs_dir}, too")


def restore(folder: Annotated[Path, typer.Argument(help="What `sero backup` made")]) -> None:
    """Read a backup into an empty database and compare the hash of every table."""
    from backend import backup as module

    try:
        hashes = module.restore(Settings.from_env().database_url, folder)
    except module.BackupError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    num_rows = sum(item.num_rows for item in hashes.values())
    typer.echo(f"{num_rows:,} rows of {len(hashes)} tables; every hash as in the manifest")


@tokens_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="To tell it apart and revoke it")],
    scope: Annotated[str, typer.Option(help="read, submit or admin")] = "read",
    days: Annotated[int, typer.Option(min=0, max=3650, help="Validity; 0 = no end")] = 90,
) -> None:
    """Make a token and print it: it is shown this once."""
    from backend.security.tokens import SCOPES, issue

    if scope not in SCOPES:
        typer.echo(f"error: scope {scope!r}; allowed: {', '.join(SCOPES)}", err=True)
        raise typer.Exit(2)
    with _database() as connection:
        _, token = issue(connection, name, scope, days or None)
    typer.echo(token)


@tokens_app.command("list")
def list_all() -> None:
    """All tokens: id, name, scope, validity, last use."""
    from rich.console import Console
    from rich.table import Table

    from backend.security.tokens import list_tokens

    table = Table("id", "name", "scope", "made", "expires", "revoked", "last used")
    with _database() as connection:
        for token in list_tokens(connection):
            times = (token.created_at, token.expires_at, token.revoked_at, token.last_used_at)
            cells = ("–" if time is None else f"{time:%Y-%m-%d %H:%M}" for time in times)
            table.add_row(token.id, token.name, token.scope, *cells)
    Console().print(table)


@tokens_app.command("revoke")
def revoke(token_id: Annotated[str, typer.Argument(help="Its id, from `sero token list`")]) -> None:
    """Revoke a token at once."""
    from backend.security import tokens

    with _database() as connection:
        if not tokens.revoke(connection, token_id):
            typer.echo(f"error: there is no valid token {token_id!r}", err=True)
            raise typer.Exit(1)
    typer.echo("revoked")


@contextmanager
def _database() -> Generator[Connection]:
    from sqlalchemy.exc import OperationalError

    from backend.db.engine import make_engine

    engine = make_engine(Settings.from_env().database_url, pool_size=1, name="sero-token")
    try:
        with engine.begin() as connection:
            yield connection
    except OperationalError as error:
        typer.echo(f"error: the database does not answer: {error.orig}", err=True)
        raise typer.Exit(1) from None
    finally:
        engine.dispose()
