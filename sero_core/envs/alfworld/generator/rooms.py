"""What the rooms of ALFRED contain: package data, read once.

`floorplans.json` and `affordances.json` come from the alfworld wheel
(`scripts/extract_floorplans.py`), `placements.json` from the train split
(`scripts/count_placements.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

DATA = Path(__file__).parent.parent / "data"

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
SPLITS = ("train", "valid_seen", "valid_unseen")

UNSEEN_ROOMS = frozenset({9, 10, 29, 215, 219, 226, 308, 315, 325, 404, 424, 425})
"""ALFRED's own held-out rooms (valid_unseen and test_unseen); the other 108 are its train rooms."""

LAMP = "DeskLamp"

APPLIANCES = {
    "pick_clean_then_place_in_recep": "SinkBasin",
    "pick_heat_then_place_in_recep": "Microwave",
    "pick_cool_then_place_in_recep": "Fridge",
}
"""The receptacle class that changes the object's state. Open or closed does not matter to it."""


@dataclass(frozen=True, slots=True)
class Receptacle:
    """`name` is ALFRED's id (`Cabinet|+00.68|+00.50|-02.20`), `location` its viewpoint's id."""

    name: str
    kind: str
    location: str
    is_openable: bool


@dataclass(frozen=True, slots=True)
class Room:
    """One floor plan: its receptacles in id order and the object classes found there."""

    number: int
    receptacles: tuple[Receptacle, ...]
    object_classes: tuple[str, ...]

    @property
    def receptacle_classes(self) -> tuple[str, ...]:
        return tuple(sorted({receptacle.kind for receptacle in self.receptacles}))


@dataclass(frozen=True, slots=True)
class Affordances:
    """Classes by what can be done with them; `contains` maps receptacle class -> object classes."""

    contains: dict[str, frozenset[str]]
    openable: frozenset[str]
    receptacle_objects: frozenset[str]
    cleanable: frozenset[str]
    heatable: frozenset[str]
    coolable: frozenset[str]
    sliceable: frozenset[str]
    toggleable: frozenset[str]

    def changeable(self, task_type: str) -> frozenset[str] | None:
        """Object classes that the task's appliance works on; None when the task has none."""
        return {
            "pick_clean_then_place_in_recep": self.cleanable,
            "pick_heat_then_place_in_recep": self.heatable,
            "pick_cool_then_place_in_recep": self.coolable,
        }.get(task_type)


@cache
def load_affordances() -> Affordances:
    raw = json.loads((DATA / "affordances.json").read_text(encoding="utf-8"))
    contains = {kind: frozenset(classes) for kind, classes in raw.pop("contains").items()}
    return Affordances(contains=contains, **{key: frozenset(value) for key, value in raw.items()})


@cache
def load_placements() -> dict[str, dict[str, tuple[int, int]]]:
    """Object class -> receptacle class -> (a, b): in ALFWorld's train split `a` objects start in
    such a receptacle, where `b` such receptacles stand in games with such an object."""
    raw = json.loads((DATA / "placements.json").read_text(encoding="utf-8"))
    return cast("dict[str, dict[str, tuple[int, int]]]", raw)


@cache
def load_rooms(is_unseen: bool) -> tuple[Room, ...]:
    """The rooms of one side of the train / unseen border, by number."""
    scenes = json.loads((DATA / "floorplans.json").read_text(encoding="utf-8"))["scenes"]
    openable = load_affordances().openable
    rooms: list[Room] = []
    for number in sorted(int(key) for key in scenes):
        if (number in UNSEEN_ROOMS) != is_unseen:
            continue
        scene = scenes[str(number)]
        receptacles = tuple(
            Receptacle(name, kind, _location(pose), kind in openable)
            for name, pose in sorted(scene["receptacles"].items())
            for kind in (name.split("|")[4] if name.count("|") == 4 else name.split("|")[0],)
        )
        rooms.append(Room(number, receptacles, tuple(scene["objects"])))
    return tuple(rooms)


@cache
def likely_receptacles(object_class: str) -> dict[str, int]:
    """Receptacle classes where the object may be put and is usually found, with their counts.

    A lamp is never carried, so only its counts decide.
    """
    contains = load_affordances().contains
    return {
        kind: count
        for kind, (count, _) in load_placements().get(object_class, {}).items()
        if object_class == LAMP or object_class in contains.get(kind, frozenset())
    }


@cache
def goals_of(number: int, is_unseen: bool, task_type: str) -> tuple[tuple[str, str], ...]:
    """Every (object class, parent class) that the task type can ask for in this room.

    The parent is a receptacle class (the lamp for look_at_obj_in_light). At least one other class
    of receptacle must be a likely place of the object, so that the goal is not met at the start.
    """
    room = next(room for room in load_rooms(is_unseen) if room.number == number)
    present = set(room.receptacle_classes)
    appliance = APPLIANCES.get(task_type)
    changeable = load_affordances().changeable(task_type)
    if appliance is not None and appliance not in present:
        return ()
    has_lamp = LAMP in room.object_classes and bool(present & set(likely_receptacles(LAMP)))
    goals: list[tuple[str, str]] = []
    for target in room.object_classes:
        places = set(likely_receptacles(target)) & present
        if target == LAMP or not places or (changeable is not None and target not in changeable):
            continue
        if task_type == "look_at_obj_in_light":
            goals += [(target, LAMP)] if has_lamp else []
            continue
        for parent, classes in sorted(load_affordances().contains.items()):
            if parent in present - {appliance} and target in classes and places - {parent}:
                goals.append((target, parent))
    return tuple(goals)


def _location(pose: list[float]) -> str:
    """A viewpoint's id in ALFRED's notation: quarter-metre grid, quarter turns, degrees of tilt."""
    x, z, rotation, horizon = pose
    return f"loc|{round(x * 4)}|{round(z * 4)}|{round(rotation / 90) % 4}|{round(horizon)}"
