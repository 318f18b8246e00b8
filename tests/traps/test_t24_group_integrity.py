"""T24: a worker that dies in the middle of a group leaves no stranger in it.

After kill -9 the members of every group still play one and the same game with the same bytes, what
was lost is counted, and the next collection does not see an episode of the one before.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from sero_core.config import load_config
from sero_core.envs import make_env
from sero_core.envs.workers import WorkerEnvs
from sero_core.setup import Trainer, build_trainer, training_sampling
from sero_core.types import Group, SeroError
from tests.support.train import TINY


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    made = build_trainer(load_config(TINY))
    yield made
    made.close()


def check(group: Group) -> None:
    """One game in the group: by its name, by its bytes, and by the first thing that it shows."""
    for episode in group.episodes:
        assert (episode.task.task_id, episode.task.content_hash) == (
            group.task.task_id,
            group.task.content_hash,
        )
        assert {step.snapshot.task_id for step in episode.steps} == {group.task.task_id}
    assert len({episode.steps[0].observation.text for episode in group.episodes}) <= 1
    assert len({episode.steps[0].snapshot.state_hash for episode in group.episodes}) <= 1


def test_t24_kill_9_in_the_middle_of_a_group(trainer: Trainer) -> None:
    turns = iter(range(1000))
    envs = WorkerEnvs(partial(make_env, trainer.config.env), 2, 60.0)

    def kill_one() -> None:
        if next(turns) == 1:
            os.kill(envs.pids[0], signal.SIGKILL)

    sampling = training_sampling(trainer.config)
    with closing(envs):
        collector = replace(trainer.collector, envs=envs, check_stop=kill_one)
        # four members over two workers: the first group is cut in the middle
        groups = collector.collect(
            trainer.tasks[:3], group_size=4, sampling=sampling, seed=5, prefix="i1"
        )
        again = collector.collect(
            trainer.tasks[3:5], group_size=4, sampling=sampling, seed=6, prefix="i2"
        )
    assert sum(group.num_lost for group in groups) == 6, "the killed worker's block"
    assert any(0 < group.num_lost < 4 for group in groups), "a group lost some members only"
    assert all(len(group.episodes) + group.num_lost == 4 for group in groups)
    for group in (*groups, *again):
        check(group)
    assert all(group.num_lost == 0 for group in again)
    assert {e.episode_id[:2] for group in again for e in group.episodes} == {"i2"}


def test_t24_a_stranger_in_a_group_is_an_error(trainer: Trainer) -> None:
    groups = trainer.collector.collect(
        trainer.tasks[:2],
        group_size=2,
        sampling=training_sampling(trainer.config),
        seed=5,
        prefix="i1",
    )
    stranger = groups[1].episodes[0]
    with pytest.raises(SeroError, match="group"):
        replace(groups[0], episodes=(groups[0].episodes[0], stranger))
