"""Listing the games of a data folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sero_core.envs.alfworld.tasks import TASK_TYPES, DataError, list_tasks, scan
from tests.support.alfworld import handmade_game, write_task

HEAT = "pick_heat_then_place_in_recep-Apple-None-CounterTop-1"
LIGHT = "look_at_obj_in_light-Mug-None-DeskLamp-2"


def test_sorted_by_task_id_with_content_hash(tmp_path: Path) -> None:
    later = write_task(tmp_path, handmade_game(), trial="trial_b")
    first = write_task(tmp_path, handmade_game(), folder=LIGHT, trial="trial_z")
    middle = write_task(tmp_path, handmade_game(), trial="trial_a")
    assert list_tasks(tmp_path, "train") == (first, middle, later)


def test_the_release_folder_itself_is_a_root_too(tmp_path: Path) -> None:
    task = write_task(tmp_path, handmade_game())
    assert list_tasks(tmp_path / "json_2.1.1", "train") == (task,)


def test_limit_and_task_types(tmp_path: Path) -> None:
    heat = write_task(tmp_path, handmade_game())
    light = write_task(tmp_path, handmade_game(), folder=LIGHT)
    assert list_tasks(tmp_path, "train", limit=1) == (light,)
    assert list_tasks(tmp_path, "train", ("pick_heat_then_place_in_recep",)) == (heat,)
    assert len(TASK_TYPES) == 6
    with pytest.raises(DataError, match="unknown task types"):
        list_tasks(tmp_path, "train", ("pick_everything",))


def test_traj_data_decides_the_task_type(tmp_path: Path) -> None:
    task = write_task(tmp_path, handmade_game())
    trajectory = Path(task.path).with_name("traj_data.json")
    trajectory.write_text(json.dumps({"task_type": "pick_and_place_simple"}))
    assert list_tasks(tmp_path, "train")[0].task_type == "pick_and_place_simple"


def test_skips_are_counted_by_reason(tmp_path: Path) -> None:
    kept = write_task(tmp_path, handmade_game())
    write_task(tmp_path, {**handmade_game(), "solvable": False}, trial="trial_2")
    unmarked = handmade_game()
    del unmarked["solvable"]
    write_task(tmp_path, unmarked, trial="trial_3")
    sliced = "pick_and_place_simple-AppleSliced-None-Fridge-3"
    write_task(tmp_path, handmade_game(), folder=sliced)
    movable = "pick_and_place_with_movable_recep-Pen-Mug-Desk-3"
    write_task(tmp_path, handmade_game(), folder=movable)
    only_trajectory = tmp_path / "json_2.1.1" / "train" / LIGHT / "trial_9"
    only_trajectory.mkdir(parents=True)
    (only_trajectory / "traj_data.json").write_text('{"task_type": "look_at_obj_in_light"}')
    listing = scan(tmp_path, "train")
    assert listing.tasks == (kept,)
    assert listing.skipped == {
        "marked unsolvable": 1,
        "no `solvable` flag": 1,
        "movable receptacles and slicing are not part of ALFWorld's text tasks": 2,
        "no game.tw-pddl": 1,
    }


def test_truncated_json_names_the_file(tmp_path: Path) -> None:
    task = write_task(tmp_path, handmade_game())
    path = Path(task.path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="not complete JSON") as caught:
        list_tasks(tmp_path, "train")
    assert task.path in str(caught.value)


@pytest.mark.parametrize("make", [False, True])
def test_wrong_folder_says_what_was_expected(tmp_path: Path, make: bool) -> None:
    root = tmp_path / "data"
    if make:
        (root / "something").mkdir(parents=True)
    with pytest.raises(DataError, match="does not exist" if not make else "found .*something"):
        list_tasks(root, "train")


def test_empty_split_asks_for_the_archive(tmp_path: Path) -> None:
    (tmp_path / "json_2.1.1" / "train" / "game" / "trial").mkdir(parents=True)
    with pytest.raises(DataError, match="is the archive unpacked"):
        list_tasks(tmp_path, "train")


@pytest.mark.skipif("SERO_DATA" not in os.environ, reason="SERO_DATA does not point to real games")
def test_the_official_counts() -> None:
    root = Path(os.environ["SERO_DATA"])
    assert len(list_tasks(root, "valid_seen")) == 140
    assert len(list_tasks(root, "train")) == 3553
