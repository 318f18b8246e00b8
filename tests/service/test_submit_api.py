"""The dry run (warnings, estimate) and sweeps, through the live API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from backend.client import ApiError, SeroClient
from backend.policy_size import policy_size
from backend.schemas import SubmitRequest, SweepRequest
from tests.service.helpers import end, register, start, value
from tests.service.test_ingest import record, store

DEMO = SubmitRequest(preset="sero_demo")
SWEEP = SweepRequest(
    name="beta",
    base=SubmitRequest(preset="sero_demo", overrides={"num_iterations": 3}),
    grid={"sero.reachability.beta": [0.5, 1, 2]},
    seeds=[0, 1, 2, 3, 4],
)


def test_the_dry_run_warns(client: SeroClient, engine: Engine) -> None:
    request = SubmitRequest(
        preset="sero_demo",
        overrides={"checkpoint_every": 500, "num_iterations": 5, "evaluation.num_tasks": 20},
        labels=["gpu"],
    )
    dry = client.validate_run(request)
    said = {warning.field: warning.message for warning in dry.warnings}
    assert said["labels"] == "no worker is alive: the run would wait"
    assert "a crash loses everything" in said["checkpoint_every"]
    assert "interval of more than 20%" in said["evaluation.num_tasks"]
    register(engine, "w", labels=["cpu"])
    submitted = client.submit_run(request)
    said = {warning.field: warning.message for warning in client.validate_run(request).warnings}
    assert said["labels"] == "no living worker has gpu: the run would wait"
    assert said["seed"] == f"run {submitted.id} has the same config and seed already"
    wanting = request.model_copy(update={"labels": ["cpu"], "num_devices": 2})
    said = {warning.field: warning.allowed for warning in client.validate_run(wanting).warnings}
    assert said["num_devices"] == "at most 0"
    assert client.runs().num_total == 1


def test_the_estimate_uses_measured_runs(client: SeroClient, engine: Engine) -> None:
    size = policy_size("demo")
    assert size is not None
    first = client.validate_run(DEMO).estimate
    assert first is not None
    assert (first.basis, first.num_runs, first.duration_s) == ("formula", 0, None)
    assert first.checkpoint_bytes == size.num_parameters * 4 * 3
    assert first.memory_bytes is not None
    assert first.memory_bytes > size.num_parameters * 4 * 4 + 500_000_000
    run = client.submit_run(DEMO)
    claimed = start(engine)
    seconds: list[float] = []
    for iteration in (1, 2, 3):
        payload = record(iteration)
        seconds.append(payload.metrics["time/iteration_s"])
        store(engine, claimed, payload)
    again = client.validate_run(DEMO).estimate
    assert again is not None
    assert (again.basis, again.num_runs) == ("history", 1)
    assert again.duration_s == pytest.approx(run.num_iterations * sum(seconds) / 3)
    assert again.checkpoint_bytes == 5_000_000_000
    assert "same config" in again.explanation
    double = SubmitRequest(preset="sero_demo", overrides={"rollout.num_tasks": 2})
    scaled = client.validate_run(double).estimate
    assert scaled is not None
    tasks = run.config["rollout"]["num_tasks"]  # pyright: ignore
    assert scaled.duration_s == pytest.approx(again.duration_s * 2 / tasks)
    assert "scaled" in scaled.explanation


def test_a_sweep_says_what_it_would_queue_and_queues_it_once(
    client: SeroClient, engine: Engine
) -> None:
    plan = client.validate_sweep(SWEEP)
    assert plan.num_runs == len(plan.runs) == 15
    assert [run.name for run in plan.runs[:2]] == ["beta beta-0.5 s0", "beta beta-0.5 s1"]
    assert len({run.config_hash for run in plan.runs}) == 3
    assert client.runs().num_total == 0
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: client.submit_sweep(SWEEP, "k").id, range(6)))
    assert set(found) == {found[0]}
    sweep = client.sweep(found[0])
    assert [(run.name, run.seed) for run in sweep.runs] == [(r.name, r.seed) for r in plan.runs]
    assert all(run.sweep_id == sweep.id for run in sweep.runs)
    assert client.run(sweep.runs[14].id).config["sero"]["reachability"]["beta"] == 2  # pyright: ignore
    assert value(engine, "SELECT count(*) FROM jobs WHERE state = 'queued'") == 15
    other = SWEEP.model_copy(update={"seeds": [0]})
    with pytest.raises(ApiError, match="belongs to sweep 1"):
        client.submit_sweep(other, "k")
    assert [s.num_runs for s in client.sweeps().sweeps] == [15]
    stopped = client.stop_sweep(sweep.id)
    assert {run.status for run in stopped.runs} == {"cancelled"}


def test_a_wrong_sweep_queues_nothing(client: SeroClient) -> None:
    def refused(**changes: object) -> list[str]:
        with pytest.raises(ApiError) as caught:
            client.submit_sweep(SWEEP.model_copy(update=changes))
        return [field.field for field in caught.value.fields]

    assert (
        refused(grid={"sero.reachability.beta": [1, -1, 101]})
        == ["grid.sero.reachability.beta"] * 2
    )
    assert refused(grid={"optimizer.lr": []}) == ["grid.optimizer.lr"]
    assert refused(grid={"seed": [1]}) == ["grid.seed"]
    assert refused(grid={"seed_": [1]}) == ["grid.seed_"]
    assert refused(grid={"num_iterations": list(range(1, 202))}) == ["grid"]
    assert refused(base=SubmitRequest()) == ["config"]
    assert client.runs().num_total == 0


def test_a_sweep_of_clones_has_its_parent(client: SeroClient, engine: Engine) -> None:
    parent = client.submit_run(DEMO)
    start(engine)
    end(engine, parent.jobs[0].id)
    base = SubmitRequest(from_run=parent.id, labels=["gpu"], priority=2)
    sweep = client.submit_sweep(SweepRequest(name="s", base=base, seeds=[5, 6]))
    assert [(run.parent_run_id, run.seed) for run in sweep.runs] == [(parent.id, 5), (parent.id, 6)]
    job = client.run(sweep.runs[0].id).jobs[0]
    assert (job.labels, job.priority) == (["gpu"], 2)
    assert [c.key for c in client.run(sweep.runs[0].id).changes] == ["seed"]
