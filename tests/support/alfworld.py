"""A small hand-made ALFWorld game that offers every verb, and helpers to write games as tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from sero_core.types import Task

_DATA = files("sero_core.envs.alfworld") / "data"

THINGS = {
    "Apple_bar_1": "Apple",
    "Apple_bar_2": "Apple",
    "Knife_bar_1": "Knife",
    "Mug_bar_1": "Mug",
    "Box_bar_1": "Box",
    "Pen_bar_1": "Pen",
    "DeskLamp_bar_1": "DeskLamp",
    "PaperTowelRoll_bar_1": "PaperTowelRoll",
}
PLACES = {
    "CounterTop_bar_1": ("CounterTop", "loc_bar_1"),
    "CoffeeMachine_bar_1": ("CoffeeMachine", "loc_bar_1"),
    "Sink_bar_1_bar_SinkBasin": ("SinkBasin", "loc_bar_2"),
    "Microwave_bar_1": ("Microwave", "loc_bar_3"),
    "Fridge_bar_1": ("Fridge", "loc_bar_4"),
    "Drawer_bar_1": ("Drawer", "loc_bar_5"),
    "Drawer_bar_2": ("Drawer", "loc_bar_5"),
    "Desk_bar_1": ("Desk", "loc_bar_6"),
}
START = {
    "Apple_bar_1": ("CounterTop_bar_1",),
    "Apple_bar_2": ("Fridge_bar_1",),
    "Knife_bar_1": ("CounterTop_bar_1",),
    "Mug_bar_1": ("CounterTop_bar_1", "CoffeeMachine_bar_1"),
    "Box_bar_1": ("Desk_bar_1",),
    "Pen_bar_1": ("Drawer_bar_1",),
    "DeskLamp_bar_1": ("Desk_bar_1",),
    "PaperTowelRoll_bar_1": ("CounterTop_bar_1",),
}
FITS = {
    "CounterTop": ("Apple", "Knife", "Mug", "Box", "Pen"),
    "CoffeeMachine": ("Mug",),
    "SinkBasin": ("Apple", "Mug", "Knife"),
    "Microwave": ("Apple", "Mug"),
    "Fridge": ("Apple", "Mug"),
    "Drawer": ("Pen", "Knife"),
    "Desk": ("Box", "Pen", "Mug"),
}
OPENABLE = ("Microwave", "Fridge", "Drawer")
GOAL = """(and (exists (?r - receptacle) (exists (?o - object) (and
    (heatable ?o) (objectType ?o AppleType) (receptacleType ?r CounterTopType)
    (isHot ?o) (inReceptacle ?o ?r)))))"""
WALKTHROUGH = (
    "go to fridge 1",
    "open fridge 1",
    "take apple 1 from fridge 1",
    "go to microwave 1",
    "heat apple 1 with microwave 1",
    "go to countertop 1",
    "move apple 1 to countertop 1",
)


def handmade_game(
    *,
    goal: str = GOAL,
    extra: Sequence[str] = (),
    without: Sequence[str] = (),
    task: str = "put a hot apple in countertop.",
    domain: str | None = None,
    grammar: str | None = None,
) -> dict[str, object]:
    """The game as the content of a `game.tw-pddl` file, with facts added and taken away."""
    facts = [fact for fact in (*_facts(), *extra) if fact not in without]
    kinds = sorted({*THINGS.values(), "Knife", "ButterKnife"})
    place_kinds = sorted({kind for kind, _ in PLACES.values()} | {"Sink"})
    locations = sorted({location for _, location in PLACES.values()} | {"loc_bar_9"})
    declared = (
        ["agent1 - agent"]
        + [f"{name} - object" for name in THINGS]
        + [f"{kind}Type - otype" for kind in kinds]
        + [f"{kind}Type - rtype" for kind in place_kinds]
        + [f"{name} - receptacle" for name in PLACES]
        + [f"{name} - location" for name in locations]
    )
    problem = (
        "(define (problem handmade)\n(:domain alfred)\n(:objects\n"
        + "\n".join(declared)
        + ")\n(:init\n"
        + "\n".join(facts)
        + f")\n(:goal {goal})\n)"
    )
    template = grammar if grammar is not None else (_DATA / "alfred_grammar.txt").read_text()
    return {
        "pddl_domain": domain if domain is not None else (_DATA / "alfred_domain.txt").read_text(),
        "grammar": template.replace("UNKNOWN GOAL.", task).replace("UNKNOWN GOAL", task),
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": list(WALKTHROUGH),
    }


def write_task(
    root: Path,
    game: dict[str, object],
    *,
    split: str = "train",
    folder: str = "pick_heat_then_place_in_recep-Apple-None-CounterTop-1",
    trial: str = "trial_T1",
) -> Task:
    """Write a game in the official layout and return its task."""
    path = root / "json_2.1.1" / split / folder / trial / "game.tw-pddl"
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = json.dumps(game).encode()
    path.write_bytes(raw)
    return Task(
        task_id=f"{split}/{folder}/{trial}",
        env="alfworld",
        split=split,
        task_type=folder.partition("-")[0],
        path=str(path),
        content_hash=sha256(raw).hexdigest(),
    )


def _facts() -> list[str]:
    facts = ["(atLocation agent1 loc_bar_9)"]
    for name, (kind, location) in PLACES.items():
        facts.append(f"(receptacleType {name} {kind}Type)")
        facts.append(f"(receptacleAtLocation {name} {location})")
        if kind in OPENABLE:
            facts.append(f"(openable {name})")
    for name, kind in THINGS.items():
        facts.append(f"(objectType {name} {kind}Type)")
        facts.extend(f"(inReceptacle {name} {place})" for place in START[name])
        facts.append(f"(objectAtLocation {name} {PLACES[START[name][0]][1]})")
        facts.append(f"(toggleable {name})" if kind == "DeskLamp" else f"(pickupable {name})")
        if kind in ("Apple", "Mug", "Knife"):
            facts.append(f"(cleanable {name})")
        if kind in ("Apple", "Mug"):
            facts.extend((f"(heatable {name})", f"(coolable {name})"))
        if kind == "Apple":
            facts.append(f"(sliceable {name})")
    facts.append("(isReceptacleObject Box_bar_1)")
    facts.extend(
        f"(canContain {place}Type {thing}Type)" for place, fits in FITS.items() for thing in fits
    )
    return facts
