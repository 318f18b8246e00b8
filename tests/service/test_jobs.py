"""The state machine: one winner per claim, fenced attempts, leases, cancelling, reaping."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from backend.db.queries import jobs, workers
from backend.db.queries.submit import IdempotencyConflict, create_job, submit_run
from tests.service.helpers import LEASE_S, config, expire, rows, start, submit, value


def invariants(engine: Engine) -> None:
    """What must hold at any time, asked in SQL."""
    assert not rows(
        engine,
        "SELECT id FROM jobs WHERE state IN ('succeeded', 'failed', 'cancelled') "
        "AND (finished_at IS NULL OR reason IS NULL)",
    )
    assert not rows(
        engine,
        "SELECT jobs.id FROM jobs LEFT JOIN attempts "
        "ON job_id = id AND attempts.state = 'running' AND attempts.attempt = jobs.attempt "
        "WHERE (jobs.state = 'running') <> (job_id IS NOT NULL)",
    )


def test_one_of_many_workers_wins_a_claim(engine: Engine) -> None:
    job_id = submit(engine)
    num_workers = 12
    barrier = Barrier(num_workers)

    def race(number: int) -> jobs.ClaimedJob | None:
        with engine.begin() as connection:
            workers.register(connection, f"w{number}", "host", number, "0.1", LEASE_S)
        barrier.wait()
        with engine.begin() as connection:
            return jobs.claim(connection, job_id, f"w{number}", LEASE_S)

    with ThreadPoolExecutor(num_workers) as pool:
        winners = [claimed for claimed in pool.map(race, range(num_workers)) if claimed]
    assert [(w.job_id, w.attempt, w.kind) for w in winners] == [(job_id, 1, "train")]
    assert winners[0].config["num_iterations"] == 10
    invariants(engine)


def test_workers_without_a_job_id_share_the_queue_in_order(engine: Engine) -> None:
    submitted = [submit(engine) for _ in range(6)]
    assert [start(engine).job_id for _ in range(2)] == submitted[:2]
    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(lambda n: start(engine, worker=f"v{n}").job_id, range(4)))
    assert sorted(claimed) == submitted[2:]
    with engine.begin() as connection:
        assert jobs.claim(connection, None, "w1", LEASE_S) is None


def test_finish_needs_the_current_attempt(engine: Engine) -> None:
    job_id = submit(engine)
    old = start(engine, job_id)
    expire(engine, job_id)
    new = start(engine, job_id, "w2")
    assert (new.attempt, old.attempt) == (2, 1)
    with engine.begin() as connection:
        assert not jobs.heartbeat(connection, job_id, old.attempt, LEASE_S).is_owner
        assert not jobs.finish(connection, job_id, old.attempt, "succeeded", "done")
        assert jobs.release(connection, job_id, old.attempt, "stop") is None
        assert jobs.heartbeat(connection, job_id, new.attempt, LEASE_S) == (True, False, False)
        assert jobs.finish(connection, job_id, new.attempt, "succeeded", "all iterations done")
        assert not jobs.finish(connection, job_id, new.attempt, "failed", "again")
    found = rows(engine, "SELECT attempt, state, worker_id FROM attempts ORDER BY attempt")
    assert found == [(1, "lost", "w1"), (2, "succeeded", "w2")]
    invariants(engine)


def test_a_job_with_a_live_lease_is_not_taken_over(engine: Engine) -> None:
    job_id = submit(engine)
    start(engine, job_id)
    with engine.begin() as connection:
        assert jobs.claim(connection, job_id, "w1", LEASE_S) is None
        assert jobs.reap_expired(connection) == []


def test_graceful_release_does_not_count_as_a_failure(engine: Engine) -> None:
    job_id = submit(engine, max_attempts=1)
    for attempt in (1, 2, 3):
        claimed = start(engine, job_id)
        assert claimed.attempt == attempt
        with engine.begin() as connection:
            assert jobs.release(connection, job_id, attempt, "worker stops") == "queued"
    assert value(engine, "SELECT num_failures FROM jobs") == 0
    assert value(engine, "SELECT count(*) FROM attempts WHERE state = 'released'") == 3
    invariants(engine)


def test_retry_ends_in_failed_after_max_attempts(engine: Engine) -> None:
    job_id = submit(engine, max_attempts=2)
    states: list[str | None] = []
    for _ in range(2):
        claimed = start(engine, job_id)
        with engine.begin() as connection:
            states.append(jobs.retry(connection, job_id, claimed.attempt, "exit status 1"))
    assert states == ["queued", "failed"]
    assert value(engine, "SELECT reason FROM jobs") == "exit status 1"
    invariants(engine)


def test_reaper_puts_lost_jobs_back_and_gives_up_in_the_end(engine: Engine) -> None:
    job_id = submit(engine, max_attempts=2)
    start(engine, job_id)
    expire(engine, job_id)
    with engine.begin() as connection:
        assert jobs.reap_expired(connection) == [job_id]
        assert jobs.claimable_job_ids(connection, "w1") == [job_id]
        assert jobs.claimable_job_ids(connection, "w1", min_age_s=60) == []
    start(engine, job_id)
    expire(engine, job_id)
    with engine.begin() as connection:
        assert jobs.claim(connection, job_id, "w1", LEASE_S) is None  # the last one may not go on
        assert jobs.reap_expired(connection) == []
    assert value(engine, "SELECT state FROM jobs") == "failed"
    assert value(engine, "SELECT count(*) FROM events WHERE kind = 'job.lost'") == 2
    invariants(engine)


def test_a_database_restart_gives_every_lease_its_whole_length_again(engine: Engine) -> None:
    job_id = submit(engine)
    start(engine, job_id)
    # the last heartbeat was two hours ago with a lease of one hour, but the server itself
    # started less than an hour ago
    statement = (
        "UPDATE jobs SET heartbeat_at = now() - interval '120 min', "
        "lease_expires_at = now() - interval '60 min' RETURNING id"
    )
    rows(engine, statement)
    with engine.begin() as connection:
        assert jobs.reap_expired(connection) == []
        assert jobs.heartbeat(connection, job_id, 1, LEASE_S).is_owner


def test_cancel_queued_running_and_lost(engine: Engine) -> None:
    queued, running, lost = submit(engine), submit(engine), submit(engine)
    run_of = dict(rows(engine, "SELECT id, run_id FROM jobs"))
    start(engine, running)
    start(engine, lost, "w2")
    with engine.begin() as connection:
        assert jobs.request_stop(connection, run_id=run_of[queued]) == [(queued, "cancelled")]
        assert jobs.request_stop(connection, run_id=run_of[running]) == [(running, "running")]
        assert jobs.request_stop(connection, run_id=run_of[running]) == []
        assert jobs.heartbeat(connection, running, 1, LEASE_S) == (True, True, False)
        assert jobs.finish(connection, running, 1, "cancelled", "cancelled by the user")
        assert jobs.request_stop(connection, run_id=run_of[lost]) == [(lost, "running")]
    expire(engine, lost)
    with engine.begin() as connection:
        assert jobs.claim(connection, lost, "w1", LEASE_S) is None
        assert jobs.reap_expired(connection) == []
    assert rows(engine, "SELECT DISTINCT state FROM jobs") == [("cancelled",)]
    invariants(engine)


def test_release_of_a_cancelled_job_ends_it(engine: Engine) -> None:
    job_id = submit(engine)
    claimed = start(engine, job_id)
    with engine.begin() as connection:
        jobs.request_stop(connection, run_id=claimed.run_id)
        assert jobs.release(connection, job_id, 1, "worker stops") == "cancelled"
    invariants(engine)


def test_same_key_same_run_other_body_conflict(engine: Engine) -> None:
    def once(_: int) -> tuple[int, bool]:
        with engine.begin() as connection:
            done = submit_run(
                connection, config(), preset=None, idempotency_key="k", max_attempts=3
            )
        return done.run_id, done.is_new

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(once, range(8)))
    assert len({run_id for run_id, _ in found}) == 1
    assert sum(is_new for _, is_new in found) == 1
    assert value(engine, "SELECT count(*) FROM jobs") == 1
    with engine.begin() as connection, pytest.raises(IdempotencyConflict, match="another config"):
        submit_run(connection, config(seed=1), preset=None, idempotency_key="k", max_attempts=3)


def test_a_branch_job_names_its_checkpoint(engine: Engine) -> None:
    job_id = submit(engine)
    run_id = value(engine, "SELECT run_id FROM jobs")
    with engine.begin() as connection:
        made = create_job(connection, run_id, "branch", 5, 3)
    claimed = start(engine, made)
    assert (claimed.kind, claimed.iteration, claimed.run_id) == ("branch", 5, run_id)
    assert start(engine, job_id, "w2").iteration is None


def test_the_schema_itself_refuses_an_end_without_a_reason(engine: Engine) -> None:
    submit(engine)
    with pytest.raises(IntegrityError, match="ck_jobs_ended_has_reason"):
        rows(engine, "UPDATE jobs SET state = 'failed', finished_at = now() RETURNING id")


def test_workers_live_by_their_heartbeat(engine: Engine) -> None:
    job_id = submit(engine)
    start(engine, job_id)
    with engine.begin() as connection:
        workers.register(connection, "w2", "host", 2, "0.1", LEASE_S)
        assert not workers.beat(connection, "unknown", LEASE_S)
        assert workers.beat(connection, "w2", -1.0)
        found = {w.id: (w.is_alive, w.job_ids) for w in workers.list_workers(connection)}
        assert found == {"w1": (True, [job_id]), "w2": (False, [])}
        workers.beat(connection, "w2", LEASE_S)
        workers.stop(connection, "w1")
        found = {w.id: (w.is_alive, w.job_ids) for w in workers.list_workers(connection)}
    assert found == {"w1": (False, [job_id]), "w2": (True, [])}
