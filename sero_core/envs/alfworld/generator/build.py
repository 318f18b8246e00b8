"""One game from (seed, split, index, difficulty, task type): folder name and file content."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cache

from sero_core.envs.alfworld.generator.compose import DIFFICULTIES, Difficulty, World, compose
from sero_core.envs.alfworld.generator.pddl import build_problem
from sero_core.envs.alfworld.generator.rooms import DATA, LAMP, SPLITS, TASK_TYPES
from sero_core.envs.alfworld.plan import plan
from sero_core.envs.alfworld.plan_state import Goal, State

TEMPLATES = {
    "pick_and_place_simple": ("put a {obj} in {recep}.", "put some {obj} on {recep}."),
    "look_at_obj_in_light": (
        "look at {obj} under the {recep}.",
        "examine the {obj} with the {recep}.",
    ),
    "pick_clean_then_place_in_recep": (
        "put a clean {obj} in {recep}.",
        "clean some {obj} and put it in {recep}.",
    ),
    "pick_heat_then_place_in_recep": (
        "put a hot {obj} in {recep}.",
        "heat some {obj} and put it in {recep}.",
    ),
    "pick_cool_then_place_in_recep": (
        "put a cool {obj} in {recep}.",
        "cool some {obj} and put it in {recep}.",
    ),
    "pick_two_obj_and_place": (
        "put two {obj} in {recep}.",
        "find two {obj} and put them in {recep}.",
    ),
}
"""ALFWorld's task sentences (alfworld.gen.goal_library)."""


@dataclass(frozen=True, slots=True)
class GeneratedGame:
    """`folder`: `<task>-<Obj>-None-<Parent or Lamp>-<room>/trial_T…`; `game`: the file."""

    folder: str
    game: dict[str, str | bool | list[str]]
    traj_data: dict[str, object]
    task_type: str
    walkthrough: tuple[str, ...]
    world: World


def build_game(
    seed: int,
    split: str,
    index: int,
    difficulty: Difficulty,
    task_type: str,
    attempt: int = 0,
) -> GeneratedGame:
    """Build one game; a pure function of its arguments. `attempt` draws another game for a place.

    valid_seen's game i plays in the room of train's game i of the same type, with new placements.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {SPLITS}")
    if task_type not in TASK_TYPES:
        raise ValueError(f"task type is {task_type!r}, expected one of {TASK_TYPES}")
    if difficulty not in DIFFICULTIES:
        raise ValueError(f"difficulty is {difficulty!r}, expected one of {DIFFICULTIES}")
    is_unseen = split == "valid_unseen"
    where = (seed, difficulty, task_type, index)
    rng = _rng("world", split, *where, attempt)
    world = compose(
        _rng("room", is_unseen, *where),
        rng,
        is_unseen=is_unseen,
        difficulty=difficulty,
        task_type=task_type,
    )
    trial = f"trial_T{seed:08d}_{index:06d}_{rng.randrange(10**6):06d}"
    sentence = rng.choice(TEMPLATES[task_type]).format(
        obj=world.target.lower(), recep=world.parent.lower()
    )
    problem = build_problem(world, f"plan_{trial}")
    goal = Goal(task_type, world.target.lower(), world.parent.lower())
    walkthrough = tuple(plan(State.from_facts(problem.facts), goal))
    if not walkthrough:
        raise RuntimeError(f"{split} game {index} of seed {seed} is solved at the start")
    domain, grammar = _texts()
    folder = f"{task_type}-{world.target}-None-{world.parent}-{world.room}/{trial}"
    game: dict[str, str | bool | list[str]] = {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL.", sentence),
        "pddl_problem": problem.text,
        "solvable": True,
        "walkthrough": list(walkthrough),
    }
    return GeneratedGame(folder, game, _traj_data(world, trial), task_type, walkthrough, world)


def _traj_data(world: World, trial: str) -> dict[str, object]:
    """The part of ALFRED's traj_data.json that the text environment and its expert read."""
    is_light = world.parent == LAMP
    return {
        "task_id": trial,
        "task_type": world.task_type,
        "pddl_params": {
            "object_target": world.target,
            "parent_target": "" if is_light else world.parent,
            "toggle_target": LAMP if is_light else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
        "scene": {"floor_plan": f"FloorPlan{world.room}", "scene_num": world.room},
        "turk_annotations": {"anns": []},
    }


@cache
def _texts() -> tuple[str, str]:
    """Domain and grammar as alfworld 0.4.2 ships them."""
    domain = (DATA / "alfred_domain.txt").read_text(encoding="utf-8")
    return domain, (DATA / "alfred_grammar.txt").read_text(encoding="utf-8")


def _rng(*parts: object) -> random.Random:
    """A generator seeded by text, the same on every machine."""
    text = "|".join(str(part) for part in parts)
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))
