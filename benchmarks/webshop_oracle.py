"""Success of the webshop oracle by depth, from states of random walks.

Run: python benchmarks/webshop_oracle.py [--shop FOLDER] [--products 1000] [--goals human]
     [--reward fixed] [--states 3000] [--depths 0 2 5 10 14] [--json FILE]
Without --shop it plays a generated catalogue. Goals are drawn from the solvable ones, evenly over
products. A walk clicks, pages, searches for a few words of its own goal, sometimes for anything
else, and types nonsense; a purchase is taken back. `won`: reward 1.0; `steps`: mean and longest
way; `instruction`: share of states whose query is made of the instruction's words alone;
`ms`: CPU time of one decision.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from sero_core.config import WebShopEnv as WebShopConfig
from sero_core.envs import shop_folder
from sero_core.envs.webshop.env import WebShopEnv
from sero_core.envs.webshop.goals import Goal
from sero_core.envs.webshop.shop import Shop
from sero_core.envs.webshop.source import make_env
from sero_core.envs.webshop.tasks import make_task
from sero_core.oracles.webshop import Shopper
from sero_core.types import Observation, OracleError, Prefix, Task

NONSENSE = ("", "buy now", "click[search]", "search[]", "think search[it]", "click[no such thing]")
MAX_STEPS = 30
WIDTHS = (6, 7, 7, 6, 4, 12, 6)


@dataclass
class Tally:
    """What happened from the states of one depth."""

    lengths: list[int] = field(default_factory=list)
    num_states: int = 0
    seconds: float = 0.0
    notes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shop", default="")
    parser.add_argument("--products", type=int, default=1000)
    parser.add_argument("--goals", default="synthetic", choices=("synthetic", "human"))
    parser.add_argument("--reward", default="original", choices=("original", "fixed"))
    parser.add_argument("--states", type=int, default=3000)
    parser.add_argument("--depths", nargs="+", type=int, default=(0, 2, 5, 10, 14))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    config = WebShopConfig.model_validate(
        {
            "data_root": args.shop,
            "catalogue": {"num_products": args.products},
            "goals": args.goals,
            "reward": args.reward,
        }
    )
    report(measure(config, args.states, args.depths, random.Random(args.seed)), args.json)


def measure(
    config: WebShopConfig, num_states: int, depths: list[int], rng: random.Random
) -> dict[int, Tally]:
    folder = shop_folder(config)
    shop, env = Shop.open(folder), make_env(config)
    by_product: dict[int, list[Goal]] = {}
    for goal in shop.goals(config.goals):
        if goal.is_solvable if config.reward == "original" else goal.is_solvable_fixed:
            by_product.setdefault(goal.product, []).append(goal)
    goals = list(by_product.values())
    print(f"{shop.num_products} products, {sum(map(len, goals))} solvable goals of {len(goals)}")
    tallies = {depth: Tally() for depth in depths}
    for number in range(num_states):
        goal = rng.choice(rng.choice(goals))
        task = make_task(shop, goal, "train", folder)
        depth = depths[number % len(depths)]
        observation = walk(env, task, goal, depth, rng)
        play(env, task, observation, tallies[depth])
    return tallies


def walk(env: WebShopEnv, task: Task, goal: Goal, depth: int, rng: random.Random) -> Observation:
    observation = env.reset(task)
    words = goal.instruction_text.split()
    for _ in range(depth):
        clicks = [action for action in observation.admissible if action.startswith("click")]
        action = rng.choice(clicks) if clicks else ""
        if rng.random() < 0.1:
            action = rng.choice(NONSENSE)
        elif not clicks or rng.random() < 0.1:
            start = rng.randrange(len(words))
            query = " ".join(words[start : start + rng.randint(1, 5)])
            action = f"search[{query if rng.random() < 0.8 else 'item_page search_results'}]"
        before = env.snapshot()
        observation = env.step(action)
        if observation.is_terminated:
            observation = env.restore(before)
    return observation


def play(env: WebShopEnv, task: Task, observation: Observation, tally: Tally) -> None:
    oracle, actions = Shopper(), env.snapshot().actions
    tally.num_states += 1
    num_steps = 0
    try:
        oracle.start(Prefix(task, (), observation, env))
        while not observation.is_terminated and num_steps < MAX_STEPS:
            begin = time.process_time()
            action = oracle.act(observation)
            tally.seconds += time.process_time() - begin
            observation = env.step(action)
            num_steps += 1
    except OracleError as error:
        tally.failures.append(f"{task.task_id} after {actions}: {error.reason}")
        return
    tally.notes[oracle.note] += 1
    if observation.is_won:
        tally.lengths.append(num_steps)
    else:
        tally.failures.append(f"{task.task_id} after {actions}: not won in {num_steps} steps")


def report(tallies: dict[int, Tally], out: Path | None) -> None:
    rows: list[dict[str, float]] = []
    heads = ("depth", "states", "won", "steps", "max", "instruction", "ms")
    print(" ".join(f"{head:>{width}}" for head, width in zip(heads, WIDTHS, strict=True)))
    for depth, tally in sorted(tallies.items()):
        lengths, count = tally.lengths or [0], max(1, tally.num_states)
        row = {
            "depth": depth,
            "num_states": tally.num_states,
            "won": len(tally.lengths) / count,
            "mean_steps": sum(lengths) / len(lengths),
            "max_steps": max(lengths),
            "instruction": tally.notes["query from the instruction"] / count,
            "ms": 1000 * tally.seconds / max(1, sum(lengths)),
        }
        rows.append(row)
        print(
            f"{depth:>6} {tally.num_states:>7} {row['won']:>7.2%} {row['mean_steps']:>6.2f} "
            f"{row['max_steps']:>4} {row['instruction']:>12.1%} {row['ms']:>6.2f}"
        )
    num_won = sum(len(tally.lengths) for tally in tallies.values())
    num_steps = sum(sum(tally.lengths) for tally in tallies.values())
    num_states = sum(tally.num_states for tally in tallies.values())
    print(f"{num_won} of {num_states} won, {num_steps / max(1, num_won):.2f} steps on average")
    for failure in [failure for tally in tallies.values() for failure in tally.failures][:20]:
        print(f"  {failure}")
    if out is not None:
        out.write_text(json.dumps({"rows": rows, "num_won": num_won, "num_states": num_states}))


if __name__ == "__main__":
    main()
