"""Search over branches, depth maps, curves on other axes, paired tasks: against what was stored."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from backend.client import ApiError, SeroClient
from backend.db.queries.jobs import ClaimedJob
from sero_core.records import BranchPayload, IterationPayload
from tests.service.helpers import rows, start, submit
from tests.service.test_ingest import record, store


@pytest.fixture
def claimed(engine: Engine) -> ClaimedJob:
    submit(engine)
    return start(engine)


@pytest.fixture
def payloads(engine: Engine, claimed: ClaimedJob) -> list[IterationPayload]:
    made = [record(iteration) for iteration in range(6)]
    for payload in made:
        store(engine, claimed, payload)
    return made


def ids(found: list[BranchPayload]) -> set[str]:
    return {branch.branch_id for branch in found}


def test_every_filter_finds_what_a_loop_finds(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    everything = [branch for payload in payloads for branch in payload.branches]

    def check(expected: list[BranchPayload], **filters: object) -> None:
        page = client.branches(run_id=claimed.run_id, limit=500, **filters)  # pyright: ignore
        assert {b.branch_id for b in page.items} == ids(expected), filters
        assert page.num_matching == len(expected)
        assert page.num_total == len(everything)

    def weight_at(branch: BranchPayload, depth: int) -> float | None:
        return branch.steps[depth].weight if depth < len(branch.steps) else None

    check([b for b in everything if b.outcome in ("won", "budget")], outcome=["won", "budget"])
    check([b for b in everything if b.effective_depth >= 2], min_effective_depth=2)
    check([b for b in everything if b.effective_depth <= 1.5], max_effective_depth=1.5)
    check(
        [b for b in everything if (w := weight_at(b, 2)) is not None and w < 0.4],
        weight_depth=2,
        max_weight=0.4,
    )
    last = [b.steps[-1].weight if b.steps else 1.0 for b in everything]
    check([b for b, w in zip(everything, last, strict=True) if w >= 0.5], min_weight=0.5)
    differs = [b for b in everything if b.steps and b.steps[0].policy_action != b.steps[0].action]
    check(differs, differs_at_root=True)
    task = everything[0].task
    check([b for b in everything if b.task.task_id == task.task_id], task_id=task.task_id)
    check([b for b in everything if b.oracle == "explorer"], oracle="explorer")
    check([], oracle="planner")
    check(everything, job_id=claimed.job_id, min_iteration=0, max_iteration=5)
    needle = everything[0].steps[0].observation[:15] if everything[0].steps else "You arrive"
    check(
        [b for b in everything if any(needle.lower() in s.observation.lower() for s in b.steps)],
        observation=needle,
    )
    with pytest.raises(ApiError, match="reads every step of a run"):
        client.branches(observation="mug")
    with pytest.raises(ApiError, match="there is no outcome 'lost'"):
        client.branches(outcome="won,lost")  # pyright: ignore


def test_words_are_found_in_actions(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    everything = [branch for payload in payloads for branch in payload.branches]

    def found(q: str) -> set[str]:
        return {b.branch_id for b in client.branches(q=q, limit=500).items}

    def having(*needles: str) -> set[str]:
        return ids(
            [
                b
                for b in everything
                if all(any(needle in s.action for s in b.steps) for needle in needles)
            ]
        )

    assert found("drawer") == having("drawer") != set()
    assert found("draw") == having("drawer")
    assert found('"open drawer"') == having("open drawer")
    assert found("cd drawer") == having("cd", "drawer")
    assert found("zebra") == set()
    assert found("!!") == ids(everything)
    task_type = everything[0].task.task_type.partition("_")[0]
    assert found(task_type)


def test_pages_follow_any_order_and_facets_add_up(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    everything = [branch for payload in payloads for branch in payload.branches]
    for sort in ("effective_depth", "-effective_depth", "-last_weight", "num_steps", "-num_steps"):
        seen: list[float] = []
        names: list[str] = []
        cursor = None
        while True:
            page = client.branches(sort=sort, limit=7, cursor=cursor)  # pyright: ignore
            names += [b.branch_id for b in page.items]
            seen += [
                float(
                    b.num_steps
                    if sort.endswith("num_steps")
                    else (b.weights[-1] if b.weights else 1.0) or 0.0
                    if sort.endswith("last_weight")
                    else b.effective_depth or 0.0
                )
                for b in page.items
            ]
            if (cursor := page.next_cursor) is None:
                break
        assert sorted(names) == sorted(ids(everything)), sort
        assert seen == sorted(seen, reverse=sort.startswith("-")), sort
    page = client.branches(facets=True, limit=1)
    assert page.facets is not None
    for counts in page.facets.model_dump().values():
        assert sum(counts.values()) == len(everything)
    won = sum(b.outcome == "won" for b in everything)
    assert page.facets.outcome["won"] == won
    filtered = client.branches(outcome="won", facets=True, limit=1)
    assert filtered.num_matching == won
    assert filtered.facets is not None
    assert filtered.facets.outcome == {"won": won}


def test_the_depth_map_by_type_and_quantile(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    task_type = payloads[0].branches[0].task.task_type
    found = client.depth_map(claimed.run_id, task_type=task_type, quantiles=True)
    for cell in found.cells:
        weights = sorted(
            b.steps[cell.depth].weight
            for b in payloads[cell.iteration].branches
            if b.task.task_type == task_type and cell.depth < len(b.steps)
        )
        assert cell.num_steps == len(weights)
        assert cell.mean_weight == pytest.approx(sum(weights) / len(weights))
        assert cell.share_reachable == pytest.approx(sum(w > 0.5 for w in weights) / len(weights))
        assert weights[0] - 1e-9 <= cell.p10_weight <= cell.median_weight <= cell.p90_weight  # pyright: ignore
    whole = client.depth_map(claimed.run_id)
    for bucket in whole.buckets:
        branches = payloads[bucket.iteration].branches
        assert bucket.branch_success == pytest.approx(
            sum(b.outcome == "won" for b in branches) / len(branches)
        )
        assert bucket.success == pytest.approx(
            payloads[bucket.iteration].metrics["rollout/success"]
        )


def test_curves_on_the_axis_of_time(
    client: SeroClient, engine: Engine, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    other = submit(engine)
    second = start(engine, other)
    store(engine, second, record(1, seed=3))
    found = client.curves([second.run_id, claimed.run_id], ["train/loss", "no/such"])
    assert [(c.run_id, c.key, len(c.points)) for c in found.curves] == [
        (second.run_id, "train/loss", 1),
        (claimed.run_id, "train/loss", 6),
    ]
    assert [p.x for p in found.curves[1].points] == [0, 1, 2, 3, 4, 5]
    timed = client.curves([claimed.run_id], ["train/loss"], axis="wall_s").curves[0]
    total = 0.0
    for payload, point in zip(payloads, timed.points, strict=True):
        total += payload.metrics["time/iteration_s"]
        assert point.x == pytest.approx(total)
    merged = client.curves([claimed.run_id], ["train/loss"], axis="wall_s", max_points=2)
    assert merged.curves[0].points[-1].x == pytest.approx(total)
    rows(engine, "UPDATE jobs SET num_devices = 2 WHERE id = :id RETURNING id", id=claimed.job_id)
    hours = client.curves([claimed.run_id], ["train/loss"], axis="gpu_hours").curves[0]
    assert hours.points[-1].x == pytest.approx(total * 2 / 3600)
    assert client.curves([claimed.run_id], ["train/loss"], axis="tokens").curves[0].points == []


def test_tasks_are_compared_in_pairs(
    client: SeroClient, engine: Engine, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    second = start(engine, submit(engine))
    other = record(7, seed=5)
    store(engine, second, other)
    found = client.compare_tasks([claimed.run_id], [second.run_id], panel="valid_seen")
    a = {o.task_id: o for o in payloads[-1].evaluations[0].outcomes}
    b = {o.task_id: o for o in other.evaluations[0].outcomes}
    expected = sum(b[t].is_won - a[t].is_won for t in a) / len(a)
    everything = next(result for result in found.results if result.group == "all")
    assert everything.difference == pytest.approx(expected)
    assert everything.num_tasks == len(a)
    assert everything.p_value is not None
    assert found.is_same_panel
    by_id = {task.task_id: task for task in found.tasks}
    assert {t: (k.rate_a, k.rate_b) for t, k in by_id.items()} == {
        t: (float(a[t].is_won), float(b[t].is_won)) for t in a
    }
    differences = [abs(task.rate_b - task.rate_a) for task in found.tasks]
    assert differences == sorted(differences, reverse=True)
    early = client.compare_tasks([claimed.run_id], [second.run_id], panel="valid_seen", iteration=7)
    assert early.results == []
    diff = client.diff_configs(claimed.run_id, second.run_id)
    assert diff.changes == []
    with pytest.raises(ApiError, match="there is no run 99"):
        client.diff_configs(claimed.run_id, 99)


def test_a_rescored_branch_lists_its_checkpoints(
    client: SeroClient, engine: Engine, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    branch = payloads[0].branches[0]
    rescore = {
        "branch_id": branch.branch_id,
        "weights_hash": "ab",
        "effective_depth": 1.5,
        "weights": [1.0, 0.5],
        "compatibilities": [0.5, 0.5],
        "logprob_means": [-0.7, -0.7],
    }
    line = record(9).model_dump() | {
        "episodes": [],
        "branches": [],
        "evaluations": [],
        "checkpoint": None,
        "rescores": [rescore],
    }
    store(engine, claimed, IterationPayload.model_validate(line))
    found = client.rescores(f"{claimed.run_id}-{branch.branch_id}")
    assert [(r.iteration, r.weights, r.effective_depth) for r in found.rescores] == [
        (9, [1.0, 0.5], 1.5)
    ]
    assert client.rescores(f"{claimed.run_id}-none").rescores == []
