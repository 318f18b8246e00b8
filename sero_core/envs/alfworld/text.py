"""What the player reads: the words of ALFWorld's text grammar for each action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sero_core.envs.alfworld.commands import Action, bits
from sero_core.envs.alfworld.game import CLEAN, COOL, HOT, SLICED, TOGGLED, Game

if TYPE_CHECKING:
    from sero_core.envs.alfworld.native import State

TASK_PREFIX: Final = "Your task is to: "

_HELP: Final = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


def task_text(observation: str) -> str:
    """The goal sentence of an intro, e.g. `put a clean mug in cabinet.`"""
    _, found, sentence = observation.partition(TASK_PREFIX)
    if not found:
        raise ValueError(f"no task sentence in the observation {observation[:80]!r}")
    return sentence.strip()


def intro(game: Game, state: State) -> str:
    """The first observation."""
    room = look(game, state)
    if not game.receptacles_at[state.location]:
        names = [_a(place.name) for place in game.receptacles if place.location is not None]
        room = _middle(names)
    return f"-= Welcome to TextWorld, ALFRED! =-\n\n{room}\n\n{TASK_PREFIX}{game.task_text}"


def feedback(game: Game, after: State, action: Action) -> str:
    """The observation of an action that was applied and led to `after`."""
    verb, thing, place = action
    if verb == "look":
        return look(game, after)
    if verb == "help":
        return _HELP
    if verb == "inventory":
        if after.held < 0:
            return "You are not carrying anything."
        return f"You are carrying: {_a(game.objects[after.held].name)}."
    if verb == "examine_object":
        return _object(game, after, thing)
    if verb == "slice":
        return f"You sliced the {game.objects[thing].name} with the {game.objects[place].name}."
    item = game.objects[thing].name
    if verb == "use":
        return f"You turn on the {item}."
    receptacle = game.receptacles[place].name
    simple = {
        "close": f"You close the {receptacle}.",
        "take": f"You pick up the {item} from the {receptacle}.",
        "move": f"You move the {item} to the {receptacle}.",
        "clean": f"You clean the {item} using the {receptacle}.",
        "heat": f"You heat the {item} using the {receptacle}.",
        "cool": f"You cool the {item} using the {receptacle}.",
    }
    if verb in simple:
        return simple[verb]
    contents = _receptacle(game, after, place)
    if verb == "go":
        return f"You arrive at {receptacle}. {contents}"
    return f"You open the {receptacle}. {contents}" if verb == "open" else contents


def look(game: Game, state: State) -> str:
    """The text of `look`. Away from every receptacle it lists nothing, as the stock engine does."""
    places = game.receptacles_at[state.location]
    if not places:
        return _middle([])
    names = [game.receptacles[index].name for index in places]
    taken_out = [
        _a(game.objects[thing].name)
        for thing in bits(game.table.beside(state.true, state.location))
        for index in places
        if game.table.inside(state.false, index) >> thing & 1
    ]
    return f"You are facing the {_list(names)}. Next to it, you see {_list(taken_out)}."


def _middle(names: list[str]) -> str:
    seen = _list(names)
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."


def _receptacle(game: Game, state: State, index: int) -> str:
    receptacle = game.receptacles[index]
    is_opened = game.table.is_opened(state.true, index)
    if receptacle.is_openable and not is_opened:
        return f"The {receptacle.name} is closed."
    things = bits(game.table.inside(state.true, index))
    contents = _list([_a(game.objects[thing].name) for thing in things])
    if receptacle.is_openable:
        return f"The {receptacle.name} is open. In it, you see {contents}."
    return f"On the {receptacle.name}, you see {contents}."


def _object(game: Game, state: State, index: int) -> str:
    """The text of `examine <object>`: the first description whose condition holds."""
    thing = game.objects[index]
    if thing.is_container:
        inner = _list([_a(game.objects[inside].name) for inside in thing.contents])
        return f"This is a normal {thing.name}. In it, you see {inner}."

    def has(flag: int) -> bool:
        atoms = game.atoms
        return bool(state.true >> (atoms.flags + flag * atoms.num_objects + index) & 1)

    sliced = "sliced " if has(SLICED) else ""
    if has(CLEAN) and has(HOT):
        return f"This is a hot and clean {sliced}{thing.name}."
    if has(CLEAN) and has(COOL):
        return f"This is a cool and clean {sliced}{thing.name}."
    if sliced and (has(CLEAN) or has(HOT) or has(COOL)):
        quality = "clean" if has(CLEAN) else "hot" if has(HOT) else "cool"
        return f"This is a {quality} {sliced}{thing.name}."
    if has(HOT):
        return f"This is a hot {thing.name}."
    if has(CLEAN):
        return f"This is a clean {thing.name}."
    if has(COOL):
        return f"This is a cold {thing.name}."
    if thing.is_toggleable and has(TOGGLED):
        return f"This {thing.name} is on."
    if thing.is_sliceable and sliced:
        return f"This is a sliced {thing.name}."
    return f"There's nothing special about {thing.name}."


def _a(name: str) -> str:
    return f"a {name}"


def _list(names: list[str]) -> str:
    """`a, b, and c`; two names are `a, and b`; none is `nothing`."""
    if len(names) < 2:
        return names[0] if names else "nothing"
    return f"{', '.join(names[:-1])}, and {names[-1]}"
