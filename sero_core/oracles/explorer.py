"""The explorer: acts only on what the episode has shown, like a careful player.

It looks where such objects usually lie (counts over ALFWorld's train split), remembers what it saw,
then takes, changes and places. It decides anew at every step from its belief, so it can start after
any prefix of a policy, with a wrong object in the hand or with objects moved elsewhere.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from sero_core.envs.alfworld.generator.rooms import load_affordances, load_placements
from sero_core.envs.alfworld.plan_state import CHANGES, LIGHT, SIMPLE, TWO, Goal
from sero_core.oracles.belief import Belief, kind_of
from sero_core.oracles.goal import goal_from_sentence
from sero_core.types import DeadEnd, Observation, Oracle, OracleError, Prefix

_UNSEEN_RATE = 1e-3
_UNLIKELY_RATE = 1e-5
"""Objects per receptacle where none was ever counted: allowed there, and not allowed there."""

_MARKS = {"isclean": "clean", "ishot": "hot", "iscool": "cool"}


class ExplorerOracle(BaseModel):
    """Knows only what the episode has shown; looks in likely places, then finishes the task."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    envs: ClassVar[tuple[str, ...]] = ("alfworld",)

    name: Literal["explorer"] = "explorer"

    def __call__(self) -> Oracle:
        return Explorer()


class Explorer:
    """`start` reads the prefix, `act` adds one observation and decides."""

    def __init__(self) -> None:
        self._belief = Belief()
        self._goal = Goal("", "", "")
        self._is_fresh = True

    def start(self, prefix: Prefix) -> None:
        observations = [*(step.observation for step in prefix.steps), prefix.observation]
        self._belief = Belief()
        self._goal = goal_from_sentence(observations[0].text)
        self._belief.begin(observations[0])
        for observation in observations:
            self._belief.update(observation)
        self._is_fresh = True

    def act(self, observation: Observation) -> str:
        if not self._belief.receptacles:
            raise OracleError("the explorer was not started")
        if observation.is_won:
            raise OracleError("the goal is already reached")
        if not self._is_fresh:  # the observation of the root is already in the belief
            self._belief.update(observation)
        self._is_fresh = False
        action = _decide(self._belief, self._goal, observation.admissible)
        if action not in observation.admissible:
            raise OracleError(f"wants {action!r}, which is not admissible here")
        return action


def _decide(belief: Belief, goal: Goal, admissible: tuple[str, ...]) -> str:
    """One action: use what is in the hand, else fetch a known target, else look for one."""
    held = belief.held
    if held is not None and kind_of(held) == goal.target:
        if goal.task_type == LIGHT:
            return _to_lamp(belief, goal)
        return _finish(belief, goal, held)
    if held is not None:
        return _put_down(belief, goal, held)
    known = _fetchable(belief, goal)
    while known:
        name, receptacle = min(known, key=lambda pair: _distance(belief, pair[1]))
        step = _approach(belief, receptacle, is_inside=True)
        if step is not None:
            return step
        if f"take {name} from {receptacle}" in admissible:
            return f"take {name} from {receptacle}"
        belief.forget(name, receptacle)
        known = _fetchable(belief, goal)
    return _search(belief, goal.target, _impossible(goal))


def _finish(belief: Belief, goal: Goal, held: str) -> str:
    """The target is in the hand: change it where the goal asks for it, then place it."""
    if goal.task_type in CHANGES:
        verb, appliance, _, mark = CHANGES[goal.task_type]
        if (_MARKS[mark], held) not in belief.marks:
            for receptacle in _nearest(belief, _of_kind(belief, appliance)):
                step = _approach(belief, receptacle, is_inside=False)
                return step or f"{verb} {held} with {receptacle}"
            raise DeadEnd(f"the goal asks to {verb} {held}, and the room has no {appliance}")
    parents = [
        receptacle
        for receptacle in _of_kind(belief, goal.parent)
        if (goal.target, goal.parent) not in belief.refused
    ]
    if not parents:
        raise DeadEnd(f"no {goal.parent} in the room takes {held}")
    parent = _best_parent(belief, goal, parents)
    return _approach(belief, parent, is_inside=True) or f"move {held} to {parent}"


def _to_lamp(belief: Belief, goal: Goal) -> str:
    """The target is in the hand: stand at a lamp and switch it on."""
    for lamp in sorted(belief.usable):
        if kind_of(lamp) == goal.parent:
            return f"use {lamp}"
    lamps = belief.places_of(goal.parent)
    if lamps:
        _, receptacle = min(lamps, key=lambda pair: _distance(belief, pair[1]))
        step = _approach(belief, receptacle, is_inside=False)
        if step is not None:
            return step
        raise OracleError(f"stands at {receptacle}, and its {goal.parent} cannot be used")
    return _search(belief, goal.parent, frozenset())


def _put_down(belief: Belief, goal: Goal, held: str) -> str:
    """Empty the hand: here if it fits, else where the next thing to do is, else anywhere."""
    kind = kind_of(held)
    for receptacle in belief.here:
        if receptacle not in belief.closed and not _refuses(belief, kind, receptacle):
            return f"move {held} to {receptacle}"
    fitting = [name for name in belief.receptacles if not _refuses(belief, kind, name)]
    if not fitting:
        raise DeadEnd(f"holds {held}, which fits nowhere")
    known = {receptacle for _, receptacle in _fetchable(belief, goal)}
    rates = {name: _rate(goal.target, kind_of(name)) for name in fitting}

    def cost(name: str) -> tuple[int, bool, float]:
        news = 0.0 if name in belief.looked_into else rates[name]
        return (_distance(belief, name), name not in known, -news)

    best = min(fitting, key=cost)
    step = _approach(belief, best, is_inside=True)
    return step or f"move {held} to {best}"


def _search(belief: Belief, kind: str, impossible: frozenset[str]) -> str:
    """Look into the receptacle with the best chance per action."""
    unseen = [
        name
        for name in belief.receptacles
        if name not in belief.looked_into and kind_of(name) not in impossible
    ]
    if not unseen:
        raise OracleError(f"looked into all {len(belief.receptacles)} receptacles, no {kind} left")

    def chance(name: str) -> float:
        return _rate(kind, kind_of(name)) / max(_distance(belief, name), 0.5)

    best = max(unseen, key=chance)
    step = _approach(belief, best, is_inside=True)
    return step or f"examine {best}"


def _fetchable(belief: Belief, goal: Goal) -> list[tuple[str, str]]:
    """Known targets that would help: for two objects, those outside the chosen parent."""
    known = belief.places_of(goal.target)
    if goal.task_type == TWO:
        parent = _best_parent(belief, goal, _of_kind(belief, goal.parent))
        placed = belief.contents[parent] if parent else set[str]()
        return [(name, place) for name, place in known if name not in placed]
    if goal.task_type not in CHANGES:
        return known
    mark = _MARKS[CHANGES[goal.task_type][3]]
    done = [(name, place) for name, place in known if (mark, name) in belief.marks]
    return done or known


def _best_parent(belief: Belief, goal: Goal, parents: list[str]) -> str:
    """The parent that needs least: most targets inside already (two objects), then the nearest.

    With two objects and an empty hand the farthest instead: the next thing is to fetch one from
    another parent, and walking there must not turn that one into the goal.
    """

    def key(name: str) -> tuple[int, int]:
        if goal.task_type != TWO:
            return 0, _distance(belief, name)
        inside = sum(kind_of(o) == goal.target for o in belief.contents[name])
        sign = -1 if belief.held is None else 1
        return -inside, sign * _distance(belief, name)

    return min(parents, key=key) if parents else ""


def _impossible(goal: Goal) -> frozenset[str]:
    """Where no target can lie: in a parent it would have won the game already."""
    return frozenset({goal.parent}) if goal.task_type == SIMPLE else frozenset()


def _approach(belief: Belief, receptacle: str, *, is_inside: bool) -> str | None:
    """The next action on the way to (the inside of) a receptacle; None on arrival."""
    if receptacle not in belief.here:
        return f"go to {receptacle}"
    if is_inside and receptacle in belief.closed:
        return f"open {receptacle}"
    return None


def _distance(belief: Belief, receptacle: str) -> int:
    """Actions until the inside is in reach: a walk and an opening, as far as known."""
    walk = receptacle not in belief.here
    if receptacle in belief.opened:
        return int(walk)
    is_closed = receptacle in belief.closed or kind_of(receptacle) in _openable()
    return int(walk) + int(is_closed)


def _nearest(belief: Belief, receptacles: list[str]) -> list[str]:
    return sorted(receptacles, key=lambda name: name not in belief.here)


def _of_kind(belief: Belief, kind: str) -> list[str]:
    return [name for name in belief.receptacles if kind_of(name) == kind]


def _refuses(belief: Belief, kind: str, receptacle: str) -> bool:
    """Whether such an object does not fit: as experienced, else as ALFRED's rooms have it."""
    where = kind_of(receptacle)
    allowed = _contains().get(where)
    return (kind, where) in belief.refused or (allowed is not None and kind not in allowed)


def _rate(kind: str, receptacle_kind: str) -> float:
    """How many such objects lie in such a receptacle on average."""
    counted = _rates().get(kind, {}).get(receptacle_kind)
    if counted is not None:
        return counted
    is_allowed = kind in _contains().get(receptacle_kind, frozenset())
    return _UNSEEN_RATE if is_allowed else _UNLIKELY_RATE


@cache
def _rates() -> dict[str, dict[str, float]]:
    return {
        name.lower(): {kind.lower(): count / chances for kind, (count, chances) in row.items()}
        for name, row in load_placements().items()
    }


@cache
def _contains() -> dict[str, frozenset[str]]:
    return {
        kind.lower(): frozenset(name.lower() for name in classes)
        for kind, classes in load_affordances().contains.items()
    }


@cache
def _openable() -> frozenset[str]:
    return frozenset(kind.lower() for kind in load_affordances().openable)
