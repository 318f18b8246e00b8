"""Write a folder of generated games in ALFWorld's official layout."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sero_core.envs.alfworld.generator.build import GeneratedGame, build_game
from sero_core.envs.alfworld.generator.compose import Difficulty
from sero_core.envs.alfworld.generator.rooms import SPLITS, TASK_TYPES

MAX_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class GenerationReport:
    """What was written. `root` is the folder that holds the split folders."""

    root: Path
    num_games: dict[str, int]
    num_by_task_type: dict[str, dict[str, int]]
    num_repeats_avoided: int
    mean_plan_length: float


def generate(
    out: Path,
    *,
    seed: int,
    difficulty: Difficulty,
    counts: dict[str, int],
    task_types: Sequence[str] = TASK_TYPES,
) -> GenerationReport:
    """Write `out/json_2.1.1/<split>/<game>/<trial>/{game.tw-pddl,traj_data.json}`.

    Task types take turns; no two games of the call have the same goal and placement; valid_seen
    plays only in rooms that the call's train games use (ask for no more of it than of train). A
    split folder that already holds games is an error: two seeds would be one silent mixture.
    """
    unknown = sorted(set(counts) - set(SPLITS))
    if unknown:
        raise ValueError(f"splits are {unknown}, expected some of {SPLITS}")
    root = out / "json_2.1.1"
    for split in counts:
        folder = root / split
        if folder.is_dir() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} already holds games; choose an empty folder")
    seen: set[tuple[object, ...]] = set()
    train_rooms: set[int] = set()
    by_type: dict[str, dict[str, int]] = {}
    lengths: list[int] = []
    repeats = 0
    for split in [split for split in SPLITS if split in counts]:
        tally: Counter[str] = Counter()
        for index in range(counts[split]):
            task_type = task_types[index % len(task_types)]
            rooms = train_rooms if split == "valid_seen" and "train" in counts else None
            game, attempt = _new_game(seen, rooms, seed, split, index, difficulty, task_type)
            repeats += attempt
            if split == "train":
                train_rooms.add(game.world.room)
            _write(root / split / game.folder, game)
            tally[task_type] += 1
            lengths.append(len(game.walkthrough))
        by_type[split] = dict(tally)
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    return GenerationReport(root, dict(counts), by_type, repeats, mean)


def _new_game(
    seen: set[tuple[object, ...]],
    rooms: set[int] | None,
    seed: int,
    split: str,
    index: int,
    difficulty: Difficulty,
    task_type: str,
) -> tuple[GeneratedGame, int]:
    """The first attempt whose world is new (and in one of `rooms`), and how many were not."""
    for attempt in range(MAX_ATTEMPTS):
        game = build_game(seed, split, index, difficulty, task_type, attempt)
        key = game.world.key()
        if key not in seen and (rooms is None or game.world.room in rooms):
            seen.add(key)
            return game, attempt
    raise RuntimeError(
        f"{split} game {index} ({task_type}, {difficulty}): {MAX_ATTEMPTS} attempts repeat an "
        "earlier game or leave the rooms of train; ask for fewer games or a larger difficulty"
    )


def _write(folder: Path, game: GeneratedGame) -> None:
    folder.mkdir(parents=True)
    for name, content in (("game.tw-pddl", game.game), ("traj_data.json", game.traj_data)):
        text = json.dumps(content, ensure_ascii=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
