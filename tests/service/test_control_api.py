"""Stop, cancel, resume, extend, clone, jobs behind training, tokens: through the live API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from backend.client import ApiError, SeroClient
from backend.main import create_app
from backend.schemas import JobRequest, SubmitRequest
from backend.security.tokens import issue
from backend.settings import Settings
from tests.service.conftest import serve
from tests.service.helpers import claim, end, register, start, value
from tests.service.test_ingest import record, store

DEMO = SubmitRequest(preset="sero_demo", overrides={"num_iterations": 10})


def test_a_clone_says_what_it_changed(client: SeroClient) -> None:
    parent = client.submit_run(DEMO)
    request = SubmitRequest(
        from_run=parent.id, overrides={"optimizer.lr": 0.5, "sero": None}, name="base"
    )
    dry = client.validate_run(request)
    clone = client.submit_run(request)
    assert (clone.parent_run_id, clone.name, clone.method) == (parent.id, "base", "grpo")
    changes = {change.key: change for change in clone.changes}
    assert dry.changes == clone.changes
    assert (changes["optimizer.lr"].change, changes["optimizer.lr"].after) == ("changed", 0.5)
    assert changes["optimizer.lr"].type == "number"
    removed = changes["sero.root.per_group"]
    assert (removed.change, removed.before, removed.after) == ("removed", 4, None)
    assert "sero" not in changes
    assert "name" not in changes
    assert client.run(parent.id).child_run_ids == [clone.id]
    with pytest.raises(ApiError, match="there is no run 99"):
        client.submit_run(SubmitRequest(from_run=99))


def test_jobs_behind_the_training(client: SeroClient, engine: Engine) -> None:
    behind = JobRequest(kind="evaluate", overrides={"evaluation.num_tasks": 5}, labels=["cpu"])
    request = DEMO.model_copy(update={"then": [behind, JobRequest(kind="export")], "priority": 3})
    run = client.submit_run(request, "k")
    assert client.submit_run(request, "k") == run
    with pytest.raises(ApiError, match="with another config"):
        client.submit_run(request.model_copy(update={"priority": 4}), "k")
    train, evaluate, export = run.jobs
    assert (train.priority, train.position, train.waiting) == (3, 1, "no worker is alive")
    assert (evaluate.depends_on, evaluate.labels) == ([train.id], ["cpu"])
    assert evaluate.payload["overrides"] == {"evaluation.num_tasks": 5}
    assert evaluate.waiting == f"waits for train job {train.id} of run {run.id} (queued)"
    assert export.kind == "export"
    client.cancel_run(run.id)
    assert [job.state for job in client.run(run.id).jobs] == ["cancelled"] * 3
    resumed = client.resume_run(run.id)
    assert resumed.jobs[0].state == "queued"
    with pytest.raises(ApiError) as caught:
        client.submit_run(DEMO.model_copy(update={"then": [JobRequest(kind="branch", after=[1])]}))
    assert caught.value.fields[0].field == "then.0.after"


def test_stop_is_graceful_and_cancel_is_not(client: SeroClient, engine: Engine) -> None:
    run = client.submit_run(DEMO)
    start(engine, run.jobs[0].id)
    assert client.stop_run(run.id).status == "stopping"
    job = client.job(run.jobs[0].id)
    assert (job.is_cancel_requested, job.is_kill_requested) == (True, False)
    assert client.cancel_run(run.id).jobs[0].is_kill_requested
    end(engine, job.id, "cancelled")
    resumed = client.resume_run(run.id)
    assert (resumed.status, resumed.reason) == ("queued", None)
    with pytest.raises(ApiError, match="job 1 is queued; only a job that has ended"):
        client.resume_run(run.id)


def test_extend_adds_iterations(client: SeroClient, engine: Engine) -> None:
    run = client.submit_run(DEMO)
    with pytest.raises(ApiError) as caught:
        client.extend_run(run.id, 10)
    assert caught.value.fields[0].allowed == "an integer > 10"
    start(engine, run.jobs[0].id)
    with pytest.raises(ApiError, match="run 1 is running"):
        client.extend_run(run.id, 20)
    end(engine, run.jobs[0].id)
    longer = client.extend_run(run.id, 20)
    assert (longer.status, longer.num_iterations) == ("queued", 20)
    assert longer.config["num_iterations"] == 20
    assert start(engine, run.jobs[0].id).config["num_iterations"] == 20


def test_a_job_names_what_it_works_on(client: SeroClient, engine: Engine) -> None:
    run = client.submit_run(DEMO)
    claimed = start(engine)
    payload = record(5)
    store(engine, claimed, payload)
    episode = next(e for e in payload.episodes if e.steps)

    def refused(request: JobRequest) -> tuple[str, str | None]:
        with pytest.raises(ApiError) as caught:
            client.create_job(run.id, request)
        return caught.value.fields[0].field, caught.value.fields[0].allowed

    root = JobRequest(kind="branch_from_here", episode_id=episode.episode_id, step=1)
    made = client.create_job(run.id, root, "key")
    assert client.create_job(run.id, root, "key").id == made.id
    assert made.payload["episode_id"] == episode.episode_id
    with pytest.raises(ApiError, match="belongs to job 2"):
        client.create_job(run.id, root.model_copy(update={"step": 0}), "key")
    length = len(episode.steps)
    assert refused(root.model_copy(update={"step": length})) == (
        "step",
        f"an integer >= 0 and < {length}",
    )
    assert refused(root.model_copy(update={"episode_id": "nope"}))[0] == "episode_id"
    branch_id = payload.branches[0].branch_id
    rescore = JobRequest(kind="rescore", branch_ids=[branch_id], iterations=[5])
    assert client.create_job(run.id, rescore).payload == {
        "branch_ids": [branch_id],
        "iterations": [5],
    }
    assert refused(rescore.model_copy(update={"branch_ids": ["x"]}))[0] == "branch_ids.0"
    assert refused(rescore.model_copy(update={"iterations": [5, 6]})) == ("iterations.1", "5")
    wrong = JobRequest(kind="evaluate", overrides={"evaluation.num_tasks": -1})
    assert refused(wrong) == ("overrides.evaluation.num_tasks", "an integer >= 0")
    assert refused(JobRequest(kind="evaluate", after=[77]))[0] == "after.0"
    body = {"kind": "evaluate", "episode_id": "x"}
    with SeroClient(str(client._http.base_url).removesuffix("/api/v1/")) as other:  # pyright: ignore
        answer = other._http.post(f"/runs/{run.id}/jobs", json=body)  # pyright: ignore
    assert answer.json()["error"]["fields"][0]["field"] == "request.episode_id"


def test_one_key_makes_one_job(client: SeroClient, engine: Engine) -> None:
    run = client.submit_run(DEMO)
    store(engine, start(engine), record(5))
    request = JobRequest(kind="evaluate", iteration=5)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: client.create_job(run.id, request, "k").id, range(16)))
    assert len(set(found)) == 1
    assert value(engine, "SELECT count(*) FROM jobs") == 2


def test_jobs_are_paged_in_the_order_of_the_queue(client: SeroClient, engine: Engine) -> None:
    ids = [client.submit_run(DEMO).jobs[0].id for _ in range(7)]
    register(engine, "w", num_slots=3)
    for _ in range(3):
        claim(engine, "w")
    for job_id in ids[:2]:
        end(engine, job_id)
    client.set_priority(ids[5], 2)
    assert client.move_job(ids[6], ids[4]).position == 3
    seen: list[int] = []
    cursor = None
    while True:
        page = client.jobs(limit=2, cursor=cursor)
        seen += [job.id for job in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [ids[2], ids[5], ids[3], ids[6], ids[4], ids[1], ids[0]]
    assert client.jobs(kind="branch").items == []
    assert [job.id for job in client.jobs(run_id=3).items] == [ids[2]]
    assert client.retry_job(client.stop_job(ids[4]).id).state == "queued"
    assert client.cancel_job(ids[4]).state == "cancelled"


def test_a_token_has_its_quota_and_its_name_in_the_trail(
    settings: Settings, engine: Engine
) -> None:
    strict = settings.model_copy(update={"require_token": True})
    with engine.begin() as connection:
        _, secret = issue(connection, "ada", "submit", None, max_queued=1)
    with serve(create_app(strict)) as url, SeroClient(url, token=secret) as ada:
        run = ada.submit_run(DEMO)
        assert run.jobs[0].token == "ada"
        assert {event.actor for event in ada.events(run.id).events} >= {"ada"}
        with pytest.raises(ApiError, match="may have 1 jobs in the queue: 1 wait") as caught:
            ada.submit_run(DEMO)
        assert (caught.value.status, caught.value.code) == (429, "quota_exceeded")
        with pytest.raises(ApiError) as caught:
            ada.drain_worker("w")
        assert caught.value.status == 403
