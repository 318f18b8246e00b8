"""Write placements.json: how often a class of object starts in a class of receptacle.

Counted over the games of the ALFWorld train split (aggregate numbers, no game's content). The
generator draws from these counts, so that objects lie where they usually lie; the explorer looks in
that order.

Run: python scripts/count_placements.py DATA_ROOT/json_2.1.1/train [OUT_FILE]
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

OUT = Path(__file__).parent.parent / "sero_core" / "envs" / "alfworld" / "data" / "placements.json"
FACT = re.compile(r"\((receptacleType|objectType|inReceptacle) (\S+) (\S+?)\)")


def main() -> None:
    root = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else OUT
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    rooms: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    games = sorted(root.glob("*/*/game.tw-pddl"))
    for path in games:
        scene = path.parent.parent.name.rsplit("-", 1)[1]
        placements = starting_places(path)
        if (scene, placements) in rooms:  # several tasks share one initial state
            continue
        rooms.add((scene, placements))
        for object_class, receptacle_class in placements:
            counts[object_class][receptacle_class] += 1
    table = {name: dict(sorted(counter.items())) for name, counter in sorted(counts.items())}
    out.write_text(json.dumps(table, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{out}: {len(games)} games, {len(rooms)} distinct rooms, {len(table)} classes")


def starting_places(path: Path) -> tuple[tuple[str, str], ...]:
    problem = json.loads(path.read_text(encoding="utf-8"))["pddl_problem"]
    init = problem[problem.index("(:init") : problem.index("(:goal")]
    kind: dict[str, str] = {}
    inside: list[tuple[str, str]] = []
    for predicate, first, second in FACT.findall(init):
        if predicate == "inReceptacle":
            inside.append((first, second))
        else:
            kind[first] = second.removesuffix("Type")
    return tuple(sorted((kind[o], kind[r]) for o, r in inside))


if __name__ == "__main__":
    main()
