"""`sero verify`: what is whole agrees; each kind of damage is found, in the place where it is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from backend import cli_admin
from backend.db.batches import Owner
from backend.db.queries import jobs
from backend.settings import Settings
from backend.spool import Target, spool_folder
from backend.verify import Finding, NoSuchRun, verify_run
from sero_core.sinks.reader import scan
from sero_core.sinks.spool import SpoolSink
from sero_core.types import CheckpointRecord
from tests.service.helpers import expire, start, submit
from tests.support.records import iteration_record
from worker.ship import ship_ended

NUM_RECORDS = 4


def write_attempt(settings: Settings, claimed: jobs.ClaimedJob, first: int, seed: int) -> None:
    """What a training process leaves: records, printed lines, a checkpoint of each iteration."""
    run_dir = settings.run_dir(claimed.run_id)
    folder = spool_folder(run_dir, claimed.job_id, claimed.attempt)
    folder.create(Target(claimed.run_id, claimed.job_id, claimed.attempt))
    sink = SpoolSink(folder.path)
    for iteration in range(first, first + NUM_RECORDS):
        record = iteration_record(iteration, has_evaluation=True, seed=seed)
        checkpoint = write_checkpoint(run_dir, iteration, seed)
        sink.write(dataclasses.replace(record, checkpoint=checkpoint))
    sink.close()
    folder.output.write_bytes(b"iteration 1\ncaf\xe9 \0 \r100 %\nno newline")


def write_checkpoint(run_dir: Path, iteration: int, seed: int) -> CheckpointRecord:
    folder = run_dir / "checkpoints" / f"iteration-{iteration:05d}"
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "model.safetensors"
    weights.write_bytes(f"weights of {iteration} {seed}".encode() * 100)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    state = {"iteration": iteration, "files": {weights.name: digest}}
    (folder / "state.json").write_text(json.dumps(state))
    return CheckpointRecord(iteration, str(folder), digest, weights.stat().st_size)


@pytest.fixture
def run(engine: Engine, settings: Settings) -> jobs.ClaimedJob:
    """Two attempts: the first wrote iterations 0 to 3 and was killed, the second 2 to 5."""
    submit(engine)
    first = start(engine)
    write_attempt(settings, first, 0, seed=0)
    expire(engine, first.job_id)
    second = start(engine, first.job_id, "w2")
    write_attempt(settings, second, 2, seed=1)
    owner = Owner(second.run_id, second.job_id, second.attempt)
    for attempt in (1, 2):
        folder = spool_folder(settings.run_dir(second.run_id), second.job_id, attempt)
        ship_ended(engine, owner, folder, threading.Event(), keep_bytes=2**20)
    with engine.begin() as connection:
        jobs.finish(connection, second.job_id, second.attempt, "succeeded", "finished")
    return second


def verify(engine: Engine, settings: Settings, run_id: int = 1) -> list[Finding]:
    with engine.connect() as connection:
        return verify_run(connection, settings, run_id)


def bad(engine: Engine, settings: Settings) -> dict[str, str]:
    return {item.check: item.note for item in verify(engine, settings) if not item.is_ok}


def change(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            assert connection.execute(text(statement)).rowcount != 0, statement


def test_a_whole_run_agrees(engine: Engine, settings: Settings, run: jobs.ClaimedJob) -> None:
    found = {item.check: (item.expected, item.found) for item in verify(engine, settings)}
    assert bad(engine, settings) == {}
    assert found["iterations without a gap"] == ("6", "6")
    assert found["records of job 1 attempt 1"] == ("4", "4")
    assert found["lines of job 1 attempt 2"] == ("3", "3")
    assert found["table branches"] == ("36 rows", "36 rows")
    assert found["table evaluations"] == ("12 rows", "12 rows")
    assert found["checkpoint of iteration 5"] == ("1 files", "1 files")
    with pytest.raises(NoSuchRun, match="no run 9"):
        verify(engine, settings, 9)


def test_reclaimed_segments_are_vouched_for_by_the_database(
    engine: Engine, settings: Settings, run: jobs.ClaimedJob
) -> None:
    folder = spool_folder(settings.run_dir(1), 1, 1).path
    for path in folder.glob("*.spool"):
        path.unlink()
    (folder / f"{NUM_RECORDS:010d}.spool").touch()
    assert bad(engine, settings) == {}
    change(engine, "DELETE FROM batches WHERE attempt = 1 AND sequence = 0")
    assert "record 0 is not in the database" in bad(engine, settings)["records of job 1 attempt 1"]


IN_TABLES = {
    "a missing row": (
        ("DELETE FROM branch_steps WHERE ctid = (SELECT max(ctid) FROM branch_steps)",),
        "table branch_steps",
        "rows, expected",
    ),
    "a doubled row": (
        (
            "ALTER TABLE metrics DROP CONSTRAINT pk_metrics",
            "INSERT INTO metrics SELECT * FROM metrics WHERE key = 'train/loss' AND iteration = 4",
        ),
        "table metrics",
        "rows, expected",
    ),
    "a changed number": (
        ("UPDATE branch_steps SET weight = weight + 1e-15 WHERE depth = 1 AND iteration = 5",),
        "table branch_steps",
        "job 1 iteration 5: its",
    ),
    "a changed array": (
        ("UPDATE steps SET token_ids[1] = 7 WHERE cardinality(token_ids) > 0",),
        "table steps",
        "rows have changed",
    ),
    "a changed condition of an evaluation": (
        ("UPDATE evaluations SET panel_hash = 'x' WHERE iteration = 2",),
        "table evaluations",
        "job 1 iteration 2: its 2 rows have changed",
    ),
    "a step without its episode": (
        ("DELETE FROM episodes WHERE episode_id = 'i3g0e0'",),
        "table steps",
        "rows without a parent",
    ),
    "a foreign row": (
        ("INSERT INTO metrics (run_id, job_id, key, iteration, value) VALUES (1, 1, 'x', 77, 0)",),
        "table metrics",
        "job 1 iteration 77: 1 rows that no record put there",
    ),
    "a missing iteration": (
        ("DELETE FROM iterations WHERE iteration = 3",),
        "iterations without a gap",
        "iteration 3 is missing",
    ),
    "a changed text": (
        ("UPDATE texts SET text = text || ' ' WHERE id = (SELECT max(id) FROM texts)",),
        "texts",
        "has changed",
    ),
    "a missing text": (
        ("DELETE FROM texts WHERE id = (SELECT max(id) FROM texts)",),
        "texts",
        "1 texts are missing",
    ),
    "a missing batch": (
        ("DELETE FROM batches WHERE attempt = 2 AND sequence = 3",),
        "records of job 1 attempt 2",
        "record 3 is not in the database",
    ),
    "a missing line": (
        ("DELETE FROM log_lines WHERE attempt = 1 AND line = 1",),
        "lines of job 1 attempt 1",
        "line 1 is not in the database",
    ),
    "a changed line": (
        ("UPDATE log_lines SET text = 'x' WHERE attempt = 2 AND line = 2",),
        "lines of job 1 attempt 2",
        "line 2 has changed",
    ),
}


@pytest.mark.parametrize("kind", IN_TABLES)
def test_damage_in_the_database_is_found(
    engine: Engine, settings: Settings, run: jobs.ClaimedJob, kind: str
) -> None:
    statements, check, note = IN_TABLES[kind]
    change(engine, *statements)
    try:
        assert note in bad(engine, settings)[check]
    finally:
        if "DROP CONSTRAINT" in statements[0]:
            change(engine, "DELETE FROM metrics")
            key = "PRIMARY KEY (run_id, job_id, key, iteration)"
            change(engine, f"ALTER TABLE metrics ADD CONSTRAINT pk_metrics {key}")


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


def flip_record(run_dir: Path) -> None:
    folder = spool_folder(run_dir, 1, 2).path
    second = list(scan(folder))[1]
    flip(second.segment, second.offset + 100)


def truncate_spool(run_dir: Path) -> None:
    [segment] = [p for p in spool_folder(run_dir, 1, 2).path.glob("*.spool") if p.stat().st_size]
    last = list(scan(segment.parent))[-1]
    os.truncate(segment, last.offset + 50)
    (segment.parent / f"{NUM_RECORDS:010d}.spool").unlink()


def truncate_checkpoint(run_dir: Path) -> None:
    os.truncate(run_dir / "checkpoints/iteration-00005/model.safetensors", 100)


def flip_checkpoint(run_dir: Path) -> None:
    flip(run_dir / "checkpoints/iteration-00004/model.safetensors", 500)


def exchange_checkpoint(run_dir: Path) -> None:
    """Whole by its own manifest, but of another training."""
    write_checkpoint(run_dir, 5, seed=99)


def break_manifest(run_dir: Path) -> None:
    (run_dir / "checkpoints/iteration-00005/state.json").write_text('{"files"')


def remove_checkpoint(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "checkpoints/iteration-00005")


def remove_folder(run_dir: Path) -> None:
    shutil.rmtree(spool_folder(run_dir, 1, 1).path)


ON_DISK: dict[Callable[[Path], None], tuple[str, str]] = {
    flip_record: ("records of job 1 attempt 2", "hashes to"),
    truncate_spool: ("records of job 1 attempt 2", "record 3 is not on the disk"),
    truncate_checkpoint: ("checkpoint of iteration 5", "model.safetensors: "),
    flip_checkpoint: ("checkpoint of iteration 4", "model.safetensors: "),
    exchange_checkpoint: ("checkpoint of iteration 5", "the database has"),
    break_manifest: ("checkpoint of iteration 5", "Expecting"),
    remove_checkpoint: ("checkpoint of iteration 5", ""),
    remove_folder: ("records of job 1 attempt 1", "is not on this machine"),
}


@pytest.mark.parametrize("damage", ON_DISK, ids=lambda damage: damage.__name__)
def test_damage_on_the_disk_is_found(
    engine: Engine,
    settings: Settings,
    run: jobs.ClaimedJob,
    damage: Callable[[Path], None],
) -> None:
    damage(settings.run_dir(1))
    check, note = ON_DISK[damage]
    assert note in bad(engine, settings)[check]


def test_old_checkpoints_may_be_gone(
    engine: Engine, settings: Settings, run: jobs.ClaimedJob
) -> None:
    for iteration in (0, 1, 2):
        shutil.rmtree(settings.run_dir(1) / f"checkpoints/iteration-{iteration:05d}")
    assert bad(engine, settings) == {}


def test_the_command_prints_a_table_and_ends_with_a_code(
    settings: Settings, engine: Engine, run: jobs.ClaimedJob
) -> None:
    app = typer.Typer()
    app.command()(cli_admin.verify)

    def command(run_id: int) -> tuple[int, str]:
        environment = {
            "SERO_HOME": str(settings.home),
            "SERO_DATABASE_URL": settings.database_url,
            "COLUMNS": "200",
        }
        done = CliRunner().invoke(app, [str(run_id)], env=environment)
        return done.exit_code, done.output

    code, said = command(1)
    assert (code, said.splitlines()[-1]) == (0, "everything agrees")
    truncate_checkpoint(settings.run_dir(1))
    code, said = command(1)
    assert code == 1
    assert said.splitlines()[-1].endswith("checks, 1 differ")
    assert "DIFFERS model.safetensors" in said
    assert command(9) == (2, "error: there is no run 9\n")
