"""Environments on the golden catalogue, and walks through them."""

from __future__ import annotations

import random
from pathlib import Path

from sero_core.envs.webshop.env import WebShopEnv
from sero_core.envs.webshop.goals import GoalKind
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.state import Rules
from sero_core.types import Observation, Task
from tests.support.webshop import golden_shop

GARBAGE = (
    "",
    "buy now",
    "click[]",
    "click[search]",
    "click[no such thing]",
    "search[]",
    "SEARCH[basket]",
    "I will search[basket]",
    "think\nsearch[basket]",
    "click[buy now",
    "\x00",
)
QUERIES = ("storage basket", "search_results item_page", '"black" headphones', "<r>", "zzzz", "é")


def open_golden(path: Path, content_hash: str) -> Shop:
    return golden_shop()


def golden_task(index: int, kind: GoalKind = "synthetic") -> Task:
    return Task(f"webshop/train/{kind}/{index}", "webshop", "train", "garden", "golden", "golden")


def golden_env(rules: Rules = Rules()) -> WebShopEnv:  # noqa: B008
    return WebShopEnv(open_golden, rules)


def random_action(observation: Observation, rng: random.Random) -> str:
    """Mostly what the page offers, sometimes a search from anywhere or garbage."""
    roll = rng.random()
    if roll < 0.12:
        return rng.choice(GARBAGE)
    offered = [action for action in observation.admissible if action.startswith("click")]
    if roll < 0.25 or not offered:
        return f"search[{rng.choice(QUERIES)}]"
    return rng.choice(offered)
