"""Deleting frees rows, texts and files, and only those of the deleted run."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from backend.client import ApiError, SeroClient
from backend.db.ingest import write_log
from backend.db.queries.deletion import tables_of_runs, text_columns
from backend.schemas import JobRequest, RetentionRequest, SubmitRequest
from backend.settings import Settings
from tests.service.helpers import end, rows, start, state_of, value
from tests.service.test_ingest import TABLES, record, store

DEMO = SubmitRequest(preset="sero_demo")


def finished_run(client: SeroClient, engine: Engine, settings: Settings, seed: int) -> int:
    """A run with rows, a log and two checkpoints on disk."""
    run = client.submit_run(DEMO)
    claimed = start(engine, run.jobs[0].id)
    for iteration in range(3):
        store(engine, claimed, record(iteration, seed))
    with engine.begin() as connection:
        write_log(connection, run.id, claimed.job_id, claimed.attempt, 0, ["a", "b"])
    for iteration in (1, 2):
        folder = settings.run_dir(run.id) / "checkpoints" / f"iteration-{iteration:05d}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(bytes(1000 * iteration))
        (folder / "state.json").write_text("{}")
    end(engine, claimed.job_id)
    return run.id


def counts(engine: Engine, run_id: int) -> dict[str, int]:
    return {
        table.name: value(engine, f"SELECT count(*) FROM {table.name} WHERE {key} = {run_id}")
        for table in tables_of_runs()
        for key in ["id" if table.name == "runs" else "run_id"]
    }


def test_every_table_of_what_runs_write_is_covered() -> None:
    names = {table.name for table in tables_of_runs()}
    assert set(TABLES) - {"texts"} <= names
    assert {"jobs", "events", "log_lines"} <= names
    assert {("steps", "observation_id"), ("branch_steps", "prompt_id")} <= set(text_columns())


def test_a_deleted_run_leaves_nothing_and_takes_nothing_else(
    client: SeroClient, engine: Engine, settings: Settings
) -> None:
    # half of the texts of the two runs are the same
    doomed = finished_run(client, engine, settings, seed=0)
    texts_of_doomed = value(engine, "SELECT count(*) FROM texts")
    kept = finished_run(client, engine, settings, seed=1)
    shared = rows(engine, "SELECT id, text FROM texts ORDER BY id")
    before, num_before = counts(engine, kept), counts(engine, doomed)
    report = client.delete_run(doomed)
    assert report.run_ids == [doomed]
    assert report.num_rows == {name: count for name, count in num_before.items() if count}
    assert report.file_bytes == 3004
    assert report.num_checkpoints == 2
    assert not settings.run_dir(doomed).exists()
    assert counts(engine, kept) == before
    assert not any(counts(engine, doomed).values())
    left = rows(engine, "SELECT id, text FROM texts ORDER BY id")
    assert 0 < report.num_texts < texts_of_doomed
    assert len(left) == len(shared) - report.num_texts
    assert report.row_bytes > 1000
    episode = client.episodes(kept).items[0]
    assert client.episode(episode.id).final_observation  # its texts are there
    for branch in client.branches(run_id=kept).items:
        assert client.branch(branch.id).steps is not None
    assert value(engine, "SELECT message FROM events WHERE kind = 'run.deleted'")
    client.delete_run(kept)
    assert rows(engine, "SELECT id FROM texts") == []
    with pytest.raises(ApiError, match="there is no run"):
        client.delete_run(kept)


def test_a_running_run_is_not_deleted(client: SeroClient, engine: Engine) -> None:
    run = client.submit_run(DEMO)
    claimed = start(engine, run.jobs[0].id)
    store(engine, claimed, record(5))
    with pytest.raises(ApiError, match="its job 1 is running; stop it first") as caught:
        client.delete_run(run.id)
    assert caught.value.status == 409
    with pytest.raises(ApiError, match="job 1 of run 1 is running"):
        client.delete_checkpoints(run.id)
    assert client.run(run.id).iteration == 5


def test_jobs_behind_a_deleted_one_are_skipped(client: SeroClient, engine: Engine) -> None:
    doomed = client.submit_run(DEMO)
    other = client.submit_run(DEMO)
    behind = client.create_job(other.id, JobRequest(kind="export", after=[doomed.jobs[0].id]))
    client.delete_run(doomed.id)
    assert state_of(engine, behind.id) == ("skipped", f"train job {doomed.jobs[0].id} was deleted")


def test_checkpoints_go_and_rows_stay(
    client: SeroClient, engine: Engine, settings: Settings
) -> None:
    run_id = finished_run(client, engine, settings, seed=0)
    before = counts(engine, run_id)
    report = client.delete_checkpoints(run_id)
    assert (report.num_checkpoints, report.file_bytes) == (1, 1002)
    left = sorted((settings.run_dir(run_id) / "checkpoints").iterdir())
    assert [path.name for path in left] == ["iteration-00002"]
    assert counts(engine, run_id) | {"events": 0} == before | {"events": 0}
    checkpoints = {c.iteration: c.is_on_disk for c in client.checkpoints(run_id).checkpoints}
    assert checkpoints == {0: False, 1: False, 2: True}


def test_retention_says_first_what_it_would_do(
    client: SeroClient, engine: Engine, settings: Settings
) -> None:
    old = finished_run(client, engine, settings, seed=0)
    young = finished_run(client, engine, settings, seed=1)
    waiting = client.submit_run(DEMO)
    age = "UPDATE jobs SET finished_at = now() - interval '40 days' WHERE run_id = :id RETURNING id"
    rows(engine, age, id=old)
    dry = client.apply_retention(RetentionRequest(what="runs", older_than_days=30))
    assert (dry.run_ids, dry.is_dry_run, dry.file_bytes) == ([old], True, 3004)
    weights = RetentionRequest(what="checkpoints", older_than_days=30, is_dry_run=False)
    freed = client.apply_retention(weights)
    assert (freed.run_ids, freed.num_checkpoints, freed.file_bytes) == ([old], 1, 1002)
    failed = RetentionRequest(
        what="runs", older_than_days=30, statuses=["failed"], is_dry_run=False
    )
    assert client.apply_retention(failed).run_ids == []
    gone = client.apply_retention(weights.model_copy(update={"what": "runs"}))
    assert (gone.run_ids, gone.file_bytes) == ([old], 2002)
    assert [run.id for run in client.runs().items] == [waiting.id, young]
