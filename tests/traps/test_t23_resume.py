"""T23: 2N iterations equal N iterations, a new process, N more.

Equal weights, tasks, episodes and branches. Here the second half starts from nothing but the
checkpoint; with a real kill -9 in `tests/e2e/test_resume.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sero_core.checkpoint import complete_checkpoints, read_state
from sero_core.policy import weights_hash
from sero_core.records import from_line
from sero_core.train import sample_tasks
from sero_core.types import Task
from tests.support.train import run_in_process

SMALL = ("evaluation.num_tasks=1", "rollout.num_tasks=2", "rollout.max_steps=6")


@pytest.mark.slow
def test_t23_two_halves_equal_the_whole(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    run_in_process(whole, 2, *SMALL)
    run_in_process(halves, 1, *SMALL)
    run_in_process(halves, 2, *SMALL)

    (last_whole, last_halves) = (complete_checkpoints(out)[-1][1] for out in (whole, halves))
    assert weights_hash(last_whole) == weights_hash(last_halves)
    assert read_state(last_whole).progress == read_state(last_halves).progress
    for name in ("episodes", "branches"):
        found = [
            getattr(from_line((out / "records.jsonl").read_text().splitlines()[-1]), name)
            for out in (whole, halves)
        ]
        assert found[0], f"the last iteration has {name}"
        assert found[0] == found[1]


def test_t23_tasks_depend_on_seed_and_iteration_alone() -> None:
    """No state of a stream has to survive: iteration 7 is the same whether or not 1 to 6 ran."""
    tasks = [Task(str(i), "alfworld", "train", "", "", "") for i in range(10)]
    alone = sample_tasks(tasks, 3, 7, 4)
    for iteration in range(1, 7):
        sample_tasks(tasks, 3, iteration, 4)
    assert sample_tasks(tasks, 3, 7, 4) == alone
    epoch = [task for i in (1, 2, 3, 4, 5) for task in sample_tasks(tasks, 3, i, 2)]
    assert {task.task_id for task in epoch} == {task.task_id for task in tasks}
