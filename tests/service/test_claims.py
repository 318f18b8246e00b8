"""Which worker takes which job: labels, slots, devices, drain, dependencies, quotas, order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, text

from backend.db.queries import control, jobs, workers
from backend.db.queries.quotas import Caller, QuotaExceeded
from backend.db.queries.submit import submit_run
from backend.db.queries.waiting import explain
from backend.security.tokens import issue
from tests.service.helpers import (
    LEASE_S,
    add_job,
    claim,
    config,
    end,
    expire,
    register,
    rows,
    state_of,
    submit,
    value,
)


@pytest.fixture
def run_id(engine: Engine) -> int:
    """A run whose training is over."""
    job_id = submit(engine)
    register(engine, "first", num_slots=1)
    assert claim(engine, "first") == job_id
    end(engine, job_id)
    with engine.begin() as connection:
        workers.stop(connection, "first")
    return value(engine, "SELECT id FROM runs")


def reason(engine: Engine, job_id: int) -> str:
    with engine.connect() as connection:
        return explain(connection)[job_id].reason


def test_labels_decide_who_takes_a_job(engine: Engine, run_id: int) -> None:
    picky = add_job(engine, run_id, labels=["gpu", "big"])
    plain = add_job(engine, run_id)
    register(engine, "cpu")
    assert reason(engine, picky) == "no worker with labels big, gpu"
    assert reason(engine, plain) == "starts in a moment; behind 1 job"
    register(engine, "gpu", labels=["gpu"])
    assert claim(engine, "gpu") == plain
    register(engine, "both", labels=["gpu", "big", "fast"])
    assert reason(engine, picky) == "starts in a moment; it is next"
    assert claim(engine, "both") == picky
    assert claim(engine, "cpu") is None


def test_a_worker_runs_as_many_jobs_as_it_has_slots(engine: Engine, run_id: int) -> None:
    made = [add_job(engine, run_id) for _ in range(3)]
    register(engine, "two", num_slots=2)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: claim(engine, "two"), range(6)))
    assert sorted(job for job in found if job) == made[:2]
    assert reason(engine, made[2]) == "all 2 slot(s) that could take it are busy; it is next"
    end(engine, made[0])
    assert claim(engine, "two") == made[2]


def test_devices_are_given_once_and_come_back(engine: Engine, run_id: int) -> None:
    one = add_job(engine, run_id, num_devices=1)
    two = add_job(engine, run_id, num_devices=2)
    later = add_job(engine, run_id, num_devices=1)
    none = add_job(engine, run_id)
    register(engine, "box", devices=["0", "1"], num_slots=4)

    def devices(job_id: int) -> list[str]:
        return value(engine, "SELECT devices FROM jobs WHERE id = :id", id=job_id)

    assert claim(engine, "box") == one
    assert devices(one) == ["0"]
    # the job for two devices waits; a later one for one device may not overtake it for ever
    assert claim(engine, "box") == none
    assert devices(none) == []
    assert claim(engine, "box") is None
    assert reason(engine, two) == "needs 2 free device(s) on one worker; it is next"
    end(engine, one)
    assert claim(engine, "box") == two
    assert devices(two) == ["0", "1"]
    end(engine, two)
    assert claim(engine, "box") == later
    huge = add_job(engine, run_id, num_devices=8)
    assert reason(engine, huge) == "needs 8 device(s), the largest worker has 2"


def test_a_draining_worker_takes_nothing(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    assert reason(engine, job_id) == "no worker is alive"
    register(engine, "w")
    with engine.begin() as connection:
        assert workers.drain(connection, "w", is_draining=True, actor=None)
        assert not workers.drain(connection, "nobody", is_draining=True, actor=None)
    assert claim(engine, "w") is None
    assert reason(engine, job_id) == "every worker that could take it is draining (1)"
    with engine.begin() as connection:
        workers.drain(connection, "w", is_draining=False, actor=None)
    assert claim(engine, "w") == job_id


def test_a_dependency_holds_back_and_a_failed_one_skips(engine: Engine, run_id: int) -> None:
    first = add_job(engine, run_id, "branch")
    second = add_job(engine, run_id, after=[first])
    third = add_job(engine, run_id, after=[second])
    register(engine, "w", num_slots=5)
    assert claim(engine, "w") == first
    assert claim(engine, "w") is None
    expected = f"waits for branch job {first} of run {run_id} (running)"
    assert reason(engine, second) == expected
    end(engine, first, "failed")
    why = f"branch job {first} failed: it failed"
    assert state_of(engine, second) == ("skipped", why)
    assert state_of(engine, third) == ("skipped", f"evaluate job {second} was skipped: {why}")
    late = add_job(engine, run_id, after=[first])
    assert state_of(engine, late)[0] == "skipped"
    with engine.begin() as connection:
        control.requeue(connection, first, verb="retried", actor=None)
    assert [state_of(engine, job)[0] for job in (first, second, third, late)] == ["queued"] * 4
    assert claim(engine, "w") == first
    end(engine, first)
    assert claim(engine, "w") == second


def test_cancelling_skips_what_waits_behind(engine: Engine, run_id: int) -> None:
    first = add_job(engine, run_id)
    second = add_job(engine, run_id, after=[first])
    with engine.begin() as connection:
        jobs.request_stop(connection, job_id=first)
    assert state_of(engine, second)[0] == "skipped"
    with engine.begin() as connection:
        control.requeue(connection, second, verb="retried", actor=None)
    assert state_of(engine, second)[0] == "skipped"  # its reason is still there


def test_a_token_runs_at_most_its_quota(engine: Engine) -> None:
    with engine.begin() as connection:
        token_id, _ = issue(connection, "ada", "submit", None, max_queued=3, max_running=1)
    caller = Caller(token_id, "ada")

    def submit_as_ada() -> int:
        with engine.begin() as connection:
            return submit_run(
                connection,
                config(),
                preset=None,
                idempotency_key=None,
                max_attempts=3,
                caller=caller,
            ).job_id

    made = [submit_as_ada() for _ in range(3)]
    with pytest.raises(QuotaExceeded, match="3 wait there, 1 more"):
        submit_as_ada()
    assert value(engine, "SELECT count(*) FROM runs") == 3  # the refused one left nothing
    register(engine, "w", num_slots=8)
    with ThreadPoolExecutor(6) as pool:
        found = [job for job in pool.map(lambda _: claim(engine, "w"), range(6)) if job]
    assert found == made[:1]
    assert reason(engine, made[1]) == "token ada runs 1 of at most 1 jobs at a time"
    other = submit(engine)
    assert claim(engine, "w") == other
    end(engine, made[0])
    assert claim(engine, "w") == made[1]


def test_the_queue_is_reordered(engine: Engine, run_id: int) -> None:
    a, b, c, d = (add_job(engine, run_id) for _ in range(4))

    def order() -> list[int]:
        with engine.connect() as connection:
            waits = explain(connection)
        return sorted(waits, key=lambda job: waits[job].position)

    def move(job: int, before: int | None) -> list[int]:
        with engine.begin() as connection:
            control.move(connection, job, before, actor=None)
        return order()

    assert order() == [a, b, c, d]
    assert move(d, None) == [d, a, b, c]
    assert move(c, a) == [d, c, a, b]
    for _ in range(60):  # halving a gap 60 times needs new places
        assert move(b, c) == [d, b, c, a]
        assert move(c, b) == [d, c, b, a]
    assert move(a, c) == [d, a, c, b]
    assert move(b, c) == [d, a, b, c]
    with engine.begin() as connection:
        control.set_priority(connection, b, 5, actor=None)
    assert order() == [b, d, a, c]
    assert move(c, b) == [c, b, d, a]
    assert value(engine, "SELECT priority FROM jobs WHERE id = :id", id=c) == 5
    register(engine, "w", num_slots=9)
    assert [claim(engine, "w") for _ in range(4)] == [c, b, d, a]
    with engine.begin() as connection, pytest.raises(control.NotPossible, match="does not wait"):
        control.move(connection, a, None, actor=None)


def test_two_signals_before_a_worker_is_given_up(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    register(engine, "w")
    assert claim(engine, "w") == job_id

    def be_silent_for(lengths: float) -> None:
        """A lease is a quarter of the server's uptime, as a restart starts every lease anew."""
        statement = """
            UPDATE jobs SET heartbeat_at = now() - :lengths * lease,
                lease_expires_at = now() - (:lengths - 1) * lease
            FROM (SELECT (now() - pg_postmaster_start_time()) / 4 AS lease) AS server
            WHERE id = :id RETURNING id
        """
        rows(engine, statement, id=job_id, lengths=lengths)

    be_silent_for(1.5)
    with engine.begin() as connection:
        assert jobs.reap_expired(connection) == []  # its worker is alive
        rows_of_worker = "UPDATE workers SET lease_expires_at = now() - interval '1 s'"
        connection.execute(text(rows_of_worker))
        assert jobs.reap_expired(connection) == [job_id]
    register(engine, "w")
    assert claim(engine, "w") == job_id
    be_silent_for(2.5)
    with engine.begin() as connection:
        assert jobs.reap_expired(connection) == [job_id]  # long enough, whatever the worker says


def test_a_job_whose_process_is_seen_is_kept_until_it_hangs(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    register(engine, "w")
    assert claim(engine, "w") == job_id

    def be_silent_for(lengths: float) -> list[int]:
        """A lease is a twentieth of the server's uptime."""
        statement = """
            UPDATE jobs SET heartbeat_at = now() - :lengths * lease,
                lease_expires_at = now() - (:lengths - 1) * lease
            FROM (SELECT (now() - pg_postmaster_start_time()) / 20 AS lease) AS server
            WHERE id = :id RETURNING id
        """
        rows(engine, statement, id=job_id, lengths=lengths)
        with engine.begin() as connection:
            return jobs.reap_expired(connection)

    with engine.begin() as connection:
        assert jobs.see_process(connection, job_id, 1)
        assert not jobs.see_process(connection, job_id, 2)
    assert be_silent_for(2.5) == []
    assert be_silent_for(9.5) == []
    assert be_silent_for(10.5) == [job_id]


def test_an_attempt_that_never_sent_a_heartbeat_is_found(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    register(engine, "w")
    assert claim(engine, "w") == job_id
    statement = """
        UPDATE jobs SET heartbeat_at = NULL, lease_expires_at = now() - interval '1 hour',
            started_at = now() - interval '2 hours' WHERE id = :id RETURNING id
    """
    rows(engine, statement, id=job_id)
    with engine.begin() as connection:
        connection.execute(text("UPDATE workers SET lease_expires_at = now() - interval '1 s'"))
        # the lease is of an hour, and the server is younger than that
        assert jobs.reap_expired(connection) == []
        connection.execute(
            text(
                "UPDATE jobs SET lease_expires_at = started_at + interval '1 microsecond' "
                "WHERE state = 'running'"
            )
        )
        assert jobs.reap_expired(connection) == [job_id]


def test_an_attempt_that_no_job_runs_is_closed(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    register(engine, "w")
    assert claim(engine, "w") == job_id
    end(engine, job_id)
    rows(
        engine,
        "UPDATE attempts SET state = 'running', reason = NULL, finished_at = NULL "
        "WHERE job_id = :id RETURNING attempt",
        id=job_id,
    )
    with engine.begin() as connection:
        assert jobs.reap_expired(connection) == []
    assert value(engine, "SELECT state FROM attempts WHERE job_id = :id", id=job_id) == "lost"


def test_a_silent_worker_with_an_expired_job_is_given_up(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    register(engine, "w")
    assert claim(engine, "w") == job_id
    expire(engine, job_id)
    with engine.begin() as connection:
        workers.stop(connection, "w")
        assert jobs.reap_expired(connection) == [job_id]


def test_requeue_needs_an_end(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    with engine.begin() as connection, pytest.raises(control.NotPossible, match="is queued"):
        control.requeue(connection, job_id, verb="retried", actor=None)
    register(engine, "w")
    claim(engine, "w")
    end(engine, job_id)
    with engine.begin() as connection, pytest.raises(control.NotPossible, match="is succeeded"):
        control.requeue(connection, job_id, verb="retried", actor=None)


def test_a_kill_request_follows_a_stop_request(engine: Engine, run_id: int) -> None:
    job_id = add_job(engine, run_id)
    register(engine, "w")
    claim(engine, "w")
    with engine.begin() as connection:
        assert jobs.request_stop(connection, job_id=job_id) == [(job_id, "running")]
        assert jobs.stop_requests(connection, job_id) == (True, False)
        assert jobs.request_stop(connection, job_id=job_id, is_kill=True) == [(job_id, "running")]
        assert jobs.request_stop(connection, job_id=job_id, is_kill=True) == []
        assert jobs.stop_requests(connection, job_id) == (True, True)
        assert jobs.heartbeat(connection, job_id, 1, LEASE_S) == (True, True, True)
