"""Environments in worker processes: the same records, and faults that cost only their episodes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from sero_core.checkpoint import TrainerState
from sero_core.collect import Collector
from sero_core.config import RunConfig, load_config
from sero_core.envs import make_env
from sero_core.envs.vector import EnvPool, LocalEnvs, Lost, Reached, VectorEnv
from sero_core.envs.workers import WorkerEnvs, WorkerError
from sero_core.metrics import rollout_metrics
from sero_core.setup import Trainer, build_trainer, training_sampling
from sero_core.train import evaluate_panels, iterate
from sero_core.types import Environment, Episode, Group, SeroError, Task
from tests.support.train import TINY
from tests.support.unruly import UnrulyEnv

DEADLINE_S = 5.0


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return build_trainer(load_config(TINY))


@pytest.fixture(scope="module")
def workers(trainer: Trainer) -> Iterator[WorkerEnvs]:
    with closing(WorkerEnvs(partial(make_env, trainer.config.env), 2, 60.0)) as envs:
        yield envs


def collect(
    trainer: Trainer, envs: VectorEnv, check_stop: Callable[[], None] = lambda: None
) -> list[Group]:
    """Two groups of three episodes; with two workers each owns one group."""
    collector = replace(trainer.collector, envs=envs, check_stop=check_stop)
    return collector.collect(
        trainer.tasks[:2],
        group_size=3,
        sampling=training_sampling(trainer.config),
        seed=5,
        prefix="i1",
    )


@pytest.fixture(scope="module")
def expected(trainer: Trainer) -> list[Group]:
    return collect(trainer, trainer.collector.envs)


def played(episodes: Sequence[Episode]) -> list[tuple[str, list[tuple[str, tuple[int, ...], str]]]]:
    """Episodes without log-probabilities, whose last bits depend on the size of the batch."""
    return [
        (
            episode.episode_id,
            [(s.action, s.completion.token_ids, s.snapshot.state_hash) for s in episode.steps],
        )
        for episode in episodes
    ]


def test_slots_show_the_same_in_one_process_and_in_workers(
    trainer: Trainer, workers: WorkerEnvs
) -> None:
    tasks = trainer.tasks[:5]
    local = LocalEnvs(EnvPool(partial(make_env, trainer.config.env)))
    shown, again = local.reset(tasks), workers.reset(tasks)
    assert shown == again
    rng = random.Random(1)
    for _ in range(15):
        slots = sorted(rng.sample(range(5), 4), reverse=True)
        actions = [rng.choice([*admissible(shown[slot]), "jump"]) for slot in slots]
        here, there = local.step(slots, actions), workers.step(slots, actions)
        assert here == there
        for slot, reached in zip(slots, here, strict=True):
            shown[slot] = reached
    assert all(isinstance(r, Reached) and r.snapshot.handle is None for r in there)


def admissible(reached: Reached | Lost) -> tuple[str, ...]:
    assert isinstance(reached, Reached)
    return reached.observation.admissible


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_number_of_workers_changes_no_episode_and_no_branch(
    trainer: Trainer, expected: list[Group], num_workers: int
) -> None:
    with closing(WorkerEnvs(partial(make_env, trainer.config.env), num_workers, 60.0)) as envs:
        groups = collect(trainer, envs)
    assert groups == expected
    assert groups[0].episodes[0].steps[1].snapshot.handle is None
    assert trainer.brancher is not None
    branches = trainer.brancher.branch(groups, seed=0, iteration=1)
    assert branches == trainer.brancher.branch(expected, seed=0, iteration=1)
    assert {branch.outcome for branch in branches} & {"won", "budget"}


def test_kill_9_of_a_worker_costs_its_episodes_and_nothing_else(
    trainer: Trainer, expected: list[Group], caplog: pytest.LogCaptureFixture
) -> None:
    turns = iter(range(100))
    envs = WorkerEnvs(partial(make_env, trainer.config.env), 2, 60.0)
    killed = envs.pids[0]

    def kill_in_the_third_turn() -> None:
        if next(turns) == 2:
            os.kill(killed, signal.SIGKILL)

    with closing(envs):
        groups = collect(trainer, envs, kill_in_the_third_turn)
        assert [(len(g.episodes), g.num_lost) for g in groups] == [(0, 3), (3, 0)]
        assert played(groups[1].episodes) == played(expected[1].episodes)
        assert rollout_metrics(groups)["rollout/lost_episodes"] == 3.0
        assert f"(pid {killed}): ended by signal 9" in caplog.text
        for index in range(3):
            lost = f"episode i1g0e{index} of task {trainer.tasks[0].task_id} is lost after 2 step"
            assert lost in caplog.text
        assert killed not in envs.pids
        assert collect(trainer, envs) == expected, "the new worker plays on"


@pytest.mark.slow
def test_a_hung_worker_is_killed_after_its_deadline(
    trainer: Trainer, expected: list[Group], caplog: pytest.LogCaptureFixture
) -> None:
    make = partial(UnrulyEnv, trainer.tasks[1].task_id, "hang")
    with closing(WorkerEnvs(make, 2, DEADLINE_S)) as envs:
        started = time.monotonic()
        groups = collect(trainer, envs)
        assert time.monotonic() - started >= DEADLINE_S
        assert played(groups[0].episodes) == played(expected[0].episodes)
        assert (groups[1].episodes, groups[1].num_lost) == ((), 3)
        assert f"no answer within {DEADLINE_S:g} s, killed" in caplog.text


@pytest.mark.slow
def test_a_frozen_worker_that_does_not_even_read_is_killed_too(trainer: Trainer) -> None:
    with closing(WorkerEnvs(partial(make_env, trainer.config.env), 1, 1.0)) as envs:
        assert isinstance(envs.reset(trainer.tasks[:1])[0], Reached)
        os.kill(envs.pids[0], signal.SIGSTOP)
        outcome = envs.step([0], ["x" * 10_000_000])[0]
        assert isinstance(outcome, Lost)
        assert envs.step([0], ["look"]) == [outcome], "lost until the next reset"
        assert isinstance(envs.reset(trainer.tasks[:1])[0], Reached)


def test_a_step_that_raises_costs_one_episode_of_the_group(
    trainer: Trainer, expected: list[Group], tmp_path: Path
) -> None:
    make = partial(UnrulyEnv, trainer.tasks[0].task_id, "raise", tmp_path / "once")
    with closing(WorkerEnvs(make, 1, 60.0)) as envs:
        groups = collect(trainer, envs)
    assert [group.num_lost for group in groups] == [1, 0]
    assert played(groups[0].episodes) == played(expected[0].episodes[1:])
    assert played(groups[1].episodes) == played(expected[1].episodes)
    assert [e.episode_id for e in groups[0].episodes] == ["i1g0e1", "i1g0e2"]


def test_a_group_with_one_survivor_has_advantage_zero(
    trainer: Trainer, expected: list[Group]
) -> None:
    group = replace(expected[0], episodes=expected[0].episodes[:1], num_lost=2)
    [arrays] = trainer.config.estimator([group]).advantages
    assert [values.tolist() for values in arrays] == [[0.0] * len(group.episodes[0].steps)]


def test_an_iteration_that_loses_every_episode_is_logged_and_passes(trainer: Trainer) -> None:
    envs = WorkerEnvs(partial(make_env, trainer.config.env), 1, 60.0)
    kills: list[int] = []

    def kill_at_once() -> None:
        kills.append(envs.pids[0])
        os.kill(kills[-1], signal.SIGKILL)

    config = trainer.config.model_copy(
        update={"evaluation": trainer.config.evaluation.model_copy(update={"every": 0})}
    )
    collector = replace(trainer.collector, envs=envs, check_stop=kill_at_once)
    with closing(envs):
        record, state = iterate(
            replace(trainer, config=config, collector=collector),
            TrainerState(0, config.group_hash(), config.seed, {}),
        )
    assert len(kills) == 1
    assert record.metrics["rollout/lost_episodes"] == 9.0
    assert record.metrics["progress/episodes"] == 0.0
    assert (state.iteration, record.branches) == (1, ())


@pytest.mark.slow
def test_an_evaluation_plays_lost_episodes_again(trainer: Trainer, tmp_path: Path) -> None:
    panel = trainer.panels[0]
    one = replace(trainer, panels=(panel,))
    (undisturbed,) = evaluate_panels(one, 0)
    make = partial(UnrulyEnv, panel.tasks[0].task_id, "exit", tmp_path / "once")
    with closing(WorkerEnvs(make, 2, 60.0)) as envs:
        collector = replace(trainer.collector, envs=envs)
        agent = replace(trainer.agent, collector=collector)
        (again,) = evaluate_panels(replace(one, collector=collector, agent=agent), 0)
    assert (tmp_path / "once").exists()
    assert again.outcomes == undisturbed.outcomes


def test_a_game_that_cannot_be_started_is_an_error_that_names_it(
    trainer: Trainer, workers: WorkerEnvs
) -> None:
    bad = replace(trainer.tasks[0], content_hash="0" * 64)
    with pytest.raises(WorkerError, match="cannot be started") as caught:
        workers.reset([bad])
    assert bad.task_id in str(caught.value)
    assert "changed since it was listed" in str(caught.value)
    assert isinstance(workers.reset(trainer.tasks[:1])[0], Reached), "the worker is still usable"


def no_environment() -> Environment:
    sys.exit("the worker cannot even begin")


@pytest.mark.slow
def test_a_worker_that_dies_in_every_reset_loses_its_episodes(trainer: Trainer) -> None:
    with closing(WorkerEnvs(no_environment, 1, 60.0)) as envs:
        outcome = envs.reset(trainer.tasks[:1])[0]
    assert isinstance(outcome, Lost)
    assert "ended with exit code 1" in outcome.reason


class MixedEnvs(LocalEnvs):
    """Plays another game in slot 0."""

    def __init__(self, pool: EnvPool, other: Task) -> None:
        super().__init__(pool)
        self._other = other

    def reset(self, tasks: Sequence[Task]) -> list[Reached | Lost]:
        return super().reset([self._other, *tasks[1:]])


def test_members_of_a_group_must_play_the_same_game(trainer: Trainer) -> None:
    envs = MixedEnvs(EnvPool(partial(make_env, trainer.config.env)), trainer.tasks[1])
    with pytest.raises(SeroError, match="started in 2 different states") as caught:
        collect(trainer, envs)
    assert trainer.tasks[0].task_id in str(caught.value)


@pytest.mark.slow
def test_workers_leave_when_the_trainer_is_killed() -> None:
    code = (
        "import time\n"
        "from sero_core.envs.alfworld import AlfworldEnv\n"
        "from sero_core.envs.workers import WorkerEnvs\n"
        "if __name__ == '__main__':\n"
        "    envs = WorkerEnvs(AlfworldEnv, 2, 60.0)\n"
        "    envs.reset([])\n"
        "    print(*envs.pids, flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.1)


def test_workers_are_no_part_of_what_a_run_is() -> None:
    config = load_config(TINY)
    data = config.model_dump()
    data["env"] |= {"num_workers": 2, "worker_deadline_s": 5}
    changed = RunConfig.model_validate(data)
    assert changed != config
    assert changed.group_hash() == config.group_hash()


def test_the_config_chooses_the_implementation() -> None:
    data = load_config(TINY).model_dump()
    data["env"] |= {"num_workers": 1}
    built = build_trainer(RunConfig.model_validate(data))
    collector: Collector = built.collector
    assert isinstance(collector.envs, WorkerEnvs)
    built.close()
    assert collector.envs.pids == [0]
