"""What every environment of a config promises: the same rules for ALFWorld and WebShop."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter

from sero_core.config import EnvConfig, RunConfig
from sero_core.envs import env_version, load_tasks, make_env
from sero_core.envs.admissible import is_admissible
from sero_core.oracles import ORACLE_ENVS, default_oracle
from sero_core.prompts import FALLBACK_CHARS, EnvName, body_text, task_text
from sero_core.types import Environment, Observation, Prefix, RestoreMismatch, Snapshot, Task

SECTIONS = {
    "alfworld": {"games": {"seed": 5, "num_train": 8, "num_valid_seen": 1, "num_valid_unseen": 1}},
    "webshop": {"catalogue": {"seed": 5, "num_products": 80}},
}
UNION = get_args(get_args(EnvConfig)[0])
NAMES = [str(part.model_fields["name"].default) for part in UNION]
GARBAGE = ("", "dance", "\x00", "click[", "search[]", "take mug from desk", "\ud800", "x" * 5000)
NUM_STEPS = 12


@pytest.fixture(scope="module", params=NAMES)
def played(request: pytest.FixtureRequest) -> EnvConfig:
    return TypeAdapter(EnvConfig).validate_python({"name": request.param} | SECTIONS[request.param])


@pytest.fixture(scope="module")
def tasks(played: EnvConfig) -> tuple[Task, ...]:
    return load_tasks(played, "train")


def walk(env: Environment, task: Task, seed: int) -> tuple[list[Observation], list[Snapshot]]:
    """Random admissible and inadmissible actions; stops at the end of the task."""
    rng = random.Random(seed)
    shown, snapshots = [env.reset(task)], [env.snapshot()]
    for _ in range(NUM_STEPS):
        if shown[-1].is_terminated:
            break
        action = rng.choice(shown[-1].admissible)
        action = action.replace("<your query>", "storage basket")
        shown.append(env.step(rng.choice(GARBAGE) if rng.random() < 0.2 else action))
        snapshots.append(env.snapshot())
    return shown, snapshots


def test_every_environment_has_a_section_here() -> None:
    assert set(NAMES) == set(SECTIONS) == set(FALLBACK_CHARS) == set(get_args(EnvName))
    assert {env for envs in ORACLE_ENVS.values() for env in envs} == set(NAMES)


def test_a_section_is_frozen_json_and_part_of_a_run(played: EnvConfig) -> None:
    config = RunConfig.model_validate({"env": played.model_dump(mode="json")})
    assert config.env == played
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    assert played.evaluation_splits
    assert env_version(played).startswith(played.name)
    more = played.model_copy(update={"num_workers": 3})
    assert config.model_copy(update={"env": more}).group_hash() == config.group_hash()


def test_tasks_are_stable_and_their_own_environments(
    played: EnvConfig, tasks: tuple[Task, ...]
) -> None:
    assert tasks == load_tasks(played, "train")
    assert len({task.task_id for task in tasks}) == len(tasks) > 5
    for task in tasks:
        assert (task.env, task.split) == (played.name, "train")
        assert task.task_type
        assert Path(task.path).exists()
    for split in played.evaluation_splits:
        others = load_tasks(played, split)
        assert others
        assert not {task.task_id for task in others} & {task.task_id for task in tasks}


def test_the_same_episode_twice(played: EnvConfig, tasks: tuple[Task, ...]) -> None:
    one, other = make_env(played), make_env(played)
    for seed, task in enumerate(tasks[:6]):
        assert walk(one, task, seed) == walk(other, task, seed)


def test_restore_by_handle_and_by_replay(played: EnvConfig, tasks: tuple[Task, ...]) -> None:
    """S1: into another object too, and through JSON."""
    env, other = make_env(played), make_env(played)
    for seed, task in enumerate(tasks[:6]):
        shown, snapshots = walk(env, task, seed)
        other.reset(task)
        for observation, snapshot in zip(shown, snapshots, strict=True):
            parts = json.loads(json.dumps([snapshot.actions, snapshot.state_hash]))
            stored = Snapshot(snapshot.task_id, tuple(parts[0]), parts[1])
            assert env.restore(snapshot) == observation
            assert other.restore(stored) == observation
            assert env.snapshot() == other.snapshot() == snapshot
            assert env.facts() == other.facts()


def test_a_restore_that_differs_is_named(played: EnvConfig, tasks: tuple[Task, ...]) -> None:
    env = make_env(played)
    env.reset(tasks[0])
    env.step("nothing")
    good = env.snapshot()
    for bad in (
        dataclasses.replace(good, state_hash="0" * 32),
        dataclasses.replace(good, state_hash="0" * 32, handle=None),
    ):
        with pytest.raises(RestoreMismatch, match="differs at action 1") as caught:
            env.restore(bad)
        assert good.state_hash in str(caught.value)
    env.reset(tasks[1])
    with pytest.raises(RestoreMismatch, match="reset it to the snapshot's task first"):
        env.restore(good)
    foreign = dataclasses.replace(env.snapshot(), task_id=good.task_id)
    env.reset(tasks[0])
    expected = env.step("nothing")
    mixed = dataclasses.replace(good, handle=foreign.handle)
    assert env.restore(mixed) == expected  # the foreign handle is not trusted: by replay


def test_facts_and_observations_are_plain(played: EnvConfig, tasks: tuple[Task, ...]) -> None:
    env = make_env(played)
    shown, _ = walk(env, tasks[0], 3)
    assert all(isinstance(part, str) for fact in env.facts() for part in fact)
    for observation in shown:
        assert pickle.loads(pickle.dumps(observation)) == observation
        assert len(set(observation.admissible)) == len(observation.admissible)
        for action in observation.admissible:
            assert is_admissible(played.name, observation, action)
        for action in GARBAGE:
            assert not is_admissible(played.name, observation, action)


def test_its_oracle_wins_and_its_prompts_hold_the_task(
    played: EnvConfig, tasks: tuple[Task, ...]
) -> None:
    env, oracle = make_env(played), default_oracle(played.name)()
    num_won = 0
    for task in tasks[:6]:
        observation = env.reset(task)
        goal = task_text(observation.text)
        assert 0 < len(goal) < len(observation.text)
        for style in ("standard", "terse"):
            prompt = body_text(style, goal, [], 0, observation, played.name)
            assert goal.rstrip(".").lower() in prompt.lower()
        oracle.start(Prefix(task, (), observation, env))
        for _ in range(50):
            if observation.is_terminated:
                break
            action = oracle.act(observation)
            assert is_admissible(played.name, observation, action)
            observation = env.step(action)
        num_won += observation.is_won
        if observation.is_won:
            assert observation.score in (None, 1.0)
    assert num_won >= 5


def test_closing_and_forgetting(played: EnvConfig, tasks: tuple[Task, ...]) -> None:
    env = pickle.loads(pickle.dumps(partial(make_env, played)))()
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("x")
    first = env.reset(tasks[0])
    env.close()
    with pytest.raises(RuntimeError, match="call reset first"):
        env.snapshot()
    assert env.reset(tasks[0]) == first
