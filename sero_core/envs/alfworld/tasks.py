"""Finding the games of an ALFWorld data folder, in an order that is the same on every machine."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sero_core.envs.alfworld.cache import GAME_FILE
from sero_core.envs.alfworld.compiler import content_hash
from sero_core.types import SeroError, Task

logger = logging.getLogger(__name__)

TASK_TYPES: Final = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
SPLITS: Final = ("train", "valid_seen", "valid_unseen")
RELEASE_FOLDER: Final = "json_2.1.1"
MARKS: Final = (GAME_FILE, "traj_data.json")
"""The files of a trial folder that are read."""


class DataError(SeroError, ValueError):
    """The data folder cannot be used as it is; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The tasks found, and how many game files were skipped for which reason."""

    tasks: tuple[Task, ...]
    skipped: dict[str, int]


def list_tasks(
    data_root: Path,
    split: str,
    task_types: Sequence[str] | None = None,
    limit: int | None = None,
) -> tuple[Task, ...]:
    """The playable games of a split, sorted by task id; skipped files are counted in the log.

    `data_root` is an `$ALFWORLD_DATA` folder or its `json_2.1.1`. `task_types` None means all six;
    `limit` keeps the first ones. Raises `DataError` for a wrong folder, a damaged file or an
    archive that was not unpacked to the end.
    """
    listing = scan(data_root, split, task_types, limit)
    for reason, count in sorted(listing.skipped.items()):
        logger.info("%s: skipped %d games: %s", split, count, reason)
    return listing.tasks


def scan(
    data_root: Path,
    split: str,
    task_types: Sequence[str] | None = None,
    limit: int | None = None,
) -> Listing:
    """`list_tasks` with the counts of what was skipped."""
    unknown = sorted(set(task_types or ()) - set(TASK_TYPES))
    if unknown:
        raise DataError(f"unknown task types {unknown}; known are {list(TASK_TYPES)}")
    folder = split_folder(data_root, split)
    wanted = frozenset(task_types if task_types is not None else TASK_TYPES)
    tasks: list[Task] = []
    skipped: Counter[str] = Counter()
    trials = sorted({path.parent for name in MARKS for path in folder.glob(f"*/*/{name}")})
    for trial in sorted(trials, key=lambda path: _task_id(split, path)):
        if limit is not None and len(tasks) >= limit:
            break
        task = _read_task(trial, split, wanted)
        if isinstance(task, Task):
            tasks.append(task)
        else:
            skipped[task] += 1
    if not trials:
        raise DataError(f"{folder} holds no <game>/<trial>/{GAME_FILE}: is the archive unpacked?")
    return Listing(tuple(tasks), dict(skipped))


def split_folder(data_root: Path, split: str) -> Path:
    """The folder of a split, from a root with or without `json_2.1.1`."""
    for folder in (data_root / RELEASE_FOLDER / split, data_root / split):
        if folder.is_dir():
            return folder
    if not data_root.is_dir():
        raise DataError(f"the ALFWorld data folder {data_root} does not exist")
    there = sorted(path.name for path in data_root.iterdir())[:5]
    raise DataError(
        f"no split {split!r} in {data_root}: expected {RELEASE_FOLDER}/{split} or {split} "
        f"below it, found {there}"
    )


def _task_id(split: str, trial: Path) -> str:
    return f"{split}/{trial.parent.name}/{trial.name}"


def _read_task(trial: Path, split: str, wanted: frozenset[str]) -> Task | str:
    """The task in a trial folder, or why it is skipped."""
    path = trial / GAME_FILE
    if "movable" in str(trial.parent.name) or "Sliced" in str(trial.parent.name):
        return "movable receptacles and slicing are not part of ALFWorld's text tasks"
    if not path.is_file():
        return f"no {GAME_FILE}"
    task_type = _task_type(trial)
    if task_type not in wanted:
        return "another task type"
    raw = path.read_bytes()
    try:
        data: object = json.loads(raw)
    except ValueError as error:
        raise DataError(
            f"{path} is not complete JSON ({len(raw)} bytes: {error}); unpack the archive again"
        ) from error
    if not isinstance(data, dict) or "pddl_problem" not in data:
        raise DataError(f"{path} is not a game file: it has no pddl_problem")
    if "solvable" not in data:
        return "no `solvable` flag"
    if not data["solvable"]:
        return "marked unsolvable"
    return Task(
        task_id=_task_id(split, trial),
        env="alfworld",
        split=split,
        task_type=task_type,
        path=str(path),
        content_hash=content_hash(raw),
    )


def _task_type(trial: Path) -> str:
    """From traj_data.json if it is there, else from the game folder's name."""
    trajectory = trial / "traj_data.json"
    if trajectory.is_file():
        try:
            data: object = json.loads(trajectory.read_text())
        except ValueError as error:
            raise DataError(f"{trajectory} is not complete JSON: {error}") from error
        found = data.get("task_type") if isinstance(data, dict) else None
        if not isinstance(found, str):
            raise DataError(f"{trajectory} has no task_type")
        return found
    name = trial.parent.name.partition("-")[0]
    if name not in TASK_TYPES:
        raise DataError(f"{trial.parent}: no traj_data.json, and the name starts with no task type")
    return name
