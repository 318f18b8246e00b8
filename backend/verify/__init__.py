"""`sero verify RUN`: does the database hold what the trainer wrote, and are the checkpoints whole?

    with engine.connect() as connection:
        findings = verify_run(connection, settings, run_id)

Three witnesses are compared: the spools on the disk (each record carries a checksum), the database
(each record's rows were counted and hashed when they were stored, and are again now), and the
checkpoints (each has a manifest of its files, and the database knows the hash of its weights).
"""

from __future__ import annotations

from sqlalchemy import Connection, select, text

from backend.db.models import Run
from backend.settings import Settings
from backend.verify.checkpoints import check_checkpoints
from backend.verify.disk import check_spools
from backend.verify.finding import Finding
from backend.verify.tables import check_tables, check_texts

__all__ = ["Finding", "NoSuchRun", "verify_run"]


class NoSuchRun(Exception):
    """The run does not exist."""


def verify_run(connection: Connection, settings: Settings, run_id: int) -> list[Finding]:
    """Every check, passed or not, in one snapshot of the database. The run may be running.

    Errors: `NoSuchRun`.
    """
    connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    row = connection.execute(select(Run.import_hash).where(Run.id == run_id)).one_or_none()
    if row is None:
        raise NoSuchRun(f"there is no run {run_id}")
    findings = check_tables(connection, run_id)
    findings += check_texts(connection, run_id)
    if row.import_hash is None:  # a run that was pushed left its files elsewhere
        findings += check_spools(connection, settings.run_dir(run_id), run_id)
        findings += check_checkpoints(connection, settings, run_id)
    return findings
