"""Dynamic sampling: which groups stay, the budget of rounds, and that a restart repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sero_core.dynamic_sampling import collect_rounds, dynamic_metrics, has_spread
from sero_core.types import Group, Task
from tests.support.credit import make_episode
from tests.support.episodes import TASK, group_of

TASKS = [replace(TASK, task_id=f"t{i}") for i in range(10)]
MIXED = {"t1", "t4", "t7"}


def play(tasks: Sequence[Task], number: int) -> list[Group]:
    """Only the tasks in MIXED have episodes that differ."""
    return [of_task(t, [1.0, 0.0 if t.task_id in MIXED else 1.0]) for t in tasks]


def of_task(task: Task, rewards: Sequence[float]) -> Group:
    group = group_of(rewards, range(1, len(rewards) + 1))
    episodes = tuple(replace(episode, task=task) for episode in group.episodes)
    return replace(group, task=task, episodes=episodes)


def ids(groups: Sequence[Group]) -> list[str]:
    return [group.task.task_id for group in groups]


def test_one_round_keeps_everything() -> None:
    got = collect_rounds(play, TASKS[:2], TASKS, max_rounds=1, seed=0)
    assert (ids(got.groups), got.discarded, got.num_rounds) == (["t0", "t1"], [], 1)


def test_rounds_go_on_until_enough_groups_differ() -> None:
    got = collect_rounds(play, TASKS[:2], TASKS, max_rounds=9, seed=0)
    assert len(got.groups) >= 2
    assert set(ids(got.groups)) <= MIXED
    assert 1 < got.num_rounds < 9
    assert len(got.played) == 2 * got.num_rounds
    assert len(set(ids(got.played))) == len(got.played), "no task twice while others are left"


def test_the_last_round_is_not_filtered_and_all_tasks_may_run_out() -> None:
    def hopeless(tasks: Sequence[Task], number: int) -> list[Group]:
        return [of_task(task, [1.0, 1.0]) for task in tasks]

    got = collect_rounds(hopeless, TASKS[:4], TASKS, max_rounds=4, seed=0)
    assert (len(got.groups), len(got.discarded), got.num_rounds) == (4, 12, 4)
    metrics = dynamic_metrics(got)
    assert metrics["dynamic/discarded_groups"] == 12
    assert metrics["dynamic/discarded_tokens"] == 12 * 3 * 2  # three steps of two tokens a group


def test_the_same_seed_plays_the_same_tasks() -> None:
    first, again, other = (
        collect_rounds(play, TASKS[:2], TASKS, max_rounds=9, seed=seed) for seed in (5, 5, 6)
    )
    assert first == again
    assert ids(first.played)[2:] != ids(other.played)[2:]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (group_of([1.0, 0.0], [1, 1]), True),
        (group_of([1.0, 1.0], [1, 3]), False),
        (group_of([1.0], [1]), False),
        (group_of([1.0, float("nan")], [1, 1]), False),
        (Group(TASK, (), num_lost=2), False),
        (Group(TASK, (make_episode([0.0], penalties=[0.1]), make_episode([0.0], index=1))), False),
    ],
)
def test_spread_is_about_the_task_reward(group: Group, expected: bool) -> None:
    assert has_spread(group) is expected
