"""Submit by HTTP, train, branches in Postgres, the page shows them, SIGKILL, and on to the end."""

from __future__ import annotations

import math
import re
import shutil
import uuid
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from sero_core.config import load_config
from tests.support.services import (
    QUICK,
    TINY,
    Services,
    assert_nothing_lost_or_doubled,
    services,
    until,
)

pytestmark = [pytest.mark.service, pytest.mark.browser, pytest.mark.slow]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NUM_ITERATIONS = 12


@pytest.fixture(scope="module")
def running() -> Iterator[Services]:
    with services(with_dashboard=True) as made:
        yield made


@pytest.fixture
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        made = browser.new_page()
        made.set_default_timeout(60_000)
        yield made
        browser.close()


def submit_by_http(running: Services) -> int:
    """Two posts with one key, as an impatient form would send them; one run."""
    changes = (*QUICK, f"num_iterations={NUM_ITERATIONS}")
    config = load_config(TINY, changes).model_dump(mode="json")
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    url = f"http://127.0.0.1:{running.api_port}/api/v1/runs"
    answers = [httpx.post(url, json={"config": config}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    [run_id] = {answer.json()["id"] for answer in answers}
    return int(run_id)


def test_the_straight_line(running: Services, page: Page) -> None:
    run_id = submit_by_http(running)
    running.wait_for_iteration(run_id, 2)
    branch_id = stored_branch(running, run_id)
    the_page_shows_it(running, page, branch_id)

    assert running.job(run_id).state == "running"
    running.main_process("worker.app").kill()
    run = running.wait_for(run_id, "succeeded", timeout_s=400)

    assert run.iteration == NUM_ITERATIONS
    assert run.finished_at is not None
    assert_nothing_lost_or_doubled(running, run_id)
    assert [attempt.state for attempt in running.job(run_id).attempts] == ["lost", "succeeded"]
    panels = {item.panel for item in running.client.evaluations(run_id).evaluations}
    assert panels == {"valid_seen", "valid_unseen"}
    assert stored_branch(running, run_id) == branch_id  # the permalink outlives the restart


def stored_branch(running: Services, run_id: int) -> str:
    """The permalink of the oldest branch, after a look at its weights in Postgres."""
    rows = running.query(
        "SELECT branch_id, array_agg(weight ORDER BY depth), array_agg(action_logprob_mean "
        "ORDER BY depth) FROM branch_steps JOIN branches USING (run_id, branch_id) "
        "WHERE run_id = :id AND branches.iteration = 1 GROUP BY branch_id ORDER BY branch_id",
        id=run_id,
    )
    assert rows
    for _, weights, logprobs in rows:
        assert weights[0] == 1.0
        for depth in range(1, len(weights)):
            expected = math.exp(sum(logprobs[:depth]))
            assert weights[depth] == pytest.approx(expected, rel=1e-5)
    return f"{run_id}-{rows[0][0]}"


def the_page_shows_it(running: Services, page: Page, branch_id: str) -> None:
    branch = running.client.branch(branch_id)
    page.goto(f"{running.dashboard_url}/branch?id={branch_id}")
    stepper = page.locator(".stepper")
    expect(stepper).to_be_visible()
    expect(stepper).to_contain_text(branch.steps[0].action)
    page.goto(f"{running.dashboard_url}/branches")
    expect(page.get_by_role("heading", name="Branches")).to_be_visible()
    expect(page.get_by_text(re.compile(r"Traceback|Connection error"))).to_have_count(0)


def test_a_wrong_field_is_named(running: Services) -> None:
    url = f"http://127.0.0.1:{running.api_port}/api/v1/runs"
    answer = httpx.post(url, json={"config": {"name": "x", "rollout": {"group_size": 0}}})
    assert answer.status_code == 422
    assert answer.json()["error"]["fields"][0]["field"] == "rollout.group_size"


def test_health_knows_its_parts(running: Services) -> None:
    until(lambda: running.client.health().is_ok, 30, running.report)
    assert running.client.health().num_workers_alive == 1
