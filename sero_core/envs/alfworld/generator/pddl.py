"""A world as the text of a PDDL problem, and as the facts that an engine derives from that text."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sero_core.envs.alfworld.generator.compose import World
from sero_core.envs.alfworld.generator.rooms import LAMP, load_affordances

ALWAYS_OTYPES = ("ButterKnife", "Knife")
ALWAYS_RTYPES = ("Fridge", "Microwave", "SinkBasin")
"""Type constants that the domain itself names; a problem without them does not load."""

_PLACE_GOAL = """\
(:goal
    (and
        (exists (?r - receptacle)
            (exists (?o - object)
                (and
{lines}
                )
            )
        )
    )
)"""

_STATE_OF = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool"),
}

_TWO_GOAL = """\
(:goal
    (and
        (exists (?r - receptacle)
            (exists (?o1 - object)
                (and
                    (objectType ?o1 {target}Type)
                    (receptacleType ?r {parent}Type)
                    (inReceptacle ?o1 ?r)
                    (exists (?o2 - object)
                        (and
                            (not (= ?o1 ?o2))
                            (objectType ?o2 {target}Type)
                            (receptacleType ?r {parent}Type)
                            (inReceptacle ?o2 ?r)
                        )
                    )
                )
            )
        )
    )
)"""

_LIGHT_GOAL = """\
(:goal
    (and
        (exists (?ot - object ?r - receptacle ?a - agent ?l - location)
            (and
                (objectType ?ot {parent}Type)
                (toggleable ?ot)
                (isToggled ?ot)
                (receptacleAtLocation ?r ?l)
                (atLocation ?a ?l)
                (inReceptacle ?ot ?r)
            )
        )
        (exists (?o - object ?a - agent)
            (and
                (objectType ?o {target}Type)
                (holds ?a ?o)
            )
        )
    )
)"""


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem's text, and its initial facts under the names that a player sees."""

    text: str
    facts: frozenset[tuple[str, ...]]


def build_problem(world: World, name: str) -> Problem:
    """Write the problem of a world. Facts and text come from one list."""
    receptacle_ids = [_mangle(receptacle.name) for receptacle in world.receptacles]
    locations = [_mangle(receptacle.location) for receptacle in world.receptacles]
    object_ids = _object_ids(world)
    start = _free_location(set(locations))
    init = _init_facts(world, receptacle_ids, locations, object_ids, start)
    otypes = sorted({f"{o.kind}Type" for o in world.objects} | {f"{k}Type" for k in ALWAYS_OTYPES})
    rtypes = sorted(
        {f"{r.kind}Type" for r in world.receptacles} | {f"{k}Type" for k in ALWAYS_RTYPES}
    )
    declared = [
        "agent1 - agent",
        *(f"{name} - object" for name in object_ids),
        *(f"{name} - otype" for name in otypes),
        *(f"{name} - rtype" for name in rtypes),
        *(f"{name} - receptacle" for name in receptacle_ids),
        *(f"{name} - location" for name in sorted({*locations, start})),
    ]
    text = "\n".join(
        [
            f"(define (problem {name})",
            "(:domain alfred)",
            "(:objects",
            *(f"    {line}" for line in declared),
            ")",
            "(:init",
            *(f"    ({' '.join(fact)})" for fact in init),
            ")",
            goal_text(world),
            ")",
            "",
        ]
    )
    names = display_names([*receptacle_ids, *object_ids, *locations, start])
    facts = frozenset(
        (fact[0].lower(), *(names.get(arg, arg.lower()) for arg in fact[1:])) for fact in init
    )
    return Problem(text, facts)


def goal_text(world: World) -> str:
    """The goal in the official wording: every condition is by type, any instance counts."""
    if world.task_type == "pick_two_obj_and_place":
        return _TWO_GOAL.format(target=world.target, parent=world.parent)
    if world.task_type == "look_at_obj_in_light":
        return _LIGHT_GOAL.format(target=world.target, parent=world.parent)
    types = [f"(objectType ?o {world.target}Type)", f"(receptacleType ?r {world.parent}Type)"]
    if world.task_type == "pick_and_place_simple":
        conditions = ["(inReceptacle ?o ?r)", *types]
    else:
        able, state = _STATE_OF[world.task_type]
        conditions = [f"({able} ?o)", *types, f"({state} ?o)", "(inReceptacle ?o ?r)"]
    return _PLACE_GOAL.format(lines="\n".join(f"{' ' * 20}{line}" for line in conditions))


def display_names(ids: list[str]) -> dict[str, str]:
    """ALFWorld's names: per class, numbers run against the sorted order of the (lower-case) ids."""
    by_class: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(ids), key=str.lower):
        kind = name.lower().split("_bar_", 1)[0]
        by_class[f"{kind}basin" if "basin" in name.lower() else kind].append(name)
    return {
        name: f"{kind} {len(members) - index}"
        for kind, members in by_class.items()
        for index, name in enumerate(members)
    }


def _init_facts(
    world: World, receptacle_ids: list[str], locations: list[str], object_ids: list[str], start: str
) -> list[tuple[str, ...]]:
    can = load_affordances()
    kinds = sorted({o.kind for o in world.objects})
    init: list[tuple[str, ...]] = [("atLocation", "agent1", start)]
    for receptacle, name, location in zip(
        world.receptacles, receptacle_ids, locations, strict=True
    ):
        init.append(("receptacleType", name, f"{receptacle.kind}Type"))
        init.append(("receptacleAtLocation", name, location))
        if receptacle.is_openable:
            init.append(("openable", name))
    for kind in sorted({receptacle.kind for receptacle in world.receptacles}):
        contained = can.contains.get(kind, frozenset())
        init += [("canContain", f"{kind}Type", f"{o}Type") for o in kinds if o in contained]
    for placed, name in zip(world.objects, object_ids, strict=True):
        init.append(("objectType", name, f"{placed.kind}Type"))
        init.append(("inReceptacle", name, receptacle_ids[placed.receptacle]))
        init.append(("objectAtLocation", name, locations[placed.receptacle]))
        properties = {
            "pickupable": placed.kind != LAMP,
            "toggleable": placed.kind in can.toggleable,
            "isReceptacleObject": placed.kind in can.receptacle_objects,
            "cleanable": placed.kind in can.cleanable,
            "heatable": placed.kind in can.heatable,
            "coolable": placed.kind in can.coolable,
            "sliceable": placed.kind in can.sliceable,
        }
        init += [(predicate, name) for predicate, is_true in properties.items() if is_true]
    return init


def _object_ids(world: World) -> list[str]:
    """ALFRED-style ids: the class and a position beside its receptacle, unique by two digits."""
    ids: list[str] = []
    for index, placed in enumerate(world.objects):
        _, x, y, z = world.receptacles[placed.receptacle].name.split("|")[:4]
        ids.append(_mangle(f"{placed.kind}|{x}{index:02d}|{y}|{z}"))
    return ids


def _free_location(taken: set[str]) -> str:
    """Where the player starts: the middle of the room, a viewpoint that faces no receptacle."""
    for tilt in (30, 0, 45, 15, 60):
        location = _mangle(f"loc|0|0|0|{tilt}")
        if location not in taken:
            return location
    raise ValueError("every viewpoint in the middle of the room faces a receptacle")


def _mangle(name: str) -> str:
    """ALFRED ids as PDDL symbols."""
    for sign, word in (("|", "_bar_"), ("-", "_minus_"), ("+", "_plus_"), (".", "_dot_")):
        name = name.replace(sign, word)
    return name
