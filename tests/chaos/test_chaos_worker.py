"""Killing the worker and its parts in the middle of a run: it goes on once, with every row once."""

from __future__ import annotations

from tests.support.services import Services, assert_nothing_lost_or_doubled, until


def attempts(running: Services, run_id: int) -> list[str]:
    return [attempt.state for attempt in running.job(run_id).attempts]


def test_sigkill_worker_mid_run_resumes_from_checkpoint_once(running: Services) -> None:
    run_id = running.submit("num_iterations=6")
    running.wait_for_iteration(run_id, 2)
    [training] = running.processes(f"runs/{run_id}/config.toml")
    running.main_process("worker.app").kill()
    until(lambda: not training.is_running() or training.status() == "zombie", 5)
    running.wait_for(run_id, "succeeded")
    assert attempts(running, run_id) == ["lost", "succeeded"]
    writers = running.query(
        "SELECT DISTINCT attempt FROM iterations WHERE run_id = :id ORDER BY 1", id=run_id
    )
    assert writers == [(1,), (2,)]
    assert_nothing_lost_or_doubled(running, run_id)
    assert running.output(run_id).count("resuming after iteration") == 1


def test_sigkill_training_process_is_tried_again(running: Services) -> None:
    run_id = running.submit("num_iterations=4")
    running.wait_for_iteration(run_id, 1)
    [training] = running.processes(f"runs/{run_id}/config.toml")
    training.kill()
    running.wait_for(run_id, "succeeded")
    assert attempts(running, run_id) == ["failed", "succeeded"]
    reason = running.job(run_id).attempts[0].reason
    assert reason is not None
    assert reason.startswith("the process ended with signal 9 (SIGKILL)")
    assert_nothing_lost_or_doubled(running, run_id)


def test_sigterm_worker_writes_a_checkpoint_and_counts_no_failure(running: Services) -> None:
    run_id = running.submit("num_iterations=5", "checkpoint_every=100")
    running.wait_for_iteration(run_id, 2)
    running.main_process("worker.app").terminate()
    until(lambda: attempts(running, run_id)[0] == "released", 60, running.report)
    running.wait_for(run_id, "succeeded")
    assert attempts(running, run_id) == ["released", "succeeded"]
    assert running.job(run_id).num_failures == 0
    assert "resuming after iteration 0" not in running.output(run_id)
    assert_nothing_lost_or_doubled(running, run_id)


def test_cancel_running_ends_after_a_checkpoint(running: Services) -> None:
    run_id = running.submit("num_iterations=500")
    running.wait_for_iteration(run_id, 1)
    assert running.client.stop_run(run_id).status in ("stopping", "cancelled")
    run = running.wait_for(run_id, "cancelled", timeout_s=90)
    assert run.reason == "stopped by the user after a checkpoint"
    assert running.processes(f"runs/{run_id}/config.toml") == []
    newest = max((running.home / "runs" / str(run_id) / "checkpoints").iterdir())
    last = running.query("SELECT max(iteration) FROM iterations WHERE run_id = :id", id=run_id)
    assert (newest / "state.json").exists()
    assert newest.name == f"iteration-{last[0][0]:05d}"


def test_cancel_queued_never_starts(running: Services) -> None:
    first = running.submit("num_iterations=500")
    running.wait_for(first, "running")
    second = running.submit()
    assert running.client.cancel_run(second).status == "cancelled"
    running.client.cancel_run(first)
    running.wait_for(first, "cancelled", timeout_s=90)
    assert running.job(second).attempt == 0
    assert not (running.home / "runs" / str(second)).exists()


def test_bad_input_fails_at_once_with_the_reason(running: Services) -> None:
    missing = running.home / "models" / "nonexistent"  # below a root of the server
    run_id = running.submit(f"policy.path={missing}")
    run = running.wait_for(run_id, "failed")
    assert run.reason is not None
    assert str(missing) in run.reason
    assert attempts(running, run_id) == ["failed"]
