"""Restore at every step of random episodes gives the same future, with and without the handle."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import random
from pathlib import Path

import pytest

from sero_core.envs.alfworld import AlfworldEnv, list_tasks
from sero_core.envs.alfworld.env import EngineName
from sero_core.envs.alfworld.generator import generate
from sero_core.types import Observation, RestoreMismatch, Snapshot, Task
from tests.support.alfworld import handmade_game, write_task

NUM_FUTURE = 10
INVALID = ("", "dance", "take mug from desk")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    """The hand-made game, one generated game per task type, and real games if there are any."""
    root = tmp_path_factory.mktemp("games")
    found = [write_task(root / "handmade", handmade_game())]
    generate(root / "generated", seed=3, difficulty="normal", counts={"train": 6})
    found += list_tasks(root / "generated", "train")
    if "SERO_DATA" in os.environ:
        found += list_tasks(Path(os.environ["SERO_DATA"]), "valid_seen", limit=3)
    return found


def make_env(engine: EngineName, tmp_path: Path) -> AlfworldEnv:
    if engine == "reference" and importlib.util.find_spec("alfworld") is None:
        pytest.skip("alfworld is not installed")
    return AlfworldEnv(engine, cache_dir=tmp_path)


def random_step(env: AlfworldEnv, observation: Observation, rng: random.Random) -> Observation:
    invalid = rng.random() < 0.15
    return env.step(rng.choice(INVALID if invalid else observation.admissible))


def future(env: AlfworldEnv, observation: Observation, seed: str) -> list[tuple[object, ...]]:
    """Ten random steps: observation and state hash of each, and the facts at the end."""
    rng = random.Random(seed)
    seen: list[tuple[object, ...]] = []
    for _ in range(NUM_FUTURE):
        observation = random_step(env, observation, rng)
        seen.append((observation, env.state_hash()))
    return [*seen, (env.facts(),)]


def check_restores(
    env: AlfworldEnv, task: Task, episode: int, num_steps: int, *, is_replayed: bool
) -> None:
    """Record an episode, then restore each of its states and compare ten steps from there."""
    rng = random.Random(f"{task.task_id}/{episode}")
    observation = env.reset(task)
    snapshots = [env.snapshot()]
    shown = [observation]
    for _ in range(num_steps):
        observation = random_step(env, observation, rng)
        snapshots.append(env.snapshot())
        shown.append(observation)
    for index, snapshot in enumerate(snapshots):
        env.reset(task)
        for action in snapshot.actions:
            observation = env.step(action)
        expected = future(env, shown[index], f"{episode}/{index}")
        stored = snapshot if not is_replayed else through_json(snapshot)
        assert env.restore(stored) == shown[index]
        assert env.snapshot() == snapshot
        assert future(env, shown[index], f"{episode}/{index}") == expected


def through_json(snapshot: Snapshot) -> Snapshot:
    """What is left of a snapshot after a trip through JSON: everything but the handle."""
    text = json.dumps([snapshot.task_id, snapshot.actions, snapshot.state_hash])
    task_id, actions, state_hash = json.loads(text)
    return Snapshot(task_id, tuple(actions), state_hash)


@pytest.mark.parametrize("is_replayed", [False, True], ids=["handle", "replay"])
def test_native_restore_at_every_step_of_50_episodes(
    tasks: list[Task], tmp_path: Path, is_replayed: bool
) -> None:
    env = make_env("native", tmp_path)
    for episode in range(50):
        task = tasks[episode % len(tasks)]
        check_restores(env, task, episode, num_steps=12, is_replayed=is_replayed)


@pytest.mark.slow
def test_reference_restore_on_a_few_games(tasks: list[Task], tmp_path: Path) -> None:
    env = make_env("reference", tmp_path)
    check_restores(env, tasks[0], 0, num_steps=3, is_replayed=True)
    check_restores(env, tasks[1], 1, num_steps=1, is_replayed=False)


@pytest.mark.slow
def test_snapshots_travel_between_the_engines(tasks: list[Task], tmp_path: Path) -> None:
    native, reference = make_env("native", tmp_path), make_env("reference", tmp_path)
    task, rng = tasks[0], random.Random(5)
    observation = native.reset(task)
    for _ in range(12):
        observation = random_step(native, observation, rng)
    snapshot = native.snapshot()
    reference.reset(task)
    assert reference.restore(snapshot) == observation
    assert reference.snapshot() == snapshot
    assert reference.facts() == native.facts()
    native.reset(task)
    assert native.restore(reference.snapshot()) == observation


def test_restore_into_another_environment_object(tasks: list[Task], tmp_path: Path) -> None:
    one, other = make_env("native", tmp_path), make_env("native", tmp_path)
    observation = one.reset(tasks[0])
    observation = one.step(observation.admissible[0])
    other.reset(tasks[0])
    assert other.restore(one.snapshot()) == observation


@pytest.mark.parametrize("has_handle", [True, False])
def test_a_changed_hash_is_a_mismatch_that_names_the_place(
    tasks: list[Task], tmp_path: Path, has_handle: bool
) -> None:
    env = make_env("native", tmp_path)
    env.reset(tasks[0])
    env.step("go to desk 1")
    good = env.snapshot()
    bad = dataclasses.replace(good, state_hash="0" * 32)
    if not has_handle:
        bad = through_json(bad)
    with pytest.raises(RestoreMismatch) as caught:
        env.restore(bad)
    message = str(caught.value)
    for part in (tasks[0].task_id, "action 1", good.state_hash, "0" * 32):
        assert part in message


def test_a_foreign_handle_is_not_trusted(tasks: list[Task], tmp_path: Path) -> None:
    env = make_env("native", tmp_path)
    env.reset(tasks[1])
    foreign = env.snapshot().handle
    env.reset(tasks[0])
    observation = env.step("go to desk 1")
    mixed = dataclasses.replace(env.snapshot(), handle=foreign)
    assert env.restore(mixed) == observation  # by replay


def test_a_snapshot_of_another_task_is_refused(tasks: list[Task], tmp_path: Path) -> None:
    env = make_env("native", tmp_path)
    env.reset(tasks[0])
    snapshot = env.snapshot()
    env.reset(tasks[1])
    with pytest.raises(RestoreMismatch, match="reset it to the snapshot's task"):
        env.restore(snapshot)
