"""Exports hold every row; a pushed run is the run, however often it is pushed."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from backend.bundle import write_bundle
from backend.client import ApiError, SeroClient
from backend.db.ingest import write_log
from backend.db.queries.export import TABLES
from backend.db.queries.jobs import ClaimedJob
from backend.db.queries.stored import iteration_payloads, read_rows
from backend.routes.exports import Table
from backend.schemas import ImportHeader, JobRequest
from backend.settings import Settings
from sero_core.records import IterationPayload
from tests.service.helpers import end, rows, start, submit, value
from tests.service.test_ingest import TABLES as STORED
from tests.service.test_ingest import record, store


@pytest.fixture
def claimed(engine: Engine) -> ClaimedJob:
    submit(engine)
    return start(engine)


@pytest.fixture
def payloads(engine: Engine, claimed: ClaimedJob) -> list[IterationPayload]:
    made = [record(iteration) for iteration in range(4)]
    for payload in made:
        store(engine, claimed, payload)
    with engine.begin() as connection:
        write_log(connection, claimed.run_id, claimed.job_id, 1, 0, ["first", 'a "b", c'])
    return made


def test_the_route_names_every_table() -> None:
    assert get_args(Table) == TABLES
    assert set(STORED) - {"texts"} <= set(TABLES)


def test_every_format_holds_every_row(
    client: SeroClient,
    claimed: ClaimedJob,
    payloads: list[IterationPayload],
    tmp_path: Path,
    engine: Engine,
) -> None:
    steps = [step for p in payloads for b in p.branches for step in b.steps]
    for table in TABLES:
        count = value(engine, f"SELECT count(*) FROM {table} WHERE run_id = {claimed.run_id}")
        found: dict[str, int] = {}
        for kind in ("parquet", "csv", "jsonl"):
            path = tmp_path / f"{table}.{kind}"
            assert client.export_table(claimed.run_id, table, path, kind) == path.stat().st_size
            match kind:
                case "parquet":
                    found[kind] = pq.read_table(path).num_rows
                case "csv":
                    found[kind] = len(list(csv.DictReader(io.StringIO(path.read_text()))))
                case _:
                    found[kind] = len(path.read_text().splitlines())
        assert found == {"parquet": count, "csv": count, "jsonl": count}, table
    stored = pq.read_table(tmp_path / "branch_steps.parquet").to_pylist()
    assert {(s["branch_id"], s["depth"], s["weight"]) for s in stored} == {
        (b.branch_id, s.depth, s.weight) for p in payloads for b in p.branches for s in b.steps
    }
    assert sorted(s["observation"] for s in stored) == sorted(
        s.observation.replace("\0", "\u2400") for s in steps
    )
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    kl = [json.loads(line) for line in lines]
    assert [m["value"] for m in kl if m["key"] == "train/kl" and m["iteration"] == 0] == [None]
    with pytest.raises(ApiError) as caught:
        client.export_table(claimed.run_id, "passwords", tmp_path / "x", "csv")
    assert caught.value.status == 422
    assert not (tmp_path / "x").exists()
    with pytest.raises(ApiError, match="there is no run 99"):
        client.export_table(99, "metrics", tmp_path / "x", "csv")


def clean(payload: IterationPayload) -> IterationPayload:
    return IterationPayload.model_validate_json(
        payload.model_dump_json().replace("\\u0000", "\u2400")
    )


def test_stored_rows_are_the_lines_they_came_from(
    engine: Engine, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    with engine.connect() as connection:
        found = list(iteration_payloads(connection, claimed.run_id, claimed.job_id))
        branch = payloads[2].branches[1]
        stored = read_rows(connection, claimed.run_id, [], [branch.branch_id])
    for payload, again in zip(payloads, found, strict=True):
        # NaN is not equal to itself, so compare what is written
        assert (
            again.model_dump_json()
            == clean(
                payload.model_copy(
                    update={
                        "metrics": dict(sorted(payload.metrics.items())),
                        "branches": again.branches,
                    }
                )
            ).model_dump_json()
        )
        for one, other in zip(clean(payload).branches, again.branches, strict=True):
            assert other.model_copy(update={"is_episode_won": None}) == one
    assert [b.branch_id for b in stored.branches] == [branch.branch_id]
    assert [e.episode_id for e in stored.episodes] == [branch.episode_id]


def header(config: dict[str, object], **extra: object) -> ImportHeader:
    return ImportHeader.model_validate({"config": config, "source": "a laptop", **extra})


def test_a_pushed_run_is_stored_once(client: SeroClient, engine: Engine) -> None:
    config: dict[str, object] = {"name": "offline", "num_iterations": 5, "seed": 4}
    lines = [record(i).model_dump_json().encode() for i in range(4)]
    first = client.import_run(header(config, git_commit="abc", git_is_dirty=True), lines)
    assert (first.is_new, first.num_iterations, first.num_new) == (True, 4, 4)
    run = client.run(first.run_id)
    assert (run.name, run.status, run.is_imported) == ("offline", "cancelled", True)
    assert run.reason == "imported: iteration 3 of 5"
    assert (run.git_commit, run.git_is_dirty, run.iteration) == ("abc", True, 3)
    counts = rows(engine, "SELECT count(*) FROM branch_steps")
    again = client.import_run(header(config), lines)
    assert (again.run_id, again.is_new, again.num_new) == (first.run_id, False, 0)
    assert rows(engine, "SELECT count(*) FROM branch_steps") == counts
    more = [*lines, record(4).model_dump_json().encode(), record(5).model_dump_json().encode()]
    longer = client.import_run(header(config), more)
    assert (longer.run_id, longer.num_new) == (first.run_id, 2)
    assert client.run(first.run_id).status == "succeeded"
    other_seed = client.import_run(header({**config, "seed": 5}), lines)
    assert other_seed.is_new
    assert client.branch(client.branches(run_id=first.run_id).items[0].id).steps is not None


def test_a_broken_push_stores_nothing(client: SeroClient, engine: Engine) -> None:
    good = record(0).model_dump_json().encode()
    for lines, where in (
        ([good, b'{"iteration": 1}'], "line 3"),
        ([b"\xff\xfe"], "line 2"),
        ([], "line 2"),
    ):
        with pytest.raises(ApiError) as caught:
            client.import_run(header({"name": "x"}), lines)
        assert caught.value.fields[0].field == where
    with pytest.raises(ApiError) as caught:
        client.import_run(header({"name": "x", "num_iterations": 0}), [good])
    assert caught.value.fields[0].field == "config.num_iterations"
    assert client.runs().num_total == 0
    assert rows(engine, "SELECT id FROM texts") == []


def test_a_bundle_can_be_pushed_to_another_server(
    client: SeroClient,
    engine: Engine,
    claimed: ClaimedJob,
    payloads: list[IterationPayload],
    settings: Settings,
    tmp_path: Path,
) -> None:
    end(engine, claimed.job_id)
    job = client.create_job(claimed.run_id, JobRequest(kind="export"))
    with pytest.raises(ApiError, match="it has no file"):
        client.download_result(job.id, tmp_path / "x.zip")
    mine = start(engine, job.id)
    out = settings.run_dir(claimed.run_id) / "jobs" / str(job.id)
    out.mkdir(parents=True)
    with engine.begin() as connection:
        result = write_bundle(connection, claimed.run_id, out)
    finished = "UPDATE jobs SET result = CAST(:r AS jsonb) WHERE id = :id RETURNING id"
    end(engine, mine.job_id)
    rows(engine, finished, r=json.dumps(result), id=job.id)
    assert client.job(job.id).result == result
    path = tmp_path / "run.zip"
    assert client.download_result(job.id, path) == result["num_bytes"]
    with zipfile.ZipFile(path) as archive:
        folder = f"run-{claimed.run_id}"
        config = json.loads(archive.read(f"{folder}/config.json"))
        lines = archive.read(f"{folder}/records.jsonl").splitlines()
        assert archive.read(f"{folder}/log.txt").decode().splitlines() == ["first", 'a "b", c']
        parquet = archive.read(f"{folder}/tables/branch_steps.parquet")
        assert pq.read_table(io.BytesIO(parquet)).num_rows > 0
    copy = client.import_run(header(config, name="copy"), lines)
    assert copy.is_new
    for table in STORED:
        if table in ("texts",):
            continue
        counts = rows(
            engine, f"SELECT run_id, count(*) FROM {table} GROUP BY run_id ORDER BY run_id"
        )
        assert len({count for _, count in counts}) == 1, table
