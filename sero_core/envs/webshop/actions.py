"""What an agent may type, read as the original engine reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sero_core.types import Observation

SEARCH: Final = "search"
CLICK: Final = "click"
OPEN_SEARCH: Final = "search[<your query>]"
"""How the list of admissible actions names the search, whose text is free."""
_ACTION: Final = re.compile(r"(.+)\[(.+)\]")


@dataclass(frozen=True, slots=True)
class Action:
    """`name[argument]`; the argument is lower-cased, the name is taken as it is."""

    name: str
    argument: str


def parse_action(text: str) -> Action | None:
    """The action that a text starts with; None where there is none.

    The match is greedy and stops at a line's end: text after the last "]" of the first line is
    ignored, text before the name becomes part of it (and makes it unknown), an argument that
    holds "[" is cut there.
    """
    found = _ACTION.match(text)
    return None if found is None else Action(found[1], found[2].lower())


def click(text: str) -> str:
    """The action that clicks on something."""
    return f"{CLICK}[{text}]"


def search(query: str) -> str:
    """The action that searches."""
    return f"{SEARCH}[{query}]"


@lru_cache(maxsize=65_536)
def is_typable(text: str) -> bool:
    """Whether a click on this text can be written at all: not with "[" or a line break in it."""
    return parse_action(click(text)) == Action(CLICK, text)


def is_admissible(observation: Observation, text: str) -> bool:
    """Whether the engine acts on a text in the state that was observed.

    The list of admissible actions holds every click, but the search only where a page offers it;
    the engine searches from any page before the purchase.
    """
    action = parse_action(text)
    if action is None or observation.is_terminated:
        return False
    if action.name == SEARCH:
        return True
    return action.name == CLICK and click(action.argument) in observation.admissible
