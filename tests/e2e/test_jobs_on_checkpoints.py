"""Branch and evaluate jobs work on a checkpoint of a finished run and keep ids of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from backend.schemas import JobInfo, JobRequest
from tests.support.services import ENDED, Services, services, until

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.fixture(scope="module")
def running() -> Iterator[Services]:
    with services() as made:
        yield made


def finish(running: Services, run_id: int, kind: Literal["branch", "evaluate"]) -> JobInfo:
    job_id = running.client.create_job(run_id, JobRequest(kind=kind)).id

    def job() -> JobInfo:
        return next(job for job in running.client.run(run_id).jobs if job.id == job_id)

    until(lambda: job().state in ENDED, 180, running.report)
    return job()


def test_branch_and_evaluate_jobs(running: Services) -> None:
    run_id = running.submit("num_iterations=2")
    running.wait_for(run_id, "succeeded")
    trained = {branch.id for branch in running.client.branches(run_id=run_id).items}

    job = finish(running, run_id, "branch")
    assert (job.state, job.reason) == ("succeeded", "finished")
    branches = running.client.branches(run_id=run_id).items
    added = [branch for branch in branches if branch.id not in trained]
    assert added
    assert all(branch.id.startswith(f"{run_id}-j{job.id}i") for branch in added)
    assert {branch.iteration for branch in added} == {2}
    assert running.client.branch(added[0].id).steps[0].weight == 1.0
    assert trained < {branch.id for branch in branches}

    before = running.client.evaluations(run_id).evaluations
    job = finish(running, run_id, "evaluate")
    assert (job.state, job.reason) == ("succeeded", "finished")
    after = running.client.evaluations(run_id).evaluations
    assert len(after) == len(before) + 2
    assert running.client.run(run_id).status == "succeeded"
