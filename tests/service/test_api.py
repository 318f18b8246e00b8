"""The live API through the client: submitting, errors, cancelling, operation."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from backend.client import ApiError, SeroClient
from backend.db.queries import jobs, workers
from backend.main import create_app
from backend.schemas import ErrorResponse, JobRequest, SubmitRequest
from backend.settings import Settings
from tests.service.conftest import serve
from tests.service.helpers import LEASE_S, register, start
from tests.service.test_ingest import record, store

DEMO = SubmitRequest(preset="sero_demo")


def error_of(response: httpx.Response) -> tuple[int, str, list[tuple[str, str | None]]]:
    error = ErrorResponse.model_validate_json(response.content).error
    assert error.request_id == response.headers["X-Request-Id"]
    fields = [(field.field, field.allowed) for field in error.fields]
    return response.status_code, error.code, fields


def test_a_preset_with_overrides_becomes_a_queued_run(client: SeroClient, engine: Engine) -> None:
    request = SubmitRequest(
        preset="sero_demo",
        overrides={"num_iterations": 3, "sero.root.per_group": 1, "rollout": {"num_tasks": 2}},
        name="my run",
    )
    run = client.submit_run(request)
    assert (run.name, run.status, run.method, run.preset) == (
        "my run",
        "queued",
        "sero",
        "sero_demo",
    )
    assert (run.iteration, run.num_iterations, run.num_branches) == (None, 3, 0)
    config = run.config
    assert config["sero"]["root"]["per_group"] == 1  # pyright: ignore
    assert config["rollout"]["num_tasks"] == 2  # pyright: ignore
    assert [(job.kind, job.state, job.attempts) for job in run.jobs] == [("train", "queued", [])]
    kinds = [event.kind for event in client.events(run.id).events]
    # nobody answers at the broker's address: the run is queued all the same
    assert kinds == ["run.submitted", "job.queued", "job.wakeup_failed"]
    register(engine, "w1")
    with engine.begin() as connection:
        assert jobs.claimable_job_ids(connection, "w1") == [run.jobs[0].id]


def test_the_key_makes_a_submit_repeatable(client: SeroClient, api_url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: client.submit_run(DEMO, "key-1").id, range(6)))
    assert len(set(found)) == 1
    body = DEMO.model_dump(mode="json")
    headers = {"Idempotency-Key": "key-1"}
    again = httpx.post(f"{api_url}/api/v1/runs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, found[0])
    other = httpx.post(f"{api_url}/api/v1/runs", json=body | {"name": "other"}, headers=headers)
    assert error_of(other) == (409, "conflict", [])
    assert client.runs().num_total == 1


def test_a_422_names_every_field_and_what_is_allowed(client: SeroClient, api_url: str) -> None:
    config = {
        "num_iterations": 0,
        "sero": {"oracle": {"name": "explorer", "foo": 1}, "beta": 2, "root": {"rule": "best"}},
        "env": {"task_types": ["juggle"]},
        "optimizer": {"lr": "fast"},
        "name": "",
    }
    for path in ("/runs", "/runs:validate"):
        response = httpx.post(f"{api_url}/api/v1{path}", json={"config": config})
        status, code, fields = error_of(response)
        assert (status, code) == (422, "invalid_request")
        allowed = dict(fields)
        assert set(allowed) == {
            "num_iterations",
            "sero.oracle.foo",
            "sero.beta",
            "sero.root.rule",
            "env.task_types.0",
            "optimizer.lr",
            "name",
        }
        assert allowed["num_iterations"] == "an integer >= 1 and <= 100000"
        assert allowed["optimizer.lr"] == "a number > 0 and <= 1"
        assert "'disagree', 'uniform'" in str(allowed["sero.root.rule"])
        assert "'pick_and_place_simple'" in str(allowed["env.task_types.0"])
        assert "reachability" in str(allowed["sero.beta"])
    assert client.runs().num_total == 0


def test_a_check_over_several_fields_names_its_field(client: SeroClient) -> None:
    with pytest.raises(ApiError) as caught:
        client.validate_run(SubmitRequest(config={"rollout": {"group_size": 1}}))
    assert caught.value.status == 422
    assert [(f.field, f.allowed) for f in caught.value.fields] == [
        ("rollout.group_size", "2 or more, or add [sero]")
    ]


@pytest.mark.parametrize(
    ("request_", "field", "allowed"),
    [
        (SubmitRequest(), "config", "one of the three"),
        (SubmitRequest(config={}, preset="sero_demo"), "config", "one of the three"),
        (SubmitRequest(preset="sero_dmeo"), "preset", "sero_demo"),
    ],
)
def test_submit_says_how_to_ask(
    client: SeroClient, request_: SubmitRequest, field: str, allowed: str
) -> None:
    with pytest.raises(ApiError) as caught:
        client.submit_run(request_)
    assert caught.value.fields[0].field == field
    assert allowed in str(caught.value.fields[0].allowed)
    assert field in str(caught.value)


def test_errors_have_one_shape(api_url: str) -> None:
    base = f"{api_url}/api/v1"
    assert error_of(httpx.get(f"{base}/nothing"))[:2] == (404, "not_found")
    assert error_of(httpx.get(f"{base}/runs/7"))[:2] == (404, "not_found")
    assert error_of(httpx.get(f"{base}/branches/7-x"))[:2] == (404, "not_found")
    assert error_of(httpx.get(f"{base}/branches/x"))[:2] == (404, "not_found")
    assert error_of(httpx.get(f"{base}/compare?runs=1,2"))[:2] == (404, "not_found")
    assert error_of(httpx.delete(f"{base}/runs")) == (405, "method_not_allowed", [])
    assert error_of(httpx.get(f"{base}/runs?cursor=x"))[2][0][0] == "cursor"
    wrong = error_of(httpx.get(f"{base}/runs?limit=0&status=done"))
    assert (wrong[0], {field for field, _ in wrong[2]}) == (422, {"limit", "status"})
    body = httpx.post(f"{base}/runs", content=b"{", headers={"Content-Type": "application/json"})
    assert error_of(body)[:2] == (422, "invalid_request")
    host = httpx.get(f"{base}/runs", headers={"Host": "evil.example"})
    assert error_of(host)[:2] == (400, "unknown_host")
    given = httpx.get(f"{base}/runs/7", headers={"X-Request-Id": "mine-1"})
    assert given.json()["error"]["request_id"] == "mine-1"
    bad = httpx.get(f"{base}/runs", headers={"X-Request-Id": "a b\u00e9".encode("latin-1")})
    assert len(bad.headers["X-Request-Id"]) == 32


def test_an_unexpected_error_is_a_500_with_the_request_id(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(settings)

    @app.get("/broken")
    def broken() -> None:
        raise ZeroDivisionError("secret detail")

    with serve(app) as url:
        response = httpx.get(f"{url}/broken")
    assert error_of(response)[:2] == (500, "internal_error")
    assert "secret" not in response.text
    assert response.headers["X-Request-Id"] in caplog.text


def test_a_lost_database_is_a_503_and_health_still_answers(settings: Settings) -> None:
    gone = settings.model_copy(update={"database_url": "postgresql+psycopg://x@/x?host=/nowhere"})
    with serve(create_app(gone)) as url, SeroClient(url) as client:
        assert error_of(httpx.get(f"{url}/api/v1/runs"))[:2] == (503, "database_unavailable")
        health = client.health()
    assert not health.is_ok
    assert not health.database.is_ok
    assert not health.broker.is_ok


def test_more_readers_than_connections_all_get_an_answer(client: SeroClient, api_url: str) -> None:
    path = f"{api_url}/api/v1/runs/{client.submit_run(DEMO).id}/metrics"
    with httpx.Client(timeout=60) as http, ThreadPoolExecutor(45) as threads:
        statuses = threads.map(lambda _: http.get(path).status_code, range(120))
        assert set(statuses) == {200}


def test_health_says_what_is_up(client: SeroClient, engine: Engine) -> None:
    assert client.health().num_workers_alive == 0
    client.submit_run(DEMO)
    start(engine)
    client.submit_run(DEMO)
    health = client.health()
    assert (health.num_workers_alive, health.num_jobs_queued, health.num_jobs_running) == (1, 1, 1)
    assert (health.database.is_ok, health.broker.is_ok, health.is_ok) == (True, False, False)
    assert health.schema_revision is not None


def test_cancel_a_queued_and_a_running_run(client: SeroClient, engine: Engine) -> None:
    queued, running = client.submit_run(DEMO), client.submit_run(DEMO)
    claimed = start(engine, running.jobs[0].id)
    done = client.cancel_run(queued.id)
    assert (done.status, done.reason) == ("cancelled", "cancelled before it started")
    assert done.finished_at is not None
    assert client.cancel_run(running.id).status == "stopping"
    assert client.cancel_run(running.id).status == "stopping"
    assert [run.id for run in client.runs(status="stopping").items] == [running.id]
    assert client.runs(status="running").items == []
    with engine.begin() as connection:
        jobs.finish(connection, claimed.job_id, 1, "cancelled", "cancelled by the user")
    assert client.run(running.id).status == "cancelled"
    with pytest.raises(ApiError, match="there is no run 99"):
        client.cancel_run(99)


def test_runs_are_paged_searched_and_filtered(client: SeroClient) -> None:
    ids = [client.submit_run(DEMO.model_copy(update={"name": f"run {i}"})).id for i in range(7)]
    grpo = client.submit_run(SubmitRequest(preset="grpo_demo", name="base_100"))
    page = client.runs(search="SERO", limit=3)
    assert (page.num_matching, page.num_total) == (7, 8)
    seen = [run.id for run in page.items]
    newer = client.submit_run(DEMO)  # comes between two pages and shifts nothing
    while page.next_cursor is not None:
        page = client.runs(search="SERO", limit=3, cursor=page.next_cursor)
        seen += [run.id for run in page.items]
    assert seen == ids[::-1]
    assert newer.id not in seen
    assert [run.id for run in client.runs(search="E_1").items] == [grpo.id]
    assert client.runs(search="r_n").items == []
    assert client.runs(status="failed").items == []


def test_jobs_on_checkpoints(client: SeroClient, engine: Engine) -> None:
    run = client.submit_run(DEMO)
    with pytest.raises(ApiError, match="no checkpoint yet"):
        client.create_job(run.id, JobRequest(kind="branch"))
    claimed = start(engine)
    store(engine, claimed, record(5))
    with pytest.raises(ApiError) as caught:
        client.create_job(run.id, JobRequest(kind="branch", iteration=4))
    assert (caught.value.status, caught.value.fields[0].allowed) == (422, "5")
    made = client.create_job(run.id, JobRequest(kind="evaluate", iteration=5))
    assert (made.kind, made.state, made.iteration) == ("evaluate", "queued", 5)
    listed = client.jobs().items
    assert [(job.id, job.state) for job in listed] == [
        (claimed.job_id, "running"),
        (made.id, "queued"),
    ]
    assert listed[0].attempts[0].worker_id == "w1"
    assert [job.id for job in client.jobs(state="queued").items] == [made.id]
    with engine.begin() as connection:
        jobs.finish(connection, claimed.job_id, 1, "succeeded", "done")
    assert [job.id for job in client.jobs().items] == [made.id, claimed.job_id]


def test_workers(client: SeroClient, engine: Engine) -> None:
    with engine.begin() as connection:
        workers.register(connection, "w9", "host", 9, "0.1", LEASE_S)
    (worker,) = client.workers().workers
    assert (worker.id, worker.is_alive, worker.job_ids) == ("w9", True, [])


def test_the_schema_describes_the_form(client: SeroClient) -> None:
    found = client.config_schema()
    presets = {preset.name: preset for preset in found.presets}
    assert {"sero_demo", "grpo_demo"} <= set(presets)
    assert presets["sero_demo"].description.startswith("The demo")
    assert presets["grpo_demo"].config["sero"] is None
    paper = presets["paper/webshop_qwen2.5-7b_gigpo"]
    assert "Hardware: " in paper.description
    assert paper.config["evaluation"]["protocol"] == {"name": "paper", "num_draws": 128}  # pyright: ignore
    assert next(iter(presets)) != paper.name, "the small ones come first"
    assert "num_iterations" in str(found.json_schema["properties"])
    assert found.defaults["num_iterations"] == 150
    validated = client.validate_run(SubmitRequest(preset="grpo_demo", overrides={"seed": 3}))
    assert validated.config["seed"] == 3
    other_seed = client.validate_run(SubmitRequest(preset="grpo_demo"))
    assert validated.config_hash == other_seed.config_hash


def test_compare_lists_only_what_differs(client: SeroClient, engine: Engine) -> None:
    sero = client.submit_run(DEMO)
    grpo = client.submit_run(SubmitRequest(preset="grpo_demo", overrides={"optimizer.lr": 0.5}))
    claimed = start(engine, sero.jobs[0].id)
    for iteration in (1, 2):
        store(engine, claimed, record(iteration))
    compared = client.compare([grpo.id, sero.id])
    assert [run.id for run in compared.runs] == [grpo.id, sero.id]
    differences = {d.key: d.values for d in compared.config_differences}
    assert differences["optimizer.lr"][grpo.id] == 0.5
    assert "sero.root.per_group" in differences
    assert grpo.id not in differences["sero.root.per_group"]
    assert not any(key.startswith("rollout") for key in differences)
    assert [(e.run_id, e.iteration, e.panel) for e in compared.evaluations] == [
        (sero.id, 2, "valid_seen"),
        (sero.id, 2, "valid_unseen"),
    ]
    assert "train/kl" in compared.metric_keys


def test_openapi_is_complete(api_url: str) -> None:
    document = httpx.get(f"{api_url}/api/v1/openapi.json", timeout=60).json()
    operations = [
        (path, operation)
        for path, methods in document["paths"].items()
        for operation in methods.values()
    ]
    names = [operation["operationId"] for _, operation in operations]
    assert len(names) == len(set(names)) >= 22
    for path, operation in operations:
        assert operation.get("description"), f"{path} has no description"
        reference = operation["responses"]["422"]["content"]["application/json"]["schema"]["$ref"]
        assert reference.endswith("/ErrorResponse")


def test_the_client_says_when_nobody_is_there() -> None:
    with SeroClient("http://127.0.0.1:9") as client, pytest.raises(ApiError) as caught:
        client.health()
    assert (caught.value.status, caught.value.code) == (0, "unreachable")


def test_the_api_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, backend.main; backend.main.create_app(); "
        "heavy = {'torch', 'transformers', 'worker', 'dashboard'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
