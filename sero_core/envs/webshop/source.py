"""What a config's WebShop section means on this machine: its shop, environment and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from sero_core.envs.webshop.env import WebShopEnv
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.splits import SPLIT_NAMES, SplitName
from sero_core.envs.webshop.state import Rules
from sero_core.envs.webshop.tasks import goal_of, make_task
from sero_core.envs.webshop.view import PageView, replay
from sero_core.sections_webshop import WebShopEnv as WebShopConfig
from sero_core.types import SeroError, Task


@lru_cache(maxsize=4)
def open_shop(folder: Path, content_hash: str) -> Shop:
    """The shop in a folder, opened once per process. Errors: those of `Shop.open`."""
    return Shop.open(folder, content_hash)


def make_env(config: WebShopConfig) -> WebShopEnv:
    """One reusable environment."""
    return WebShopEnv(open_shop, rules(config))


def rules(config: WebShopConfig) -> Rules:
    return Rules(
        reward=config.reward,
        mode=config.observation,
        show_attributes=config.show_attributes,
        has_back_doors=config.has_back_doors,
    )


def replay_pages(
    config: WebShopConfig, folder: Path, task_id: str, content_hash: str, actions: Sequence[str]
) -> list[PageView]:
    """The pages of a stored episode as a person would see them: at the start, after each action.

    `content_hash` is the stored task's. Errors: `CatalogueError` where this machine's shop is
    absent or holds other data, `SeroError` for a goal that it does not have.
    """
    shop = open_shop(folder, content_hash)
    return replay(shop, goal_of(shop, task_id), rules(config), actions)


def list_tasks(config: WebShopConfig, folder: Path, split: str) -> tuple[Task, ...]:
    """The goals of a split in their frozen order, as tasks; a task's type is its product's
    category.

    Errors: `SeroError` for an unknown split, `CatalogueError` for a folder that holds no shop.
    """
    chosen: SplitName | None = next((name for name in SPLIT_NAMES if name == split), None)
    if chosen is None:
        raise SeroError(f"WebShop has no split {split!r}; allowed: {', '.join(SPLIT_NAMES)}")
    shop = Shop.open(folder)
    goals = shop.goals(config.goals)
    tasks: list[Task] = []
    for index in shop.split(config.split, chosen, config.goals).tolist():
        goal = goals[index]
        solvable = goal.is_solvable if config.reward == "original" else goal.is_solvable_fixed
        if split != "train" or solvable or not config.is_solvable_only:
            tasks.append(make_task(shop, goal, split, folder))
    return tuple(tasks)
