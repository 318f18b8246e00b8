"""Environments by name: what a config's `env` section means on this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from sero_core.envs.alfworld.env import AlfworldEnv as AlfworldGame
from sero_core.envs.alfworld.game import ENGINE_VERSION
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.sections import AlfworldEnv, GeneratedGames
from sero_core.types import Environment, Task


def make_env(config: AlfworldEnv) -> Environment:
    """One reusable environment."""
    return AlfworldGame(engine=config.engine)


def env_version(config: AlfworldEnv) -> str:
    """What plays the games: our engine's version, or those of the stock packages."""
    if config.engine == "native":
        return f"alfworld native {ENGINE_VERSION}"
    return f"alfworld {version('alfworld')}, textworld {version('textworld')}"


def load_tasks(config: AlfworldEnv, split: str) -> tuple[Task, ...]:
    """All tasks of a split, sorted by task id. Generated games are written on first use.

    Errors: those of `list_tasks` (wrong folder, half-unpacked archive), naming the path.
    """
    root = (
        Path(config.data_root).expanduser() if config.data_root else generated_games(config.games)
    )
    return tuple(list_tasks(root, split, task_types=config.task_types))


def cache_folder() -> Path:
    """`$SERO_CACHE`, else `~/.cache/sero`."""
    return Path(os.environ.get("SERO_CACHE") or Path.home() / ".cache" / "sero")


def generated_games(games: GeneratedGames) -> Path:
    """The folder with these games; generated once per machine, safe when several processes
    start.
    """
    key = hashlib.sha256(games.model_dump_json().encode()).hexdigest()[:16]
    folder = cache_folder() / "games" / f"{games.difficulty}-{games.seed}-{key}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".generating-"))
    generate(
        temporary,
        seed=games.seed,
        difficulty=games.difficulty,
        counts={
            "train": games.num_train,
            "valid_seen": games.num_valid_seen,
            "valid_unseen": games.num_valid_unseen,
        },
    )
    try:
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(temporary)
    return folder
