"""`game.tw-pddl` to `Game`: names, static tables, numbered start atoms, grounded goal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sero_core.envs.alfworld import pddl
from sero_core.envs.alfworld.domain import Logic, UnsupportedGame, recognize
from sero_core.envs.alfworld.game import (
    OBJECT_FLAGS,
    Atoms,
    Fact,
    Game,
    Receptacle,
    Thing,
    fact_digest,
)
from sero_core.envs.alfworld.pddl import FALSE, TRUE, Condition, Problem

_SIGNATURES: Final[dict[str, tuple[str, ...]]] = {
    "atlocation": ("agent", "location"),
    "opened": ("receptacle",),
    "inreceptacle": ("object", "receptacle"),
    "objectatlocation": ("object", "location"),
    "holds": ("agent", "object"),
    "holdsany": ("agent",),
    **dict.fromkeys(OBJECT_FLAGS, ("object",)),
    "receptacleatlocation": ("receptacle", "location"),
    "receptacletype": ("receptacle", "rtype"),
    "objecttype": ("object", "otype"),
    "cancontain": ("rtype", "otype"),
    "openable": ("receptacle",),
    "isreceptacleobject": ("object",),
    "inreceptacleobject": ("object", "object"),
    **dict.fromkeys(("pickupable", "toggleable", "sliceable"), ("object",)),
    **dict.fromkeys(("cleanable", "heatable", "coolable"), ("object",)),
}
"""Argument types of the predicates that rules and texts read; other files are not supported."""

_DYNAMIC: Final = frozenset(
    {"atlocation", "opened", "inreceptacle", "objectatlocation", "holds", "holdsany", "checked"}
    | set(OBJECT_FLAGS)
)


def content_hash(raw: bytes) -> str:
    """SHA-256 of a game file's bytes."""
    return sha256(raw).hexdigest()


def read_game(raw: bytes) -> dict[str, str]:
    """The three text parts of a game file: `pddl_domain`, `grammar`, `pddl_problem`."""
    try:
        data: object = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"not valid JSON (truncated?): {error}") from error
    parts = {}
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        part = data.get(key) if isinstance(data, dict) else None
        if not isinstance(part, str):
            raise ValueError(f"not a game file: no text under {key!r}")
        parts[key] = part
    return parts


def compile_game(raw: bytes) -> Game:
    """Compile the bytes of a `game.tw-pddl` file.

    Raises ValueError for a file that is not a game, and `UnsupportedGame` for a game that only the
    reference engine can play.
    """
    parts = read_game(raw)
    logic = recognize(parts["pddl_domain"], parts["grammar"])
    facts = _Facts.of(pddl.parse_problem(parts["pddl_problem"]))
    return _Compiler(facts, logic, content_hash(raw)).game()


def display_names(raw_ids: Iterable[str]) -> dict[str, str]:
    """What the player reads for each raw id, e.g. `mug_bar_...` -> `mug 2`.

    The kind is the part before the first `_bar_` (plus `basin` for ids that contain it); instances
    are numbered from 1 in reverse order of their ids. Ids without `_bar_` get a trailing space.
    """
    ids = sorted(set(raw_ids))
    kinds = {raw: raw.split("_bar_", 1)[0] for raw in ids if "_bar_" in raw}
    kinds = {raw: kind + "basin" if "basin" in raw else kind for raw, kind in kinds.items()}
    left = Counter(kinds.values())
    names: dict[str, str] = {}
    for raw in ids:
        kind = kinds.get(raw)
        if kind is None:
            names[raw] = f"{raw} "
        else:
            names[raw] = f"{kind} {left[kind]}"
            left[kind] -= 1
    return names


@dataclass(frozen=True, slots=True)
class _Facts:
    """The initial facts, looked up by predicate."""

    problem: Problem
    all: frozenset[Fact]
    by_predicate: Mapping[str, list[Fact]]

    @classmethod
    def of(cls, problem: Problem) -> _Facts:
        grouped: dict[str, list[Fact]] = {}
        unique = frozenset(problem.facts)
        for fact in sorted(unique):
            grouped.setdefault(fact[0], []).append(fact[1:])
            expected = _SIGNATURES.get(fact[0])
            types = tuple(problem.types.get(name, "?") for name in fact[1:])
            if fact[0] == "=" or (expected is not None and types != expected) or "?" in types:
                raise UnsupportedGame(f"unexpected arguments in the fact {fact}: {types}")
        return cls(problem, unique, grouped)

    def pairs(self, predicate: str) -> list[Fact]:
        return self.by_predicate.get(predicate, [])

    def names(self, predicate: str) -> frozenset[str]:
        """First arguments of a predicate."""
        return frozenset(fact[0] for fact in self.pairs(predicate))

    def named(self, kind: str) -> list[str]:
        """Names of a type that occur in a fact, in the order of their ids."""
        used = {name for fact in self.all for name in fact[1:]}
        return sorted(name for name in self.problem.names_of(kind) if name in used)

    def grouped(self, predicate: str) -> dict[str, set[str]]:
        groups: dict[str, set[str]] = {}
        for first, second in self.pairs(predicate):
            groups.setdefault(first, set()).add(second)
        return groups


class _Compiler:
    """Holds the lookup tables while one game is compiled."""

    def __init__(self, facts: _Facts, logic: Logic, content: str) -> None:
        self.facts, self.logic, self.content = facts, logic, content
        self.names = display_names(name for fact in facts.all for name in fact[1:])
        self.objects = facts.named("object")
        self.receptacles = facts.named("receptacle")
        self.locations = facts.named("location")
        self.object_index = {raw: index for index, raw in enumerate(self.objects)}
        self.receptacle_index = {raw: index for index, raw in enumerate(self.receptacles)}
        self.location_index = {raw: index for index, raw in enumerate(self.locations)}
        self.agents = facts.problem.names_of("agent")
        self.atoms = Atoms.number(len(self.objects), len(self.receptacles), len(self.locations))

    def game(self) -> Game:
        facts = self.facts
        at = facts.pairs("atlocation")
        held = facts.pairs("holds")
        if pddl.has_quantified_negation(facts.problem.goal):
            raise UnsupportedGame("the goal has a quantifier under a negation")
        if len(self.agents) != 1 or len(at) != 1 or len(held) > 1:
            raise UnsupportedGame(f"{len(self.agents)} agents, at {at}, holding {held}")
        things = tuple(map(self._thing, self.objects))
        receptacles = self._receptacles()
        besides, hot, cool = self._reachable(things, receptacles)
        start = tuple(sorted(self._atom(fact) for fact in facts.all if fact[0] in _DYNAMIC))
        goal = self._goal()
        static = {self._shown(fact) for fact in facts.all if fact[0] not in _DYNAMIC}
        static |= self._goal_axiom(goal, frozenset(start))
        ordered = tuple(sorted(static))
        return Game(
            content_hash=self.content,
            task_text=self.logic.task_text,
            agent=self.names[self.agents[0]],
            objects=things,
            receptacles=receptacles,
            locations=tuple(self.names[raw] for raw in self.locations),
            static_facts=ordered,
            static_digest=sum(map(fact_digest, ordered)) % (1 << 128),
            start=start,
            start_location=self.location_index[at[0][1]],
            start_held=self.object_index[held[0][1]] if held else -1,
            besides=besides,
            heatable=hot,
            coolable=cool,
            goal=goal,
        )

    def _shown(self, fact: Fact) -> Fact:
        return fact[0], *(self.names[name] for name in fact[1:])

    def _thing(self, raw: str) -> Thing:
        facts = self.facts
        kinds = facts.grouped("objecttype").get(raw, set())
        inner = [a for a, b in facts.pairs("inreceptacleobject") if b == raw and a != raw]
        return Thing(
            name=self.names[raw],
            is_pickupable=raw in facts.names("pickupable"),
            is_toggleable=raw in facts.names("toggleable"),
            is_sliceable=raw in facts.names("sliceable"),
            is_knife=bool(kinds & {"knifetype", "butterknifetype"}),
            is_cleanable=raw in facts.names("cleanable"),
            is_heatable=raw in facts.names("heatable"),
            is_coolable=raw in facts.names("coolable"),
            is_container=raw in facts.names("isreceptacleobject"),
            contents=tuple(sorted(self.object_index[name] for name in inner)),
        )

    def _receptacles(self) -> tuple[Receptacle, ...]:
        facts = self.facts
        kinds = facts.grouped("receptacletype")
        places = facts.grouped("receptacleatlocation")
        accepts = facts.grouped("cancontain")
        openable = facts.names("openable")
        object_kinds = facts.grouped("objecttype")
        made: list[Receptacle] = []
        for raw in self.receptacles:
            place = sorted(places.get(raw, set()))
            if len(place) > 1:
                raise UnsupportedGame(f"{raw} is at {len(place)} locations")
            mine = kinds.get(raw, set())
            accepted: set[str] = set().union(*(accepts.get(kind, set()) for kind in mine))
            fits = (i for i, o in enumerate(self.objects) if object_kinds.get(o, set()) & accepted)
            made.append(
                Receptacle(
                    name=self.names[raw],
                    location=self.location_index[place[0]] if place else None,
                    is_openable=raw in openable,
                    is_sink=bool(mine & self.logic.cleaning_types),
                    is_microwave="microwavetype" in mine,
                    is_fridge="fridgetype" in mine,
                    fits=tuple(fits),
                )
            )
        return tuple(made)

    def _holdable(self, things: tuple[Thing, ...]) -> set[int]:
        """Objects that can ever be in the hand."""
        located = self.facts.names("receptacleatlocation")
        held = {self.object_index[o] for _, o in self.facts.pairs("holds")}
        inside = self.facts.pairs("inreceptacle")
        indices = {self.object_index[o] for o, r in inside if r in located}
        return held | {index for index in indices if things[index].is_pickupable}

    def _reachable(
        self, things: tuple[Thing, ...], receptacles: tuple[Receptacle, ...]
    ) -> tuple[int, int, int]:
        """Masks of what can become true: `objectatlocation` atoms, hot objects, cool objects."""
        holdable = self._holdable(things)
        besides = hot = cool = 0
        for fact in self.facts.pairs("objectatlocation"):
            besides |= 1 << self._atom(("objectatlocation", *fact))
        for receptacle in receptacles:
            if receptacle.location is not None:
                first = self.atoms.beside + receptacle.location * self.atoms.num_objects
                besides |= sum(1 << (first + o) for o in holdable.intersection(receptacle.fits))
        located = [receptacle for receptacle in receptacles if receptacle.location is not None]
        has_heat = any(receptacle.is_microwave for receptacle in located)
        has_cold = any(receptacle.is_fridge for receptacle in located)
        start_hot, start_cool = self.facts.names("ishot"), self.facts.names("iscool")
        for index, thing in enumerate(things):
            raw, can_hold = self.objects[index], index in holdable
            if raw in start_hot or (has_heat and can_hold and thing.is_heatable):
                hot |= 1 << index
            if raw in start_cool or (has_cold and can_hold and thing.is_coolable):
                cool |= 1 << index
        return besides, hot, cool

    def _atom(self, fact: Fact) -> int:
        """The number of a changeable fact."""
        numbers, predicate = self.atoms, fact[0]
        first, last = fact[1], fact[-1]
        if predicate == "inreceptacle":
            place = self.receptacle_index[last] * numbers.num_objects
            return numbers.inside + place + self.object_index[first]
        if predicate == "objectatlocation":
            place = self.location_index[last] * numbers.num_objects
            return numbers.beside + place + self.object_index[first]
        if predicate in OBJECT_FLAGS:
            run = OBJECT_FLAGS.index(predicate) * numbers.num_objects
            return numbers.flags + run + self.object_index[first]
        if predicate == "holds":
            return numbers.held + self.object_index[last]
        if predicate == "atlocation":
            return numbers.at + self.location_index[last]
        if predicate == "opened":
            return numbers.opened + self.receptacle_index[first]
        if predicate == "holdsany":
            return numbers.holds_any
        for index, base in (
            (self.object_index, numbers.seen_objects),
            (self.receptacle_index, numbers.seen_receptacles),
            (self.location_index, numbers.seen_locations),
        ):
            if first in index:
                return base + index[first]
        return numbers.seen_agent

    def _goal(self) -> Condition:
        problem = self.facts.problem
        universe = {kind: tuple(problem.names_of(kind)) for kind in set(problem.types.values())}
        universe["object"] = tuple(problem.types)  # the root type of PDDL covers every name

        def literal(fact: Fact) -> Condition:
            if fact[0] not in _DYNAMIC:
                return TRUE if fact in self.facts.all else FALSE
            types = tuple(problem.types.get(name, "?") for name in fact[1:])
            expected = _SIGNATURES.get(fact[0])
            is_known = all(name in self.names for name in fact[1:])
            if not is_known or (expected is not None and types != expected):
                return FALSE
            return "atom", self._atom(fact)

        return pddl.ground(problem.goal, universe, literal)

    def _goal_axiom(self, goal: Condition, start: frozenset[int]) -> set[Fact]:
        """The planner's helper fact of a quantified goal: stays for ever if true at the start."""
        formula = self.facts.problem.goal
        if not holds(goal, start) or not pddl.has_quantifier(formula):
            return set()
        return {("new-axiom@0",)}


def holds(condition: Condition, atoms: frozenset[int]) -> bool:
    """Whether a grounded condition holds when exactly `atoms` are true."""
    head, *parts = condition
    if head == "atom":
        return parts[0] in atoms
    values = (holds(part, atoms) for part in parts if isinstance(part, tuple))
    if head == "not":
        return not next(values)
    return all(values) if head == "and" else any(values)
