"""Write floorplans.json and affordances.json from the alfworld wheel (alfworld 0.4.2, MIT).

The generator works without the wheel, so the facts it needs are package data: which receptacles
stand where in ALFRED's 120 rooms, which object classes occur there, what each class allows.

Run: python scripts/extract_floorplans.py [OUT_DIR]
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

ROOMS = {"kitchen": 1, "living": 201, "bedroom": 301, "bathroom": 401}
ROOMS_PER_KIND = 30
OUT = Path(__file__).parent.parent / "sero_core" / "envs" / "alfworld" / "data"


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    spec = importlib.util.find_spec("alfworld")
    if spec is None or spec.origin is None:
        raise SystemExit("alfworld is not installed: pip install alfworld==0.4.2")
    gen = Path(spec.origin).parent / "gen"
    constants = load_constants(gen / "constants.py")
    _write(out / "affordances.json", affordances(constants))
    known = set(constants.VAL_RECEPTACLE_OBJECTS)
    scenes = {
        str(number): floorplan(gen / "layouts", number, known)
        for first in ROOMS.values()
        for number in range(first, first + ROOMS_PER_KIND)
    }
    _write(out / "floorplans.json", {"rooms": ROOMS, "scenes": scenes})


def load_constants(path: Path) -> ModuleType:
    """alfworld.gen.constants without alfworld/__init__, which writes to the user's cache."""
    spec = importlib.util.spec_from_file_location("alfworld_constants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def affordances(constants: ModuleType) -> dict[str, object]:
    """Classes by what can be done with them; without sliced variants, which no game has."""

    def plain(classes: set[str]) -> list[str]:
        return sorted(c for c in classes if not c.endswith("Sliced"))

    movable = set(constants.MOVABLE_RECEPTACLES)
    contains = {
        receptacle: plain(objects)
        for receptacle, objects in sorted(constants.VAL_RECEPTACLE_OBJECTS.items())
        if receptacle not in movable
    }
    actions = constants.VAL_ACTION_OBJECTS
    return {
        "contains": contains,
        "openable": plain(set(constants.OPENABLE_CLASS_LIST) - movable),
        "receptacle_objects": plain(movable),
        "cleanable": plain(actions["Cleanable"]),
        "heatable": plain(actions["Heatable"]),
        "coolable": plain(actions["Coolable"]),
        "sliceable": plain(actions["Sliceable"]),
        "toggleable": plain(actions["Toggleable"]),
    }


def floorplan(layouts: Path, number: int, known: set[str]) -> dict[str, object]:
    """Receptacle id -> [x, z, rotation, horizon] of its viewpoint; the room's object classes."""
    openable = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text())
    objects = json.loads((layouts / f"FloorPlan{number}-objects.json").read_text())
    receptacles = {
        name: pose for name, pose in sorted(openable.items()) if _class_of(name) in known
    }
    return {"receptacles": receptacles, "objects": sorted(set(objects))}


def _class_of(name: str) -> str:
    """`Sink|x|y|z|SinkBasin` is a SinkBasin; a basin under another prefix would be misnamed."""
    parts = name.split("|")
    if len(parts) == 4:
        return parts[0]
    return parts[4] if parts[4] == f"{parts[0]}Basin" else ""


def _write(path: Path, content: object) -> None:
    lines = json.dumps(content, indent=None, separators=(",", ":"), sort_keys=True)
    path.write_text(lines.replace("},", "},\n") + "\n", encoding="utf-8", newline="\n")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
