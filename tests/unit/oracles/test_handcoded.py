"""ALFWorld's own expert behind our interface: told "put", its crashes are oracle errors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.oracles import HandcodedOracle
from sero_core.types import Observation, OracleError, Prefix, PrefixStep

pytest.importorskip("alfworld", reason="the optional dependency alfworld is not installed")


def test_it_places_two_objects_and_leaves_the_global_random_alone(tmp_path: Path) -> None:
    counts = {"train": 10}
    kinds = ["pick_two_obj_and_place"]
    generate(tmp_path, seed=3, difficulty="small", counts=counts, task_types=kinds)
    env = AlfworldEnv(cache_dir=tmp_path / "cache")
    before = random.getstate()
    num_won = 0
    for task in list_tasks(tmp_path, "train"):
        observation = env.reset(task)
        oracle = HandcodedOracle()()
        oracle.start(Prefix(task, (), observation, env))
        for _ in range(50):
            if observation.is_won:
                break
            observation = env.step(oracle.act(observation))
        num_won += observation.is_won
    assert num_won >= 8
    assert random.getstate() == before


def test_a_crash_of_the_expert_is_an_oracle_error(tmp_path: Path) -> None:
    generate(tmp_path, seed=3, difficulty="small", counts={"train": 1})
    task = list_tasks(tmp_path, "train")[0]
    env = AlfworldEnv(cache_dir=tmp_path / "cache")
    intro = env.reset(task)
    nothing = Observation("You see no room, but something closed.", ("look",))
    oracle = HandcodedOracle()()
    oracle.start(Prefix(task, (PrefixStep(nothing, ""),), nothing, env))
    with pytest.raises(OracleError, match="ALFWorld's expert gave up"):
        oracle.act(nothing)
    assert intro.admissible
