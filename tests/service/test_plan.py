"""What the worker runs for each kind of job, from what the database holds."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from sqlalchemy import Engine

from backend.client import SeroClient
from backend.db.queries.jobs import ClaimedJob
from backend.schemas import JobInfo, JobRequest, SubmitRequest
from backend.settings import Settings
from sero_core.records import IterationPayload
from sero_core.stored import StoredRows
from tests.service.helpers import rows, start
from tests.service.test_ingest import record, store
from worker.plan import JobError, prepare


@pytest.fixture
def payload(client: SeroClient, engine: Engine, settings: Settings) -> IterationPayload:
    """A run whose training stored iteration 5, with two checkpoints on disk."""
    client.submit_run(SubmitRequest(preset="sero_demo"))
    claimed = start(engine)
    made = record(5)
    store(engine, claimed, record(3))
    store(engine, claimed, made)
    for iteration in (3, 5):
        folder = settings.run_dir(1) / "checkpoints" / f"iteration-{iteration:05d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text("{}")
    return made


def claim(engine: Engine, job: JobInfo) -> ClaimedJob:
    return start(engine, job.id)


def option(args: tuple[str, ...], name: str) -> list[str]:
    return [args[i + 1] for i, arg in enumerate(args) if arg == name]


def test_a_given_root_and_its_episode(
    client: SeroClient, engine: Engine, settings: Settings, payload: IterationPayload
) -> None:
    episode = next(e for e in payload.episodes if e.steps)
    request = JobRequest(
        kind="branch_from_here",
        episode_id=episode.episode_id,
        step=1,
        iteration=3,
        overrides={"sero.max_oracle_steps": 7},
    )
    job = client.create_job(1, request)
    plan = prepare(engine, settings, claim(engine, job))
    assert plan.out == settings.run_dir(1) / "jobs" / str(job.id)
    assert plan.iteration is None
    assert option(plan.args, "--root") == [f"{episode.episode_id}:1"]
    assert option(plan.args, "--branch-prefix") == [f"j{job.id}"]
    assert option(plan.args, "--checkpoint")[0].endswith("iteration-00003")
    (path,) = option(plan.args, "--rows")
    stored = StoredRows.model_validate_json(Path(path).read_bytes())
    assert [e.episode_id for e in stored.episodes] == [episode.episode_id]
    assert len(stored.episodes[0].steps) == len(episode.steps)
    config = tomllib.loads((plan.out / "config.toml").read_text())
    assert config["sero"]["max_oracle_steps"] == 7


def test_rescoring_takes_the_checkpoints_that_are_there(
    client: SeroClient, engine: Engine, settings: Settings, payload: IterationPayload
) -> None:
    branch = payload.branches[1]
    job = client.create_job(1, JobRequest(kind="rescore", branch_ids=[branch.branch_id]))
    plan = prepare(engine, settings, claim(engine, job))
    found = [Path(folder).name for folder in option(plan.args, "--checkpoint")]
    assert found == ["iteration-00003", "iteration-00005"]
    (path,) = option(plan.args, "--rows")
    stored = StoredRows.model_validate_json(Path(path).read_bytes())
    assert [b.branch_id for b in stored.branches] == [branch.branch_id]
    rows(engine, "DELETE FROM branches WHERE branch_id = :id RETURNING 1", id=branch.branch_id)
    again = client.create_job(
        1, JobRequest(kind="rescore", branch_ids=[payload.branches[0].branch_id])
    )
    rows(engine, "DELETE FROM branches RETURNING 1")
    with pytest.raises(JobError, match=r"has no branch .* any more"):
        prepare(engine, settings, claim(engine, again))


def test_an_export_needs_no_checkpoint(
    client: SeroClient, engine: Engine, settings: Settings, payload: IterationPayload
) -> None:
    job = client.create_job(1, JobRequest(kind="export"))
    plan = prepare(engine, settings, claim(engine, job))
    assert plan.args[1:3] == ("-m", "backend.bundle")
    assert plan.args[3:] == ("1", str(plan.out))


def test_a_checkpoint_that_is_gone_fails_the_job(
    client: SeroClient, engine: Engine, settings: Settings, payload: IterationPayload
) -> None:
    job = client.create_job(1, JobRequest(kind="evaluate", iteration=3))
    client_side = claim(engine, job)
    (settings.run_dir(1) / "checkpoints" / "iteration-00003" / "state.json").unlink()
    with pytest.raises(JobError, match="no checkpoint of iteration 3 any more"):
        prepare(engine, settings, client_side)


@pytest.mark.parametrize(
    ("devices", "given", "expected"),
    [
        ((), (), {}),
        (("0", "1"), ("1",), {"CUDA_VISIBLE_DEVICES": "1"}),
        (("0", "1"), (), {"CUDA_VISIBLE_DEVICES": ""}),
    ],
)
def test_a_job_sees_the_devices_it_was_given(
    devices: tuple[str, ...],
    given: tuple[str, ...],
    expected: dict[str, str],
    engine: Engine,
    settings: Settings,
    tmp_path: Path,
) -> None:
    offering = settings.model_copy(update={"devices": devices})
    claimed = ClaimedJob(1, 1, "train", 1, {"name": "x"}, {}, given)
    assert prepare(engine, offering, claimed).env == expected
