"""Every oracle of the union, from states that random steps reached: wins or says why not."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Protocol, cast, get_args

import pytest
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.generator import TASK_TYPES, generate
from sero_core.envs.alfworld.plan import plan
from sero_core.envs.alfworld.plan_state import State
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.oracles import OracleConfig
from sero_core.oracles.goal import goal_from_file
from sero_core.types import DeadEnd, Observation, Oracle, OracleError, Prefix, PrefixStep, Task


class Part(Protocol):
    """A config class of the union: a pydantic model that makes its oracle."""

    def __call__(self) -> Oracle: ...


class PartClass(Protocol):
    envs: tuple[str, ...]
    model_fields: dict[str, FieldInfo]
    model_config: dict[str, object]


UNION = cast("tuple[PartClass, ...]", get_args(get_args(OracleConfig)[0]))
NAMES = [str(config.model_fields["name"].default) for config in UNION]
PLAYERS = [
    str(config.model_fields["name"].default)
    for config in UNION
    if "alfworld" in config.envs and config.model_fields["name"].default != "llm"
]
MUST_WIN = {"planner": 1.0, "explorer": 0.95}
DEPTHS = (0, 3, 10, 25)
LIMIT = 50


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    root = tmp_path_factory.mktemp("games")
    counts = {"train": 12, "valid_unseen": 12}
    generate(root, seed=11, difficulty="normal", counts=counts)
    return [task for split in counts for task in list_tasks(root, split)]


def random_prefix(env: AlfworldEnv, task: Task, depth: int) -> Prefix | None:
    """Verbs evenly, so that objects are taken and moved, and nonsense; None when it wins."""
    rng = random.Random(f"{task.task_id}|{depth}")
    observation = env.reset(task)
    steps: list[PrefixStep] = []
    for _ in range(depth):
        verb = rng.choice(sorted({action.split()[0] for action in observation.admissible}))
        action = rng.choice([a for a in observation.admissible if a.split()[0] == verb])
        action = "dance with drawer 1" if rng.random() < 0.1 else action
        steps.append(PrefixStep(observation, action))
        observation = env.step(action)
        if observation.is_won:
            return None
    return Prefix(task, tuple(steps), observation, env)


def can_be_won(env: AlfworldEnv, task: Task) -> bool:
    try:
        plan(State.from_facts(env.facts()), goal_from_file(task.path, task.content_hash))
    except DeadEnd:
        return False
    return True


def play(name: str, prefix: Prefix) -> tuple[str, list[str]]:
    """Outcome and actions of one oracle; every action is admissible."""
    part: Part = TypeAdapter(OracleConfig).validate_python({"name": name})
    oracle = part()
    observation: Observation = prefix.observation
    actions: list[str] = []
    try:
        oracle.start(prefix)
        while not observation.is_won and len(actions) < LIMIT:
            action = oracle.act(observation)
            assert action in observation.admissible
            observation = prefix.env.step(action)
            actions.append(action)
    except OracleError as error:
        return error.outcome if error.reason else "no reason given", actions
    return ("won" if observation.is_won else "limit"), actions


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", PLAYERS)
def test_it_wins_or_says_why_not(name: str, depth: int, tasks: list[Task], tmp_path: Path) -> None:
    env = AlfworldEnv(cache_dir=tmp_path)
    num_reachable = num_won = 0
    for task in tasks:
        prefix = random_prefix(env, task, depth)
        if prefix is None:
            continue
        is_reachable = can_be_won(env, task)
        outcome, _ = play(name, prefix)
        assert outcome in ("won", "dead_end", "oracle_error", "limit")
        assert not (outcome == "dead_end" and is_reachable), task.task_id
        assert not (outcome == "won" and not is_reachable), task.task_id
        num_reachable += is_reachable
        num_won += outcome == "won"
    assert num_reachable > 15
    assert num_won >= MUST_WIN.get(name, 0.0) * num_reachable


@pytest.mark.parametrize("name", PLAYERS)
def test_it_is_deterministic(name: str, tasks: list[Task], tmp_path: Path) -> None:
    env = AlfworldEnv(cache_dir=tmp_path)
    for task in tasks[: len(TASK_TYPES)]:
        first = random_prefix(env, task, 3)
        assert first is not None
        one = play(name, first)
        second = random_prefix(env, task, 3)
        assert second is not None
        assert play(name, second) == one


@pytest.mark.parametrize("name", PLAYERS)
def test_a_real_game(name: str, tmp_path: Path) -> None:
    if "SERO_DATA" not in os.environ:
        pytest.skip("SERO_DATA does not point to ALFWorld's games")
    env = AlfworldEnv(cache_dir=tmp_path)
    tasks = list_tasks(Path(os.environ["SERO_DATA"]), "valid_seen")
    assert len(tasks[::7]) == 20
    num_won = num_reachable = 0
    for task in tasks[::7]:
        prefix = random_prefix(env, task, 10)
        if prefix is not None and can_be_won(env, task):
            num_reachable += 1
            num_won += play(name, prefix)[0] == "won"
    assert num_won >= MUST_WIN.get(name, 0.0) * num_reachable


def test_names_are_unique_and_validate() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for config in UNION:
        assert config.envs
        assert set(config.envs) <= {"alfworld", "webshop"}
        assert config.model_config.get("frozen")
        assert config.model_config.get("extra") == "forbid"
