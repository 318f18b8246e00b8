"""What the planner reads: the goal, and one state of the ALFRED domain under display names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

Facts = Iterable[tuple[str, ...]]

LIGHT = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"
SIMPLE = "pick_and_place_simple"
CHANGES = {
    "pick_clean_then_place_in_recep": ("clean", "sinkbasin", "cleanable", "isclean"),
    "pick_heat_then_place_in_recep": ("heat", "microwave", "heatable", "ishot"),
    "pick_cool_then_place_in_recep": ("cool", "fridge", "coolable", "iscool"),
}
"""Task type -> verb, appliance class, what the object must allow, what it must become."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Lower-case classes; the parent of look_at_obj_in_light is a lamp."""

    task_type: str
    target: str
    parent: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The facts that no action changes, under display names in natural order."""

    receptacle_kind: dict[str, str]
    object_kind: dict[str, str]
    location: dict[str, str]
    openable: frozenset[str]
    can_contain: frozenset[tuple[str, str]]
    able: frozenset[tuple[str, str]]
    """(predicate, object) for pickupable, cleanable, heatable, coolable, toggleable."""

    @classmethod
    def from_facts(cls, facts: Facts) -> Layout:
        by_name: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for name, *args in facts:
            by_name[name].append(tuple(arg.strip() for arg in args))
        kinds = sorted(by_name["receptacletype"], key=lambda pair: natural(pair[0]))
        objects = sorted(by_name["objecttype"], key=lambda pair: natural(pair[0]))
        abilities = ("pickupable", "cleanable", "heatable", "coolable", "toggleable")
        return cls(
            receptacle_kind={name: kind.removesuffix("type") for name, kind in kinds},
            object_kind={name: kind.removesuffix("type") for name, kind in objects},
            location={args[0]: args[1] for args in by_name["receptacleatlocation"]},
            openable=frozenset(args[0] for args in by_name["openable"]),
            can_contain=frozenset(
                (args[0].removesuffix("type"), args[1].removesuffix("type"))
                for args in by_name["cancontain"]
            ),
            able=frozenset((name, args[0]) for name in abilities for args in by_name[name]),
        )

    def fits(self, name: str, receptacle: str) -> bool:
        pair = (self.receptacle_kind[receptacle], self.object_kind.get(name, ""))
        return pair in self.can_contain


@dataclass(frozen=True, slots=True)
class State:
    """One state: the layout and what the actions have changed so far."""

    layout: Layout
    place: str
    """The agent's location."""
    held: str | None
    opened: frozenset[str]
    inside: dict[str, tuple[str, ...]]
    """Object -> its receptacles. Real games have objects in two receptacles at once."""
    marks: frozenset[tuple[str, str]]
    """(predicate, object) for isclean, ishot, iscool, istoggled."""

    @classmethod
    def from_facts(cls, facts: Facts, layout: Layout | None = None) -> State:
        """Read a state. Give the game's `layout` to skip the facts that never change."""
        facts = frozenset(facts)
        layout = Layout.from_facts(facts) if layout is None else layout
        place, held = "", None
        opened: list[str] = []
        marks: list[tuple[str, str]] = []
        inside: dict[str, list[str]] = defaultdict(list)
        for fact in facts:
            match fact[0]:
                case "inreceptacle":
                    inside[fact[1].strip()].append(fact[2].strip())
                case "isclean" | "ishot" | "iscool" | "istoggled":
                    marks.append((fact[0], fact[1].strip()))
                case "opened":
                    opened.append(fact[1].strip())
                case "atlocation":
                    place = fact[2].strip()
                case "holds":
                    held = fact[2].strip()
                case _:
                    pass
        places = {name: tuple(sorted(values, key=natural)) for name, values in inside.items()}
        return cls(layout, place, held, frozenset(opened), places, frozenset(marks))

    def is_closed(self, receptacle: str) -> bool:
        return receptacle in self.layout.openable and receptacle not in self.opened


def natural(name: str) -> tuple[str, int]:
    """Sort key under which "drawer 2" comes before "drawer 10"."""
    kind, _, number = name.rpartition(" ")
    return (kind, int(number)) if number.isdigit() else (name, 0)
