"""The wire format keeps every value, non-finite ones included; the local log truncates and
refuses.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sero_core.reachability import MissingIngredient, reachability_weights
from sero_core.records import from_line, to_line, to_payload
from sero_core.sinks.jsonl import JsonlSink
from sero_core.types import IterationRecord, SeroError
from tests.support.episodes import group_of
from tests.support.records import iteration_record


def record(iteration: int) -> IterationRecord:
    metrics = {"train/loss": math.nan, "rollout/success": 0.5, "x": math.inf}
    return IterationRecord(iteration, metrics, (group_of([1, 0], [2, 3]),), (), (), None)


def test_round_trip_keeps_nan_and_infinity() -> None:
    line = to_line(record(3))
    assert "\n" not in line
    back = from_line(line)
    assert math.isnan(back.metrics["train/loss"])
    assert back.metrics["x"] == math.inf
    assert back.episodes == to_payload(record(3)).episodes
    assert back.episodes[0].reward == 1.0


def test_episodes_have_a_score_even_in_older_logs() -> None:
    """Graded where the environment grades, else won or not."""
    written = to_payload(iteration_record(1)).episodes
    assert {0.0, 0.25, 1.0} <= {episode.score for episode in written}
    assert all(episode.score == 1.0 for episode in written if episode.is_won)
    data = json.loads(to_line(iteration_record(1)))
    for episode in data["episodes"]:
        del episode["score"]
    for episode in from_line(json.dumps(data)).episodes:
        assert episode.score == float(episode.is_won)


STEP_FIELDS_SINCE_01 = (
    *("thought", "loss_mask", "loss_weight", "greedy_logprob_mean", "admissible_logprobs"),
    *("admissible_index", "num_samples", "num_matches"),
)


def test_branches_of_older_logs_are_read_without_the_newer_fields() -> None:
    line = to_line(iteration_record(1))
    assert from_line(line) == to_payload(iteration_record(1)).model_copy(
        update={"written_at": from_line(line).written_at}
    )
    data = json.loads(line)
    for branch in data["branches"]:
        del branch["tau"], branch["control"]
        for step in branch["steps"]:
            for field in STEP_FIELDS_SINCE_01:
                del step[field]
    back = from_line(json.dumps(data))
    assert {(branch.tau, branch.control) for branch in back.branches} == {(1.0, None)}
    steps = [step for branch in back.branches for step in branch.steps]
    assert len(steps) > 3
    assert {getattr(step, name) for step in steps for name in STEP_FIELDS_SINCE_01} == {None}
    branch = next(branch for branch in back.branches if len(branch.steps) > 1)
    assert len(reachability_weights(branch.steps, rule="seqprob", beta=1.0)) == len(branch.steps)
    with pytest.raises(MissingIngredient, match="greedy_logprob_mean"):
        reachability_weights(branch.steps, rule="relgreedy", beta=1.0)


def test_resume_truncates_later_and_torn_lines(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, None)
    for iteration in range(4):
        sink.write(record(iteration))
    sink.close()
    path = tmp_path / "records.jsonl"
    with path.open("a") as file:
        file.write('{"torn')
    sink = JsonlSink(tmp_path, 1)
    sink.write(record(2))
    sink.close()
    lines = path.read_text().splitlines()
    assert [from_line(line).iteration for line in lines] == [0, 1, 2]


def test_a_new_run_does_not_overwrite_an_old_one(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path, None)
    sink.write(record(0))
    sink.close()
    with pytest.raises(SeroError, match="already holds a run"):
        JsonlSink(tmp_path, None)
