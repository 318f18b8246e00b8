"""What a player can know from the texts of an episode: places, contents, what is held and changed.

Only observations count: the text says what happened, and the admissible actions say what is in
reach (`take mug 2 from shelf 1`: the mug is there; `open drawer 3`: it is here and closed).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sero_core.envs.alfworld.plan_state import natural
from sero_core.types import Observation, OracleError

_NAME = r"[a-z]+ \d+"
_INTRO = re.compile(r"looking quickly around you, you see ([^\n]*)", re.IGNORECASE)
_SEEN = re.compile(
    rf"(?:On the ({_NAME}), you see|The ({_NAME}) is open\. In it, you see) ([^\n]*)"
)
_LISTED = re.compile(rf"\ban? ({_NAME})")
_PICKED = re.compile(rf"You pick up the ({_NAME}) from the ({_NAME})\.")
_MOVED = re.compile(rf"You move the ({_NAME}) to the ({_NAME})\.")
_CHANGED = re.compile(rf"You (heat|clean|cool) the ({_NAME}) using the ({_NAME})\.")
_TURNED_ON = re.compile(rf"You turn on the ({_NAME})\.")
_EXAMINED = re.compile(rf"This is a ([a-z ]+?) ({_NAME})\.")
_CARRIED = re.compile(rf"You are carrying: an? ({_NAME})")
_TAKE = re.compile(rf"take ({_NAME}) from ({_NAME})")
_MOVE = re.compile(rf"move ({_NAME}) to ({_NAME})")
_EXAMINE = re.compile(rf"examine ({_NAME})")
_USE = re.compile(rf"use ({_NAME})")

_MARK_OF_VERB = {"heat": "hot", "clean": "clean", "cool": "cool"}
_MARK_OF_WORD = {"hot": "hot", "clean": "clean", "cool": "cool", "cold": "cool"}


@dataclass(slots=True)
class Belief:
    """Grows with every observation. `receptacles` in natural order; `contents`: the last view.

    `looked_into` holds receptacles whose whole content was shown at least once; `here` are those at
    the player's location; `refused` are (object class, receptacle class) pairs that did not fit.
    """

    receptacles: tuple[str, ...] = ()
    here: tuple[str, ...] = ()
    held: str | None = None
    contents: dict[str, set[str]] = field(default_factory=dict)
    looked_into: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    marks: set[tuple[str, str]] = field(default_factory=set)
    turned_on: set[str] = field(default_factory=set)
    refused: set[tuple[str, str]] = field(default_factory=set)
    usable: set[str] = field(default_factory=set)

    def begin(self, first: Observation) -> None:
        """Read the receptacles of the room from the first observation."""
        match = _INTRO.search(first.text)
        if match is None:
            raise OracleError("the prefix does not begin with the room's description")
        self.receptacles = tuple(sorted(_LISTED.findall(match.group(1)), key=natural))
        self.contents = {name: set() for name in self.receptacles}

    def update(self, observation: Observation) -> None:
        self._read_text(observation.text)
        self._read_admissible(observation.admissible)

    def places_of(self, kind: str) -> list[tuple[str, str]]:
        """(object, receptacle) for every known object of the class, by receptacle."""
        return [
            (name, receptacle)
            for receptacle in self.receptacles
            for name in sorted(self.contents[receptacle], key=natural)
            if kind_of(name) == kind
        ]

    def forget(self, name: str, receptacle: str) -> None:
        self.contents[receptacle].discard(name)

    def _read_text(self, text: str) -> None:
        for match in _PICKED.finditer(text):
            self.held = match.group(1)
            self.contents[match.group(2)].discard(match.group(1))
        for match in _MOVED.finditer(text):
            self.held = None
            self.contents[match.group(2)].add(match.group(1))
        for match in _SEEN.finditer(text):
            receptacle = match.group(1) or match.group(2)
            self.contents[receptacle] = set(_LISTED.findall(match.group(3)))
            self.looked_into.add(receptacle)
        for match in _CHANGED.finditer(text):
            mark = _MARK_OF_VERB[match.group(1)]
            self.marks.discard(("cool" if mark == "hot" else "hot", match.group(2)))
            self.marks.add((mark, match.group(2)))
        for match in _EXAMINED.finditer(text):
            words = match.group(1).split()
            self.marks |= {
                (_MARK_OF_WORD[word], match.group(2)) for word in words if word in _MARK_OF_WORD
            }
        self.turned_on |= set(_TURNED_ON.findall(text))
        carried = _CARRIED.search(text)
        if carried is not None:
            self.held = carried.group(1)

    def _read_admissible(self, admissible: tuple[str, ...]) -> None:
        examinable = {m.group(1) for m in map(_EXAMINE.fullmatch, admissible) if m}
        self.here = tuple(name for name in self.receptacles if name in examinable)
        takes = [m.groups() for m in map(_TAKE.fullmatch, admissible) if m]
        moves = [m.groups() for m in map(_MOVE.fullmatch, admissible) if m]
        self.usable = {m.group(1) for m in map(_USE.fullmatch, admissible) if m}
        for receptacle in self.here:
            if f"open {receptacle}" in admissible:
                self.closed.add(receptacle)
                self.opened.discard(receptacle)
            elif f"close {receptacle}" in admissible:
                self.opened.add(receptacle)
                self.closed.discard(receptacle)
        for name, receptacle in takes:
            self.contents[receptacle].add(name)
        if moves:
            self.held = moves[0][0]
        if takes:
            self.held = None
        self._note_lamps()
        self._learn_from_silence({receptacle for _, receptacle in moves})

    def _note_lamps(self) -> None:
        """A lamp in reach stands in some receptacle here; which one makes no difference."""
        known = {name for receptacle in self.here for name in self.contents[receptacle]}
        for lamp in self.usable - known:
            self.contents[self.here[0]].add(lamp)

    def _learn_from_silence(self, fitting: set[str]) -> None:
        """An empty hand is offered all there is; a full hand is offered every place that fits."""
        for receptacle in self.here:
            if receptacle in self.closed:
                continue
            if self.held is None:
                self.looked_into.add(receptacle)
            elif receptacle not in fitting:
                self.refused.add((kind_of(self.held), kind_of(receptacle)))


def kind_of(name: str) -> str:
    """The class in a display name: `soapbottle 2` is a soapbottle."""
    return name.rpartition(" ")[0]
