"""The task stream is a function of (seed, iteration) and visits every task once per pass."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sero_core.seeds import derive_seed
from sero_core.train import sample_tasks
from tests.support.episodes import TASK

TASKS = tuple(replace(TASK, task_id=f"t{i}") for i in range(10))


@given(st.integers(0, 2**31 - 1), st.integers(1, 9))
def test_every_pass_is_a_permutation(seed: int, count: int) -> None:
    stream = [t.task_id for i in range(1, 21) for t in sample_tasks(TASKS, seed, i, count)]
    for start in range(0, len(stream) - 9, 10):
        assert sorted(stream[start : start + 10]) == sorted(t.task_id for t in TASKS)


def test_seeds_order_the_tasks_differently_and_repeatably() -> None:
    first = [t.task_id for t in sample_tasks(TASKS, 1, 1, 10)]
    assert first == [t.task_id for t in sample_tasks(TASKS, 1, 1, 10)]
    assert first != [t.task_id for t in sample_tasks(TASKS, 2, 1, 10)]


def test_derived_seeds_do_not_collide_on_joined_names() -> None:
    assert derive_seed(0, "a", "bc") != derive_seed(0, "ab", "c")
    assert 0 <= derive_seed(0, "x") < 2**63
