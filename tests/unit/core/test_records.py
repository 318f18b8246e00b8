"""The wire format keeps every value, non-finite ones included; the local log truncates and
refuses.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sero_core.records import from_line, to_line, to_payload
from sero_core.sinks.jsonl import JsonlSink
from sero_core.types import IterationRecord, SeroError
from tests.support.episodes import group_of


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
