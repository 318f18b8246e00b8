"""Generated games: same bytes for a seed, solvable, not solved at the start, official layout."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.generator import (
    DIFFICULTIES,
    SPLITS,
    TASK_TYPES,
    Difficulty,
    GeneratedGame,
    build_game,
    generate,
)
from sero_core.envs.alfworld.generator.compose import SIZES
from sero_core.envs.alfworld.generator.pddl import build_problem
from sero_core.envs.alfworld.generator.rooms import UNSEEN_ROOMS
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.oracles.goal import goal_from_problem, goal_from_sentence
from sero_core.types import Task

GOLDEN = "3a285351ce1f7e82245a6097a1f962b3ee248a9c65c9dc6b99cf4ec71f71cd43"
"""SHA-256 over the files of seed 5, 12 + 6 + 6 small games. It changes only with the generator."""


def digest(root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.*")):
        if path.is_file():
            total.update(path.relative_to(root).as_posix().encode())
            total.update(path.read_bytes())
    return total.hexdigest()


def as_task(tmp_path: Path, game: GeneratedGame) -> Task:
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps(game.game), encoding="utf-8")
    content_hash = hashlib.sha256(path.read_bytes()).hexdigest()
    return Task(game.folder, "alfworld", "train", game.task_type, str(path), content_hash)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_same_seed_gives_the_same_bytes_in_any_process(tmp_path: Path, hash_seed: str) -> None:
    command = [sys.executable, "-m", "sero_core.envs.alfworld.generator", "--out", str(tmp_path)]
    command += ["--seed", "5", "--train", "12", "--valid-seen", "6", "--valid-unseen", "6"]
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
    subprocess.run(command, check=True, env=environ, cwd=tmp_path, capture_output=True)
    assert digest(tmp_path) == GOLDEN


def test_another_seed_gives_other_games() -> None:
    one, two = (build_game(seed, "train", 0, "small", TASK_TYPES[0]) for seed in (1, 2))
    assert one.world.key() != two.world.key()


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("task_type", TASK_TYPES)
@pytest.mark.parametrize("split", SPLITS)
def test_the_walkthrough_wins_with_admissible_actions(
    tmp_path: Path, split: str, task_type: str, difficulty: Difficulty
) -> None:
    env = AlfworldEnv(cache_dir=tmp_path / "cache")
    for index in range(4):
        game = build_game(3, split, index, difficulty, task_type)
        observation = env.reset(as_task(tmp_path, game))
        assert not observation.is_won
        for action in game.walkthrough:
            assert not observation.is_won
            assert action in observation.admissible
            observation = env.step(action)
        assert observation.is_won, game.folder
        assert (game.world.room in UNSEEN_ROOMS) == (split == "valid_unseen")


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_the_engine_derives_the_facts_the_generator_planned_on(
    tmp_path: Path, task_type: str
) -> None:
    game = build_game(4, "train", 1, "large", task_type)
    env = AlfworldEnv(cache_dir=tmp_path / "cache")
    env.reset(as_task(tmp_path, game))
    derived = {tuple(word.strip() for word in fact) for fact in env.facts()}
    assert derived == set(build_problem(game.world, "any").facts)


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_the_sentence_and_the_formula_say_the_same(task_type: str) -> None:
    wordings: set[str] = set()
    for index in range(20):
        game = build_game(6, "train", index, "normal", task_type)
        grammar = str(game.game["grammar"])
        sentence = re.search(r'"rhs": "(Your task is to: [^"]+)"', grammar)
        assert sentence is not None
        goal = goal_from_sentence(sentence.group(1))
        assert goal == goal_from_problem(str(game.game["pddl_problem"]))
        assert (goal.target, goal.parent) == (game.world.target.lower(), game.world.parent.lower())
        wordings.add(sentence.group(1).replace(goal.target, "OBJ").replace(goal.parent, "RECEP"))
    assert len(wordings) == 2


def test_small_games_show_few_commands(tmp_path: Path) -> None:
    env = AlfworldEnv(cache_dir=tmp_path / "cache")
    for index in range(60):
        game = build_game(8, "train", index, "small", TASK_TYPES[index % 6])
        observations = [env.reset(as_task(tmp_path, game))]
        observations += [env.step(action) for action in game.walkthrough]
        counts = [len(observation.admissible) for observation in observations]
        assert min(counts) >= 6
        assert max(counts) <= 14
        low, high = SIZES["small"].num_receptacles
        assert low <= len(game.world.receptacles) <= high
        assert len(game.world.objects) <= SIZES["small"].num_objects[1]


def test_a_folder_in_the_official_layout(tmp_path: Path) -> None:
    counts = {"train": 24, "valid_seen": 12, "valid_unseen": 12}
    report = generate(tmp_path, seed=9, difficulty="small", counts=counts)
    assert report.root == tmp_path / "json_2.1.1"
    assert report.num_by_task_type["train"] == dict.fromkeys(TASK_TYPES, 4)
    rooms: dict[str, set[int]] = {}
    for split, count in counts.items():
        tasks = list_tasks(tmp_path, split)
        assert len(tasks) == count
        rooms[split] = {int(task.task_id.split("/")[1].rsplit("-", 1)[1]) for task in tasks}
        for task in tasks:
            params = json.loads((Path(task.path).parent / "traj_data.json").read_text())
            assert params["task_type"] == task.task_type
    assert rooms["valid_seen"] <= rooms["train"]
    assert rooms["valid_unseen"] <= UNSEEN_ROOMS
    assert not rooms["train"] & UNSEEN_ROOMS


def test_no_two_games_are_the_same() -> None:
    keys = {
        build_game(1, "train", i, "small", "pick_and_place_simple").world.key() for i in range(400)
    }
    assert len(keys) > 380  # `generate` draws the few repeats again


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="test_split"):
        generate(tmp_path, seed=1, difficulty="small", counts={"test_split": 1})
    generate(tmp_path, seed=1, difficulty="small", counts={"train": 1})
    with pytest.raises(FileExistsError, match="already holds games"):
        generate(tmp_path, seed=2, difficulty="small", counts={"train": 1})
    with pytest.raises(ValueError, match="task type is 'fly'"):
        build_game(1, "train", 0, "small", "fly")
    assert get_args(Difficulty) == DIFFICULTIES


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_the_stock_engine_plays_it(tmp_path: Path, task_type: str) -> None:
    pytest.importorskip("textworld", reason="the optional dependency alfworld is not installed")
    game = build_game(2, "valid_unseen", 0, "small", task_type)
    env = AlfworldEnv(engine="reference")
    observation = env.reset(as_task(tmp_path, game))
    for action in game.walkthrough:
        assert action in observation.admissible
        observation = env.step(action)
    assert observation.is_won
