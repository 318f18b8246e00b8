"""A compiled game as plain JSON, and back."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, cast

from sero_core.envs.alfworld.game import ENGINE_VERSION, Game, Receptacle, Thing
from sero_core.envs.alfworld.pddl import Condition

_THING_FIELDS = [item.name for item in fields(Thing)]
_RECEPTACLE_FIELDS = [item.name for item in fields(Receptacle)]


def encode(game: Game) -> str:
    """JSON text. Things are rows in field order; bit masks are hexadecimal strings."""
    data = {
        "engine_version": ENGINE_VERSION,
        "content_hash": game.content_hash,
        "task_text": game.task_text,
        "agent": game.agent,
        "objects": [list(asdict(thing).values()) for thing in game.objects],
        "receptacles": [list(asdict(place).values()) for place in game.receptacles],
        "locations": game.locations,
        "static_facts": game.static_facts,
        "static_digest": hex(game.static_digest),
        "start": game.start,
        "start_location": game.start_location,
        "start_held": game.start_held,
        "besides": hex(game.besides),
        "heatable": hex(game.heatable),
        "coolable": hex(game.coolable),
        "goal": game.goal,
    }
    return json.dumps(data, separators=(",", ":"))


def decode(content: str, expected_hash: str) -> Game:
    """The game behind `encode`'s text; ValueError for another game, version or shape."""
    data = cast("dict[str, Any]", json.loads(content))
    try:
        found = (data["content_hash"], data["engine_version"])
        if found != (expected_hash, ENGINE_VERSION):
            expected = (expected_hash, ENGINE_VERSION)
            raise ValueError(f"compiled game is {found}, expected {expected}")
        return Game(
            content_hash=data["content_hash"],
            task_text=data["task_text"],
            agent=data["agent"],
            objects=tuple(_thing(row) for row in data["objects"]),
            receptacles=tuple(_receptacle(row) for row in data["receptacles"]),
            locations=tuple(data["locations"]),
            static_facts=tuple(map(tuple, data["static_facts"])),
            static_digest=int(data["static_digest"], 16),
            start=tuple(data["start"]),
            start_location=data["start_location"],
            start_held=data["start_held"],
            besides=int(data["besides"], 16),
            heatable=int(data["heatable"], 16),
            coolable=int(data["coolable"], 16),
            goal=_condition(data["goal"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a compiled game: {error!r}") from error


def _thing(row: list[Any]) -> Thing:
    *values, contents = row
    if len(row) != len(_THING_FIELDS):
        raise ValueError(f"an object has {len(_THING_FIELDS)} fields, got {len(row)}")
    return Thing(*values, contents=tuple(contents))


def _receptacle(row: list[Any]) -> Receptacle:
    *values, fits = row
    if len(row) != len(_RECEPTACLE_FIELDS):
        raise ValueError(f"a receptacle has {len(_RECEPTACLE_FIELDS)} fields, got {len(row)}")
    return Receptacle(*values, fits=tuple(fits))


def _condition(tree: list[Any]) -> Condition:
    return tuple(_condition(part) if isinstance(part, list) else part for part in tree)
