"""Shortest plans in the ALFRED domain, in closed form over the facts of one state.

Walking to any place costs one action, so a plan is a short list of stops: put down what is in the
way, take the object, change it, place it. The candidates are the choices of object, appliance,
parent and put-down place; choices that cost the same by construction are tried once. The shortest
candidate is the plan, ties go to the first in natural order ("drawer 2" before "drawer 10").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from sero_core.envs.alfworld.plan_state import CHANGES, LIGHT, TWO, Goal, State
from sero_core.types import DeadEnd


@dataclass(frozen=True, slots=True)
class Stop:
    """Be at `receptacle` (opened when `is_inside`) and do `action`; without one, just arrive."""

    receptacle: str
    is_inside: bool
    action: str


def plan(state: State, goal: Goal) -> list[str]:
    """The shortest list of actions that reaches the goal; empty when it is reached already.

    Raises DeadEnd when no list of actions reaches it, with the reason in words.
    """
    if is_reached(state, goal):
        return []
    best: tuple[Stop, ...] | None = None
    best_cost = 0
    for stops in _candidates(state, goal):
        cost = _cost(state, stops)
        if best is None or cost < best_cost:
            best, best_cost = stops, cost
    if best is None:
        raise DeadEnd(_why_dead(state, goal))
    return _actions(state, best)


def is_reached(state: State, goal: Goal) -> bool:
    """The goal formula of the official games, evaluated by type: any instance counts."""
    if goal.task_type == LIGHT:
        holds = state.held is not None and _kind(state, state.held) == goal.target
        return holds and any(
            ("istoggled", lamp) in state.marks and state.layout.location[r] == state.place
            for lamp, r in _lamps(state, goal)
        )
    per_parent: dict[str, int] = defaultdict(int)
    for name in _targets(state, goal):
        if not _is_changed(state, goal, name):
            continue
        for receptacle in state.inside.get(name, ()):
            if state.layout.receptacle_kind.get(receptacle) == goal.parent:
                per_parent[receptacle] += 1
    return any(count >= (2 if goal.task_type == TWO else 1) for count in per_parent.values())


def _candidates(state: State, goal: Goal) -> Iterator[tuple[Stop, ...]]:
    if goal.task_type == LIGHT:
        yield from _light_candidates(state, goal)
    elif goal.task_type == TWO:
        yield from _two_candidates(state, goal)
    else:
        yield from _place_candidates(state, goal)


def _place_candidates(state: State, goal: Goal) -> Iterator[tuple[Stop, ...]]:
    """[put down] take [change] place; what is held needs no taking."""
    sources = _sources(state, goal)
    appliances = _appliances(state, goal)
    hubs = {source for _, source in sources} | set(appliances)
    parents = _parents(state, goal, hubs)
    held = state.held
    if held is not None and _kind(state, held) == goal.target:
        for tail in _finish(state, goal, held, (), appliances, parents):
            yield tail
    for name, source in sources:
        take = Stop(source, True, f"take {name} from {source}")
        left = tuple(r for r in state.inside[name] if r != source)
        for tail in _finish(state, goal, name, left, appliances, parents):
            for free in _hands_free(state, source, tail):
                yield (*free, take, *tail)


def _finish(
    state: State,
    goal: Goal,
    name: str,
    left: tuple[str, ...],
    appliances: list[str],
    parents: list[str],
) -> Iterator[tuple[Stop, ...]]:
    """The stops after `name` is in the hand. `left`: receptacles it is still in although held."""
    still_in = (*left, *(state.inside.get(name, ()) if name == state.held else ()))
    is_placed = any(state.layout.receptacle_kind.get(r) == goal.parent for r in still_in)
    changes: list[tuple[Stop, ...]] = [()]
    if not _is_changed(state, goal, name):
        verb, _, able, _ = CHANGES[goal.task_type]
        if (able, name) not in state.layout.able:
            return
        changes = [(Stop(a, False, f"{verb} {name} with {a}"),) for a in appliances]
    for change in changes:
        if is_placed and change:
            yield change
        for parent in parents:
            if state.layout.fits(name, parent):
                yield (*change, Stop(parent, True, f"move {name} to {parent}"))


def _two_candidates(state: State, goal: Goal) -> Iterator[tuple[Stop, ...]]:
    """Bring what is missing to one parent, the held one first."""
    sources = _sources(state, goal)
    parents = _parents(state, goal, {source for _, source in sources})
    held = state.held if state.held and _kind(state, state.held) == goal.target else None
    for parent in parents:
        inside = {n for n in _targets(state, goal) if parent in state.inside.get(n, ())}
        first = ()
        if held is not None and held not in inside and state.layout.fits(held, parent):
            first = (Stop(parent, True, f"move {held} to {parent}"),)
        missing = 2 - len(inside) - len(first)
        outside = [(n, s) for n, s in sources if n not in inside and n != held]
        fetches = {
            (n, s): (
                Stop(s, True, f"take {n} from {s}"),
                Stop(parent, True, f"move {n} to {parent}"),
            )
            for n, s in outside
            if state.layout.fits(n, parent)
        }
        for order in permutations(fetches, missing):
            if len({name for name, _ in order}) < missing:
                continue
            stops = tuple(stop for key in order for stop in fetches[key])
            if first or not order:
                yield (*first, *stops)
            else:
                for free in _hands_free(state, order[0][1], stops):
                    yield (*free, *stops)


def _light_candidates(state: State, goal: Goal) -> Iterator[tuple[Stop, ...]]:
    """[put down] take, then stand at a lamp that is or will be on."""
    sources = _sources(state, goal)
    held = state.held
    for lamp, receptacle in _lamps(state, goal):
        is_on = ("istoggled", lamp) in state.marks
        use = Stop(receptacle, False, "" if is_on else f"use {lamp}")
        if held is not None and _kind(state, held) == goal.target:
            yield (use,)
            continue
        for name, source in sources:
            take = Stop(source, True, f"take {name} from {source}")
            for free in _hands_free(state, source, (use,)):
                yield (*free, take, use)


def _hands_free(state: State, source: str, tail: tuple[Stop, ...]) -> Iterator[tuple[Stop, ...]]:
    """Ways to empty the hand before going to `source`: the cheapest, and those that open what
    `tail` needs open. Nothing when the held object fits nowhere."""
    held = state.held
    if held is None:
        yield ()
        return
    fitting = [r for r in state.layout.receptacle_kind if state.layout.fits(held, r)]
    places = {state.place, state.layout.location[source]}
    useful = {source, *(stop.receptacle for stop in tail if stop.is_inside)}
    tried: set[tuple[str, bool]] = set()
    for receptacle in fitting:
        place = state.layout.location[receptacle]
        key = (place if place in places else "", state.is_closed(receptacle))
        if receptacle not in useful and key in tried:
            continue
        tried.add(key)
        yield (Stop(receptacle, True, f"move {held} to {receptacle}"),)


def _sources(state: State, goal: Goal) -> list[tuple[str, str]]:
    """(object, receptacle) to take a target from; one object per set of equal choices."""
    found: dict[tuple[object, ...], list[tuple[str, str]]] = defaultdict(list)
    limit = 2 if goal.task_type == TWO else 1
    for name in _targets(state, goal):
        if ("pickupable", name) not in state.layout.able or name == state.held:
            continue
        receptacles = state.inside.get(name, ())
        for receptacle in receptacles:
            alike = found[(receptacle, receptacles, _is_changed(state, goal, name))]
            if len(alike) < limit:
                alike.append((name, receptacle))
    return [pair for alike in found.values() for pair in alike]


def _parents(state: State, goal: Goal, hubs: set[str]) -> list[str]:
    """Parent receptacles; those at a place the plan visits anyway are told apart from the rest."""
    places = {state.place, *(state.layout.location[hub] for hub in hubs)}
    holding: dict[str, set[str]] = defaultdict(set)
    for name in _targets(state, goal):
        for receptacle in state.inside.get(name, ()):
            holding[receptacle].add(name)
    chosen: dict[tuple[object, ...], str] = {}
    for receptacle, kind in state.layout.receptacle_kind.items():
        if kind == goal.parent:
            place = state.layout.location[receptacle]
            there = place if place in places else ""
            own = receptacle if receptacle in hubs or receptacle in holding else ""
            chosen.setdefault((there, own, state.is_closed(receptacle)), receptacle)
    return list(chosen.values())


def _appliances(state: State, goal: Goal) -> list[str]:
    if goal.task_type not in CHANGES:
        return []
    wanted = CHANGES[goal.task_type][1]
    return [name for name, kind in state.layout.receptacle_kind.items() if kind == wanted]


def _lamps(state: State, goal: Goal) -> list[tuple[str, str]]:
    """(lamp, receptacle it stands in): a lamp on the floor cannot be used."""
    return [
        (name, receptacle)
        for name, kind in state.layout.object_kind.items()
        if kind == goal.parent and ("toggleable", name) in state.layout.able
        for receptacle in state.inside.get(name, ())
    ]


def _targets(state: State, goal: Goal) -> list[str]:
    return [name for name, kind in state.layout.object_kind.items() if kind == goal.target]


def _kind(state: State, name: str) -> str:
    return state.layout.object_kind.get(name, "")


def _is_changed(state: State, goal: Goal, name: str) -> bool:
    """Whether the object has what the goal asks of it; always so for tasks that ask nothing."""
    if goal.task_type not in CHANGES:
        return True
    _, _, able, mark = CHANGES[goal.task_type]
    return (mark, name) in state.marks and (able, name) in state.layout.able


def _cost(state: State, stops: tuple[Stop, ...]) -> int:
    """How many actions `_actions` would give, without writing them."""
    place, cost = state.place, 0
    opened: list[str] = []
    for stop in stops:
        receptacle = stop.receptacle
        there = state.layout.location[receptacle]
        if there != place:
            place = there
            cost += 1
        if stop.is_inside and receptacle not in opened and state.is_closed(receptacle):
            opened.append(receptacle)
            cost += 1
        if stop.action:
            cost += 1
    return cost


def _actions(state: State, stops: tuple[Stop, ...]) -> list[str]:
    """Walk where needed, open what is closed, do the action."""
    place = state.place
    opened: set[str] = set()
    actions: list[str] = []
    for stop in stops:
        receptacle = stop.receptacle
        if state.layout.location[receptacle] != place:
            place = state.layout.location[receptacle]
            actions.append(f"go to {receptacle}")
        if stop.is_inside and receptacle not in opened and state.is_closed(receptacle):
            opened.add(receptacle)
            actions.append(f"open {receptacle}")
        if stop.action:
            actions.append(stop.action)
    return actions


def _why_dead(state: State, goal: Goal) -> str:
    held = state.held
    if held is not None and not any(
        state.layout.fits(held, receptacle) for receptacle in state.layout.receptacle_kind
    ):
        return f"holds {held}, which fits nowhere"
    if goal.task_type == LIGHT and not _lamps(state, goal):
        return f"no {goal.parent} stands where it can be used"
    takable = {name for name, _ in _sources(state, goal)} | ({held} if held else set())
    return (
        f"no way to bring {goal.target} to {goal.parent}: "
        f"{len(takable)} within reach, {goal.task_type} asks for more or for another place"
    )
