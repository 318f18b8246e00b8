"""Draw one world: a room, a goal, the receptacles that stand in it and the objects in them.

Nothing here knows PDDL. A world is drawn from a `random.Random`; its laws are: at least one
instance of the target can be taken and brought to the parent, the goal is not met at the start, and
no object lies where it could not be put back.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from sero_core.envs.alfworld.generator.rooms import (
    APPLIANCES,
    LAMP,
    Receptacle,
    Room,
    goals_of,
    likely_receptacles,
    load_rooms,
)

Difficulty = Literal["small", "normal", "large"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)

DRAWS_PER_ROOM = 25


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a room is used. `num_receptacles` and `num_objects` are (low, high) bounds."""

    share: float
    num_receptacles: tuple[int, int]
    num_objects: tuple[int, int]
    max_in_receptacle: int
    num_spare_closed: int
    closed_weight: float
    max_copies: int


SIZES: dict[str, Size] = {
    "small": Size(0.0, (4, 6), (4, 7), 2, 0, 0.25, 1),
    "normal": Size(0.5, (6, 16), (10, 22), 5, 99, 1.0, 2),
    "large": Size(1.0, (3, 60), (16, 48), 8, 99, 1.0, 3),
}


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """An object of class `kind` in the receptacle with this index."""

    kind: str
    receptacle: int


@dataclass(frozen=True, slots=True)
class World:
    """Everything a game's initial state and goal are made of. `parent` is the lamp for look_at."""

    task_type: str
    room: int
    target: str
    parent: str
    receptacles: tuple[Receptacle, ...]
    objects: tuple[PlacedObject, ...]

    def key(self) -> tuple[object, ...]:
        """Equal for two worlds whose players would see the same goal and the same placement."""
        names = [receptacle.name for receptacle in self.receptacles]
        placed = sorted((o.kind, names[o.receptacle]) for o in self.objects)
        return (self.task_type, self.room, self.target, self.parent, tuple(names), tuple(placed))


def compose(
    room_rng: random.Random,
    rng: random.Random,
    *,
    is_unseen: bool,
    difficulty: Difficulty,
    task_type: str,
) -> World:
    """Draw worlds until one obeys the laws. `room_rng` picks the room, `rng` everything else.

    A room where no draw fits (too few receptacles for the difficulty) gives way to the next one.
    """
    rooms = [r for r in load_rooms(is_unseen) if goals_of(r.number, is_unseen, task_type)]
    room_rng.shuffle(rooms)
    for room in rooms:
        for _ in range(DRAWS_PER_ROOM):
            target, parent = rng.choice(goals_of(room.number, is_unseen, task_type))
            world = _draw(rng, room, SIZES[difficulty], task_type, target, parent)
            if world is not None:
                return world
    raise RuntimeError(f"no {difficulty} world for {task_type} in any of {len(rooms)} rooms")


def _draw(
    rng: random.Random, room: Room, size: Size, task_type: str, target: str, parent: str
) -> World | None:
    receptacles = _draw_receptacles(rng, room, size, task_type, target, parent)
    if receptacles is None:
        return None
    objects = _draw_objects(rng, room, size, task_type, target, parent, receptacles)
    if objects is None:
        return None
    return World(task_type, room.number, target, parent, receptacles, objects)


def _draw_receptacles(
    rng: random.Random, room: Room, size: Size, task_type: str, target: str, parent: str
) -> tuple[Receptacle, ...] | None:
    """The needed ones (parent, appliance, lamp stand, a place for the target), then others."""
    low, high = size.num_receptacles
    if len(room.receptacles) < low:
        return None
    wanted = max(low, min(high, round(len(room.receptacles) * size.share)))
    count = rng.randint(low, min(high, len(room.receptacles))) if size.share == 0.0 else wanted
    places = {kind: n for kind, n in likely_receptacles(target).items() if kind != parent}
    chosen = [_pick(rng, room, size, {kind: 1}) for kind in _needed_classes(task_type, parent)]
    if task_type == "look_at_obj_in_light":
        chosen.append(_pick(rng, room, size, likely_receptacles(LAMP)))
    chosen.append(_pick(rng, room, size, places))
    others = list(room.receptacles)
    rng.shuffle(others)
    spare_closed = 0
    for receptacle in others:
        taken = {r.location for r in chosen}
        if len(set(chosen)) >= count or receptacle in chosen:
            continue
        if size.share == 0.0 and receptacle.location in taken:
            continue
        if receptacle.is_openable and spare_closed >= size.num_spare_closed:
            continue
        spare_closed += receptacle.is_openable
        chosen.append(receptacle)
    unique = sorted(set(chosen), key=lambda receptacle: receptacle.name)
    return tuple(unique) if len(unique) >= low else None


def _needed_classes(task_type: str, parent: str) -> list[str]:
    appliance = APPLIANCES.get(task_type)
    needed = [] if parent == LAMP else [parent]
    return needed if appliance is None else [*needed, appliance]


def _pick(rng: random.Random, room: Room, size: Size, classes: dict[str, int]) -> Receptacle:
    """One receptacle of the room: class by weight, then instance evenly."""
    weights = {
        kind: classes[kind] * (size.closed_weight if is_openable else 1.0)
        for kind, is_openable in sorted({(r.kind, r.is_openable) for r in room.receptacles})
        if kind in classes
    }
    kind = rng.choices(list(weights), list(weights.values()))[0]
    return rng.choice([r for r in room.receptacles if r.kind == kind])


def _draw_objects(
    rng: random.Random,
    room: Room,
    size: Size,
    task_type: str,
    target: str,
    parent: str,
    receptacles: tuple[Receptacle, ...],
) -> tuple[PlacedObject, ...] | None:
    """Targets outside the parent class, the lamp, then other classes of the room."""
    low, high = size.num_objects
    count = rng.randint(low, high)
    needed = [target, target] if task_type == "pick_two_obj_and_place" else [target]
    needed += [target] * rng.randint(0, size.max_copies - 1)
    needed += [LAMP] if parent == LAMP else []
    has_idle_lamp = parent != LAMP and size.max_copies > 1
    classes = [k for k in room.object_classes if k != target and (k != LAMP or has_idle_lamp)]
    others = [kind for kind in classes for _ in range(rng.randint(1, size.max_copies))]
    rng.shuffle(others)
    load: Counter[int] = Counter()
    objects: list[PlacedObject] = []
    for kind in [*needed, *others]:
        if len(objects) >= max(count, len(needed)):
            break
        banned = parent if kind == target else ""
        index = _place(rng, kind, banned, receptacles, load, size)
        if index is None and kind in needed:
            return None
        if index is not None:
            load[index] += 1
            objects.append(PlacedObject(kind, index))
    return tuple(objects) if len(objects) >= min(low, 4) else None


def _place(
    rng: random.Random,
    kind: str,
    banned: str,
    receptacles: tuple[Receptacle, ...],
    load: Counter[int],
    size: Size,
) -> int | None:
    """A receptacle index for the object, or None when no likely one has room left."""
    likely = likely_receptacles(kind)
    indices = [
        index
        for index, receptacle in enumerate(receptacles)
        if receptacle.kind in likely
        and receptacle.kind != banned
        and load[index] < size.max_in_receptacle
    ]
    if not indices:
        return None
    per_class = Counter(receptacles[index].kind for index in indices)
    weights = [
        likely[r.kind] / per_class[r.kind] * (size.closed_weight if r.is_openable else 1.0)
        for r in (receptacles[index] for index in indices)
    ]
    return rng.choices(indices, weights)[0]
