"""`python -m sero_core.envs.alfworld.generator --out DIR --seed 1 --train 100 …`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from sero_core.envs.alfworld.generator import DIFFICULTIES, TASK_TYPES, generate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sero_core.envs.alfworld.generator")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--difficulty", choices=DIFFICULTIES, default="small")
    parser.add_argument("--train", type=int, default=0)
    parser.add_argument("--valid-seen", type=int, default=0)
    parser.add_argument("--valid-unseen", type=int, default=0)
    parser.add_argument("--task-types", nargs="+", choices=TASK_TYPES, default=TASK_TYPES)
    args = parser.parse_args()
    counts = {
        "train": args.train,
        "valid_seen": args.valid_seen,
        "valid_unseen": args.valid_unseen,
    }
    started = time.perf_counter()
    report = generate(
        args.out,
        seed=args.seed,
        difficulty=args.difficulty,
        counts={split: count for split, count in counts.items() if count > 0},
        task_types=args.task_types,
    )
    num_games = sum(report.num_games.values())
    seconds = time.perf_counter() - started
    sys.stdout.write(
        f"{report.root}: {report.num_games}, mean plan {report.mean_plan_length:.1f} steps, "
        f"{1000 * seconds / max(num_games, 1):.1f} ms per game\n"
    )


if __name__ == "__main__":
    main()
