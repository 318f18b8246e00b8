"""Storing what runs wrote: complete, once, fenced, replaceable."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, text

from backend.db import texts
from backend.db.batches import (
    Owner,
    Record,
    SpoolConflict,
    StaleAttempt,
    left_behind,
    mark_shipped,
    progress,
)
from backend.db.ingest import (
    store_log,
    store_record,
    stored_iterations,
    write_iteration,
    write_log,
)
from backend.db.queries import jobs
from backend.db.queries.submit import create_job
from sero_core.records import IterationPayload, from_line, to_line, to_payload
from tests.service.helpers import expire, rows, start, submit, value
from tests.support.records import iteration_record

TABLES = (
    *("iterations", "metrics", "episodes", "steps", "branches", "branch_steps", "texts"),
    *("evaluations", "eval_results", "eval_outcomes", "checkpoints"),
)


def store(engine: Engine, claimed: jobs.ClaimedJob, payload: IterationPayload) -> bool:
    with engine.begin() as connection:
        return write_iteration(connection, claimed.run_id, claimed.job_id, claimed.attempt, payload)


def counts(engine: Engine) -> dict[str, int]:
    return {table: value(engine, f"SELECT count(*) FROM {table}") for table in TABLES}


def record(iteration: int, seed: int = 0) -> IterationPayload:
    full = iteration_record(iteration, has_evaluation=True, has_checkpoint=True, seed=seed)
    return from_line(to_line(full))


@pytest.fixture
def claimed(engine: Engine) -> jobs.ClaimedJob:
    submit(engine)
    return start(engine)


def test_everything_of_a_line_is_stored(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    payload = record(3)
    assert store(engine, claimed, payload)
    assert counts(engine) == {
        "iterations": 1,
        "metrics": len(payload.metrics),
        "episodes": len(payload.episodes),
        "steps": sum(len(e.steps) for e in payload.episodes),
        "branches": len(payload.branches),
        "branch_steps": sum(len(b.steps) for b in payload.branches),
        "texts": value(engine, "SELECT count(DISTINCT text) FROM texts"),
        "evaluations": 2,
        "eval_results": sum(len(e.results) for e in payload.evaluations),
        "eval_outcomes": 24,
        "checkpoints": 1,
    }
    branch = next(b for b in payload.branches if len(b.steps) > 1)
    found = rows(
        engine,
        "SELECT o.text, a.text, p.text, action, token_ids, tokens, logprobs, scored, weight, "
        "compatibility, policy_action, probe_action, state_hash FROM branch_steps "
        "JOIN texts o ON o.id = observation_id JOIN texts a ON a.id = admissible_id "
        "JOIN texts p ON p.id = prompt_id WHERE branch_id = :branch ORDER BY depth",
        branch=branch.branch_id,
    )
    for row, step in zip(found, branch.steps, strict=True):
        assert row[0] == texts.clean(step.observation)
        assert texts.parse_list(row[1]) == step.admissible
        assert row[2] == texts.clean(step.prompt)
        assert row[3:] == (
            step.action,
            step.token_ids,
            [texts.clean(token) for token in step.tokens],
            step.logprobs,
            step.scored,
            step.weight,
            step.compatibility,
            step.policy_action,
            step.probe_action,
            step.state_hash,
        )
    assert math.isnan(value(engine, "SELECT value FROM metrics WHERE key = 'train/kl'"))


def test_the_ingredients_of_weights_are_stored(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    """All of them, None included, so that a stored branch can be weighted again."""
    payload = record(3)
    store(engine, claimed, payload)
    names = (
        *("thought", "loss_mask", "loss_weight", "greedy_logprob_mean", "admissible_logprobs"),
        *("admissible_index", "num_samples", "num_matches"),
    )
    seen: list[object] = []
    for branch in payload.branches:
        where = "branch_id = :branch ORDER BY depth"
        found = rows(
            engine,
            f"SELECT {', '.join(names)} FROM branch_steps WHERE {where}",
            branch=branch.branch_id,
        )
        expected = [tuple(getattr(step, name) for name in names) for step in branch.steps]
        assert [tuple(row) for row in found] == expected
        seen += [item for row in expected for item in row]
        one = "SELECT tau, control FROM branches WHERE branch_id = :branch"
        assert [tuple(row) for row in rows(engine, one, branch=branch.branch_id)] == [
            (branch.tau, branch.control)
        ]
    assert None in seen
    assert 8 in seen
    assert "replaced" in seen


def test_the_same_line_again_changes_nothing(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    payload = record(1)
    assert store(engine, claimed, payload)
    before = counts(engine)
    assert not store(engine, claimed, payload)
    assert counts(engine) == before


def test_a_record_that_was_stored_with_other_bytes_is_refused(
    engine: Engine, claimed: jobs.ClaimedJob
) -> None:
    store(engine, claimed, record(1))
    before = counts(engine)
    with pytest.raises(SpoolConflict, match="record 1 of attempt 1 of job 1 is stored with digest"):
        store(engine, claimed, record(1, seed=3))
    assert counts(engine) == before


def test_an_earlier_attempt_brings_in_what_the_later_one_did_not_write(
    engine: Engine, claimed: jobs.ClaimedJob
) -> None:
    """Attempt 1 left iterations 1 to 3 on its disk; attempt 2 ships them, then its own 3."""
    expire(engine, claimed.job_id)
    later = start(engine, claimed.job_id, "w2")
    owner = Owner(later.run_id, later.job_id, later.attempt)
    left = [Record.of_line(1, record(i)) for i in (1, 2, 3)]
    own = Record.of_line(2, record(3, seed=5))
    with engine.begin() as connection:
        assert store_record(connection, owner, left[0])
        assert store_record(connection, owner, own)
        assert store_record(connection, owner, left[1])
        assert store_record(connection, owner, left[2])  # known, but the later rows stay
        assert not store_record(connection, owner, left[2])
        assert stored_iterations(connection, 1, claimed.job_id) == {1: 1, 2: 1, 3: 2}
        assert progress(connection, claimed.job_id, 1).num_records == 4
    found = rows(engine, "SELECT attempt, iteration FROM batches WHERE is_current ORDER BY 2")
    assert found == [(1, 1), (1, 2), (2, 3)]
    loss = "SELECT value FROM metrics WHERE key = 'train/loss' AND iteration = 3"
    assert value(engine, loss) == own.payload.metrics["train/loss"]


def test_what_an_ended_job_left_may_be_brought_in_by_anyone(
    engine: Engine, claimed: jobs.ClaimedJob
) -> None:
    nobody = Owner(claimed.run_id, claimed.job_id, None)
    left = Record.of_line(1, record(1))
    with engine.begin() as connection, pytest.raises(StaleAttempt, match="nobody does not own"):
        store_record(connection, nobody, left)
    with engine.begin() as connection:
        assert left_behind(connection) == []
        jobs.finish(connection, claimed.job_id, 1, "failed", "its worker went silent")
        assert left_behind(connection) == [(claimed.run_id, claimed.job_id, 1, "host")]
        assert store_record(connection, nobody, left)
        assert store_log(connection, nobody, 1, 0, ["one", "two"]) == 2
        mark_shipped(connection, nobody, 1)
        assert left_behind(connection) == []
        assert progress(connection, claimed.job_id, 1) == (2, 2)


def test_log_lines_come_once_and_without_gaps(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    place = claimed.run_id, claimed.job_id, claimed.attempt
    with engine.begin() as connection:
        assert write_log(connection, *place, 0, ["a", "b\0"]) == 2
        assert write_log(connection, *place, 1, ["b\0", "c"]) == 1
        assert write_log(connection, *place, 0, ["a"]) == 0
        with pytest.raises(ValueError, match="has 3 log lines, got line 4 as the next"):
            write_log(connection, *place, 4, ["e"])
    found = rows(engine, "SELECT line, text FROM log_lines ORDER BY line")
    assert found == [(0, "a"), (1, "b\u2400"), (2, "c")]


def test_a_later_attempt_replaces_the_rows_of_an_iteration(
    engine: Engine, claimed: jobs.ClaimedJob
) -> None:
    first, other = record(1), record(2)
    store(engine, claimed, first)
    store(engine, claimed, other)
    expire(engine, claimed.job_id)
    later = start(engine, claimed.job_id, "w2")
    replacement = record(2, seed=9)
    assert replacement.branches != other.branches
    assert store(engine, later, replacement)
    with engine.begin() as connection:
        assert stored_iterations(connection, later.run_id, later.job_id) == {1: 1, 2: 2}
    expected = [first, replacement]
    assert counts(engine) | {"texts": 0} == {
        "iterations": 2,
        "metrics": sum(len(p.metrics) for p in expected),
        "episodes": sum(len(p.episodes) for p in expected),
        "steps": sum(len(e.steps) for p in expected for e in p.episodes),
        "branches": sum(len(p.branches) for p in expected),
        "branch_steps": sum(len(b.steps) for p in expected for b in p.branches),
        "texts": 0,
        "evaluations": 4,
        "eval_results": 16,
        "eval_outcomes": 48,
        "checkpoints": 2,
    }
    loss = "SELECT value FROM metrics WHERE key = 'train/loss' AND iteration = 2"
    assert value(engine, loss) == replacement.metrics["train/loss"]


def test_a_stale_attempt_writes_nothing(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    expire(engine, claimed.job_id)
    start(engine, claimed.job_id, "w2")
    before = counts(engine)
    with pytest.raises(StaleAttempt, match="attempt 1 does not own job"):
        store(engine, claimed, record(1))
    with engine.begin() as connection, pytest.raises(StaleAttempt):
        write_log(connection, claimed.run_id, claimed.job_id, 1, 0, ["zombie"])
    assert counts(engine) == before
    with engine.begin() as connection:
        jobs.finish(connection, claimed.job_id, 2, "succeeded", "done")
    with pytest.raises(StaleAttempt, match="succeeded"):
        store(engine, dataclasses.replace(claimed, attempt=2), record(1))


def test_nobody_takes_the_job_while_it_writes(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    expire(engine, claimed.job_id)
    with engine.begin() as writing:
        write_iteration(writing, claimed.run_id, claimed.job_id, 1, record(1))
        with engine.begin() as other:
            assert jobs.claim(other, claimed.job_id, "w1", 30) is None
            assert jobs.reap_expired(other) == []
    with engine.begin() as other:
        assert jobs.reap_expired(other) == [claimed.job_id]


def test_a_failed_write_leaves_nothing(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    before = counts(engine)
    payload = record(1)
    twice = payload.model_copy(update={"branches": [*payload.branches, payload.branches[0]]})
    with pytest.raises(Exception, match="pk_branches"):
        store(engine, claimed, twice)
    assert counts(engine) == before
    assert store(engine, claimed, payload)


def test_each_distinct_text_is_stored_once_also_from_many_runs(engine: Engine) -> None:
    jobs_of = [submit(engine) for _ in range(4)]
    claimed = [start(engine, job_id, f"w{job_id}") for job_id in jobs_of]
    payloads = [record(i) for i in range(3)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda c: [store(engine, c, p) for p in payloads], claimed))
    assert done == [[True] * 3] * 4
    assert not rows(engine, "SELECT text FROM texts GROUP BY text HAVING count(*) > 1")
    assert value(engine, "SELECT count(*) FROM iterations") == 12


def test_a_text_id_collision_is_an_error(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    payload = record(1)
    observation = texts.clean(payload.episodes[0].steps[0].observation)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO texts VALUES (:id, 'another text')"),
            {"id": texts.text_id(observation)},
        )
    with pytest.raises(texts.TextCollision):
        store(engine, claimed, payload)


def test_the_summary_of_the_run_follows_the_training_job_only(
    engine: Engine, claimed: jobs.ClaimedJob
) -> None:
    payloads = [record(i) for i in range(3)] + [to_payload(iteration_record(3))]
    payloads[0].metrics["eval/test"], payloads[1].metrics["eval/test"] = 0.75, 0.5
    for payload in payloads:
        store(engine, claimed, payload)
    with engine.begin() as connection:
        job_id = create_job(connection, claimed.run_id, "branch", 2, 3)
    branch_job = start(engine, job_id, "w2")
    assert store(engine, branch_job, to_payload(iteration_record(2, prefix="j2-")))
    found = rows(
        engine,
        "SELECT iteration, success, best_success, effective_depth, num_branches, num_episodes, "
        "eval_valid_seen, best_eval_valid_seen, eval_test, best_eval_test FROM runs",
    )
    successes = [p.metrics["rollout/success"] for p in payloads]
    evals = [p.metrics["eval/valid_seen"] for p in payloads[:3]]
    assert found == [
        (
            3,
            successes[-1],
            max(successes),
            payloads[-1].metrics["sero/effective_depth"],
            sum(len(p.branches) for p in payloads),
            sum(len(p.episodes) for p in payloads),
            evals[-1],
            max(evals),
            0.5,
            0.75,
        )
    ]


def test_getting_further_forgives_earlier_failures(
    engine: Engine, claimed: jobs.ClaimedJob
) -> None:
    job_id = claimed.job_id
    store(engine, claimed, record(2))
    with engine.begin() as connection:
        assert jobs.retry(connection, job_id, 1, "exit status 1") == "queued"
    again = start(engine, job_id)
    store(engine, again, record(2, seed=1))  # the same iteration again is no progress
    assert value(engine, "SELECT num_failures FROM jobs") == 1
    store(engine, again, record(3))
    assert value(engine, "SELECT num_failures FROM jobs") == 0


def test_log_lines_come_once_whatever_overlaps(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    def log(first: int, lines: list[str]) -> int:
        with engine.begin() as connection:
            return write_log(connection, claimed.run_id, claimed.job_id, 1, first, lines)

    assert log(0, ["a", "b \0", "c"]) == 3
    assert log(1, ["b", "c", "d"]) == 1
    assert log(4, []) == 0
    found = rows(engine, "SELECT line, text FROM log_lines ORDER BY id")
    assert found == [(0, "a"), (1, "b \u2400"), (2, "c"), (3, "d")]


def test_a_record_without_rows_is_stored_too(engine: Engine, claimed: jobs.ClaimedJob) -> None:
    empty = to_payload(iteration_record(0, num_groups=0, num_branches=0))
    assert store(engine, claimed, empty)
    assert value(engine, "SELECT iteration FROM runs") == 0
