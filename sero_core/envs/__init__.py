"""Environments by name: what a config's `env` section means on this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel

from sero_core.envs.alfworld.env import AlfworldEnv as AlfworldGame
from sero_core.envs.alfworld.game import ENGINE_VERSION
from sero_core.envs.alfworld.generator import generate
from sero_core.envs.alfworld.tasks import list_tasks
from sero_core.envs.webshop import source as webshop
from sero_core.envs.webshop.generated import make_shop
from sero_core.envs.webshop.state import ENGINE_VERSION as WEBSHOP_VERSION
from sero_core.envs.webshop.view import PageView
from sero_core.sections import GeneratedGames
from sero_core.sections_webshop import EnvConfig, WebShopEnv
from sero_core.types import Environment, Task


def make_env(config: EnvConfig) -> Environment:
    """One reusable environment."""
    if isinstance(config, WebShopEnv):
        return webshop.make_env(config)
    return AlfworldGame(engine=config.engine)


def env_version(config: EnvConfig) -> str:
    """What plays the games: our engine's version, or those of the stock packages."""
    if isinstance(config, WebShopEnv):
        return f"webshop {WEBSHOP_VERSION}, reward {config.reward}"
    if config.engine == "native":
        return f"alfworld native {ENGINE_VERSION}"
    return f"alfworld {version('alfworld')}, textworld {version('textworld')}"


def load_tasks(config: EnvConfig, split: str) -> tuple[Task, ...]:
    """All tasks of a split: ALFWorld's sorted by task id, WebShop's goals in their frozen order.
    Generated data is written on first use.

    Errors: those of `list_tasks` (wrong folder, half-unpacked archive), naming the path.
    """
    if isinstance(config, WebShopEnv):
        return webshop.list_tasks(config, shop_folder(config), split)
    root = (
        Path(config.data_root).expanduser() if config.data_root else generated_games(config.games)
    )
    return tuple(list_tasks(root, split, task_types=config.task_types))


def webshop_pages(
    config: WebShopEnv, task_id: str, content_hash: str, actions: Sequence[str]
) -> list[PageView]:
    """Pages of a stored WebShop episode from its task and actions (`webshop.source`)."""
    return webshop.replay_pages(config, shop_folder(config), task_id, content_hash, actions)


def cache_folder() -> Path:
    """`$SERO_CACHE`, else `~/.cache/sero`."""
    return Path(os.environ.get("SERO_CACHE") or Path.home() / ".cache" / "sero")


def generated_games(games: GeneratedGames) -> Path:
    """The folder with these games; generated once per machine, safe when several processes
    start.
    """
    counts = {
        "train": games.num_train,
        "valid_seen": games.num_valid_seen,
        "valid_unseen": games.num_valid_unseen,
    }
    return _made_once(
        cache_folder() / "games" / f"{games.difficulty}-{games.seed}-{_key(games)}",
        lambda folder: generate(
            folder, seed=games.seed, difficulty=games.difficulty, counts=counts
        ),
    )


def shop_folder(config: WebShopEnv) -> Path:
    """The folder with the shop of a config; a generated one is made once per machine."""
    if config.data_root:
        return Path(config.data_root).expanduser()
    catalogue = config.catalogue
    name = f"{catalogue.num_products}-{catalogue.seed}-{_key(catalogue)}"
    return _made_once(
        cache_folder() / "webshop" / name,
        lambda folder: make_shop(folder, catalogue.num_products, catalogue.seed),
    )


def _key(config: BaseModel) -> str:
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:16]


def _made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills under another name first, so that it is whole or absent."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".generating-"))
    make(temporary)
    try:
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(temporary)
    return folder
