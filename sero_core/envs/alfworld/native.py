"""The native engine: an immutable state and pure functions over it.

Behavior is that of the ALFRED domain under the stock engine (textworld 1.7.0 over fast-downward),
as observed: the same commands in the same order, the same facts, the same words. Peculiarities that
are kept on purpose:

- `examine <object>` needs the object in the hand (the domain's other case has a typing error).
- `go to` is not offered for receptacles at the agent's own location (it would change nothing).
- Deleted facts are remembered as `not_...` facts; `look` reads them.
- `use` switches on, always; the fact `ison` ends up deleted.
- Commands go on working after the goal is reached.
"""

from __future__ import annotations

from typing import NamedTuple

from sero_core.envs.alfworld import text
from sero_core.envs.alfworld.commands import Action, bits
from sero_core.envs.alfworld.game import (
    CLEAN,
    COOL,
    HOT,
    ON,
    SLICED,
    TOGGLED,
    Fact,
    Game,
    fact_digest,
)
from sero_core.envs.alfworld.pddl import Condition

NOTHING = "Nothing happens."
_DIGEST_MODULUS = 1 << 128


class State(NamedTuple):
    """A reached state. Equal states of one game have equal facts; hashable, a few kilobytes.

    `location` and `held` (-1: empty hand) repeat what is in `true`, for speed. `true` and `false`
    are bit masks over `game.atoms`: facts that hold, and facts that an action deleted. `digest` is
    the sum of the digests of all facts (`game.facts_digest`).
    """

    location: int
    held: int
    true: int
    false: int
    digest: int


def initial_state(game: Game) -> State:
    true = sum(1 << atom for atom in game.start)
    digest = game.static_digest + sum(_digest(game, atom) for atom in game.start)
    return State(game.start_location, game.start_held, true, 0, digest % _DIGEST_MODULUS)


def intro(game: Game) -> str:
    """The first observation: the room and the task."""
    return text.intro(game, initial_state(game))


def step(game: Game, state: State, command: str) -> tuple[State, str]:
    """Apply a command. One that is not admissible changes nothing and says `Nothing happens.`"""
    action = game.table.parse(command.strip())
    if action is None or not is_applicable(game, state, action):
        return state, NOTHING
    after = _apply(game, state, action)
    return after, text.feedback(game, after, action)


def admissible(game: Game, state: State) -> tuple[str, ...]:
    """Every command that does something here, sorted as strings."""
    table = game.table
    here, held, true = state.location, state.held, state.true
    commands = list(table.fixed[here])
    for index in game.receptacles_at[here]:
        receptacle = game.receptacles[index]
        inside = table.inside(true, index)
        is_open = not receptacle.is_openable
        if receptacle.is_openable:
            is_open = table.is_opened(true, index)
            commands.append(table.close[index] if is_open else table.open[index])
        if held < 0:
            if is_open:
                commands.extend(table.take(index, inside & table.pickupable))
        else:
            commands.extend(table.with_held(index, held, is_open))
        if inside & table.toggleable:
            commands.extend(table.use(inside & table.toggleable))
    if held >= 0:
        commands.append(table.examine_object[held])
        if game.objects[held].is_knife:
            commands.extend(table.slice(table.beside(true, here) & table.sliceable, held))
    return tuple(sorted(set(commands)))


def is_applicable(game: Game, state: State, action: Action) -> bool:
    """Whether an action's preconditions hold."""
    verb, thing, place = action
    if verb in ("look", "inventory", "help"):
        return True
    if verb == "go":
        return game.receptacles[place].location not in (None, state.location)
    if verb == "examine_object":
        return state.held == thing
    table = game.table
    if verb == "slice":
        beside = table.beside(state.true, state.location) & table.sliceable
        return state.held == place and game.objects[place].is_knife and bool(beside >> thing & 1)
    if verb == "use":
        return bool(game.objects[thing].is_toggleable and _is_here(game, state, thing))
    receptacle = game.receptacles[place]
    if receptacle.location != state.location:
        return False
    is_opened = table.is_opened(state.true, place)
    if verb == "open":
        return receptacle.is_openable and not is_opened
    if verb == "close":
        return receptacle.is_openable and is_opened
    if verb == "examine":
        return True
    is_accessible = is_opened or not receptacle.is_openable
    if verb == "take":
        takeable = table.inside(state.true, place) & table.pickupable
        return state.held < 0 and is_accessible and bool(takeable >> thing & 1)
    if state.held != thing:
        return False
    if verb == "move":
        return is_accessible and bool(table.fits[place] >> thing & 1)
    item = game.objects[thing]
    if verb == "clean":
        return item.is_cleanable and receptacle.is_sink
    if verb == "heat":
        return item.is_heatable and receptacle.is_microwave
    return item.is_coolable and receptacle.is_fridge


def is_won(game: Game, state: State) -> bool:
    """Whether the goal holds in this state."""
    return _holds(game.goal, state.true)


def facts(game: Game, state: State) -> frozenset[Fact]:
    """Every fact of the state as the stock engine lists it, with the names the player reads."""
    shown = set(game.static_facts)
    shown.update(game.atom_fact(atom) for atom in bits(state.true))
    for atom in bits(state.false):
        name, *arguments = game.atom_fact(atom)
        shown.add((f"not_{name}", *arguments))
    return frozenset(shown)


def _is_here(game: Game, state: State, thing: int) -> bool:
    """Whether an object is in a receptacle at the agent's location, be it closed."""
    table = game.table
    places = game.receptacles_at[state.location]
    return any(table.inside(state.true, place) >> thing & 1 for place in places)


def _apply(game: Game, state: State, action: Action) -> State:
    """The state after an applicable action."""
    added, deleted = _effects(game, state, action)
    true = state.true & ~deleted | added
    false = state.false & ~added | deleted
    digest = state.digest
    for atom in bits(true ^ state.true):
        change = _digest(game, atom)
        digest += change if true >> atom & 1 else -change
    for atom in bits(false ^ state.false):
        change = _deleted_digest(game, atom)
        digest += change if false >> atom & 1 else -change
    location, held = state.location, state.held
    verb, thing, place = action
    if verb == "go":
        target = game.receptacles[place].location
        location = location if target is None else target
    elif verb == "take":
        held = thing
    elif verb == "move":
        held = -1
    return State(location, held, true, false, digest % _DIGEST_MODULUS)


def _effects(game: Game, state: State, action: Action) -> tuple[int, int]:
    """Masks of the atoms that an action makes true and false."""
    verb, thing, place = action
    atoms = game.atoms
    if verb == "go":
        target = game.receptacles[place].location or 0
        return 1 << (atoms.at + target), 1 << (atoms.at + state.location)
    if verb == "look":
        return 1 << (atoms.seen_locations + state.location), 0
    if verb == "examine":
        return 1 << (atoms.seen_receptacles + place), 0
    if verb == "examine_object":
        return 1 << (atoms.seen_objects + thing), 0
    if verb == "open":
        return 1 << (atoms.opened + place) | 1 << (atoms.seen_receptacles + place), 0
    if verb == "close":
        return 0, 1 << (atoms.opened + place)
    if verb in ("take", "move"):
        in_hand = 1 << (atoms.held + thing) | 1 << atoms.holds_any
        inside = 1 << (atoms.inside + place * atoms.num_objects + thing)
        beside = 1 << (atoms.beside + state.location * atoms.num_objects + thing)
        if verb == "take":
            return in_hand, inside | beside & game.besides
        return inside | beside, in_hand
    first = atoms.flags + thing
    size = atoms.num_objects
    if verb == "clean":
        return 1 << (first + CLEAN * size), 0
    if verb == "heat":
        return 1 << (first + HOT * size), (game.coolable >> thing & 1) << (first + COOL * size)
    if verb == "cool":
        return 1 << (first + COOL * size), (game.heatable >> thing & 1) << (first + HOT * size)
    if verb == "use":
        return 1 << (first + TOGGLED * size), 1 << (first + ON * size)
    if verb == "slice":
        return 1 << (first + SLICED * size), 0
    return 1 << atoms.seen_agent, 0  # inventory, help


def _holds(condition: Condition, true: int) -> bool:
    head = condition[0]
    if head == "atom":
        return bool(true >> _int(condition[1]) & 1)
    if head == "and":
        return all(_holds(part, true) for part in condition[1:] if isinstance(part, tuple))
    if head == "or":
        return any(_holds(part, true) for part in condition[1:] if isinstance(part, tuple))
    return not any(_holds(part, true) for part in condition[1:] if isinstance(part, tuple))


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _digest(game: Game, atom: int) -> int:
    cache = game.table.digests
    if atom not in cache:
        cache[atom] = fact_digest(game.atom_fact(atom))
    return cache[atom]


def _deleted_digest(game: Game, atom: int) -> int:
    cache = game.table.deleted_digests
    if atom not in cache:
        name, *arguments = game.atom_fact(atom)
        cache[atom] = fact_digest((f"not_{name}", *arguments))
    return cache[atom]
