"""The closed-form planner against breadth-first search, in thousands of random tiny worlds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import pytest

from sero_core.envs.alfworld.plan import is_reached, plan
from sero_core.envs.alfworld.plan_state import CHANGES, LIGHT, TWO, Goal, State, natural
from sero_core.types import DeadEnd

Fact = tuple[str, ...]
World = frozenset[Fact]

TASK_TYPES = [*CHANGES, LIGHT, TWO, "pick_and_place_simple"]
STATIC = {
    ("receptacletype", "sinkbasin 1", "sinkbasintype"),
    ("receptacletype", "microwave 1", "microwavetype"),
    ("receptacletype", "fridge 1", "fridgetype"),
    ("openable", "fridge 1"),
    ("openable", "microwave 1"),
}


def successors(world: World) -> Iterator[tuple[str, World]]:
    """The ALFRED rules written down once more, fact by fact, as slow and plain as possible."""
    place = next(f[2] for f in world if f[0] == "atlocation")
    held = next((f[2] for f in world if f[0] == "holds"), None)
    locations = {f[1]: f[2] for f in world if f[0] == "receptacleatlocation"}
    kinds = {f[1]: f[2] for f in world if f[0] in ("objecttype", "receptacletype")}

    def with_facts(added: set[Fact], removed: set[Fact]) -> World:
        return frozenset((world - removed) | added)

    for receptacle, location in locations.items():
        if location != place:
            yield (
                f"go to {receptacle}",
                with_facts({("atlocation", "agent1", location)}, {("atlocation", "agent1", place)}),
            )
            continue
        is_open = ("openable", receptacle) not in world or ("opened", receptacle) in world
        if not is_open:
            yield f"open {receptacle}", with_facts({("opened", receptacle)}, set())
        inside = [f[1] for f in world if f[0] == "inreceptacle" and f[2] == receptacle]
        for name in inside:
            if ("toggleable", name) in world:
                yield f"use {name}", with_facts({("istoggled", name)}, set())
            if is_open and held is None and ("pickupable", name) in world:
                yield (
                    f"take {name} from {receptacle}",
                    with_facts({("holds", "agent1", name)}, {("inreceptacle", name, receptacle)}),
                )
        if held is None:
            continue
        if is_open and ("cancontain", kinds[receptacle], kinds[held]) in world:
            yield (
                f"move {held} to {receptacle}",
                with_facts({("inreceptacle", held, receptacle)}, {("holds", "agent1", held)}),
            )
        for verb, appliance, able, mark in CHANGES.values():
            if kinds[receptacle] == f"{appliance}type" and (able, held) in world:
                undone = {"ishot": {("iscool", held)}, "iscool": {("ishot", held)}}.get(mark, set())
                yield f"{verb} {held} with {receptacle}", with_facts({(mark, held)}, undone)


def is_goal(world: World, goal: Goal) -> bool:
    """The six goal formulas, read off the facts."""
    kinds = {f[1]: f[2] for f in world if f[0] in ("objecttype", "receptacletype")}
    inside = [(f[1], f[2]) for f in world if f[0] == "inreceptacle"]
    if goal.task_type == LIGHT:
        place = next(f[2] for f in world if f[0] == "atlocation")
        lit = any(
            kinds[o] == f"{goal.parent}type"
            and {("toggleable", o), ("istoggled", o), ("receptacleatlocation", r, place)} <= world
            for o, r in inside
        )
        return lit and any(f[0] == "holds" and kinds[f[2]] == f"{goal.target}type" for f in world)
    good = [
        (o, r)
        for o, r in inside
        if kinds[o] == f"{goal.target}type" and kinds[r] == f"{goal.parent}type"
    ]
    if goal.task_type == TWO:
        return any(r == s and o != p for o, r in good for p, s in good)
    if goal.task_type in CHANGES:
        _, _, able, mark = CHANGES[goal.task_type]
        return any({(able, o), (mark, o)} <= world for o, _ in good)
    return bool(good)


def search(world: World, goal: Goal) -> int | None:
    """Length of the shortest plan; None when the reachable states hold no goal."""
    if is_goal(world, goal):
        return 0
    queue = deque([(world, 0)])
    seen = {world}
    while queue:
        current, depth = queue.popleft()
        for _, after in successors(current):
            if after in seen:
                continue
            if is_goal(after, goal):
                return depth + 1
            seen.add(after)
            queue.append((after, depth + 1))
    return None


def tiny_world(rng: random.Random) -> tuple[World, Goal]:
    """Few receptacles and objects, shared locations, odd states: whatever the rules allow."""
    task_type = rng.choice(TASK_TYPES)
    parent = "desklamp" if task_type == LIGHT else rng.choice(["shelf", "fridge", "drawer"])
    goal = Goal(task_type, "mug", parent)
    names = ["shelf 1", "drawer 1", *rng.sample(["shelf 2", "drawer 2", "fridge 1"], 1)]
    names += {"pick_heat_then_place_in_recep": ["microwave 1"]}.get(task_type, [])
    names += {"pick_clean_then_place_in_recep": ["sinkbasin 1"]}.get(task_type, [])
    names += ["fridge 1"] if task_type == "pick_cool_then_place_in_recep" else []
    receptacles = sorted(set(names))
    facts: set[Fact] = {f for f in STATIC if f[1] in receptacles}
    locations = ["loc 1", "loc 2", "loc 3"]
    for name in receptacles:
        facts.add(("receptacletype", name, name.rpartition(" ")[0] + "type"))
        facts.add(("receptacleatlocation", name, rng.choice(locations)))
        if name.startswith("drawer"):
            facts.add(("openable", name))
        if rng.random() < 0.3 and ("openable", name) in facts:
            facts.add(("opened", name))
        for kind in ("mug", "book"):
            if rng.random() < 0.75:
                facts.add(("cancontain", name.rpartition(" ")[0] + "type", f"{kind}type"))
    facts.add(("atlocation", "agent1", rng.choice([*locations, "loc 4"])))
    add_objects(rng, facts, receptacles, task_type)
    return frozenset(facts), goal


def add_objects(
    rng: random.Random, facts: set[Fact], receptacles: list[str], task_type: str
) -> None:
    objects = ["mug 1", "mug 2"] if task_type == TWO or rng.random() < 0.5 else ["mug 1"]
    objects += ["book 1"] + (["desklamp 1"] if task_type == LIGHT else [])
    for name in objects:
        facts.add(("objecttype", name, name.rpartition(" ")[0] + "type"))
        places = rng.sample(receptacles, 2 if rng.random() < 0.15 else 1)
        facts.update(("inreceptacle", name, place) for place in places)
        if name == "desklamp 1":
            facts.add(("toggleable", name))
            continue
        facts.add(("pickupable", name))
        facts.update((able, name) for _, _, able, _ in CHANGES.values())
        for mark in ("isclean", "ishot", "iscool"):
            if rng.random() < 0.2:
                facts.add((mark, name))
    if rng.random() < 0.5:
        held = rng.choice([name for name in objects if name != "desklamp 1"])
        facts.add(("holds", "agent1", held))
        facts -= {f for f in facts if f[0] == "inreceptacle" and f[1] == held}


@pytest.mark.parametrize("block", range(4))
def test_plans_are_as_short_as_breadth_first_search_finds(block: int) -> None:
    rng = random.Random(block)
    num_dead = num_long = 0
    for case in range(150):
        world, goal = tiny_world(rng)
        shortest = search(world, goal)
        state = State.from_facts(world)
        if shortest is None:
            num_dead += 1
            with pytest.raises(DeadEnd):
                plan(state, goal)
            continue
        actions = plan(state, goal)
        assert len(actions) == shortest, f"block {block}, case {case}: {actions}"
        assert is_reached(state, goal) == (shortest == 0)
        num_long += shortest >= 5
        for action in actions:
            world = dict(successors(world))[action]
        assert is_goal(world, goal), f"block {block}, case {case}: {actions} does not reach it"
    assert num_dead > 5
    assert num_long > 20


def test_a_dead_end_says_what_is_held() -> None:
    facts = {
        ("receptacletype", "shelf 1", "shelftype "),
        ("receptacleatlocation", "shelf 1", "loc 1"),
        ("objecttype", "mug 1", "mugtype "),
        ("objecttype", "teddybear 1", "teddybeartype "),
        ("cancontain", "shelftype ", "mugtype "),
        ("pickupable", "mug 1"),
        ("inreceptacle", "mug 1", "shelf 1"),
        ("holds", "agent1 ", "teddybear 1"),
        ("atlocation", "agent1 ", "loc 2"),
    }
    with pytest.raises(DeadEnd, match="holds teddybear 1, which fits nowhere"):
        plan(State.from_facts(facts), Goal("pick_and_place_simple", "mug", "drawer"))


def test_it_puts_down_into_the_drawer_it_must_open_anyway() -> None:
    drawers = ("drawer 1", "drawer 2")
    facts: set[Fact] = {
        *(("receptacletype", name, "drawertype") for name in drawers),
        *(("receptacleatlocation", name, "loc 1") for name in drawers),
        *(("openable", name) for name in drawers),
        ("receptacletype", "shelf 1", "shelftype"),
        ("receptacleatlocation", "shelf 1", "loc 2"),
        *(("cancontain", kind, "mugtype") for kind in ("drawertype", "shelftype")),
        ("cancontain", "drawertype", "booktype"),
        *(("objecttype", f"{kind} 1", f"{kind}type") for kind in ("mug", "book")),
        *(("pickupable", f"{kind} 1") for kind in ("mug", "book")),
        ("inreceptacle", "mug 1", "drawer 2"),
        ("holds", "agent1", "book 1"),
        ("atlocation", "agent1", "loc 2"),
    }
    actions = plan(State.from_facts(facts), Goal("pick_and_place_simple", "mug", "shelf"))
    assert actions == [
        "go to drawer 2",
        "open drawer 2",
        "move book 1 to drawer 2",
        "take mug 1 from drawer 2",
        "go to shelf 1",
        "move mug 1 to shelf 1",
    ]


def test_names_sort_by_number() -> None:
    assert sorted(["drawer 10", "drawer 2", "cabinet 1"], key=natural) == [
        "cabinet 1",
        "drawer 2",
        "drawer 10",
    ]
