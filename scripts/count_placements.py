"""Write placements.json: how often a class of object starts in a class of receptacle.

Counted over the games of the ALFWorld train split (aggregate numbers, no game's content):
`{object class: {receptacle class: [a, b]}}`, where `a` objects of the class start in receptacles of
the class, and games with such an object have `b` such receptacles in all. The generator draws from
`a`, so that objects lie where they usually lie; the explorer looks where `a / b` is high.

Run: python scripts/count_placements.py DATA_ROOT/json_2.1.1/train [OUT_FILE]
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

OUT = Path(__file__).parent.parent / "sero_core" / "envs" / "alfworld" / "data" / "placements.json"
FACT = re.compile(r"\((receptacleType|receptacleAtLocation|objectType|inReceptacle) (\S+) (\S+?)\)")


def main() -> None:
    root = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else OUT
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    chances: dict[str, Counter[str]] = defaultdict(Counter)
    games = sorted(root.glob("*/*/game.tw-pddl"))
    for path in games:
        receptacles, placements = starting_places(path)
        for object_class, receptacle_class in placements:
            counts[object_class][receptacle_class] += 1
        for object_class in {object_class for object_class, _ in placements}:
            chances[object_class].update(receptacles)
    table = {
        name: {kind: [count, chances[name][kind]] for kind, count in sorted(counter.items())}
        for name, counter in sorted(counts.items())
    }
    text = json.dumps(table, separators=(",", ":"), sort_keys=True).replace("},", "},\n")
    out.write_text(text + "\n", encoding="utf-8", newline="\n")
    print(f"{out}: {len(games)} games, {len(table)} classes")


def starting_places(path: Path) -> tuple[Counter[str], list[tuple[str, str]]]:
    """The receptacles per class, and (object class, receptacle class) of every placed object."""
    problem = json.loads(path.read_text(encoding="utf-8"))["pddl_problem"]
    init = problem[problem.index("(:init") : problem.index("(:goal")]
    kind: dict[str, str] = {}
    inside: list[tuple[str, str]] = []
    located: list[str] = []
    for predicate, first, second in FACT.findall(init):
        if predicate == "inReceptacle":
            inside.append((first, second))
        elif predicate == "receptacleAtLocation":
            located.append(first)
        else:
            kind[first] = second.removesuffix("Type")
    receptacles = Counter(kind[name] for name in located)
    return receptacles, [(kind[o], kind[r]) for o, r in inside]


if __name__ == "__main__":
    main()
