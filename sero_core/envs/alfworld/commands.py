"""Command strings of one game: which exist, and what each one means.

Built once per game and shared by all its states. Two-part commands (`take x from y`) are made on
first use, so loading a game stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sero_core.envs.alfworld.game import Game


class Action(NamedTuple):
    """A parsed command: the verb, an object index and a receptacle index (-1 where there is none).

    For `slice`, `place` is the index of the knife (an object).
    """

    verb: str
    thing: int
    place: int


_TWO_PART = (
    ("take ", " from ", "take"),
    ("move ", " to ", "move"),
    ("clean ", " with ", "clean"),
    ("heat ", " with ", "heat"),
    ("cool ", " with ", "cool"),
    ("slice ", " with ", "slice"),
)


class CommandTable:
    """Strings and masks of one game."""

    def __init__(self, game: Game) -> None:
        self.game = game
        things, places = game.objects, game.receptacles
        self.open = [f"open {place.name}" for place in places]
        self.close = [f"close {place.name}" for place in places]
        self.examine_object = [f"examine {thing.name}" for thing in things]
        self.pickupable = _mask(thing.is_pickupable for thing in things)
        self.toggleable = _mask(thing.is_toggleable for thing in things)
        self.sliceable = _mask(thing.is_sliceable for thing in things)
        self.fits = [sum(1 << index for index in place.fits) for place in places]
        self.fixed = self._fixed()
        self.digests: dict[int, int] = {}
        self.deleted_digests: dict[int, int] = {}
        self._take: dict[tuple[int, int], str] = {}
        self._width = (1 << len(things)) - 1
        self._num_objects = game.atoms.num_objects
        self._beside, self._opened = game.atoms.beside, game.atoms.opened

    def inside(self, true: int, place: int) -> int:
        """Mask of the objects in a receptacle."""
        return true >> (place * self._num_objects) & self._width

    def beside(self, true: int, location: int) -> int:
        """Mask of the objects at a location."""
        return true >> (self._beside + location * self._num_objects) & self._width

    def is_opened(self, true: int, place: int) -> bool:
        return bool(true >> (self._opened + place) & 1)

    def take(self, place: int, things: int) -> list[str]:
        return [self._take_one(place, thing) for thing in bits(things)]

    def with_held(self, place: int, thing: int, is_open: bool) -> list[str]:
        """What can be done with the held object at a receptacle."""
        item, receptacle = self.game.objects[thing], self.game.receptacles[place]
        commands: list[str] = []
        if is_open and self.fits[place] >> thing & 1:
            commands.append(f"move {item.name} to {receptacle.name}")
        if item.is_cleanable and receptacle.is_sink:
            commands.append(f"clean {item.name} with {receptacle.name}")
        if item.is_heatable and receptacle.is_microwave:
            commands.append(f"heat {item.name} with {receptacle.name}")
        if item.is_coolable and receptacle.is_fridge:
            commands.append(f"cool {item.name} with {receptacle.name}")
        return commands

    def use(self, things: int) -> list[str]:
        return [f"use {self._name(thing)}" for thing in bits(things)]

    def slice(self, things: int, knife: int) -> list[str]:
        name = self._name(knife)
        return [f"slice {self._name(thing)} with {name}" for thing in bits(things)]

    def parse(self, command: str) -> Action | None:
        """The action behind a command, or None when no state of this game offers it."""
        action = self._one_part.get(command)
        if action is not None:
            return action
        for prefix, middle, verb in _TWO_PART:
            if command.startswith(prefix):
                first, found, second = command[len(prefix) :].partition(middle)
                thing = self._things.get(first, -1)
                seconds = self._things if verb == "slice" else self._places
                place = seconds.get(second, -1)
                is_known = bool(found) and thing >= 0 and place >= 0
                return Action(verb, thing, place) if is_known else None
        return None

    def _take_one(self, place: int, thing: int) -> str:
        command = self._take.get((place, thing))
        if command is None:
            command = f"take {self._name(thing)} from {self.game.receptacles[place].name}"
            self._take[place, thing] = command
        return command

    def _name(self, thing: int) -> str:
        return self.game.objects[thing].name

    def _fixed(self) -> list[list[str]]:
        """Per location: the commands that are offered in every state there."""
        places = self.game.receptacles
        commands: list[list[str]] = []
        for location in range(len(self.game.locations)):
            others = (place for place in places if place.location not in (None, location))
            goes = [f"go to {place.name}" for place in others]
            here = [f"examine {places[index].name}" for index in self.game.receptacles_at[location]]
            commands.append(sorted([*goes, *here, "help", "inventory", "look"]))
        return commands

    @cached_property
    def _things(self) -> dict[str, int]:
        return {thing.name: index for index, thing in enumerate(self.game.objects)}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {place.name: index for index, place in enumerate(self.game.receptacles)}

    @cached_property
    def _one_part(self) -> dict[str, Action]:
        actions = {verb: Action(verb, -1, -1) for verb in ("look", "inventory", "help")}
        for index, place in enumerate(self.game.receptacles):
            for word, verb in (("go to", "go"), ("open", "open"), ("close", "close")):
                actions[f"{word} {place.name}"] = Action(verb, -1, index)
            actions[f"examine {place.name}"] = Action("examine", -1, index)
        for index, thing in enumerate(self.game.objects):
            actions[f"examine {thing.name}"] = Action("examine_object", index, -1)
            actions[f"use {thing.name}"] = Action("use", index, -1)
        return actions


def bits(mask: int) -> list[int]:
    """Positions of the set bits, ascending."""
    positions: list[int] = []
    while mask:
        lowest = mask & -mask
        positions.append(lowest.bit_length() - 1)
        mask ^= lowest
    return positions


def _mask(flags: Iterable[bool]) -> int:
    return sum(1 << index for index, flag in enumerate(flags) if flag)
