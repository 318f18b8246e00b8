"""A compiled ALFWorld game: everything about a `game.tw-pddl` file that never changes in play.

Objects, receptacles and locations are indices in the order of their raw ids, which is the order
in which the stock engine lists them. What can change is a set of numbered atoms (`Atoms`); a state
is a pair of bit masks over them (`native.State`). `compiler.py` makes a `Game` from a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final

from sero_core.envs.alfworld.commands import CommandTable
from sero_core.envs.alfworld.pddl import Condition

Fact = tuple[str, ...]

ENGINE_VERSION: Final = 1
"""Part of the key of every compiled game on disk: raise it when `Game` or its meaning changes."""

OBJECT_FLAGS: Final = ("isclean", "ishot", "iscool", "istoggled", "ison", "issliced")
CLEAN, HOT, COOL, TOGGLED, ON, SLICED = range(len(OBJECT_FLAGS))


@dataclass(frozen=True, slots=True)
class Thing:
    """An object. `name` is what the player reads, e.g. `mug 2`; `contents` are shown on examine."""

    name: str
    is_pickupable: bool
    is_toggleable: bool
    is_sliceable: bool
    is_knife: bool
    is_cleanable: bool
    is_heatable: bool
    is_coolable: bool
    is_container: bool
    contents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Receptacle:
    """A receptacle. `fits` are the objects it may contain; `location` is None if it has none."""

    name: str
    location: int | None
    is_openable: bool
    is_sink: bool
    is_microwave: bool
    is_fridge: bool
    fits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Atoms:
    """Numbers of the facts that can change. One bit each; a group is a range from a base on.

    `inside + r * num_objects + o`: object o is in receptacle r. `beside + l * num_objects + o`: it
    is at location l. `flags + f * num_objects + o`: it has OBJECT_FLAGS[f]. Else `base + index`.
    """

    num_objects: int
    num_receptacles: int
    num_locations: int
    beside: int
    held: int
    flags: int
    seen_objects: int
    seen_receptacles: int
    seen_locations: int
    at: int
    opened: int
    seen_agent: int
    holds_any: int
    inside: int = 0

    @classmethod
    def number(cls, num_objects: int, num_receptacles: int, num_locations: int) -> Atoms:
        sizes = (
            num_objects * num_receptacles,  # inside
            num_objects * num_locations,  # beside
            num_objects,  # held
            num_objects * len(OBJECT_FLAGS),  # flags
            num_objects,  # seen_objects
            num_receptacles,  # seen_receptacles
            num_locations,  # seen_locations
            num_locations,  # at
            num_receptacles,  # opened
            1,  # seen_agent
        )
        bases = [sum(sizes[: position + 1]) for position in range(len(sizes))]
        return cls(num_objects, num_receptacles, num_locations, *bases)


@dataclass(frozen=True)
class Game:
    """One compiled game. `static_facts` are shown in every state; `start` are the atoms at reset.

    `besides`, `heatable` and `coolable` mark atoms that some action sequence could make true: only
    those are ever reported as deleted (`not_...`), as in the stock engine's grounding.
    """

    content_hash: str
    task_text: str
    agent: str
    objects: tuple[Thing, ...]
    receptacles: tuple[Receptacle, ...]
    locations: tuple[str, ...]
    static_facts: tuple[Fact, ...]
    static_digest: int
    start: tuple[int, ...]
    start_location: int
    start_held: int
    besides: int
    heatable: int
    coolable: int
    goal: Condition

    @cached_property
    def atoms(self) -> Atoms:
        return Atoms.number(len(self.objects), len(self.receptacles), len(self.locations))

    @cached_property
    def table(self) -> CommandTable:
        return CommandTable(self)

    @cached_property
    def receptacles_at(self) -> tuple[tuple[int, ...], ...]:
        """Receptacle indices per location."""
        places: list[list[int]] = [[] for _ in self.locations]
        for index, receptacle in enumerate(self.receptacles):
            if receptacle.location is not None:
                places[receptacle.location].append(index)
        return tuple(map(tuple, places))

    def atom_fact(self, atom: int) -> Fact:
        """The fact behind an atom's number, with the names that the player reads."""
        numbers, objects = self.atoms, self.objects
        if atom < numbers.beside:
            receptacle, thing = divmod(atom, numbers.num_objects)
            return "inreceptacle", objects[thing].name, self.receptacles[receptacle].name
        if atom < numbers.held:
            location, thing = divmod(atom - numbers.beside, numbers.num_objects)
            return "objectatlocation", objects[thing].name, self.locations[location]
        if atom < numbers.flags:
            return "holds", self.agent, objects[atom - numbers.held].name
        if atom < numbers.seen_objects:
            flag, thing = divmod(atom - numbers.flags, numbers.num_objects)
            return OBJECT_FLAGS[flag], objects[thing].name
        if atom < numbers.seen_receptacles:
            return "checked", objects[atom - numbers.seen_objects].name
        if atom < numbers.seen_locations:
            return "checked", self.receptacles[atom - numbers.seen_receptacles].name
        if atom < numbers.at:
            return "checked", self.locations[atom - numbers.seen_locations]
        if atom < numbers.opened:
            return "atlocation", self.agent, self.locations[atom - numbers.at]
        if atom < numbers.seen_agent:
            return "opened", self.receptacles[atom - numbers.opened].name
        return ("checked", self.agent) if atom == numbers.seen_agent else ("holdsany", self.agent)


def fact_digest(fact: Fact) -> int:
    """128-bit hash of one fact. A set of facts has the sum of its facts' digests, mod 2**128."""
    return int.from_bytes(blake2b("\x1f".join(fact).encode(), digest_size=16).digest(), "big")


def facts_digest(facts: frozenset[Fact]) -> int:
    """Order-free 128-bit hash of a set of facts."""
    return sum(map(fact_digest, facts)) % (1 << 128)
