"""Killing the servers: training does not notice, the queue survives, nothing is lost."""

from __future__ import annotations

import json

from tests.support.services import Services, assert_nothing_lost_or_doubled, until


def test_sigkill_valkey_mid_run_changes_nothing(running: Services) -> None:
    run_id = running.submit("num_iterations=3")
    running.wait_for(run_id, "running")
    waiting = running.submit("num_iterations=1", "seed=9")
    running.main_process("valkey-server").kill()
    running.wait_for(run_id, "succeeded")
    running.wait_for(waiting, "succeeded")
    assert [running.job(number).attempt for number in (run_id, waiting)] == [1, 1]
    assert_nothing_lost_or_doubled(running, run_id)
    assert_nothing_lost_or_doubled(running, waiting)
    later = running.submit("num_iterations=1", "seed=10")
    running.wait_for(later, "succeeded")


def test_sigkill_postgres_mid_run_loses_no_point(running: Services) -> None:
    run_id = running.submit("num_iterations=4")
    running.wait_for_iteration(run_id, 1)
    running.main_process("postgres -D").kill()
    running.wait_for(run_id, "succeeded")
    assert running.job(run_id).attempt == 1
    assert_nothing_lost_or_doubled(running, run_id)


def test_a_lost_wake_up_is_sent_again(running: Services) -> None:
    """A job that reached Postgres while its message reached nobody."""
    template = running.submit("num_iterations=1", "seed=11")
    running.wait_for(template, "succeeded")
    config = json.dumps(running.client.run(template).config)
    [(run_id,)] = running.query(
        "INSERT INTO runs (name, method, env, seed, config, config_hash, num_iterations, "
        "request_hash) SELECT name, method, env, seed, CAST(:config AS jsonb), config_hash, "
        "num_iterations, 'x' FROM runs WHERE id = :id RETURNING id",
        config=config,
        id=template,
    )
    running.query(
        "INSERT INTO jobs (run_id, kind, payload, max_attempts) "
        "VALUES (:id, 'train', '{}', 3) RETURNING id",
        id=run_id,
    )
    running.wait_for(run_id, "succeeded")
    assert running.job(run_id).attempt == 1


def test_sigkill_api_comes_back(running: Services) -> None:
    before = running.main_process("backend.cli api")
    before.kill()
    until(lambda: not before.is_running(), 5)
    until(lambda: any(p.pid != before.pid for p in running.processes("backend.cli api")), 30)

    def answers() -> bool:
        return running.run(1) is not None

    until(answers, 30, running.report)
