"""Reading what a run wrote, through the live API: everything comes back as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sqlalchemy import Engine

from backend.client import ApiError, SeroClient
from backend.db.ingest import write_log
from backend.db.queries.jobs import ClaimedJob
from backend.db.queries.metrics import bucket_size
from backend.db.queries.submit import create_job
from backend.db.texts import clean
from sero_core.records import IterationPayload, to_payload
from tests.service.helpers import start, submit
from tests.service.test_ingest import record, store
from tests.support.records import iteration_record


@pytest.fixture
def claimed(engine: Engine) -> ClaimedJob:
    submit(engine)
    return start(engine)


@pytest.fixture
def payloads(engine: Engine, claimed: ClaimedJob) -> list[IterationPayload]:
    made = [record(iteration) for iteration in range(4)]
    for payload in made:
        assert store(engine, claimed, payload)
    return made


def test_a_branch_comes_back_with_every_step_and_its_episode(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    payload = payloads[2]
    episodes = {episode.episode_id: episode for episode in payload.episodes}
    for branch in payload.branches:
        found = client.branch(f"{claimed.run_id}-{branch.branch_id}")
        assert found.branch_id == branch.branch_id
        assert found.task.model_dump() == branch.task.model_dump()
        assert (found.outcome, found.reason) == (branch.outcome, clean(branch.reason))
        assert found.is_restored_exactly == (branch.outcome != "restore_mismatch")
        assert found.final_observation == branch.final_observation
        assert found.weights == [step.weight for step in branch.steps]
        assert len(found.steps) == found.num_steps == len(branch.steps)
        for step, expected in zip(found.steps, branch.steps, strict=True):
            raw = expected.model_dump()
            raw |= {key: clean(raw[key]) for key in ("observation", "prompt", "action")}
            raw["tokens"] = [clean(token) for token in raw["tokens"]]
            assert step.model_dump() == raw
        episode = episodes[branch.episode_id]
        assert found.episode is not None
        assert found.is_episode_won == episode.is_won
        assert found.episode.score == episode.score
        assert found.episode.final_observation == clean(episode.final_observation)
        assert [branch.branch_id in {r.branch_id for r in found.episode.branches}] == [True]
        for step, expected in zip(found.episode.steps, episode.steps, strict=True):
            raw = expected.model_dump()
            raw |= {key: clean(raw[key]) for key in ("observation", "response", "action")}
            assert step.model_dump() == raw
        assert client.episode(found.episode.id) == found.episode


def test_branches_are_filtered_and_paged(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    everything = [b for p in reversed(payloads) for b in p.branches]
    seen: list[str] = []
    page = client.branches(run_id=claimed.run_id, limit=5)
    assert page.num_matching == page.num_total == len(everything)
    while True:
        seen += [branch.branch_id for branch in page.items]
        if page.next_cursor is None:
            break
        page = client.branches(run_id=claimed.run_id, limit=5, cursor=page.next_cursor)
    assert seen == [branch.branch_id for branch in everything]

    won = client.branches(outcome="won", min_depth=2)
    expected = [b.branch_id for b in everything if b.outcome == "won" and len(b.steps) >= 2]
    assert [branch.branch_id for branch in won.items] == expected
    assert (won.num_matching, won.num_total) == (len(expected), len(everything))
    assert client.branches(run_id=claimed.run_id, iteration=3).num_matching == 6
    assert client.branches(min_iteration=1, max_iteration=2).num_matching == 12
    assert client.branches(run_id=999).num_total == 0
    task_type = everything[0].task.task_type
    found = client.branches(task_type=task_type, split="train", is_episode_won=False).items
    assert all(b.task.task_type == task_type and b.is_episode_won is False for b in found)
    with pytest.raises(ApiError, match="not a cursor"):
        client.branches(cursor=client.episodes(claimed.run_id, limit=1).next_cursor)


def test_episodes_are_filtered_and_paged(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    run_id = claimed.run_id
    everything = [e for p in reversed(payloads) for e in p.episodes]
    first = client.episodes(run_id, limit=4)
    second = client.episodes(run_id, limit=500, cursor=first.next_cursor)
    seen = [episode.episode_id for episode in first.items + second.items]
    assert seen == [episode.episode_id for episode in everything]
    assert second.next_cursor is None
    won = client.episodes(run_id, iteration=1, is_won=True)
    assert [e.episode_id for e in won.items] == [
        e.episode_id for e in payloads[1].episodes if e.is_won
    ]
    assert won.num_total == len(everything)
    per_episode = {e.episode_id: e.num_branches for e in first.items + second.items}
    assert sum(per_episode.values()) == sum(len(p.branches) for p in payloads)


def test_branches_of_another_job_stand_beside_training(
    client: SeroClient, engine: Engine, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    with engine.begin() as connection:
        job_id = create_job(connection, claimed.run_id, "branch", 2, 3)
    branch_job = start(engine, job_id, "w2")
    before = client.metrics(claimed.run_id)
    store(engine, branch_job, to_payload(iteration_record(2, prefix="j2-", has_evaluation=True)))
    assert client.branches(run_id=claimed.run_id, iteration=2).num_matching == 12
    assert client.metrics(claimed.run_id) == before
    found = client.evaluations(claimed.run_id).evaluations
    assert [e.job_id for e in found if e.iteration == 2].count(job_id) == 2


def test_curves_are_what_numpy_computes(
    client: SeroClient, engine: Engine, claimed: ClaimedJob
) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=250)
    values[[7, 60, 249]] = math.nan, math.inf, -math.inf
    with engine.begin() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        with raw.cursor() as cursor:
            key = (claimed.run_id, claimed.job_id)
            cursor.executemany(
                "INSERT INTO metrics VALUES (%s, %s, 'a/x', %s, %s)",
                [(*key, i, float(v)) for i, v in enumerate(values)],
            )
            cursor.executemany(
                "INSERT INTO iterations (run_id, job_id, iteration, attempt, payload_hash, "
                "written_at, num_episodes, num_branches) VALUES (%s, %s, %s, 1, 0, now(), 0, 0)",
                [(*key, i) for i in range(len(values))],
            )
    curves = client.metrics(claimed.run_id, ["a/x", "no/such"], max_points=40)
    assert curves.bucket_iterations == 7
    assert curves.last_iteration == 249
    (series,) = curves.series
    assert len(series.points) == 36 <= 40
    for number, point in enumerate(series.points):
        bucket = values[number * 7 : number * 7 + 7]
        finite = bucket[np.isfinite(bucket)]
        assert point.first_iteration == number * 7
        assert point.iteration == number * 7 + len(bucket) - 1
        assert point.last == (bucket[-1] if np.isfinite(bucket[-1]) else None)
        assert (point.min, point.max) == (finite.min(), finite.max())
        assert (point.num_values, point.num_not_finite) == (len(bucket), len(bucket) - len(finite))
    tail = client.metrics(claimed.run_id, ["a/x"], since=246).series[0].points
    assert [(p.iteration, p.last) for p in tail] == [
        (247, values[247]),
        (248, values[248]),
        (249, None),
    ]
    assert client.metrics(claimed.run_id, since=249).series == []
    (key_info,) = client.metric_keys(claimed.run_id).keys
    assert (key_info.key, key_info.num_values, key_info.last_iteration) == ("a/x", 250, 249)


@pytest.mark.parametrize(
    ("first", "last", "max_buckets"),
    [(0, 0, 1), (0, 499, 500), (3, 17, 5), (99, 101, 1), (1, 1000, 7)],
)
def test_buckets_are_never_more_than_asked_for(first: int, last: int, max_buckets: int) -> None:
    size = bucket_size(first, last, max_buckets)
    assert len({i // size for i in range(first, last + 1)}) <= max_buckets
    assert size == 1 or len({i // (size - 1) for i in range(first, last + 1)}) > max_buckets


def test_the_depth_map_is_the_mean_weight(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    found = client.depth_map(claimed.run_id, max_buckets=2)
    assert found.bucket_iterations == 2
    weights: dict[tuple[int, int], list[float]] = {}
    for payload in payloads:
        for branch in payload.branches:
            for step in branch.steps:
                key = (payload.iteration // 2 * 2, step.depth)
                weights.setdefault(key, []).append(step.weight)
    cells = {(c.iteration, c.depth): (c.num_steps, c.mean_weight) for c in found.cells}
    assert cells == {
        key: (len(found), pytest.approx(np.mean(found))) for key, found in weights.items()
    }
    depths = [b.effective_depth for p in payloads[2:] for b in p.branches]
    assert found.buckets[1].num_branches == len(depths)
    assert found.buckets[1].effective_depth == pytest.approx(np.mean(depths))


def test_evaluations_and_checkpoints(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    found = client.evaluations(claimed.run_id, outcomes=True).evaluations
    expected = [(p.iteration, e) for p in payloads for e in p.evaluations]
    for info, (iteration, evaluation) in zip(found, expected, strict=True):
        assert (info.iteration, info.panel) == (iteration, evaluation.panel)
        assert info.macro_rate == evaluation.macro_rate
        assert info.conditions is not None
        assert evaluation.conditions is not None
        assert info.conditions.model_dump() == evaluation.conditions.model_dump()
        assert [r.model_dump() for r in info.results] == [
            r.model_dump() for r in evaluation.results
        ]
        assert info.outcomes is not None
        assert [o.model_dump() for o in info.outcomes] == [
            o.model_dump() for o in evaluation.outcomes
        ]
    assert client.evaluations(claimed.run_id).evaluations[0].outcomes is None
    stored = client.checkpoints(claimed.run_id).checkpoints
    assert [c.iteration for c in stored] == [0, 1, 2, 3]
    assert stored[0].num_bytes == 5_000_000_000


def test_the_run_shows_its_latest_and_best_values(
    client: SeroClient, claimed: ClaimedJob, payloads: list[IterationPayload]
) -> None:
    run = client.run(claimed.run_id)
    successes = [payload.metrics["rollout/success"] for payload in payloads]
    assert (run.status, run.iteration, run.attempt) == ("running", 3, 1)
    assert (run.success, run.best_success) == (successes[-1], max(successes))
    assert run.num_branches == 24
    assert run.heartbeat_at is not None


def test_the_log_is_followed(client: SeroClient, engine: Engine, claimed: ClaimedJob) -> None:
    def log(first: int, lines: list[str]) -> None:
        with engine.begin() as connection:
            write_log(connection, claimed.run_id, claimed.job_id, 1, first, lines)

    assert client.log(claimed.run_id).lines == []
    log(0, [f"line {i}" for i in range(10)])
    newest = client.log(claimed.run_id, limit=4)
    assert [line.text for line in newest.lines] == ["line 6", "line 7", "line 8", "line 9"]
    assert newest.num_skipped == 6
    log(10, ["line 10"])
    later = client.log(claimed.run_id, since=newest.next_since)
    assert [(line.line, line.text) for line in later.lines] == [(10, "line 10")]
    assert client.log(claimed.run_id, since=later.next_since).next_since == later.next_since


def test_a_run_that_wrote_nothing_has_empty_answers(client: SeroClient, engine: Engine) -> None:
    submit(engine)
    run_id = client.runs().items[0].id
    assert client.metrics(run_id).series == []
    assert client.metrics(run_id).last_iteration is None
    assert client.depth_map(run_id).cells == []
    assert client.evaluations(run_id).evaluations == []
    assert client.checkpoints(run_id).checkpoints == []
    assert client.episodes(run_id).items == []
    assert client.metric_keys(run_id).keys == []
