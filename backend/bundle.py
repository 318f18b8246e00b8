"""Everything that a run wrote, as one archive: `python -m backend.bundle RUN OUT_FOLDER`.

    export.zip
      run-<id>/config.json, code.json, run.json     what it was
      run-<id>/records.jsonl                        its log: `sero push` takes this folder
      run-<id>/log.txt                              what its processes printed
      run-<id>/tables/<table>.parquet               the rows, texts in place of their ids

Runs in the worker's child process; writes `result.json` beside the archive for the job's row.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, select, text

from backend.db.engine import make_engine
from backend.db.models import LogLine
from backend.db.queries.export import TABLES, write_table
from backend.db.queries.runs import get_run
from backend.db.queries.stored import iteration_payloads
from backend.settings import Settings

ARCHIVE = "export.zip"
RESULT = "result.json"
STATEMENT_TIMEOUT_S = 600.0


def write_bundle(connection: Connection, run_id: int, out: Path) -> dict[str, str | int]:
    """Write `export.zip`; returns what the job's row says of it. Errors: ValueError for no run."""
    run = get_run(connection, run_id)
    if run is None:
        raise ValueError(f"there is no run {run_id}")
    folder = f"run-{run_id}"
    staging = out / f".{ARCHIVE}"
    with zipfile.ZipFile(staging, "w", zipfile.ZIP_DEFLATED, compresslevel=4) as archive:
        archive.writestr(f"{folder}/config.json", json.dumps(run.config, indent=1))
        code = {"commit": run.git_commit, "is_dirty": run.git_is_dirty, "packages": {}}
        archive.writestr(f"{folder}/code.json", json.dumps(code, indent=1))
        archive.writestr(f"{folder}/run.json", run.model_dump_json(indent=1))
        train = next(job for job in run.jobs if job.kind == "train")
        with archive.open(f"{folder}/records.jsonl", "w", force_zip64=True) as file:
            for payload in iteration_payloads(connection, run_id, train.id):
                file.write(payload.model_dump_json().encode() + b"\n")
        with archive.open(f"{folder}/log.txt", "w", force_zip64=True) as file:
            for line in _log(connection, run_id):
                file.write(line.encode() + b"\n")
        for name in TABLES:
            with archive.open(f"{folder}/tables/{name}.parquet", "w", force_zip64=True) as file:
                write_table(connection, run_id, name, "parquet", file.write)
    os.replace(staging, out / ARCHIVE)
    digest = hashlib.sha256()
    with (out / ARCHIVE).open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return {
        "file": ARCHIVE,
        "num_bytes": (out / ARCHIVE).stat().st_size,
        "sha256": digest.hexdigest(),
    }


def _log(connection: Connection, run_id: int) -> Iterator[str]:
    rows = connection.execution_options(yield_per=5000).execute(
        select(LogLine.text).where(LogLine.run_id == run_id).order_by(LogLine.id)
    )
    for row in rows:
        yield row.text


def main() -> int:
    """Exit codes: 0 written, 2 no such run."""
    parser = argparse.ArgumentParser(description="Export a run as one archive.")
    parser.add_argument("run_id", type=int)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    settings = Settings.from_env()
    engine = make_engine(
        settings.database_url,
        pool_size=1,
        statement_timeout_s=STATEMENT_TIMEOUT_S,
        name="sero export",
    )
    try:
        with engine.connect() as connection:
            # one snapshot for all tables
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            result = write_bundle(connection, options.run_id, options.out)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    finally:
        engine.dispose()
    (options.out / RESULT).write_text(json.dumps(result))
    sys.stdout.write(f"{result['num_bytes']} bytes, sha256 {result['sha256']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
