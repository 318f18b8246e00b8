"""Goals as tasks: `webshop/<split>/<kind>/<goal>`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, cast

from sero_core.envs.webshop.goals import GOAL_KINDS, Goal, GoalKind
from sero_core.envs.webshop.shop import Shop
from sero_core.types import SeroError, Task

_TASK_ID: Final = re.compile(r"webshop/[^/]+/([a-z]+)/(\d+)")


def make_task(shop: Shop, goal: Goal, split: str, folder: Path) -> Task:
    """A goal of the shop in a folder as a task; its hash is that of the shop's data."""
    return Task(
        task_id=f"webshop/{split}/{goal.kind}/{goal.index}",
        env="webshop",
        split=split,
        task_type=shop.product(goal.product).category,
        path=str(folder),
        content_hash=shop.content_hash,
    )


def goal_of(shop: Shop, task_id: str) -> Goal:
    """The goal that a task id names. Errors: `SeroError` for an id that names none of this shop."""
    found = _TASK_ID.fullmatch(task_id)
    if found is None or found[1] not in GOAL_KINDS:
        raise SeroError(f"task {task_id!r}: expected webshop/<split>/<kind>/<goal>")
    goals = shop.goals(cast(GoalKind, found[1]))
    if int(found[2]) >= len(goals):
        raise SeroError(f"task {task_id}: the shop has {len(goals)} {found[1]} goals")
    return goals[int(found[2])]
